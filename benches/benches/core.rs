//! What the machines cost alone: messages a second of a development run's round, and of a judge queue of any length.

use std::collections::VecDeque;
use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use rustix::time::{ClockId, clock_gettime};
use uuid::Uuid;

use thermite_core::dev_run::Exit;
use thermite_core::device::{Device, DeviceEffect, DeviceInput};
use thermite_core::hold::{HoldEnd, StopCause};
use thermite_core::ids::{Arrival, DevRunId, HoldId, Holder, JobId, LaneId, MemberId, RunId};
use thermite_core::judge_queue::{JudgeEffect, JudgeInput, JudgeQueue, StageResult, Submission, Submit};
use thermite_core::lane::{Ask, Caller, Lane, LaneEffect, LaneInput};
use thermite_core::limits;
use thermite_core::pool::{Discipline, JudgeWork, Pool, PoolEffect, PoolInput};
use thermite_core::time::{Moment, Span};

const DEVICE: MemberId = MemberId(0);
const RUN: RunId = RunId(Uuid::from_u128(1));

/// A message between the machines of a round.
enum Letter {
    Lane(LaneInput),
    Pool(PoolInput),
    Device(DeviceInput),
}

/// Pool, device and lane, and the letters between them; records and processes answer at once.
struct Round {
    pool: Pool,
    device: Device,
    lane: Lane,
    id: LaneId,
    post: VecDeque<Letter>,
    now: Moment,
    asked: u64,
}

impl Round {
    fn new() -> Round {
        let now = Moment::from_millis(1_000);
        let id = LaneId::new(1).expect("lane 1 exists");
        let (device, _) = Device::new(now, DEVICE, 0);
        let pool = Pool::new([(DEVICE, Discipline::JudgeFirst)]);
        let mut round = Round { pool, device, lane: Lane::new(id), id, post: VecDeque::new(), now, asked: 0 };
        round.post.push_back(Letter::Pool(PoolInput::JudgeWork(JudgeWork { version: 1, ..JudgeWork::default() })));
        round.post.push_back(Letter::Device(DeviceInput::Swept));
        round.deliver();
        round
    }

    /// One development run from the asking to its end; says how many messages that took.
    fn go(&mut self) -> u64 {
        self.asked += 1;
        self.now = self.now + Span::millis(1);
        let ask = Ask {
            dev_run: DevRunId(Uuid::from_u128(u128::from(self.asked))),
            run: RUN,
            arrival: Arrival(self.asked),
            limit: Some(limits::SHARED_DEV_RUN_MAX),
            caller: Caller::Detached,
            since: self.now,
            latest: self.now + limits::DEV_RUN_WAIT_MAX,
        };
        let effects = self.lane.ask(ask).expect("the lane is idle after each round");
        self.lane_wants(effects);
        1 + self.deliver()
    }

    fn deliver(&mut self) -> u64 {
        let mut messages = 0;
        while let Some(letter) = self.post.pop_front() {
            messages += 1;
            match letter {
                Letter::Lane(input) => {
                    let mut effects = self.lane.advance(self.now);
                    effects.extend(self.lane.handle(self.now, input));
                    black_box(self.lane.next_deadline());
                    self.lane_wants(effects);
                }
                Letter::Pool(input) => {
                    let mut effects = self.pool.advance(self.now);
                    effects.extend(self.pool.handle(self.now, input));
                    black_box(self.pool.next_deadline());
                    self.pool_wants(effects);
                }
                Letter::Device(input) => {
                    let mut effects = self.device.advance(self.now);
                    effects.extend(self.device.handle(self.now, input));
                    black_box(self.device.next_deadline());
                    self.device_wants(effects);
                }
            }
        }
        messages
    }

    fn lane_wants(&mut self, effects: Vec<LaneEffect>) {
        for effect in effects {
            let letter = match effect {
                LaneEffect::RecordAsk => Letter::Lane(LaneInput::AskRecorded),
                LaneEffect::RecordHold { hold, .. } => Letter::Lane(LaneInput::HoldRecorded { hold }),
                LaneEffect::RecordEnd { .. } => Letter::Lane(LaneInput::EndRecorded),
                LaneEffect::AskPool => Letter::Pool(PoolInput::Ask {
                    lane: self.id,
                    dev_run: DevRunId(Uuid::from_u128(u128::from(self.asked))),
                    run: RUN,
                    arrival: Arrival(self.asked),
                    acceptable: self.pool.acceptable(self.id),
                    limit: Some(limits::SHARED_DEV_RUN_MAX),
                    since: self.now,
                    latest: self.now + limits::DEV_RUN_WAIT_MAX,
                }),
                LaneEffect::Claim { hold } => Letter::Pool(PoolInput::Claim { by: Holder::Lane(self.id), hold }),
                LaneEffect::Start { hold, limit } => {
                    Letter::Device(DeviceInput::Start { number: hold.number, by: Holder::Lane(self.id), limit })
                }
                LaneEffect::AnswerQueued { .. } | LaneEffect::AnswerEnd { .. } => continue,
                LaneEffect::AnswerNotRecorded { .. }
                | LaneEffect::AnswerTooLate { .. }
                | LaneEffect::CancelWait { .. }
                | LaneEffect::ReleaseUnused { .. }
                | LaneEffect::StopHold { .. } => unreachable!("nothing is cancelled in a round"),
            };
            self.post.push_back(letter);
        }
    }

    fn pool_wants(&mut self, effects: Vec<PoolEffect>) {
        for effect in effects {
            self.post.push_back(Letter::Lane(match effect {
                PoolEffect::InLine { dev_run, ahead, .. } => LaneInput::InLine { dev_run, ahead },
                PoolEffect::GrantLane { dev_run, hold, limit, .. } => LaneInput::Granted { dev_run, hold, limit },
                PoolEffect::HoldEnded { hold, how, .. } => LaneInput::HoldEnded { hold, how },
                PoolEffect::WorkTaken { .. } => continue,
                other => unreachable!("not in a round: {other:?}"),
            }));
        }
    }

    fn device_wants(&mut self, effects: Vec<DeviceEffect>) {
        for effect in effects {
            match effect {
                DeviceEffect::StartDevRun { number } => {
                    self.post.push_back(Letter::Device(DeviceInput::Started { number }));
                    self.post.push_back(Letter::Device(DeviceInput::Exited { number, exit: Exit::Code(0) }));
                }
                DeviceEffect::StopProcesses { number, .. } => {
                    self.post.push_back(Letter::Device(DeviceInput::Emptied { number }));
                }
                DeviceEffect::Tell(event) => {
                    self.post.push_back(Letter::Pool(PoolInput::Member { member: DEVICE, event }));
                }
                DeviceEffect::Sweep | DeviceEffect::StageOpen { .. } | DeviceEffect::Look | DeviceEffect::Distrust => {}
            }
        }
    }
}

fn rounds(criterion: &mut Criterion) {
    let mut round = Round::new();
    let messages = round.go();
    let mut group = criterion.benchmark_group("core");
    group.measurement_time(Duration::from_secs(2)).warm_up_time(Duration::from_millis(500));
    group.throughput(Throughput::Elements(messages));
    group.bench_function("messages of a development run", |bencher| bencher.iter(|| black_box(round.go())));
    group.finish();
}

/// A judge queue over a pool of one device; its records answer at once, and every job gains nothing.
struct Queue {
    queue: JudgeQueue,
    pool: Pool,
    post: VecDeque<JudgeEffect>,
    now: Moment,
    submitted: u64,
    held: Option<HoldId>,
}

impl Queue {
    /// One with so many jobs, the first of which holds the device.
    fn of(jobs: u64) -> Queue {
        let now = Moment::from_millis(1_000);
        let mut queue = Queue {
            queue: JudgeQueue::new(1),
            pool: Pool::new([(DEVICE, Discipline::JudgeFirst)]),
            post: VecDeque::new(),
            now,
            submitted: 0,
            held: None,
        };
        let effects = queue.queue.open();
        queue.post.extend(effects);
        let ready = thermite_core::device::MemberEvent::Ready { last: 0 };
        queue.pool_takes(PoolInput::Member { member: DEVICE, event: ready });
        let effects = queue.queue.start_run(RUN, "champion".to_owned()).expect("no run is worked on");
        queue.post.extend(effects);
        queue.settle();
        for _ in 0..jobs {
            queue.submit();
        }
        queue
    }

    fn submit(&mut self) {
        self.submitted += 1;
        let number = self.submitted;
        let submit = Submit {
            job: JobId(Uuid::from_u128(u128::from(number))),
            run: RUN,
            arrival: Arrival(number),
            champion: "champion".to_owned(),
            candidate: format!("candidate {number}"),
            same: format!("candidate {number} against champion"),
            key: None,
            stage_worst: Span::minutes(30),
        };
        match self.queue.submit(submit) {
            Ok(Submission::New(effects)) => self.post.extend(effects),
            other => unreachable!("every job is new: {other:?}"),
        }
        self.settle();
    }

    /// The stage under way ends, and the next job gets the device.
    fn hand_over(&mut self) {
        let hold = self.held.take().expect("a job holds the device");
        let result = StageResult::NoGain { slower: false };
        let effects = self.queue.handle(self.now, JudgeInput::StageEnded { hold, result });
        self.post.extend(effects);
        self.settle();
        assert!(self.held.is_some_and(|next| next.number > hold.number), "the next job has the device");
    }

    fn judge_takes(&mut self, input: JudgeInput) {
        let mut effects = self.queue.advance(self.now);
        effects.extend(self.queue.handle(self.now, input));
        self.post.extend(effects);
    }

    fn pool_takes(&mut self, input: PoolInput) {
        let mut effects = self.pool.advance(self.now);
        effects.extend(self.pool.handle(self.now, input));
        for effect in effects {
            match effect {
                PoolEffect::WorkTaken { version } => self.judge_takes(JudgeInput::WorkTaken { version }),
                PoolEffect::GrantJudge { hold, serves } => self.judge_takes(JudgeInput::Granted { hold, serves }),
                PoolEffect::HoldEnded { hold, how, .. } => self.judge_takes(JudgeInput::HoldEnded { hold, how }),
                other => unreachable!("only the judge is there: {other:?}"),
            }
        }
    }

    fn settle(&mut self) {
        while let Some(effect) = self.post.pop_front() {
            match effect {
                JudgeEffect::Record { ticket, .. } => self.judge_takes(JudgeInput::Recorded(ticket)),
                JudgeEffect::RecordRun { run, .. } => {
                    self.judge_takes(JudgeInput::Recorded(thermite_core::judge_queue::Ticket::Run(run)));
                }
                JudgeEffect::Tell(work) => self.pool_takes(PoolInput::JudgeWork(work)),
                JudgeEffect::Claim { hold } => self.pool_takes(PoolInput::Claim { by: Holder::Judge, hold }),
                JudgeEffect::ReleaseUnused { hold } => {
                    self.pool_takes(PoolInput::ReleaseUnused { by: Holder::Judge, hold });
                }
                JudgeEffect::StartStage { hold, .. } => {
                    self.held = Some(hold);
                    self.judge_takes(JudgeInput::BuildsDone { hold });
                }
                JudgeEffect::EndHold { hold } => {
                    let how = HoldEnd::Stopped(StopCause::StageOver);
                    let event = thermite_core::device::MemberEvent::Freed { number: hold.number, how };
                    self.pool_takes(PoolInput::Member { member: hold.member, event });
                }
                _ => {}
            }
        }
    }
}

/// Submits and hand-overs done in a row, so that reading the clock is not what is timed.
const IN_A_ROW: u64 = 16;

/// Times one of two things that keep the queue's length when both are done.
fn one_of(queue: &mut Queue, rounds: u64, submits: bool) -> Duration {
    let mut took = Duration::ZERO;
    let mut left = rounds;
    while left > 0 {
        let row = left.min(IN_A_ROW);
        left -= row;
        let began = cpu_time();
        (0..row).for_each(|_| queue.submit());
        let between = cpu_time();
        (0..row).for_each(|_| queue.hand_over());
        took += if submits { between - began } else { cpu_time() - between };
    }
    took
}

/// The CPU time of this thread: lengths are compared with each other, and a loaded machine must not tell them apart.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).expect("a thread's CPU time is not negative");
    Duration::new(seconds, u32::try_from(time.tv_nsec).expect("below a second"))
}

fn judge_queue(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("judge queue");
    group.measurement_time(Duration::from_secs(2)).warm_up_time(Duration::from_millis(500));
    for jobs in [100_u64, 10_000, 100_000] {
        let mut queue = Queue::of(jobs);
        group.bench_function(BenchmarkId::new("submit", jobs), |bencher| {
            bencher.iter_custom(|rounds| one_of(&mut queue, rounds, true));
        });
        group.bench_function(BenchmarkId::new("hand over", jobs), |bencher| {
            bencher.iter_custom(|rounds| one_of(&mut queue, rounds, false));
        });
    }
    group.finish();
}

criterion_group!(benches, rounds, judge_queue);
criterion_main!(benches);
