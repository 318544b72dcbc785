//! stub
use clap::Args;
use super::say::Say;
use crate::client::Client;
#[derive(Debug, Args)]
pub(crate) struct TopArgs {}
pub(crate) fn top(_: &TopArgs, _c: impl FnOnce() -> anyhow::Result<Client>, _s: &Say) -> anyhow::Result<u8> { Ok(0) }
