//! A rig of one shared device for tests that read as sentences: the product's machines, letters that arrive at once,
//! a disk and an executor that do at once what they are told, unless a test holds them back.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;

use thermite_core::contract::{Argv, Contract, Kit, Target, Timer};
use thermite_core::dev_run::{DevRunEnd, Exit};
use thermite_core::device::{Device, DeviceEffect, DeviceInput, DeviceState};
use thermite_core::hold::StopCause;
use thermite_core::ids::{Arrival, DevRunId, HoldId, Holder, JobId, LaneId, MemberId, RunId};
use thermite_core::job::{JobOutcome, JobSpec, PinnedChange};
use thermite_core::judge_queue::{JudgeEffect, JudgeInput, JudgeQueue, StageResult, Submission, Submit, Ticket};
use thermite_core::lane::{Ask, Caller, Lane, LaneEffect, LaneInput, LaneState};
use thermite_core::limits;
use thermite_core::pool::{Discipline, Pool, PoolEffect, PoolInput};
use thermite_core::refusal::Refusal;
use thermite_core::run::{RunSpec, RunState};
use thermite_core::time::{Moment, Span};
use thermite_core::wait::Wait;
use uuid::Uuid;

/// The rig's one device.
pub(crate) const DEVICE: MemberId = MemberId(0);

/// Run number `n`.
pub(crate) fn run(n: u8) -> RunId {
    RunId(Uuid::from_u128(u128::from(n)))
}

/// Job number `n`.
pub(crate) fn job(n: u8) -> JobId {
    JobId(Uuid::from_u128(u128::from(n)))
}

/// Development run number `n`.
pub(crate) fn dev_run(n: u8) -> DevRunId {
    DevRunId(Uuid::from_u128(u128::from(n)))
}

/// Lane number `n`.
pub(crate) fn lane(n: u8) -> LaneId {
    LaneId::new(n).expect("tests have lanes 1 to 16")
}

/// A hold of the rig's one device.
pub(crate) fn hold(number: u64) -> HoldId {
    HoldId { member: DEVICE, number }
}

/// A run over this champion.
pub(crate) fn run_spec(champion: &str) -> RunSpec {
    RunSpec {
        repo: PathBuf::new(),
        kit_path: PathBuf::new(),
        kit: kit(),
        kit_hash: String::new(),
        champion: champion.to_owned(),
        lanes: Vec::new(),
    }
}

/// A job whose change is this content.
pub(crate) fn job_spec(job: JobId, run: RunId, arrival: u64, content: &str) -> JobSpec {
    JobSpec {
        job,
        run,
        arrival: Arrival(arrival),
        pinned: PinnedChange {
            champion: String::new(),
            change: content.to_owned(),
            candidate: content.to_owned(),
            candidate_tree: content.to_owned(),
            paths: Vec::new(),
            kit: kit(),
            kit_hash: String::new(),
        },
    }
}

fn kit() -> Kit {
    Kit {
        name: String::new(),
        target: Target::Cpu,
        build: None,
        check: None,
        measure: Argv(Vec::new()),
        timer: Timer::Wall,
        editable: Vec::new(),
        artefacts: Vec::new(),
        models: Vec::new(),
        contract: Contract::default(),
    }
}

/// A letter on its way; there is one line of them, so each arrives in its turn.
enum Letter {
    Pool(PoolInput),
    Device(DeviceInput),
    Judge(JudgeInput),
    Lane(LaneId, LaneInput),
}

/// The rig.
pub(crate) struct Scenario {
    now: Moment,
    pub(crate) pool: Pool,
    pub(crate) device: Device,
    pub(crate) judge: JudgeQueue,
    lanes: BTreeMap<LaneId, Lane>,
    letters: VecDeque<Letter>,
    arrivals: u64,
    dev_runs: u8,
    /// Whether the executor answers a stop with its proof at once.
    pub(crate) proves: bool,
    /// Whether the executor's starts succeed at once.
    pub(crate) starts: bool,
    stage: Option<HoldId>,
    jobs_started: Vec<JobId>,
    accepted: BTreeMap<JobId, u32>,
    outcomes: BTreeMap<JobId, JobOutcome>,
    ends: BTreeMap<DevRunId, (Moment, DevRunEnd)>,
    queued: BTreeMap<DevRunId, u32>,
}

impl Scenario {
    /// Run 1 is being worked on by any number of lanes; the device is free and proved empty.
    pub(crate) fn one_shared_device() -> Scenario {
        let now = Moment::START + Span::hours(1);
        let (device, _) = Device::new(now, DEVICE, 0);
        let mut rig = Scenario {
            now,
            pool: Pool::new([(DEVICE, Discipline::JudgeFirst)]),
            device,
            judge: JudgeQueue::new(1),
            lanes: BTreeMap::new(),
            letters: VecDeque::new(),
            arrivals: 0,
            dev_runs: 0,
            proves: true,
            starts: true,
            stage: None,
            jobs_started: Vec::new(),
            accepted: BTreeMap::new(),
            outcomes: BTreeMap::new(),
            ends: BTreeMap::new(),
            queued: BTreeMap::new(),
        };
        let opening = rig.judge.open();
        rig.judge_wants(opening);
        rig.device(DeviceInput::Swept);
        let started = rig.judge.start_run(run(1), "champion".to_owned()).expect("no other run is under way");
        rig.judge_wants(started);
        rig.deliver();
        rig
    }

    /// Submits a job of run 1 with content of its own.
    pub(crate) fn submit(&mut self, n: u8) -> &mut Scenario {
        self.submit_as(n, &format!("change {n}")).expect("it may be submitted");
        self
    }

    /// Submits a job of run 1 with this content.
    pub(crate) fn submit_as(&mut self, n: u8, same: &str) -> Result<JobId, Refusal> {
        self.arrivals += 1;
        let submit = Submit {
            job: job(n),
            run: run(1),
            arrival: Arrival(self.arrivals),
            champion: self.judge.champion(run(1)).unwrap_or_default().to_owned(),
            candidate: format!("commit of job {n}"),
            same: same.to_owned(),
            key: None,
            stage_worst: Span::minutes(1),
        };
        match self.judge.submit(submit)? {
            Submission::New(effects) => {
                self.judge_wants(effects);
                self.deliver();
                Ok(job(n))
            }
            Submission::Same { job, .. } => Ok(job),
        }
    }

    /// A lane asks for a development run and stays to see it.
    pub(crate) fn ask(&mut self, n: u8) -> Result<DevRunId, Refusal> {
        self.judge.takes_work(run(1))?;
        self.arrivals += 1;
        let ask = Ask {
            dev_run: dev_run(100 + self.dev_runs),
            run: run(1),
            arrival: Arrival(self.arrivals),
            limit: Some(limits::SHARED_DEV_RUN_MAX),
            caller: Caller::Attached,
            since: self.now,
            latest: self.now + limits::DEV_RUN_WAIT_MAX,
        };
        let effects = self.lanes.entry(lane(n)).or_insert_with(|| Lane::new(lane(n))).ask(ask)?;
        self.dev_runs += 1;
        self.lane_wants(lane(n), effects);
        self.deliver();
        Ok(ask.dev_run)
    }

    /// A lane cancels what it has under way.
    pub(crate) fn cancel(&mut self, n: u8) -> &mut Scenario {
        self.stop(n, StopCause::Cancelled)
    }

    /// Something stops what a lane has under way.
    pub(crate) fn stop(&mut self, n: u8, cause: StopCause) -> &mut Scenario {
        let dev_run = self.under_way(n).expect("the lane has one under way");
        self.lane(n, LaneInput::Stop { dev_run, cause })
    }

    /// Tells a lane something.
    pub(crate) fn lane(&mut self, n: u8, input: LaneInput) -> &mut Scenario {
        self.letters.push_back(Letter::Lane(lane(n), input));
        self.deliver();
        self
    }

    /// Tells the device something.
    pub(crate) fn device(&mut self, input: DeviceInput) -> &mut Scenario {
        self.letters.push_back(Letter::Device(input));
        self.deliver();
        self
    }

    /// The development run that has the device exits by itself.
    pub(crate) fn exits(&mut self) -> &mut Scenario {
        let number = self.device.last();
        self.device(DeviceInput::Exited { number, exit: Exit::Code(0) })
    }

    /// The stage under way ends.
    pub(crate) fn stage_ends(&mut self, result: StageResult) -> &mut Scenario {
        let hold = self.stage.take().expect("a stage is under way");
        self.letters.push_back(Letter::Judge(JudgeInput::StageEnded { hold, result }));
        self.deliver();
        self
    }

    /// Run 1 is paused, resumed or ended.
    pub(crate) fn change_run(&mut self, state: RunState) -> &mut Scenario {
        let effects = self.judge.change_run(run(1), state).expect("the run can be changed");
        self.judge_wants(effects);
        self.deliver();
        self
    }

    /// Time goes on; every deadline on the way passes when it is due.
    pub(crate) fn advance(&mut self, span: Span) -> &mut Scenario {
        let end = self.now + span;
        while let Some(at) = self.next_deadline().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.deadlines();
        }
        self.now = end;
        self
    }

    /// The machine sleeps: all deadlines on the way pass at once, late.
    pub(crate) fn sleep(&mut self, span: Span) -> &mut Scenario {
        self.now = self.now + span;
        self.deadlines();
        self
    }

    /// The moment it is.
    pub(crate) fn now(&self) -> Moment {
        self.now
    }

    /// What a lane has under way.
    pub(crate) fn under_way(&self, n: u8) -> Option<DevRunId> {
        self.lanes.get(&lane(n)).and_then(Lane::under_way)
    }

    /// How a development run ended, once it has.
    pub(crate) fn end(&self, dev_run: DevRunId) -> Option<&DevRunEnd> {
        self.ends.get(&dev_run).map(|(_, end)| end)
    }

    /// When a development run ended.
    pub(crate) fn ended_at(&self, dev_run: DevRunId) -> Option<Moment> {
        self.ends.get(&dev_run).map(|(at, _)| *at)
    }

    /// How many were ahead when a development run got its place.
    pub(crate) fn queued(&self, dev_run: DevRunId) -> Option<u32> {
        self.queued.get(&dev_run).copied()
    }

    /// How a job ended, once it has.
    pub(crate) fn outcome(&self, n: u8) -> Option<&JobOutcome> {
        self.outcomes.get(&job(n))
    }

    /// Whether a submission was answered, and with how many ahead.
    pub(crate) fn accepted(&self, n: u8) -> Option<u32> {
        self.accepted.get(&job(n)).copied()
    }

    /// The stages started so far, by job.
    pub(crate) fn stages(&self) -> &[JobId] {
        &self.jobs_started
    }

    /// Who has the device.
    pub(crate) fn holder(&self) -> Option<Holder> {
        match self.device.state() {
            DeviceState::Held { by, .. } => Some(*by),
            _ => None,
        }
    }

    /// A development run's certificate while it is in the line.
    pub(crate) fn wait(&self, dev_run: DevRunId) -> Option<Wait> {
        self.pool.waits().into_iter().find(|(_, waiting, _)| *waiting == dev_run).map(|(_, _, wait)| wait)
    }

    fn next_deadline(&self) -> Option<Moment> {
        let others = [self.pool.next_deadline(), self.device.next_deadline(), self.judge.next_deadline()];
        let lanes = self.lanes.values().filter_map(Lane::next_deadline);
        others.into_iter().flatten().chain(lanes).map(|(at, _)| at).min()
    }

    fn deadlines(&mut self) {
        let effects = self.pool.advance(self.now);
        self.pool_wants(effects);
        let effects = self.device.advance(self.now);
        self.device_wants(effects);
        let effects = self.judge.advance(self.now);
        self.judge_wants(effects);
        let lanes: Vec<_> = self.lanes.iter_mut().map(|(id, lane)| (*id, lane.advance(self.now))).collect();
        for (id, effects) in lanes {
            self.lane_wants(id, effects);
        }
        self.deliver();
    }

    fn deliver(&mut self) {
        while let Some(letter) = self.letters.pop_front() {
            match letter {
                Letter::Pool(input) => {
                    let effects = self.pool.handle(self.now, input);
                    self.pool_wants(effects);
                }
                Letter::Device(input) => {
                    let effects = self.device.handle(self.now, input);
                    self.device_wants(effects);
                }
                Letter::Judge(input) => {
                    let effects = self.judge.handle(self.now, input);
                    self.judge_wants(effects);
                }
                Letter::Lane(id, input) => {
                    let effects = self.lanes.get_mut(&id).map(|lane| lane.handle(self.now, input)).unwrap_or_default();
                    self.lane_wants(id, effects);
                }
            }
        }
    }

    fn pool_wants(&mut self, effects: Vec<PoolEffect>) {
        for effect in effects {
            self.letters.push_back(match effect {
                PoolEffect::InLine { lane, dev_run, ahead } => Letter::Lane(lane, LaneInput::InLine { dev_run, ahead }),
                PoolEffect::GrantLane { lane, dev_run, hold, limit } => {
                    Letter::Lane(lane, LaneInput::Granted { dev_run, hold, limit })
                }
                PoolEffect::GrantJudge { hold, serves } => Letter::Judge(JudgeInput::Granted { hold, serves }),
                PoolEffect::GaveUp { lane, dev_run, why } => Letter::Lane(lane, LaneInput::GaveUp { dev_run, why }),
                PoolEffect::WaitCancelled { lane, dev_run } => Letter::Lane(lane, LaneInput::WaitCancelled { dev_run }),
                PoolEffect::Requeued { lane, hold } => Letter::Lane(lane, LaneInput::Requeued { hold }),
                PoolEffect::HoldEnded { to: Holder::Lane(lane), hold, how } => {
                    Letter::Lane(lane, LaneInput::HoldEnded { hold, how })
                }
                PoolEffect::HoldEnded { to: Holder::Judge, hold, how } => {
                    Letter::Judge(JudgeInput::HoldEnded { hold, how })
                }
                PoolEffect::WorkTaken { version } => Letter::Judge(JudgeInput::WorkTaken { version }),
                PoolEffect::RunnerLeft { .. } => unreachable!("no runner is set here"),
                PoolEffect::SplitSet { .. } => unreachable!("one device is not split"),
                PoolEffect::Void { hold } => Letter::Device(DeviceInput::Void { number: hold.number }),
                PoolEffect::Stop { hold, cause } => Letter::Device(DeviceInput::Stop { number: hold.number, cause }),
            });
        }
    }

    fn device_wants(&mut self, effects: Vec<DeviceEffect>) {
        for effect in effects {
            match effect {
                DeviceEffect::Sweep if self.proves => self.letters.push_back(Letter::Device(DeviceInput::Swept)),
                DeviceEffect::StartDevRun { number } if self.starts => {
                    self.letters.push_back(Letter::Device(DeviceInput::Started { number }));
                }
                DeviceEffect::StopProcesses { number, .. } if self.proves => {
                    self.letters.push_back(Letter::Device(DeviceInput::Emptied { number }));
                }
                DeviceEffect::Sweep | DeviceEffect::StartDevRun { .. } | DeviceEffect::StopProcesses { .. } => {}
                DeviceEffect::Look | DeviceEffect::Distrust => unreachable!("the device is no card"),
                DeviceEffect::StageOpen { number } => self.stage = Some(hold(number)),
                DeviceEffect::Tell(event) => {
                    self.letters.push_back(Letter::Pool(PoolInput::Member { member: DEVICE, event }));
                }
            }
        }
    }

    fn judge_wants(&mut self, effects: Vec<JudgeEffect>) {
        for effect in effects {
            self.letters.push_back(match effect {
                JudgeEffect::Record { ticket, .. } => Letter::Judge(JudgeInput::Recorded(ticket)),
                JudgeEffect::RecordRun { run, .. } => Letter::Judge(JudgeInput::Recorded(Ticket::Run(run))),
                JudgeEffect::Tell(work) => Letter::Pool(PoolInput::JudgeWork(work)),
                JudgeEffect::StopWaiters { run, why } => Letter::Pool(PoolInput::RunStopped { run, why }),
                JudgeEffect::Claim { hold } => Letter::Pool(PoolInput::Claim { by: Holder::Judge, hold }),
                JudgeEffect::ReleaseUnused { hold } => {
                    Letter::Pool(PoolInput::ReleaseUnused { by: Holder::Judge, hold })
                }
                JudgeEffect::StartStage { hold, job, .. } => {
                    self.jobs_started.push(job);
                    Letter::Device(DeviceInput::Start { number: hold.number, by: Holder::Judge, limit: None })
                }
                JudgeEffect::StartBuild { .. } | JudgeEffect::CardDoubted { .. } | JudgeEffect::CardFault { .. } => {
                    unreachable!("one device has no bench, and no other card")
                }
                JudgeEffect::EndHold { hold } => {
                    Letter::Device(DeviceInput::Stop { number: hold.number, cause: StopCause::StageOver })
                }
                JudgeEffect::AnswerSubmitted { job, ahead } => {
                    self.accepted.insert(job, ahead);
                    continue;
                }
                JudgeEffect::JobEnded { job, outcome } => {
                    let before = self.outcomes.insert(job, outcome);
                    assert_eq!(before, None, "job {job} ended twice");
                    continue;
                }
                JudgeEffect::AnswerNotRecorded { .. } | JudgeEffect::AnswerRun { .. } => continue,
            });
        }
    }

    fn lane_wants(&mut self, id: LaneId, effects: Vec<LaneEffect>) {
        let by = Holder::Lane(id);
        for effect in effects {
            self.letters.push_back(match effect {
                LaneEffect::RecordAsk => Letter::Lane(id, LaneInput::AskRecorded),
                LaneEffect::RecordHold { hold, .. } => Letter::Lane(id, LaneInput::HoldRecorded { hold }),
                LaneEffect::RecordEnd { .. } => Letter::Lane(id, LaneInput::EndRecorded),
                LaneEffect::AskPool => {
                    let LaneState::Waiting { ask, .. } = self.lanes[&id].state() else {
                        unreachable!("a lane that asks the pool waits");
                    };
                    Letter::Pool(PoolInput::Ask {
                        lane: id,
                        dev_run: ask.dev_run,
                        run: ask.run,
                        arrival: ask.arrival,
                        acceptable: self.pool.acceptable(id),
                        limit: ask.limit,
                        since: ask.since,
                        latest: ask.latest,
                    })
                }
                LaneEffect::CancelWait { dev_run } => Letter::Pool(PoolInput::CancelWait { lane: id, dev_run }),
                LaneEffect::Claim { hold } => Letter::Pool(PoolInput::Claim { by, hold }),
                LaneEffect::ReleaseUnused { hold } => Letter::Pool(PoolInput::ReleaseUnused { by, hold }),
                LaneEffect::Start { hold, limit } => {
                    Letter::Device(DeviceInput::Start { number: hold.number, by, limit })
                }
                LaneEffect::StopHold { hold, cause } => {
                    Letter::Device(DeviceInput::Stop { number: hold.number, cause })
                }
                LaneEffect::AnswerQueued { dev_run, ahead } => {
                    self.queued.insert(dev_run, ahead);
                    continue;
                }
                LaneEffect::AnswerNotRecorded { .. } | LaneEffect::AnswerTooLate { .. } => continue,
                LaneEffect::AnswerEnd { dev_run, end } => {
                    let before = self.ends.insert(dev_run, (self.now, end));
                    assert_eq!(before, None, "development run {dev_run} ended twice");
                    continue;
                }
            });
        }
    }
}
