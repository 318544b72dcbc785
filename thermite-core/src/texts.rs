//! The exact sentences of the rules, once.

/// Rule A6: the holder of that moment was the judge, or there was none and the judge had work.
pub const JUDGE_KEPT_DEVICE: &str = "the judge kept the device busy; try again later";
/// Rule A6: the holder of that moment was another lane's development run.
pub const LANE_HELD_DEVICE: &str = "another lane's dev run held the device; try again later";
/// Rule A6: neither is true.
pub const DEVICE_OUT_OF_SERVICE: &str = "the device was out of service; try again later";
/// Rule A8: what every development run's result carries.
pub const DIAGNOSTIC_ONLY: &str = "diagnostic only: this number never counts";
/// Rule A10: the stop of a run could not be proved in time.
pub const NOT_PROVED: &str = "not proved";
/// Rule D5: a confirmed win whose champion is no longer the champion.
pub const WIN_NOT_ADOPTED: &str = "win, not adopted: the champion moved";
/// What a record says of a time that the candidate itself could have reached (docs/judging.md, two timers).
pub const TIMER_SHARES_PROCESS: &str = "timer shares the process";
