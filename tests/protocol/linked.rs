//! A rig whose runners are real actors on both sides of a link: their own process with slots, journals and leases there,
//! members of the pool here (rules E5, E11, E15, E17).

use std::cell::RefCell;
use std::rc::Rc;

use thermite_actors::in_process::InProcessLink;
use thermite_actors::runner::LinkedRunners;
use thermite_actors::testing::{
    Call, DevRunScript, MemoryOutputs, ScriptedDevice, ScriptedProcess, ScriptedWorkspaces, WordsForCommits,
};
use thermite_actors::view::DevRunStatus;
use thermite_core::contract::Target;
use thermite_core::dev_run::{DevRunEnd, Exit};
use thermite_core::hold::RunnerLoss;
use thermite_core::ids::MemberId;
use thermite_core::job::JobOutcome;
use thermite_core::limits;
use thermite_core::runner::{JournalLine, RunnerState};
use thermite_core::runners::{LocalJudge, ProcessAsk};
use thermite_core::time::Span;

use crate::scenario::{Beginning, Scenario};

const FIRST: MemberId = MemberId(MemberId::RUNNERS_FROM);
const SECOND: MemberId = MemberId(MemberId::RUNNERS_FROM + 1);

#[test]
fn a_whole_comparison_is_screened_on_one_runner_and_confirmed_on_another() {
    let linked = Linked::new(&[("box-1", "judge"), ("box-2", "judge")]);

    let job = linked.rig.job("faster");
    let outcome = linked.rig.outcome_of(job);

    assert_eq!(outcome, JobOutcome::Win { adopted: true });
    assert_eq!(linked.rig.stages_on(), [FIRST, SECOND]);
    linked.rig.advance(Span::seconds(10));
    for process in &linked.processes {
        let lines = process.journal(1).lines();
        assert!(
            matches!(
                lines[..],
                [JournalLine::Accepted { .. }, JournalLine::Ended { .. }, JournalLine::Forgotten { .. }]
            ),
            "{lines:?}"
        );
    }
    linked.rig.assert_sound();
}

#[test]
fn a_lanes_run_on_its_runner_gives_its_end_and_all_its_output() {
    let linked = Linked::new(&[("box-1", "lane-1"), ("box-2", "judge")]);
    linked.devices[0].script_dev_runs(|_| DevRunScript::lasting(Span::seconds(3)));

    let dev_run = linked.rig.dev_run(1);
    let end = linked.rig.end_of(dev_run);

    assert!(matches!(end, DevRunEnd::Exited { exit: Exit::Code(0), .. }), "{end:?}");
    assert_eq!(linked.outputs.of(dev_run), Some((dev_run.to_string().into_bytes(), true)));
    linked.rig.advance(Span::seconds(10));
    assert!(matches!(linked.processes[0].journal(1).lines().last(), Some(JournalLine::Forgotten { .. })));
}

#[test]
fn a_job_whose_runners_process_dies_goes_back_and_is_judged_anew() {
    let linked = Linked::new(&[("box-1", "judge"), ("box-2", "lane-1")]);
    linked.devices[0].steps_take(Span::seconds(2), Span::seconds(2));
    let job = linked.rig.job("faster");
    linked.rig.advance(Span::seconds(5));

    linked.processes[0].die();
    linked.rig.advance(Span::seconds(1));
    linked.rig.time.block_on(linked.processes[0].start());
    let outcome = linked.rig.outcome_of(job);

    assert_eq!(outcome, JobOutcome::Win { adopted: true });
    assert_eq!(linked.rig.job_row(job).failures.len(), 0, "nothing counts against it");
    linked.rig.assert_sound();
}

#[test]
fn a_runner_that_is_cut_off_stops_by_its_lease_and_its_lane_hears_so_after_it() {
    let linked = Linked::new(&[("box-1", "lane-1"), ("box-2", "judge")]);
    linked.devices[0].script_dev_runs(|_| DevRunScript::endless());
    let dev_run = linked.rig.dev_run(1);
    linked.rig.advance(Span::seconds(5));

    linked.processes[0].cut_off(true);
    linked.rig.advance(Span::seconds(16));
    let away = linked.state_of("box-1/1");
    let until_hand_on = matches!(linked.rig.dev_run_row(dev_run).status, DevRunStatus::Stopping { .. });
    linked.rig.advance(limits::HAND_ON_AFTER);
    let stopped = linked.devices[0].diary().iter().any(|happened| happened.call == Call::Emptied);
    let end = linked.rig.end_of(dev_run);
    linked.processes[0].cut_off(false);
    linked.rig.advance(Span::seconds(15));

    assert!(matches!(away, RunnerState::Away { .. }), "{away:?}");
    assert!(until_hand_on, "its hold is not over before its lease is");
    assert!(stopped, "it stopped by itself");
    assert_eq!(end, DevRunEnd::RunnerLost { how: RunnerLoss::Away });
    assert!(matches!(linked.state_of("box-1/1"), RunnerState::Ready { .. }));
}

/// A rig with linked runners, one a process, all answering; its core judges nothing.
struct Linked {
    rig: Scenario,
    processes: Vec<Rc<ScriptedProcess>>,
    devices: Vec<ScriptedDevice>,
    outputs: Rc<MemoryOutputs>,
}

impl Linked {
    fn new(pools: &[(&'static str, &str)]) -> Linked {
        let outputs = Rc::new(MemoryOutputs::default());
        let made = Rc::new(RefCell::new((Vec::new(), Vec::new())));
        let names: Vec<&'static str> = pools.iter().map(|(name, _)| *name).collect();
        let reach = {
            let (outputs, made) = (Rc::clone(&outputs), Rc::clone(&made));
            Box::new(move |clock: Rc<thermite_actors::testing::PausedClock>| {
                let link = InProcessLink::default();
                for (seed, name) in (0..).zip(names) {
                    let device = ScriptedDevice::new(Target::Cpu, clock.clone(), 100 + seed);
                    let name = name.parse().expect("it is a process's name");
                    let devices = vec![device.clone()];
                    let process = Rc::new(ScriptedProcess::new(name, link.clone(), clock.clone(), devices));
                    let starting = Rc::clone(&process);
                    actix::spawn(async move { starting.start().await });
                    made.borrow_mut().0.push(process);
                    made.borrow_mut().1.push(device);
                }
                let runners = LinkedRunners::new(Rc::new(link), Rc::new(WordsForCommits), outputs);
                Rc::new(runners) as Rc<dyn thermite_actors::runners::Runners>
            })
        };
        let mut rig =
            Scenario::start(Beginning { local_judge: LocalJudge::Off, reach: Some(reach), ..Beginning::default() });
        let list =
            pools.iter().map(|(name, pool)| ProcessAsk { name: (*name).to_owned(), pools: vec![(*pool).to_owned()] });
        rig.wait_for(rig.rig.set_runners(list.collect(), None)).expect("it can be");
        rig.advance(Span::seconds(15));
        let request = ScriptedWorkspaces::request(3);
        rig.run = rig.wait_for(rig.rig.start_run(request, None)).expect("a first run is started");
        rig.time.settle();
        let (processes, devices) = made.take();
        Linked { rig, processes, devices, outputs }
    }

    fn state_of(&self, name: &str) -> RunnerState {
        let view = self.rig.wait_for(self.rig.rig.runners()).expect("the rig is there");
        view.runners.into_iter().find(|row| row.name == name).expect("it is on the list").state
    }
}
