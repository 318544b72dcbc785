//! Whole-rig tests: the real `thermite serve` with real lanes, a real judge, real git, and real `kill -9`.
//!
//! What a run measures, builds and holds is real. Only the load that the judge waits for is fed (`THERMITE_PROC_ROOT`),
//! so that a busy machine does not hold the tests up; `load` takes the machine's own. `THERMITE_LONG=1` repeats more.

mod clocks;
mod codes;
mod ends;
mod escapes;
mod flat;
mod hostile;
pub(crate) mod house;
mod keep;
mod killed;
mod kills;
mod layers;
mod load;
mod quota;
mod room;
mod taken_along;
mod top;

/// Whether the long repetitions were asked for (`tests/long.sh`).
fn is_long() -> bool {
    std::env::var_os("THERMITE_LONG").is_some_and(|value| value == "1")
}
