//! Driving the stages under way: each asks its device for one step after the other.

use super::*;

impl JudgeQueueActor {
    /// The device is claimed and the start is durable: the stage begins.
    pub(super) fn open_stage(&mut self, hold: HoldId, ctx: &mut Context<Self>) {
        let now = self.clock.now();
        let on_bench = hold.member == MemberId::BENCH;
        // What is built on the bench is built for the judge's cards.
        let facts = match self.roster.facts(hold.member) {
            Some(facts) => Some(facts),
            None => judging_device(&self.judging, &self.roster).filter(|_| on_bench),
        };
        let Some(facts) = facts else { return };
        let Some(claimed) = self.claimed.get_mut(&hold) else { return };
        let Some(spec) = self.specs.get(&claimed.job) else { return };
        let on = MeasuredOn {
            uuid: facts.uuid.clone(),
            model: facts.model.clone(),
            driver: facts.driver.clone(),
            clock_policy: facts.clock_policy.clone(),
            runner: self.roster.runner(hold.member).map_or_else(|| CORE.to_owned(), |name| name.to_string()),
            cpus: facts.cpus.clone(),
        };
        // A build measures nothing: what is known of a card's noise is none of its business.
        let noise = self.noise.get(&on.noise_key(&spec.pinned.kit_hash)).filter(|_| !on_bench).cloned();
        if hold.member.is_runner() {
            // What the core has built is of no use there: both sides are built where they are measured (rule B7).
            self.built.remove(&claimed.job);
        }
        let part = match self.built.get(&claimed.job) {
            _ if on_bench => StagePart::Builds,
            Some((stage, attempt, artefacts)) if (*stage, *attempt) == (claimed.stage, claimed.attempt) => {
                StagePart::Built(artefacts.clone())
            }
            Some(_) | None => StagePart::Whole,
        };
        let screened = match claimed.stage {
            StageKind::Screening => None,
            // Where no other is in service the confirmation is on the same one, and the record says so (rule B6).
            StageKind::Confirmation => self
                .screened
                .get(&claimed.job)
                .map(|(member, record)| Screened { record: record.clone(), same_device: *member == hold.member }),
        };
        let plan = StagePlan {
            spec: spec.as_ref().clone(),
            stage: claimed.stage,
            attempt: claimed.attempt,
            hold,
            on,
            noise,
            alarm: self.alarms.get(&facts.uuid).cloned().unwrap_or_default(),
            seed: self.ids.seed(),
            screened,
            look_every: look_every(facts.target),
            ready_wait_max: limits::READY_WAIT_MAX,
            wall_ms: self.clock.wall_ms(),
            part,
        };
        claimed.steps = Some(Traced::begin(now, plan, self.inputs.clone()));
        self.drive(hold, ctx);
    }

    pub(super) fn advance_stages(&mut self, ctx: &mut Context<Self>) {
        let now = self.clock.now();
        let mut due = Vec::new();
        for (hold, claimed) in &mut self.claimed {
            if let Some(stage) = &mut claimed.steps {
                stage.take(now, StageTakes::Time);
                due.push(*hold);
            }
        }
        for hold in due {
            self.drive(hold, ctx);
        }
    }

    /// Asks for the step the stage wants, unless one is under way.
    fn drive(&mut self, hold: HoldId, ctx: &mut Context<Self>) {
        let Some(claimed) = self.claimed.get_mut(&hold) else { return };
        let Some(stage) = &claimed.steps else { return };
        match stage.directive() {
            Directive::Do(step) => {
                if !claimed.asked {
                    claimed.asked = true;
                    let builds_done =
                        matches!(step, StageStep::Look | StageStep::Block { .. }) && hold.member != MemberId::BENCH;
                    if builds_done && !std::mem::replace(&mut claimed.builds_done, true) {
                        self.take(JudgeInput::BuildsDone { hold }, ctx);
                    }
                    self.ask_step(hold, step, ctx);
                }
            }
            Directive::Wait { .. } => {}
            Directive::End(end) => self.end_stage(hold, *end, ctx),
        }
        self.set_alarm(ctx);
    }

    fn ask_step(&mut self, hold: HoldId, step: StageStep, ctx: &mut Context<Self>) {
        let Some(claimed) = self.claimed.get(&hold) else { return };
        let (Some(doors), Some(job)) = (self.doors(hold.member), self.specs.get(&claimed.job)) else {
            return;
        };
        let ask = RunStep { hold, job: job.clone(), stage: claimed.stage, attempt: claimed.attempt, step };
        let answer = doors.step.send(ask).into_actor(self);
        ctx.spawn(answer.map(move |report, judge, ctx| {
            let report = report.unwrap_or_else(|gone| Some(StepReport::NotCarriedOut { why: gone.to_string() }));
            if let Some(report) = report {
                judge.reported(hold, report, ctx);
            }
        }));
    }

    fn reported(&mut self, hold: HoldId, report: StepReport, ctx: &mut Context<Self>) {
        let now = self.clock.now();
        // A hold that is over has no stage any more: its late report falls on the floor.
        let Some(claimed) = self.claimed.get_mut(&hold) else { return };
        let Some(stage) = &mut claimed.steps else { return };
        claimed.asked = false;
        stage.take(now, StageTakes::Report(report));
        self.events.tell(RigHappening::Stage { job: claimed.job, stage: stage.view() });
        self.drive(hold, ctx);
    }

    fn end_stage(&mut self, hold: HoldId, end: StageEnd, ctx: &mut Context<Self>) {
        let Some(stage) = self.claimed.get_mut(&hold).and_then(|claimed| claimed.steps.take()) else { return };
        let learnt = self.learn(hold, &stage, &end);
        let (result, closed) = match end {
            StageEnd::Decided { verdict, record, .. } => {
                let result = match verdict {
                    Verdict::Win => StageResult::Win,
                    Verdict::NoGain { slower } => StageResult::NoGain { slower },
                    Verdict::Undecided => StageResult::Undecided,
                };
                (result, Closed { record: Some(*record), audit: None, learnt })
            }
            StageEnd::Built { artefacts } => {
                if let Some(claimed) = self.claimed.get(&hold) {
                    self.built.insert(claimed.job, (claimed.stage, claimed.attempt, artefacts));
                }
                (StageResult::Built, Closed { learnt, ..Closed::default() })
            }
            StageEnd::ChangeFailed { step, why, .. } => {
                (StageResult::ChangeFailed { step, why }, Closed { learnt, ..Closed::default() })
            }
            StageEnd::Infrastructure { why, audit, .. } => {
                warn!(job = %stage.view().job, %hold, %why, "attempt failed by infrastructure");
                let audit = audit.map(|audit| *audit);
                (StageResult::Infrastructure(why), Closed { record: None, audit, learnt })
            }
        };
        // What was built only leaves nothing to be made durable.
        if result != StageResult::Built {
            self.closed.insert(hold, closed);
        }
        self.take(JudgeInput::StageEnded { hold, result }, ctx);
    }
}

/// The runner's name of work that the core's own machine does.
const CORE: &str = "core";
