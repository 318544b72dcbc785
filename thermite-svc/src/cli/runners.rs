//! `thermite runners`: which runners a rig has on other machines, what each does, and setting them.

use clap::{Args, Subcommand};

use thermite_actors::view::{RunnerRuns, RunnersView};
use thermite_core::runners::{self, ProcessAsk, ProcessPools, RunnerChange, RunnerSet};
use thermite_svc::plain::plain;
use thermite_svc::runner_lines::lines;

use crate::client::{Client, Fault};

use super::exit;
use super::say::Say;

/// What `runners` takes.
#[derive(Debug, Args)]
#[command(after_help = AFTER, args_conflicts_with_subcommands = true)]
pub(crate) struct RunnersArgs {
    #[command(subcommand)]
    what: Option<What>,
    /// Print one JSON object
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Set them, as a whole list
    Set(SetArgs),
}

/// What `runners set` takes.
#[derive(Debug, Args)]
struct SetArgs {
    /// A process and the pools of its runners, in order: judge, shared, or lane-1 to lane-16
    #[arg(value_name = "PROCESS=POOL,...", required_unless_present = "none", value_parser = process)]
    processes: Vec<ProcessAsk>,
    /// No runners at all
    #[arg(long, conflicts_with = "processes")]
    none: bool,
    /// Only say what it would change and end
    #[arg(long)]
    dry_run: bool,
}

const AFTER: &str = "\
Examples:
  thermite runners
  thermite runners set box-1=judge box-2=shared,lane-1
  thermite runners set --dry-run box-1=judge
  thermite runners set --none

The list is whole: a process that is left out is taken away. One pool stands for one GPU of the process, in order, or for \
its machine's CPUs. A runner that is taken away or given another pool stops what it runs: the judge's job goes back to its \
place in the queue and starts over, a lane is told to run its command again, and nothing counts against a change. What the \
other runners do goes on.

Exit codes: 0 done; 69 refused, with the reason; 70 infrastructure.";

/// Shows the runners, or sets them.
pub(crate) fn runners(args: &RunnersArgs, client: &Client, say: &Say) -> anyhow::Result<u8> {
    let Some(What::Set(set)) = &args.what else {
        let view = client.rig()?;
        if args.json {
            say.json(&view.runners);
        } else if view.runners.is_empty() {
            say.line("this rig has no runners on other machines: set them with `thermite runners set`");
        } else {
            lines(&view.runners, view.now).iter().for_each(|line| say.line(line));
        }
        return Ok(exit::OK);
    };
    let before = client.runners()?;
    let would = changes(&before, &set.processes)?;
    if set.dry_run {
        if args.json {
            say.json(&would.iter().map(Change::json).collect::<Vec<_>>());
        } else {
            would.iter().for_each(|change| say.line(&change.would()));
        }
        return Ok(exit::OK);
    }
    // Only over the list that was read: who sets it meanwhile is not undone unseen.
    let view = client.set_runners(&set.processes, before.revision)?;
    if args.json {
        say.json(&view);
    } else {
        would.iter().for_each(|change| say.line(&change.did()));
        view.notes.iter().for_each(|note| say.line(&format!("note: {}", plain(note))));
    }
    Ok(exit::OK)
}

/// A process as it is written: `box-2=shared,lane-1`.
fn process(text: &str) -> Result<ProcessAsk, String> {
    let (name, pools) = text.split_once('=').ok_or_else(|| format!("{text:?} has no `=`: write box-1=judge"))?;
    Ok(ProcessAsk { name: name.to_owned(), pools: pools.split(',').map(str::to_owned).collect() })
}

/// What becomes of one runner, and what that ends.
struct Change {
    set: RunnerSet,
    change: RunnerChange,
    ends: Option<String>,
}

/// What a new list changes of the one there is.
fn changes(before: &RunnersView, list: &[ProcessAsk]) -> Result<Vec<Change>, Fault> {
    let refused = |refusal: thermite_core::refusal::Refusal| Fault::Refused { sentence: refusal.to_string() };
    let new: Vec<ProcessPools> = runners::parse(list).map_err(refused)?;
    // Numbers are the rig's to give: here only names and pools are compared.
    let flat = |list: &[ProcessPools]| runners::number(list, &std::collections::BTreeMap::new(), 0).map_err(refused);
    let changes = runners::changes(&flat(&before.asked)?, &flat(&new)?);
    let row = |set: &RunnerSet| before.runners.iter().find(|row| row.name == set.runner.to_string());
    Ok(changes
        .into_iter()
        .map(|(set, change)| {
            let ends = match change {
                RunnerChange::Added | RunnerChange::Unchanged => None,
                RunnerChange::Removed | RunnerChange::Moved { .. } => row(&set).and_then(|row| row.runs).map(ends),
            };
            Change { set, change, ends }
        })
        .collect())
}

fn ends(runs: RunnerRuns) -> String {
    match runs {
        RunnerRuns::Judge { job: Some(job), .. } => {
            format!("job {job} goes back to its place in the queue and starts over")
        }
        RunnerRuns::Judge { job: None, .. } => "the judge's job goes back to its place in the queue".to_owned(),
        RunnerRuns::Lane { lane, .. } => format!("{lane} is told to run its command again"),
    }
}

impl Change {
    fn would(&self) -> String {
        self.say("would be added to", "would be taken away", "would move from", "would stay in")
    }

    fn did(&self) -> String {
        self.say("added to", "taken away", "moved from", "stays in")
    }

    fn say(&self, added: &str, removed: &str, moved: &str, stays: &str) -> String {
        let RunnerSet { runner, pool, .. } = &self.set;
        let text = match self.change {
            RunnerChange::Added => format!("{runner}: {added} pool {pool}"),
            RunnerChange::Removed => format!("{runner}: {removed}"),
            RunnerChange::Moved { from } => format!("{runner}: {moved} pool {from} to {pool}"),
            RunnerChange::Unchanged => format!("{runner}: {stays} pool {pool}"),
        };
        self.ends.iter().fold(text, |text, ends| format!("{text}; {ends}"))
    }

    fn json(&self) -> serde_json::Value {
        let RunnerSet { runner, pool, .. } = &self.set;
        serde_json::json!({ "runner": runner.to_string(), "pool": pool, "change": self.change, "ends": self.ends })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_written_with_its_pools() {
        let read = process("box-2=shared,lane-1");

        let pools = vec!["shared".to_owned(), "lane-1".to_owned()];
        assert_eq!(read, Ok(ProcessAsk { name: "box-2".to_owned(), pools }));
        assert!(process("box-2").is_err_and(|why| why.contains("box-1=judge")));
    }

    #[test]
    fn a_new_list_says_what_it_changes_and_ends() {
        let asked =
            |text: &[&str]| text.iter().map(|text| process(text).expect("it is written well")).collect::<Vec<_>>();
        let asked_before = runners::parse(&asked(&["box-1=judge", "box-2=lane-1", "box-3=shared"])).expect("it can be");
        let lane = thermite_core::ids::LaneId::new(1).expect("it exists");
        let member = thermite_core::ids::MemberId(1_001);
        let held = thermite_actors::view::RunnerRow {
            name: "box-2/1".to_owned(),
            member,
            pool: None,
            state: thermite_core::runner::RunnerState::Reconciling,
            answered: None,
            device: None,
            runs: Some(RunnerRuns::Lane {
                hold: thermite_core::ids::HoldId { member, number: 1 },
                lane,
                dev_run: thermite_core::ids::DevRunId(uuid::Uuid::nil()),
            }),
            takes_runs: true,
            why_not: None,
            drained: false,
        };
        let before = RunnersView { asked: asked_before, runners: vec![held], ..RunnersView::default() };

        let would = changes(&before, &asked(&["box-1=judge", "box-2=lane-2", "box-4=judge"])).expect("it can be");

        let said: Vec<String> = would.iter().map(Change::would).collect();
        assert_eq!(
            said,
            [
                "box-1/1: would stay in pool judge",
                "box-2/1: would move from pool lane-1 to lane-2; lane 1 is told to run its command again",
                "box-4/1: would be added to pool judge",
                "box-3/1: would be taken away",
            ]
        );
        assert!(changes(&before, &asked(&["box-1=judges"])).is_err());
    }
}
