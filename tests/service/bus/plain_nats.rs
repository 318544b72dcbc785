//! A nats-server of a test's own without TLS and rights.

use std::ops::{Deref, DerefMut};

use super::nats_process::NatsProcess;

/// A server that lets in everybody of this machine.
pub(crate) struct PlainNats(NatsProcess);

impl PlainNats {
    /// A server on a free port.
    pub(crate) fn start() -> PlainNats {
        let folder = tempfile::tempdir().unwrap();
        PlainNats(NatsProcess::start(folder, |port, folder| {
            let port = port.to_string();
            let arguments = ["--addr", "127.0.0.1", "--port", &port, "--ports_file_dir"];
            arguments.map(Into::into).into_iter().chain([folder.into()]).collect()
        }))
    }

    /// Its address.
    pub(crate) fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port())
    }
}

impl Deref for PlainNats {
    type Target = NatsProcess;

    fn deref(&self) -> &NatsProcess {
        &self.0
    }
}

impl DerefMut for PlainNats {
    fn deref_mut(&mut self) -> &mut NatsProcess {
        &mut self.0
    }
}
