//! A device's noise, measured champion against champion (rule D6; JUDGING.md, noise per card).

use serde::{Deserialize, Serialize};

/// What one measure of noise is good for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NoiseKey {
    /// The device's UUID.
    pub device: String,
    /// SHA-256 of the kit's file.
    pub kit: String,
    /// The driver and its version.
    pub driver: String,
    /// How the device's clocks are set.
    pub clock_policy: String,
}

/// One measure of noise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Noise {
    /// What it is good for.
    pub key: NoiseKey,
    /// 1.4826 x the median absolute deviation of the block ratios d (no unit: a difference of logarithms).
    pub scale: f64,
    /// How many blocks it rests on.
    pub blocks: u32,
    /// When it was measured: wall clock, milliseconds since 1970, since it outlives the rig's clock.
    pub wall_ms: u64,
}
