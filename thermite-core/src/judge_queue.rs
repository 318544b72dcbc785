//! The judge queue: jobs of all runs, their order and attempts, the build turn, champions, verdicts (rules A3, B7, D5,
//! D7, A13).
//!
//! It does not know how a stage measures ([`crate::stage`] does), nor what a change contains: it is told a stage's
//! result and decides what follows. Whatever it promises leaves only after the records have it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};

use crate::block::is_steered;
use crate::fold::{Behind, RigHistory};
use crate::hold::HoldEnd;
use crate::ids::{Arrival, HoldId, JobId, MemberId, RunId};
use crate::job::{ChangeStep, JobOutcome, JobSpec, StageKind};
use crate::limits;
use crate::refusal::{GaveUp, InfrastructureFailure, Refusal};
use crate::run::RunState;
use crate::settled::{self, Settled};
use crate::time::{Moment, Span};

mod answers;
mod reuse;
mod runners;
mod runs;
mod split;
mod tell;
mod view;
mod words;

use answers::Over;
use reuse::{Given, champion_moved, is_adopted};
use split::failed_everywhere;
pub use view::{JobWaits, LiveJob, Standing};
pub use words::{Builds, JudgeEffect, JudgeFact, JudgeInput, OtherModel, StageResult, Submission, Submit, Ticket};

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum JobState {
    /// Its acceptance is being made durable.
    Recording,
    /// It keeps its place in the line.
    Queued {
        /// Until when it rests after an infrastructure failure.
        rests_until: Option<Moment>,
    },
    /// A stage has a device, or its builds have the bench.
    Held {
        hold: HoldId,
        /// Whether the start is durable and has gone out.
        started: bool,
    },
    /// What follows is being made durable; the hold stays until the pool knows the work that is left.
    Concluding { hold: Option<HoldId>, then: Then },
}

/// What follows once it is durable.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum Then {
    /// The confirmation, elsewhere where there is another judge's device (rule B6).
    Confirm { screened_on: MemberId },
    /// Another attempt at the same stage.
    Retry { rests_until: Option<Moment> },
    /// The end.
    End { outcome: JobOutcome },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Job {
    run: RunId,
    arrival: Arrival,
    champion: String,
    candidate: String,
    same: String,
    key: Option<String>,
    stage_worst: Span,
    stage: StageKind,
    screened_on: Option<MemberId>,
    /// What its screening was won as; none where an older log does not say: then it counts on every model.
    screened_as: Option<String>,
    /// What its stage under way measures it as, where the cards that judge have another model meanwhile.
    measured_as: Option<String>,
    /// Members on which infrastructure failed it.
    failed_on: BTreeSet<MemberId>,
    /// Of these, the ones that are too noisy for its contract.
    noisy_on: BTreeSet<MemberId>,
    attempt: u32,
    failures: u32,
    /// Whether the disk had no room for its last attempt.
    lacked_room: bool,
    /// Blocks of its attempts, in this life of the rig, in which the change alone was killed without a visible cause.
    killed: u32,
    answered: bool,
    state: JobState,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Run {
    /// What is durable; nothing while its start is still on its way.
    state: Option<RunState>,
    champion: String,
    /// The champion it is about to have, while that is being made durable.
    next_champion: Option<String>,
    /// The states on their way to the records, in order: each counts once it is durable itself.
    pending: VecDeque<RunState>,
}

/// All jobs of all runs.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct JudgeQueue {
    /// How many devices judge: where all of them are too noisy for its contract, a job ends at once.
    devices: usize,
    /// Whether they are cards: a machine's CPUs are no card that different jobs could fail on.
    #[serde(default)]
    cards: bool,
    /// Where jobs build.
    builds: Builds,
    /// The cards that judge, where they are of another model than those before them.
    other_cards: Option<BTreeSet<MemberId>>,
    /// Jobs that failed on each card, one after another, by nobody's fault (rule D5).
    failing: BTreeMap<MemberId, BTreeSet<JobId>>,
    runs: BTreeMap<RunId, Run>,
    jobs: BTreeMap<JobId, Job>,
    /// Queued jobs by run and arrival, so that a long queue costs no more than a short one.
    queued: BTreeMap<RunId, BTreeMap<Arrival, JobId>>,
    /// Jobs that are held, or concluding after a hold.
    busy: BTreeSet<JobId>,
    /// Jobs that end without a hold, their ends on their way to the records. Apart, since a run that ends may have
    /// thousands.
    ending: BTreeSet<JobId>,
    /// Jobs whose attempt the bench has built: they wait for a card, or have one.
    built: BTreeSet<JobId>,
    resting: BTreeMap<JobId, Moment>,
    /// Who has the build turn (rule B7).
    turn: Option<JobId>,
    version: u64,
    /// Holds to end, and submissions to answer, once the pool knows the work of that version.
    releases: Vec<(HoldId, u64)>,
    answers: Vec<(JobId, u64)>,
    run_answers: Vec<(RunId, RunState, u64)>,
    /// Runs whose development runs may not wait: paused ones, and those that ended since the start.
    stopped: BTreeMap<RunId, GaveUp>,
    keys: BTreeMap<String, JobId>,
    /// What jobs that are over still answer for, the oldest end first: it leaves, and the records know it.
    over: VecDeque<Over>,
    /// The job that answers for an asking in its run.
    same: BTreeMap<String, BTreeMap<RunId, JobId>>,
    /// The verdicts that are given again in other runs.
    settled: Settled<Given>,
    /// The longest that a stage of any job so far can take: bounds what is ahead without looking at it.
    longest_stage: Span,
}

impl JudgeQueue {
    /// An empty queue over this many judging devices.
    pub fn new(devices: usize) -> JudgeQueue {
        JudgeQueue {
            devices,
            cards: false,
            builds: Builds::default(),
            other_cards: None,
            failing: BTreeMap::new(),
            runs: BTreeMap::new(),
            jobs: BTreeMap::new(),
            queued: BTreeMap::new(),
            busy: BTreeSet::new(),
            ending: BTreeSet::new(),
            built: BTreeSet::new(),
            resting: BTreeMap::new(),
            turn: None,
            version: 0,
            releases: Vec::new(),
            answers: Vec::new(),
            run_answers: Vec::new(),
            stopped: BTreeMap::new(),
            keys: BTreeMap::new(),
            over: VecDeque::new(),
            same: BTreeMap::new(),
            settled: Settled::default(),
            longest_stage: Span::ZERO,
        }
    }

    /// The same, building there.
    #[must_use]
    pub fn building(self, builds: Builds) -> JudgeQueue {
        JudgeQueue { builds, ..self }
    }

    /// The same; its devices are cards, or the machine's CPUs.
    #[must_use]
    pub fn on_cards(self, cards: bool) -> JudgeQueue {
        JudgeQueue { cards, ..self }
    }

    /// Takes over what the log tells of runs and jobs, before [`JudgeQueue::open`].
    ///
    /// `same` and `stage_worst` say of each job what [`Submit`] says.
    pub fn restore(
        &mut self,
        history: &RigHistory,
        same: impl Fn(&JobSpec) -> String,
        stage_worst: impl Fn(&JobSpec) -> Span,
    ) {
        for (id, run) in &history.runs {
            let known = Run {
                state: Some(run.state),
                champion: run.champion.clone(),
                next_champion: None,
                pending: VecDeque::new(),
            };
            self.runs.insert(*id, known);
            if run.state == RunState::Paused {
                self.stopped.insert(*id, GaveUp::RunPaused);
            }
        }
        for (key, verdict) in history.settled.iter() {
            self.settled.insert(key.to_owned(), Given { from: verdict.from, outcome: verdict.outcome.clone() });
        }
        let mut ended = BTreeMap::new();
        for (id, known) in &history.jobs {
            let pinned = &known.spec.pinned;
            let submit = Submit {
                job: *id,
                run: known.spec.run,
                arrival: known.spec.arrival,
                champion: pinned.champion.clone(),
                candidate: pinned.candidate.clone(),
                // A verdict was settled for the kind of card it was measured on, whatever the rig has by now.
                same: known.settled_as.clone().unwrap_or_else(|| same(&known.spec)),
                key: known.key.clone(),
                stage_worst: stage_worst(&known.spec),
            };
            match &known.end {
                Some((outcome, _)) => {
                    self.remember(&submit);
                    ended.insert(*id, (submit, outcome));
                }
                None => {
                    self.remember(&submit);
                    let mut job = Job::new(submit, JobState::Recording);
                    job.stage = known.stage;
                    job.screened_on = known.screened.as_ref().map(|screened| screened.0);
                    job.screened_as = known.screened_as.clone();
                    job.attempt = known.attempt;
                    job.failures = u32::try_from(known.failures.len()).unwrap_or(u32::MAX);
                    job.answered = true;
                    self.jobs.insert(*id, job);
                    self.line_up(*id, None);
                }
            }
        }
        for (submit, outcome) in history.over.jobs.iter().filter_map(|id| ended.remove(id)) {
            self.is_over(submit.job, submit.key, (submit.same, submit.run), outcome);
        }
    }

    /// Lets the jobs that runners had when the core died rest until their leases are over for certain, before
    /// [`JudgeQueue::open`]: what runs there is handed on by that moment alone, never by what a disk says (rule E17).
    pub fn rest_for_leases(&mut self, now: Moment, history: &RigHistory) {
        for (member, behind) in &history.holding {
            let Behind::Job { job: id, .. } = behind else { continue };
            if let Some(job) = self.jobs.get_mut(id).filter(|_| member.is_runner())
                && let JobState::Queued { rests_until } = &mut job.state
            {
                let until = now + limits::HAND_ON_AFTER;
                *rests_until = Some(until);
                self.resting.insert(*id, until);
            }
        }
    }

    /// Tells the pool the work there is at the start; before, it grants nothing.
    pub fn open(&mut self) -> Vec<JudgeEffect> {
        let mut out = Vec::new();
        let over: Vec<RunId> =
            self.runs.iter().filter(|(_, run)| run.state == Some(RunState::Ended)).map(|(id, _)| *id).collect();
        for run in over {
            self.end_waiting(run, &mut out);
        }
        // What was to be given a verdict when the rig died has been accepted and not been ended.
        let waiting = self.queued.values().flat_map(BTreeMap::values).copied();
        let given: Vec<JobId> = waiting.filter(|id| self.given_to(*id).is_some()).collect();
        given.into_iter().for_each(|id| self.give(id, &mut out));
        self.tell(&mut out);
        out
    }

    /// Submits a job. A paused run's jobs are accepted and keep their place (rule A3).
    ///
    /// # Errors
    /// Refused for an unknown or ended run, and where too many wait.
    pub fn submit(&mut self, submit: Submit) -> Result<Submission, Refusal> {
        let there = |job: JobId| {
            let answered = self.jobs.get(&job).is_none_or(|known| known.answered);
            Ok(Submission::Same { job, answered })
        };
        if let Some(job) = submit.key.as_ref().and_then(|key| self.keys.get(key)) {
            return there(*job);
        }
        match self.takes_work(submit.run) {
            Ok(()) | Err(Refusal::RunPaused { .. }) => {}
            Err(refusal) => return Err(refusal),
        }
        if let Some(job) = self.same.get(&submit.same).and_then(|runs| runs.get(&submit.run)) {
            return there(*job);
        }
        if self.jobs.len() >= limits::JOBS_QUEUED_MAX {
            return Err(Refusal::QueueFull { most: limits::JOBS_QUEUED_MAX });
        }
        let job = submit.job;
        self.remember(&submit);
        self.jobs.insert(job, Job::new(submit, JobState::Recording));
        Ok(Submission::New(vec![JudgeEffect::Record {
            ticket: Ticket::Submit(job),
            job,
            facts: vec![JudgeFact::Submitted],
        }]))
    }

    /// Takes an input and says what must be done for it.
    pub fn handle(&mut self, now: Moment, input: JudgeInput) -> Vec<JudgeEffect> {
        let mut out = Vec::new();
        match input {
            JudgeInput::Recorded(ticket) => self.recorded(now, ticket, &mut out),
            JudgeInput::NotRecorded(ticket) => self.not_recorded(ticket, &mut out),
            JudgeInput::WorkTaken { version } => self.work_taken(version, &mut out),
            JudgeInput::Granted { hold, serves } => self.granted(hold, &serves, &mut out),
            JudgeInput::NewSplit { judging, builds, other_model } => {
                self.new_split(judging, builds, other_model, &mut out);
            }
            JudgeInput::Runners { judging, gone, cards, same } => {
                self.new_judges(judging, &gone, cards, same, &mut out);
            }
            JudgeInput::BuildsDone { hold } => {
                if let Some(job) = self.job_under(hold)
                    && self.turn == Some(job)
                {
                    self.turn = None;
                    self.tell(&mut out);
                }
            }
            JudgeInput::StageEnded { hold, result } => self.stage_ended(now, hold, result, &mut out),
            JudgeInput::HoldEnded { hold, how } => self.hold_ended(hold, &how, &mut out),
        }
        out
    }

    /// Lets every deadline up to `now` pass.
    pub fn advance(&mut self, now: Moment) -> Vec<JudgeEffect> {
        let mut out = Vec::new();
        let rested: Vec<JobId> = self.resting.iter().filter(|(_, until)| **until <= now).map(|(job, _)| *job).collect();
        for id in &rested {
            self.resting.remove(id);
            if let Some(Job { state: JobState::Queued { rests_until }, .. }) = self.jobs.get_mut(id) {
                *rests_until = None;
            }
        }
        if !rested.is_empty() {
            self.tell(&mut out);
        }
        out
    }

    /// The next moment at which [`JudgeQueue::advance`] does something, and what it is.
    pub fn next_deadline(&self) -> Option<(Moment, &'static str)> {
        self.resting.values().min().map(|until| (*until, "job rested after an infrastructure failure"))
    }

    /// The lowest work version still spoken of: what [`JudgeQueue::rebase`] may take off.
    pub fn lowest_version(&self) -> u64 {
        let waited = self.releases.iter().map(|release| release.1);
        let answers = self.answers.iter().map(|answer| answer.1);
        waited.chain(answers).chain(self.run_answers.iter().map(|answer| answer.2)).fold(self.version, u64::min)
    }

    /// Tells all times from `origin`, versions and hold numbers from the lowest: keeps exhaustive checking finite.
    pub fn rebase(&mut self, origin: Moment, version: u64, lowest: impl Fn(MemberId) -> u64) {
        self.version -= version;
        self.releases.iter_mut().for_each(|(hold, at)| {
            *at -= version;
            hold.number -= lowest(hold.member);
        });
        self.answers.iter_mut().for_each(|(_, at)| *at -= version);
        self.run_answers.iter_mut().for_each(|(_, _, at)| *at -= version);
        self.resting.values_mut().for_each(|until| *until = until.rebase(origin));
        for job in self.jobs.values_mut() {
            match &mut job.state {
                JobState::Recording | JobState::Concluding { hold: None, .. } => {}
                JobState::Queued { rests_until } => {
                    *rests_until = rests_until.map(|until| until.rebase(origin));
                }
                JobState::Held { hold, .. } | JobState::Concluding { hold: Some(hold), .. } => {
                    hold.number -= lowest(hold.member);
                }
            }
            if let JobState::Concluding { then: Then::Retry { rests_until: Some(until) }, .. } = &mut job.state {
                *until = until.rebase(origin);
            }
        }
    }

    fn recorded(&mut self, now: Moment, ticket: Ticket, out: &mut Vec<JudgeEffect>) {
        match ticket {
            Ticket::Submit(id) => {
                if let Some(job) = self.jobs.get_mut(&id)
                    && job.state == JobState::Recording
                {
                    self.enqueue(id, None, out);
                    if self.given_to(id).is_some() {
                        self.give(id, out);
                    }
                    self.tell(out);
                    self.answers.push((id, self.version));
                }
            }
            Ticket::Start(id, hold) => {
                if let Some(job) = self.jobs.get_mut(&id)
                    && let JobState::Held { hold: held, started: started @ false } = &mut job.state
                    && *held == hold
                {
                    *started = true;
                    let (stage, attempt) = (job.stage, job.attempt);
                    out.push(if hold.member == MemberId::BENCH {
                        JudgeEffect::StartBuild { hold, job: id, stage, attempt }
                    } else {
                        JudgeEffect::StartStage { hold, job: id, stage, attempt }
                    });
                }
            }
            Ticket::Conclude(id) => self.concluded(now, id, out),
            Ticket::Run(run) => self.run_recorded(run, out),
        }
    }

    fn not_recorded(&mut self, ticket: Ticket, out: &mut Vec<JudgeEffect>) {
        match ticket {
            Ticket::Submit(id) => {
                if let Some(job) = self.jobs.remove(&id) {
                    self.forget_same(&job.same, job.run, id);
                    if let Some(key) = &job.key {
                        self.keys.remove(key);
                    }
                    out.push(JudgeEffect::AnswerNotRecorded { job: id });
                }
            }
            Ticket::Run(run) => {
                if let Some(entry) = self.runs.get_mut(&run) {
                    entry.pending.pop_front();
                    out.push(JudgeEffect::AnswerRun { run, state: None });
                    if entry.state.is_none() {
                        // Its start is not in the log, so there is no such run.
                        self.runs.remove(&run);
                    }
                }
            }
            // What has happened is written again until the records take it.
            Ticket::Start(..) | Ticket::Conclude(_) => {}
        }
    }

    fn work_taken(&mut self, version: u64, out: &mut Vec<JudgeEffect>) {
        for (hold, _) in self.releases.extract_if(.., |release| release.1 <= version) {
            out.push(JudgeEffect::EndHold { hold });
        }
        let answers: Vec<JobId> =
            self.answers.extract_if(.., |answer| answer.1 <= version).map(|answer| answer.0).collect();
        for id in answers {
            let ahead = self.ahead(id);
            if let Some(job) = self.jobs.get_mut(&id) {
                job.answered = true;
            }
            out.push(JudgeEffect::AnswerSubmitted { job: id, ahead });
        }
        let runs = self.run_answers.extract_if(.., |answer| answer.2 <= version);
        out.extend(runs.map(|(run, state, _)| JudgeEffect::AnswerRun { run, state: Some(state) }));
    }

    fn granted(&mut self, hold: HoldId, serves: &[(JobId, StageKind)], out: &mut Vec<JudgeEffect>) {
        let pick = serves
            .iter()
            .filter_map(|(id, stage)| self.jobs.get(id).map(|job| (job.arrival, *id, *stage, job)))
            .filter(|(_, id, stage, job)| {
                job.stage == *stage
                    && self.wanted(*id, hold.member)
                    && self.startable(*id, job)
                    && self.judges(hold.member)
            })
            .map(|(arrival, id, _, _)| (arrival, id))
            .min();
        let Some((_, id)) = pick else {
            out.push(JudgeEffect::ReleaseUnused { hold });
            return;
        };
        self.dequeue(id);
        // What the bench has built is of no use on a runner: the job builds there, as another attempt (rule B7).
        let is_built = if hold.member.is_runner() {
            self.built.remove(&id);
            false
        } else {
            self.built.contains(&id)
        };
        let job = self.jobs.get_mut(&id).expect("the picked job is one of the queue's");
        // A stage whose builds the bench made is the same attempt on its card.
        if !is_built {
            job.attempt = job.attempt.saturating_add(1);
            self.turn = Some(id);
        }
        job.lacked_room = false;
        if job.stage == StageKind::Screening {
            // What was won on another model is won no more once it is screened anew.
            job.screened_on = None;
            job.screened_as = None;
        }
        job.state = JobState::Held { hold, started: false };
        let (stage, attempt) = (job.stage, job.attempt);
        let fact = if hold.member == MemberId::BENCH {
            JudgeFact::BuildStarted { stage, attempt, hold }
        } else {
            JudgeFact::StageStarted { stage, attempt, hold }
        };
        self.busy.insert(id);
        self.tell(out);
        out.push(JudgeEffect::Claim { hold });
        out.push(JudgeEffect::Record { ticket: Ticket::Start(id, hold), job: id, facts: vec![fact] });
    }

    fn stage_ended(&mut self, now: Moment, hold: HoldId, result: StageResult, out: &mut Vec<JudgeEffect>) {
        let Some(id) = self.job_under(hold) else { return };
        let job = self.jobs.get(&id).expect("the job under a hold is one of the queue's");
        let over = self.runs.get(&job.run).is_none_or(|run| run.state == Some(RunState::Ended));
        let stage = job.stage;
        let card = (hold.member != MemberId::BENCH).then_some(hold.member);
        if let (Some(_), StageResult::Infrastructure(why)) = (card, &result) {
            let why = why.clone();
            self.failed_on(hold, id, &why, out);
        } else if let Some(card) = card {
            self.failing.remove(&card);
        }
        if result != StageResult::Built {
            // Whatever follows is another attempt, with builds of its own.
            self.built.remove(&id);
        }
        let job = self.jobs.get_mut(&id).expect("the job under a hold is one of the queue's");
        let (fact, then) = match result {
            StageResult::Built => return self.built(id, hold, out),
            StageResult::Win if stage == StageKind::Screening && !over => {
                (JudgeFact::ScreeningWon { hold }, Then::Confirm { screened_on: hold.member })
            }
            StageResult::Win if stage == StageKind::Screening => ended(hold, no_verdict(RUN_ENDED)),
            StageResult::Win => ended(hold, JobOutcome::Win { adopted: is_adopted(&self.runs, job) }),
            StageResult::NoGain { slower } => ended(hold, JobOutcome::NoGain { slower }),
            StageResult::Undecided => ended(hold, JobOutcome::Undecided),
            StageResult::ChangeFailed { step, why } => ended(hold, JobOutcome::ChangeFailed { step, why }),
            // A full disk is waited for: no number of tries makes room (rule D5).
            StageResult::Infrastructure(why @ InfrastructureFailure::DiskFull { .. }) if !over => {
                job.lacked_room = true;
                let rests_until = Some(now + limits::DISK_FULL_RETRY_AFTER);
                (JudgeFact::AttemptFailed { stage, hold, why }, Then::Retry { rests_until })
            }
            StageResult::Infrastructure(why) => {
                job.failures = job.failures.saturating_add(1);
                if let InfrastructureFailure::ChangeKilled { killed, .. } = why {
                    job.killed = job.killed.saturating_add(killed);
                }
                job.failed_on.extend(card);
                let is_noise = matches!(why, InfrastructureFailure::TooNoisy { .. });
                if is_noise {
                    job.noisy_on.extend(card);
                }
                let all_too_noisy = is_noise && !job.noisy_on.is_empty() && job.noisy_on.len() >= self.devices;
                // Whoever kills without looking at the label does not hit one alone so often: the change ends itself.
                if !over && is_steered(job.killed, job.killed) {
                    ended(hold, JobOutcome::ChangeFailed { step: ChangeStep::Measure, why: why.to_string() })
                } else if over || all_too_noisy || job.failures >= limits::INFRASTRUCTURE_FAILURES_MAX {
                    ended(hold, no_verdict(&failed_everywhere(&why, &job.failed_on)))
                } else {
                    let rests_until = Some(now + limits::RETRY_AFTER);
                    (JudgeFact::AttemptFailed { stage, hold, why }, Then::Retry { rests_until })
                }
            }
        };
        let mut facts = vec![fact];
        if let Then::End { .. } = &then
            && let Some(measured_as) = job.measured_as.take()
        {
            self.rename(id, measured_as);
        }
        let job = self.jobs.get_mut(&id).expect("the job under a hold is one of the queue's");
        if let Then::End { outcome } = &then {
            facts.extend(champion_moved(&mut self.runs, job, outcome));
        }
        job.state = JobState::Concluding { hold: Some(hold), then };
        if self.turn == Some(id) {
            self.turn = None;
        }
        out.push(JudgeEffect::Record { ticket: Ticket::Conclude(id), job: id, facts });
    }

    fn concluded(&mut self, now: Moment, id: JobId, out: &mut Vec<JudgeEffect>) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let JobState::Concluding { hold, then } = job.state.clone() else { return };
        self.busy.remove(&id);
        self.ending.remove(&id);
        match then {
            Then::Confirm { screened_on } => {
                job.stage = StageKind::Confirmation;
                job.failed_on.clear();
                job.attempt = 0; // Attempts are counted for each stage.
                job.screened_on = Some(screened_on);
                job.screened_as = Some(job.measured_as.clone().unwrap_or_else(|| job.same.clone()));
                self.enqueue(id, None, out);
            }
            // On a slow disk the rest can be over before the failure is durable.
            Then::Retry { rests_until } => self.enqueue(id, rests_until.filter(|until| *until > now), out),
            Then::End { outcome } => {
                if let (JobOutcome::Win { adopted: true }, Some(run)) = (&outcome, self.runs.get_mut(&job.run)) {
                    run.champion = job.candidate.clone();
                    // INVARIANT: the last of the moves on their way to the records is the last to come back from there.
                    run.next_champion.take_if(|next| *next == run.champion);
                }
                let same = job.same.clone();
                self.forget(id, &outcome);
                // What was given only is settled by the job that was measured.
                if hold.is_some() && settled::is_verdict(&outcome) {
                    self.settled.insert(same.clone(), Given { from: id, outcome: outcome.clone() });
                }
                out.push(JudgeEffect::JobEnded { job: id, outcome });
                self.give_others(&same, out);
            }
        }
        // INVARIANT: the pool knows what is left before the device is free, so that no lane slips in between (A2).
        self.tell(out);
        if let Some(hold) = hold {
            self.releases.push((hold, self.version));
        }
    }

    fn hold_ended(&mut self, hold: HoldId, how: &HoldEnd, out: &mut Vec<JudgeEffect>) {
        let Some(id) = self.job_under(hold) else { return };
        if self.turn == Some(id) {
            self.turn = None;
        }
        match how {
            HoldEnd::NotStarted => {
                self.busy.remove(&id);
                if let Some(job) = self.jobs.get_mut(&id)
                    && !self.built.contains(&id)
                {
                    job.attempt = job.attempt.saturating_sub(1);
                }
                self.enqueue(id, None, out);
                self.tell(out);
            }
            HoldEnd::Stopped(_) | HoldEnd::NotProved { .. } => {
                // Going back is no failure (rule D5): the stage in progress starts over.
                self.built.remove(&id);
                if let Some(job) = self.jobs.get_mut(&id) {
                    job.state = JobState::Concluding { hold: None, then: Then::Retry { rests_until: None } };
                }
                let facts = vec![JudgeFact::SentBack];
                self.tell(out);
                out.push(JudgeEffect::Record { ticket: Ticket::Conclude(id), job: id, facts });
            }
        }
    }

    /// Puts a job in its place in the line; one of a run that has ended meanwhile ends there and then.
    fn enqueue(&mut self, id: JobId, rests_until: Option<Moment>, out: &mut Vec<JudgeEffect>) {
        let other_model = self.jobs.get(&id).is_some_and(|job| job.measured_as.is_some());
        self.line_up(id, rests_until);
        // On the model that judges meanwhile there may be a verdict.
        if other_model && self.given_to(id).is_some() {
            self.give(id, out);
        }
        if let Some(run) = self.jobs.get(&id).map(|job| job.run)
            && self.run_state(run) == Some(RunState::Ended)
        {
            self.end_waiting(run, out);
        }
    }

    fn line_up(&mut self, id: JobId, rests_until: Option<Moment>) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        job.state = JobState::Queued { rests_until };
        job.measured_as = None;
        self.queued.entry(job.run).or_default().insert(job.arrival, id);
        if let Some(until) = rests_until {
            self.resting.insert(id, until);
        }
        self.screen_again(id);
    }

    fn dequeue(&mut self, id: JobId) {
        let Some(job) = self.jobs.get(&id) else { return };
        if let Some(jobs) = self.queued.get_mut(&job.run) {
            jobs.remove(&job.arrival);
            if jobs.is_empty() {
                self.queued.remove(&job.run);
            }
        }
        self.resting.remove(&id);
    }

    fn job_under(&self, hold: HoldId) -> Option<JobId> {
        self.busy
            .iter()
            .find(|id| matches!(self.jobs.get(id), Some(Job { state: JobState::Held { hold: held, .. }, .. }) if *held == hold))
            .copied()
    }
}

impl Job {
    fn new(submit: Submit, state: JobState) -> Job {
        Job {
            run: submit.run,
            arrival: submit.arrival,
            champion: submit.champion,
            candidate: submit.candidate,
            same: submit.same,
            key: submit.key,
            stage_worst: submit.stage_worst,
            stage: StageKind::Screening,
            screened_on: None,
            screened_as: None,
            measured_as: None,
            failed_on: BTreeSet::new(),
            noisy_on: BTreeSet::new(),
            attempt: 0,
            failures: 0,
            lacked_room: false,
            killed: 0,
            answered: false,
            state,
        }
    }
}

const RUN_ENDED: &str = "the run has ended";

fn no_verdict(why: &str) -> JobOutcome {
    JobOutcome::NoVerdict { why: why.to_owned() }
}

fn ended(hold: HoldId, outcome: JobOutcome) -> (JudgeFact, Then) {
    (JudgeFact::Ended { outcome: outcome.clone(), hold: Some(hold) }, Then::End { outcome })
}
