//! `thermite token`: makes, lists, rotates and revokes the rig's tokens.

use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;

use thermite_actors::host::clock::BootClock;
use thermite_actors::ports::Clock;
use thermite_core::ids::{LaneId, RunId};
use thermite_core::time::Span;
use thermite_svc::server::tokens::{NewToken, NewTokenKind, Rotate, TokenMade};
use thermite_svc::tokens::{TokenId, TokenKind, TokenRow};

use crate::client::Client;

use super::exit;
use super::say::Say;

/// What `token` takes.
#[derive(Debug, Args)]
#[command(after_help = AFTER)]
pub(crate) struct TokenArgs {
    #[command(subcommand)]
    what: What,
    /// Print one JSON object
    #[arg(long, global = true)]
    json: bool,
}

const AFTER: &str = "\
Examples:
  thermite token new --kind lane --lane 2 --note agent-2 > lane-2.token
  thermite token list
  thermite token rotate lane-0123456789abcdef --overlap 10m
  thermite token revoke lane-0123456789abcdef

A token is shown once, on standard output; the rig keeps its hash. A lane's token opens what that lane does itself: its \
own development runs, jobs of its run, looking at the rig. The owner's first token is in the data folder's file \
owner-token: remove that file and start the rig again, and it opens nothing.";

#[derive(Debug, Subcommand)]
enum What {
    /// Make a token; it is shown once
    New(NewArgs),
    /// List the tokens by their public names
    List,
    /// Make another token in one's place, which stays valid for a while
    Rotate {
        /// The token's public name, as `thermite token list` shows it
        #[arg(value_name = "ID", value_parser = shown_by("thermite token list"))]
        token: TokenId,
        /// How long the old one stays valid, such as 10m or 0s [default: 1h]
        #[arg(long, value_name = "TIME", value_parser = seconds)]
        overlap: Option<u64>,
    },
    /// Revoke a token at once, with the streams that it has open
    Revoke {
        /// The token's public name, as `thermite token list` shows it
        #[arg(value_name = "ID", value_parser = shown_by("thermite token list"))]
        token: TokenId,
    },
}

#[derive(Debug, Args)]
struct NewArgs {
    /// What it opens
    #[arg(long, value_enum)]
    kind: Kind,
    /// A lane's token: the lane
    #[arg(long, value_name = "N", value_parser = lane)]
    lane: Option<LaneId>,
    /// A lane's token: for this run alone [default: that lane of every run]
    #[arg(long, value_name = "ID")]
    run: Option<RunId>,
    /// A word beside it for the listing
    #[arg(long, value_name = "TEXT", default_value = "")]
    note: String,
    /// How long it is valid, such as 12h or 30d [default: until it is revoked]
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    valid: Option<u64>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kind {
    Owner,
    Lane,
}

/// Does what is asked.
pub(crate) fn token(args: &TokenArgs, client: &Client, say: &Say) -> anyhow::Result<u8> {
    match &args.what {
        What::New(new) => {
            let NewArgs { kind, lane, run, note, valid } = new;
            let kind = match kind {
                Kind::Owner => NewTokenKind::Owner,
                Kind::Lane => NewTokenKind::Lane,
            };
            let new = NewToken { kind, lane: *lane, run: *run, note: note.clone(), valid_s: *valid };
            made(&client.make_token(&new)?, args.json, say);
        }
        What::List if args.json => say.json(&json!({ "tokens": client.tokens()? })),
        What::List => client.tokens()?.iter().for_each(|row| say.line(&line(row))),
        What::Rotate { token, overlap } => {
            made(&client.rotate_token(token, Rotate { overlap_s: *overlap })?, args.json, say);
        }
        What::Revoke { token } => {
            client.revoke_token(token)?;
            if args.json {
                say.json(&json!({ "revoked": token }));
            } else {
                say.line(&format!("token {token} is revoked"));
            }
        }
    }
    Ok(exit::OK)
}

fn made(made: &TokenMade, json: bool, say: &Say) {
    if json {
        say.json(made);
        return;
    }
    say.line(&made.secret);
    say.aside(&format!("this is the only time it is shown: {}", line(&made.row)));
}

fn line(row: &TokenRow) -> String {
    let opens = match row.kind {
        TokenKind::Owner if row.from_file => "owner, in the data folder's file".to_owned(),
        TokenKind::Owner => "owner".to_owned(),
        TokenKind::Lane { lane, run: None } => lane.to_string(),
        TokenKind::Lane { lane, run: Some(run) } => format!("{lane} of run {run}"),
    };
    let now = BootClock.wall_ms();
    let ends = match row.expires_ms {
        None => "until it is revoked".to_owned(),
        Some(end) if end <= now => "expired".to_owned(),
        Some(end) => format!("for {} more", Span::millis(end - now)),
    };
    let used = match row.used_ms {
        None => "not used yet".to_owned(),
        Some(used) => format!("used {} ago", Span::millis(now.saturating_sub(used))),
    };
    let note = if row.note.is_empty() { String::new() } else { format!(", {}", row.note) };
    format!("{}: {opens}, {ends}, {used}{note}", row.token)
}

/// Reads a token's public name; who cannot write it is told the list that shows it.
pub(super) fn shown_by(list: &'static str) -> impl Fn(&str) -> Result<TokenId, String> + Clone + Send + Sync {
    move |text| text.parse().map_err(|_| format!("it is spelt as `{list}` shows it"))
}

fn lane(text: &str) -> Result<LaneId, String> {
    let number: u8 = text.parse().map_err(|_| "a lane is a number from 1 to 16".to_owned())?;
    LaneId::new(number).map_err(|no| no.to_string())
}

/// `90s`, `10m`, `12h`, `30d`, as seconds.
pub(super) fn seconds(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text} is no time: write a whole number with s, m, h or d, such as 12h");
    let (number, unit) = text.split_at_checked(text.len().saturating_sub(1)).ok_or_else(wrong)?;
    let each: u64 = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return Err(wrong()),
    };
    number.parse::<u64>().ok().and_then(|number| number.checked_mul(each)).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::seconds;

    #[test]
    fn a_time_is_a_number_with_its_unit() {
        assert_eq!(
            ["0s", "90s", "10m", "12h", "30d"].map(|text| seconds(text).unwrap()),
            [0, 90, 600, 43_200, 2_592_000]
        );
        for wrong in ["", "s", "5", "-1s", "1.5h", "5 m", "5w", "99999999999999999999d", "5\u{e4}"] {
            assert!(seconds(wrong).unwrap_err().contains("such as 12h"), "{wrong}");
        }
    }
}
