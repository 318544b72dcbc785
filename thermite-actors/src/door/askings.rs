//! Asking twice with the same key is asking once (rule A13): the first answer is everyone's.
//!
//! Keys that were answered stay for a while; what they stand for after that is the records' to say.

use std::collections::{BTreeMap, VecDeque};

use futures_util::FutureExt;
use futures_util::future::{LocalBoxFuture, Shared};

use thermite_core::limits;

use crate::rig::No;

type Answer<T> = Shared<LocalBoxFuture<'static, Result<T, No>>>;

/// The askings of one kind that had a key.
pub(super) struct Askings<T> {
    answers: BTreeMap<String, Answer<T>>,
    /// The keys, the oldest first.
    order: VecDeque<String>,
}

impl<T: Clone + 'static> Askings<T> {
    /// What was asked before the rig started.
    pub(super) fn known<'a>(askings: impl Iterator<Item = (&'a Option<String>, T)>) -> Askings<T> {
        let mut known = Askings { answers: BTreeMap::new(), order: VecDeque::new() };
        for (key, answer) in askings {
            if let Some(key) = key {
                let answer: LocalBoxFuture<'static, Result<T, No>> = Box::pin(std::future::ready(Ok(answer)));
                let answer = answer.shared();
                // Looked at once, so that it counts as answered.
                let _ready = answer.clone().now_or_never();
                known.keep(key.clone(), answer);
            }
        }
        known
    }

    /// Gives the first asking's answer to every asking with its key; a no is forgotten, so that it may be asked again.
    pub(super) fn once(
        &mut self,
        key: Option<String>,
        work: impl FnOnce() -> LocalBoxFuture<'static, Result<T, No>>,
    ) -> LocalBoxFuture<'static, Result<T, No>> {
        let Some(key) = key else { return work() };
        if let Some(before) = self.answers.get(&key)
            && !matches!(before.peek(), Some(Err(_)))
        {
            return Box::pin(before.clone());
        }
        let answer = work().shared();
        self.keep(key, answer.clone());
        Box::pin(answer)
    }

    fn keep(&mut self, key: String, answer: Answer<T>) {
        if self.answers.insert(key.clone(), answer).is_none() {
            self.order.push_back(key);
        }
        // One that is not answered yet is nowhere else: it stays, and those behind it.
        while self.order.len() > limits::KEYS_REMEMBERED && self.is_oldest_answered() {
            self.order.pop_front().and_then(|key| self.answers.remove(&key));
        }
    }

    fn is_oldest_answered(&self) -> bool {
        let oldest = self.order.front().and_then(|key| self.answers.get(key));
        oldest.is_none_or(|answer| answer.peek().is_some())
    }
}
