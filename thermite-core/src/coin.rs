//! The fair coins that choose each block's order (docs/judging.md, a block).
//!
//! A stage's coins follow from its seed, so that the record can be checked after the verdict. The seed itself comes
//! from a port (`Ids`); the measured programs never see it or a label.

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};

use crate::block::Order;
use crate::job::StageKind;

/// How coins are drawn, as records name it.
pub const ALGORITHM: &str =
    "chacha20 seed_from_u64, stream 0 noise, 1 screening, 2 confirmation, low bit of next_u32, 0 ABBA, 1 BAAB";

/// What a row of coins is for: each has its own ChaCha stream, so that none repeats another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Purpose {
    /// The champion under both labels (stream 0).
    Noise,
    /// A stage's blocks (stream 1 for the screening, 2 for the confirmation).
    Stage(StageKind),
}

impl Purpose {
    const fn stream(self) -> u64 {
        match self {
            Purpose::Noise => 0,
            Purpose::Stage(StageKind::Screening) => 1,
            Purpose::Stage(StageKind::Confirmation) => 2,
        }
    }
}

/// The coin of the block with that number, from 0, thrown blocks counted.
pub fn coin(seed: u64, purpose: Purpose, block: u32) -> Order {
    let mut rng = ChaCha20Rng::seed_from_u64(seed);
    rng.set_stream(purpose.stream());
    rng.set_word_pos(u128::from(block));
    if rng.next_u32() & 1 == 0 { Order::Abba } else { Order::Baab }
}
