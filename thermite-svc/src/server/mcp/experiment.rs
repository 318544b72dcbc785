//! `run_experiment`: one development run, attached to its call.

use std::collections::BTreeMap;
use std::time::Duration;

use actix_web::web::Data;
use rmcp::RoleServer;
use rmcp::service::RequestContext;
use serde::Deserialize;
use serde_json::json;
use thermite_actors::view::DevRunRow;
use thermite_core::dev_run::{DevRunEnd, Exit};
use thermite_core::ids::{DevRunId, RunId};
use thermite_core::limits;
use thermite_core::refusal::InfrastructureFailure;

use super::super::Door;
use super::super::bodies::{AskDevRun, Over};
use super::super::output::look;
use super::tools::{Progress, Said, ToolNo, run_of};
use super::{Caller, words};

/// `run_experiment`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RunExperiment {
    command: Option<String>,
    argv: Option<Vec<String>>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    run: Option<RunId>,
}

/// One call.
pub(super) struct Experiment<'a> {
    door: &'a Data<Door>,
    caller: &'a mut Caller,
    context: &'a RequestContext<RoleServer>,
}

/// What of the output the caller has been told.
#[derive(Default)]
struct Followed {
    offset: u64,
    total: u64,
}

impl<'a> Experiment<'a> {
    pub(super) fn new(
        door: &'a Data<Door>,
        caller: &'a mut Caller,
        context: &'a RequestContext<RoleServer>,
    ) -> Experiment<'a> {
        Experiment { door, caller, context }
    }

    pub(super) async fn carry_out(self, asked: RunExperiment, told: &mut Progress<'_>) -> Result<Said, ToolNo> {
        let Experiment { door, caller, context } = self;
        let RunExperiment { command, argv, env, run } = asked;
        let argv = match (command, argv) {
            (Some(line), None) => vec!["sh".to_owned(), "-c".to_owned(), line],
            (None, Some(argv)) => argv,
            (Some(_), Some(_)) => return Err(ToolNo::Arguments("give `command` or `argv`, not both".to_owned())),
            (None, None) => return Err(ToolNo::Arguments("give `command`, such as \"cargo bench\"".to_owned())),
        };
        let run = run_of(door, caller, run).await?.run;
        let body = AskDevRun { argv, env: env.into_iter().collect(), attached: true };
        let ask = body.checked(run, u32::from(caller.lane.number()), None)?;
        let dev_run = door.rig.ask(ask).await?.dev_run;
        // From here on it lives by this call: the caller's end is told to the rig, which ends it (rule A10).
        let _following = door.followers.follow(dev_run);
        let mut followed = Followed::default();
        let end = tokio::select! {
            end = door.rig.dev_run_end(dev_run) => end?,
            () = context.ct.cancelled() => door.rig.cancel(dev_run).await?,
            () = caller.gone() => door.rig.cancel(dev_run).await?,
            never = tell(door, dev_run, &mut followed, told) => match never {},
        };
        answer(door, dev_run, end).await
    }
}

/// What never comes to an end by itself.
enum Never {}

/// Tells how the run goes until it is dropped: its wait in the one sentence, then its output as it comes.
async fn tell(door: &Data<Door>, dev_run: DevRunId, followed: &mut Followed, told: &mut Progress<'_>) -> Never {
    let mut last = String::new();
    let mut quiet = Duration::ZERO;
    loop {
        let row = door.rig.dev_run(dev_run).await.ok();
        let output = more_output(door, dev_run, followed).await;
        let words = row.map(|row: DevRunRow| words::going(&row.status)).unwrap_or_default();
        let news = match output {
            Some(output) => Some(output),
            None if words != last => Some(words.clone()),
            None if quiet >= limits::MCP_SIGN_OF_LIFE.to_std() => Some(words.clone()),
            None => None,
        };
        match news {
            Some(news) => {
                told.tell(news).await;
                quiet = Duration::ZERO;
            }
            None => quiet += limits::MCP_LOOK_EVERY.to_std(),
        }
        last = words;
        tokio::time::sleep(limits::MCP_LOOK_EVERY.to_std()).await;
    }
}

/// What was written since the last look, where anything was; of a flood the newest.
async fn more_output(door: &Data<Door>, dev_run: DevRunId, followed: &mut Followed) -> Option<String> {
    let slice = look(door, dev_run, followed.offset, limits::OUTPUT_READ_BYTES_MAX).await.ok()??;
    if slice.bytes.is_empty() {
        return None;
    }
    followed.offset = slice.offset + slice.bytes.len() as u64;
    followed.total = slice.total;
    let newest = slice.bytes.len().saturating_sub(limits::MCP_PROGRESS_BYTES_MAX);
    Some(words::output(&slice.bytes[newest..]))
}

async fn answer(door: &Data<Door>, dev_run: DevRunId, end: DevRunEnd) -> Result<Said, ToolNo> {
    let ending = |_| ToolNo::Rig(InfrastructureFailure::RigEnding.into());
    let head = look(door, dev_run, 0, limits::MCP_OUTPUT_HEAD_BYTES).await.map_err(ending)?;
    let total = head.as_ref().map_or(0, |slice| slice.total);
    let from = total.saturating_sub(limits::MCP_OUTPUT_TAIL_BYTES as u64);
    let head_end = head.as_ref().map_or(0, |slice| slice.bytes.len() as u64);
    let tail = look(door, dev_run, from.max(head_end), limits::MCP_OUTPUT_TAIL_BYTES).await.map_err(ending)?;
    let (head, tail) = (head.map(|slice| slice.bytes).unwrap_or_default(), tail);
    let (tail_at, tail) = tail.map_or((total, Vec::new()), |slice| (slice.offset, slice.bytes));
    let left_out = tail_at.saturating_sub(head.len() as u64);
    let note = door.rig.dev_run(dev_run).await.map_err(ToolNo::Rig)?.note;
    let words = words::experiment(&end, &note, &head, left_out, &tail);
    let exit = match &end {
        DevRunEnd::Exited { exit: Exit::Code(code), .. } => Some(*code),
        DevRunEnd::Exited { exit: Exit::Signal(_), .. }
        | DevRunEnd::LimitReached { .. }
        | DevRunEnd::Cancelled
        | DevRunEnd::GaveUp { .. }
        | DevRunEnd::NotStarted { .. }
        | DevRunEnd::NotProved { .. }
        | DevRunEnd::RigEnded
        | DevRunEnd::NewSplit
        | DevRunEnd::RunnerLost { .. } => None,
    };
    // A command that ran is an experiment, whatever its exit; one that never ran to its end is none.
    let is_no = !matches!(end, DevRunEnd::Exited { .. });
    let value = json!({ "dev_run": Over::new(dev_run, end, note), "exit_code": exit, "output_bytes": total });
    Ok(Said { words, value, is_no })
}
