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

/// A moment's day in UTC, such as `2026-03-01`, from milliseconds since 1970.
pub fn day(wall_ms: u64) -> String {
    // Days since 1 March of year 0, in eras of 400 years: February's end is then a year's end.
    let days = wall_ms / 86_400_000 + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}
