//! Verdicts that are given again where the same is asked again, in whichever run (rule D5; docs/judging.md).
//!
//! A compact list of its own, apart from the jobs: it outlives them, and it is bounded.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::ids::{JobId, MemberId};
use crate::job::{JobOutcome, PinnedChange};
use crate::limits;
use crate::time::Span;

/// What makes two askings the same: the change's content, champion, kit, contract and kind of card, as a SHA-256.
///
/// The kind of card is its model; which card of it measured, and which run asked, make no difference.
pub fn key(pinned: &PinnedChange, kind_of_card: &str) -> String {
    // A contract that sets no limit on development runs is the one that once said so with what was the default; how long
    // they may take makes no difference to what is measured.
    let mut contract = pinned.kit.contract.clone();
    contract.dev_run_max.get_or_insert(DEV_RUN_MAX_UNSET);
    let contract = serde_json::to_string(&contract).expect("a contract has only text keys and finite numbers");
    let mut hash = Sha256::new();
    for part in [
        pinned.candidate_tree.as_str(),
        pinned.champion.as_str(),
        pinned.kit_hash.as_str(),
        contract.as_str(),
        pinned.kit.target.name(),
        kind_of_card,
    ] {
        hash.update(part.len().to_le_bytes());
        hash.update(part);
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What a key says of a contract that does not limit development runs. It is a part of keys in logs and never changes.
const DEV_RUN_MAX_UNSET: Span = Span::minutes(5);

/// Whether an outcome is a verdict, to be given again.
///
/// A change's own failure is none: it may come from what the key does not name (a compiler, a disk), and trying again
/// can give no false win. Within its run it is answered by its job all the same.
pub fn is_verdict(outcome: &JobOutcome) -> bool {
    match outcome {
        JobOutcome::Win { .. } | JobOutcome::NoGain { .. } | JobOutcome::Undecided => true,
        JobOutcome::ChangeFailed { .. } | JobOutcome::NoVerdict { .. } => false,
    }
}

/// A verdict there is, as the log tells it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SettledVerdict {
    /// The job that was measured.
    pub from: JobId,
    /// How it ended.
    pub outcome: JobOutcome,
    /// SHA-256 of the deciding record.
    pub record: Option<String>,
    /// Where its screening was won, with the hash of that record.
    pub screened: Option<(MemberId, String)>,
}

/// A bounded list by key: the first verdict of a key stays, and the oldest keys go first.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Settled<V> {
    by_key: BTreeMap<String, V>,
    /// INVARIANT: the keys of the list, each once, oldest first.
    #[cfg_attr(feature = "schema", schema(value_type = Vec<String>))]
    order: VecDeque<String>,
}

impl<V> Default for Settled<V> {
    fn default() -> Settled<V> {
        Settled { by_key: BTreeMap::new(), order: VecDeque::new() }
    }
}

impl<V> Settled<V> {
    /// Adds a verdict, unless the key has one.
    pub fn insert(&mut self, key: String, verdict: V) {
        if self.by_key.contains_key(&key) {
            return;
        }
        self.order.push_back(key.clone());
        self.by_key.insert(key, verdict);
        while self.order.len() > limits::SETTLED_VERDICTS_MAX {
            if let Some(oldest) = self.order.pop_front() {
                self.by_key.remove(&oldest);
            }
        }
    }

    /// The verdict of a key.
    pub fn get(&self, key: &str) -> Option<&V> {
        self.by_key.get(key)
    }

    /// All, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &V)> {
        self.order.iter().filter_map(|key| Some((key.as_str(), self.by_key.get(key)?)))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}
