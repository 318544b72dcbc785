//! Follows a development run from its place in the line to its end.

use std::time::{Duration, Instant};

use thermite_actors::view::DevRunStatus;
use thermite_core::dev_run::DevRunEnd;
use thermite_core::ids::DevRunId;
use thermite_core::wait::WaitReason;

use crate::client::{Client, Fault};

/// How long one asking for output waits for more; Ctrl-C is heard in between.
const LISTEN: Duration = Duration::from_millis(500);
/// The least time from one asking for nothing to the next.
const PACE: Duration = Duration::from_millis(100);

/// What a follower is told, as it happens.
#[derive(Debug)]
pub(crate) enum News<'a> {
    /// How it stands.
    Status {
        /// The status.
        status: &'a DevRunStatus,
        /// Whether it is another than at the last look, or what is waited for is.
        is_new: bool,
    },
    /// It wrote something.
    Output {
        /// The bytes.
        bytes: &'a [u8],
        /// How many bytes before them were not kept.
        missed: u64,
    },
}

/// Whether the follower still wants the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// Go on.
    GoOn,
    /// Cancel it, and tell its end.
    Cancel,
}

/// Follows to the end; tells how it stands at least twice a second, and all output on the way. `tell` answers whether to
/// go on.
pub(crate) fn follow(
    client: &Client,
    dev_run: DevRunId,
    mut tell: impl FnMut(News<'_>) -> Wish,
) -> Result<DevRunEnd, Fault> {
    let mut offset = 0;
    let mut told = None;
    let mut cancelled = false;
    loop {
        let row = client.dev_run(dev_run)?;
        let key = Key::of(&row.status);
        let mut wish = tell(News::Status { status: &row.status, is_new: told.as_ref() != Some(&key) });
        told = Some(key);

        let ended = match row.status {
            DevRunStatus::Ended { end } => Some(end),
            DevRunStatus::Recording { .. }
            | DevRunStatus::Waiting { .. }
            | DevRunStatus::Starting { .. }
            | DevRunStatus::Running { .. }
            | DevRunStatus::Stopping { .. } => None,
        };
        if ended.is_none() && wish == Wish::Cancel && !cancelled {
            client.cancel(dev_run)?;
            cancelled = true;
            continue;
        }
        let asked = Instant::now();
        let slice = client.output(dev_run, offset, if ended.is_some() { Duration::ZERO } else { LISTEN })?;
        let got = !slice.bytes.is_empty();
        if got {
            let missed = slice.offset.saturating_sub(offset);
            offset = slice.offset + slice.bytes.len() as u64;
            wish = tell(News::Output { bytes: &slice.bytes, missed });
        }
        match ended {
            Some(end) if !got || slice.complete && offset >= slice.total => return Ok(end),
            Some(_) => {}
            None if !got && wish == Wish::GoOn => {
                std::thread::sleep(PACE.saturating_sub(asked.elapsed()));
            }
            None => {}
        }
    }
}

/// What makes two statuses the same to a reader: times run on without being news.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Key {
    Recording,
    Waiting(WaitReason, u32),
    Starting,
    Running,
    Stopping,
    Ended,
}

impl Key {
    fn of(status: &DevRunStatus) -> Key {
        match status {
            DevRunStatus::Recording { .. } => Key::Recording,
            DevRunStatus::Waiting { wait, .. } => Key::Waiting(wait.reason.clone(), wait.place),
            DevRunStatus::Starting { .. } => Key::Starting,
            DevRunStatus::Running { .. } => Key::Running,
            DevRunStatus::Stopping { .. } => Key::Stopping,
            DevRunStatus::Ended { .. } => Key::Ended,
        }
    }
}
