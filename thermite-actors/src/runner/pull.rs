//! The output of a development run on a runner, pulled by offset.

use super::*;
use crate::ports::OutputSlice;
use thermite_core::wire::{RunnerName, SlotAnswer};

impl RunnerActor {
    /// Pulls a grant's output: as it comes while it runs, or all the rest of it once it is over.
    pub(super) fn pull(&mut self, number: u64, dev_run: DevRunId, to_end: bool, ctx: &mut Context<Self>) {
        if let Some(handle) = self.pulls.remove(&number) {
            ctx.cancel_future(handle);
        }
        let puller = Puller {
            link: Rc::clone(&self.link),
            outputs: Rc::clone(&self.outputs),
            name: self.runner.name().clone(),
            epoch: self.epoch,
            grant: number,
            dev_run,
            to_end,
        };
        let handle = ctx.spawn(puller.run().into_actor(self).map(move |(), runner, ctx| {
            runner.pulls.remove(&number);
            if to_end {
                runner.take(RunnerInput::Fetched { number }, ctx);
            }
        }));
        self.pulls.insert(number, handle);
    }
}

struct Puller {
    link: Rc<dyn RunnerLink>,
    outputs: Rc<dyn RemoteOutputs>,
    name: RunnerName,
    epoch: u64,
    grant: u64,
    dev_run: DevRunId,
    to_end: bool,
}

/// How one pull went.
enum Pulled {
    /// There was something, and may be more.
    More,
    /// There is nothing new.
    Nothing,
    /// Nothing more will come.
    All,
    /// It is to be tried again.
    NotNow,
}

impl Puller {
    /// Pulls until all is here. Where the core's own disk takes nothing, that is all there will be.
    async fn run(self) {
        loop {
            let wait = match self.once().await {
                Pulled::All => return,
                Pulled::Nothing if self.to_end => return,
                Pulled::More => continue,
                Pulled::Nothing => limits::RUNNER_OUTPUT_EVERY,
                Pulled::NotNow => limits::RUNNER_RETRY_EVERY,
            };
            tokio::time::sleep(wait.to_std()).await;
        }
    }

    async fn once(&self) -> Pulled {
        let from = self.outputs.taken(self.dev_run);
        let what = SlotAsk::Output { grant: self.grant, from, most: limits::RUNNER_OUTPUT_BYTES_MAX };
        let ask = Ask { epoch: self.epoch, slot: self.name.slot, what };
        let answer = match self.link.ask(&self.name.process, ask).await {
            Ok(answer) => answer.what,
            Err(_) => return Pulled::NotNow,
        };
        let (slice, complete) = match answer {
            SlotAnswer::Output { bytes, offset, total, cut, complete } => {
                (OutputSlice { bytes, offset, total, cut, complete }, complete)
            }
            // It has none of that grant.
            SlotAnswer::No(_) | SlotAnswer::Checked(_) | SlotAnswer::Stands(_) | SlotAnswer::Forgotten => {
                return if self.to_end { Pulled::All } else { Pulled::Nothing };
            }
        };
        let is_new = !slice.bytes.is_empty();
        let at_end = complete && slice.offset + slice.bytes.len() as u64 >= slice.total;
        if (is_new || complete) && self.outputs.take(self.dev_run, slice).await.is_err() {
            return if self.to_end { Pulled::All } else { Pulled::Nothing };
        }
        match (at_end, is_new) {
            (true, _) => Pulled::All,
            (false, true) => Pulled::More,
            (false, false) => Pulled::Nothing,
        }
    }
}
