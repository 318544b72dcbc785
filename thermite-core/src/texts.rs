//! The exact sentences of the rules, once.

use crate::block::{ThrowCause, ThrownFor};
use crate::hold::RunnerLoss;
use crate::time::Span;

/// Rule A6: the holder of that moment was the judge, or there was none and the judge had work.
pub const JUDGE_KEPT_DEVICE: &str = "the judge kept the device busy; try again later";
/// Rule A6: the holder of that moment was another lane's development run.
pub const LANE_HELD_DEVICE: &str = "another lane's dev run held the device; try again later";
/// Rule A6: neither is true.
pub const DEVICE_OUT_OF_SERVICE: &str = "the device was out of service; try again later";
/// Rule A8: what every development run's result carries.
pub const DIAGNOSTIC_ONLY: &str = "diagnostic only: this number never counts";
/// Rule E5: what the answer of a development run says that ran on a runner.
pub const FRESH_COPY: &str = "It ran on a fresh copy of your starting point with your change applied: what an earlier run \
                              built there is not kept, so build and run in the same command.";
/// Rule A10: the stop of a run could not be proved in time.
pub const NOT_PROVED: &str = "not proved";
/// Rule B9: what a lane is told whose development run a new split ended.
pub const NEW_SPLIT: &str = "the cards were given out anew while it ran; run the command again";
/// Rules E10, E11: what a lane is told whose development run lost its runner.
pub const fn runner_lost(how: RunnerLoss) -> &'static str {
    match how {
        RunnerLoss::Away => "its runner went away while it ran; run the command again",
        RunnerLoss::Restarted => "its runner started anew while it ran; run the command again",
        RunnerLoss::NewPool => "its runner was given another pool while it ran; run the command again",
        RunnerLoss::TakenAway => "its runner was taken away while it ran; run the command again",
    }
}
/// Rule D5: a confirmed win whose champion is no longer the champion.
pub const WIN_NOT_ADOPTED: &str = "win, not adopted: the champion moved";
/// Rule E8: a runner that is listed and has not answered yet.
pub const RUNNER_NOT_MET: &str = "it has not answered yet";
/// Rule E13: a rig whose judge has runners alone, and none of them is listed.
pub const NO_JUDGES_RUNNER: &str = "the rig's list has no judge's or shared runner, and the core judges nothing";
/// What a record says of a time that the candidate itself could have reached (docs/judging.md, two timers).
pub const TIMER_SHARES_PROCESS: &str = "timer shares the process";

/// Rules A8, E5: what is said beside a development run, wherever it is shown.
pub fn note_of_dev_run(on_runner: bool) -> String {
    if on_runner { format!("{DIAGNOSTIC_ONLY}. {FRESH_COPY}") } else { DIAGNOSTIC_ONLY.to_owned() }
}

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

/// A moment's minute in UTC, such as `2026-03-01 14:05 UTC`, from milliseconds since 1970.
pub fn minute(wall_ms: u64) -> String {
    let second = wall_ms / 1_000 % 86_400;
    format!("{} {:02}:{:02} UTC", day(wall_ms), second / 3_600, second % 3_600 / 60)
}

/// Rule D3: why a block is thrown away.
pub fn throw_cause(cause: &ThrowCause) -> String {
    match cause {
        ThrowCause::Throttled { group } => format!("a CPU quota held back group {group}"),
        ThrowCause::Slowed => "the device was slowed for heat or power".to_owned(),
        ThrowCause::OtherProgram => "another program used the device".to_owned(),
        ThrowCause::Elsewhere => "what was measured was not seen on the granted device".to_owned(),
        ThrowCause::ClockStepped => "the wall clock stepped".to_owned(),
        ThrowCause::Slept => "the machine slept".to_owned(),
        ThrowCause::ProcessLost => "a measured process died of infrastructure".to_owned(),
    }
}

/// Rule D3: `throttled k of n blocks` where it was a quota, else the cause's own words; all causes, the commonest first.
pub fn too_many_thrown(thrown: u32, of: u32, causes: &[ThrownFor]) -> String {
    let said: Vec<String> = causes
        .iter()
        .map(|found| {
            let (cause, blocks) = (throw_cause(&found.cause), found.blocks);
            match &found.cause {
                ThrowCause::Throttled { .. } => format!("throttled {blocks} of {of} blocks: {cause}"),
                ThrowCause::Slowed
                | ThrowCause::OtherProgram
                | ThrowCause::Elsewhere
                | ThrowCause::ClockStepped
                | ThrowCause::Slept
                | ThrowCause::ProcessLost => format!("{cause} in {blocks} of {of} blocks"),
            }
        })
        .collect();
    match said.as_slice() {
        [] => format!("{thrown} of {of} blocks were thrown away"),
        [one] => one.clone(),
        many => format!("{} ({thrown} of {of} blocks were thrown away)", many.join("; ")),
    }
}

/// Rules D3, D5: a change that was killed in block after block, and by nobody that can be seen.
pub fn change_killed(killed: u32, of: u32) -> String {
    format!(
        "the change's measured run was ended by SIGKILL in {killed} of {of} blocks, the champion's in none; neither the \
         rig nor the kernel for lack of memory did it"
    )
}

/// Rule C2: the device did not get quiet; `signals` names each figure with its limit.
pub fn stayed_busy(waited: Span, signals: &str) -> String {
    format!("the device stayed busy for {waited}: {signals}")
}

/// Rule C2: what was taken off the load average, behind the figure that is left of it.
pub fn less_the_judges_own(left: f64, own: f64) -> String {
    format!(" ({:.2} less the judge's own {own:.2})", left + own)
}

/// Rule A7: programs that a card still lists after a hold, and the memory in use where it is told, in MiB.
pub fn card_not_released(listed: &str, memory: Option<f64>) -> String {
    match memory {
        Some(memory) => format!("the card still lists {listed}, with {memory:.0} MiB of its memory in use"),
        None => format!("the card still lists {listed}"),
    }
}

/// Rules A7, B10: memory that nobody who is listed holds, in MiB.
pub fn card_holds_memory(used: f64, most: f64) -> String {
    format!(
        "{used:.0} MiB of the card's memory is in use and no program is listed, at rest it is at most {most:.0} MiB; end \
         what holds it, or reset the card"
    )
}

/// Rule A7: the release of a card that does not tell what the proof needs.
pub fn card_does_not_tell(signal: &str) -> String {
    format!("nothing proves that the card is free: {signal} is unknown")
}

/// Rule B10: a card that fell off its bus.
pub fn card_lost(uuid: &str, said: &str) -> String {
    format!("card {uuid} is lost ({said}); reset it (`nvidia-smi --gpu-reset`) or restart the machine")
}

/// Rule B10: a call to a card that does not come back.
pub fn card_unresponsive(uuid: &str, call: &str, after: Span) -> String {
    format!(
        "card {uuid} is unresponsive: {call} has not come back for {after}; it returns by itself once the call does, \
         else restart the machine"
    )
}

/// Rule B10: driver and library of different versions.
pub fn card_driver_mismatch(said: &str) -> String {
    format!(
        "the NVIDIA driver in the kernel and its library differ ({said}); load the driver anew or restart the machine, \
         and in a container start the container anew"
    )
}

/// Rule B10: a card that the rig may not open.
pub fn card_access_lost(uuid: &str, said: &str) -> String {
    format!(
        "the rig may not open card {uuid} ({said}); give its account access to /dev/nvidia*, and in a container start \
         the container anew with the card"
    )
}

/// Rule B10: no card that the rig may open.
pub fn cards_access_lost(said: &str) -> String {
    format!(
        "the rig may not open the machine's cards ({said}); give its account access to /dev/nvidia*, and in a container \
         start the container anew with its cards"
    )
}

/// Rule B10: a card in MIG mode.
pub fn card_in_mig_mode(uuid: &str) -> String {
    format!(
        "card {uuid} is in MIG mode, in which nothing is measured; turn it off (`nvidia-smi -i {uuid} -mig 0`), with \
         nobody on the card"
    )
}

/// Rule B10: no driver to speak to.
pub fn card_driver_not_loaded(said: &str) -> String {
    format!("the NVIDIA driver does not answer ({said}); load it (`modprobe nvidia`) or install it")
}

/// Rule B10: whatever else a card's driver says.
pub fn card_fault(uuid: &str, call: &str, said: &str) -> String {
    format!(
        "card {uuid} cannot be read: {call} says `{said}`; in a container that is how lost access shows: start it \
         anew with the card"
    )
}

/// Rule B10: whatever else a driver says that is of no card.
pub fn cards_fault(call: &str, said: &str) -> String {
    format!(
        "the machine's cards cannot be listed: {call} says `{said}`; in a container that is how lost access shows: start \
         it anew with its cards"
    )
}

/// Rule D1: a card that is there and has said nothing yet.
pub fn card_silent(uuid: &str, after: Span) -> String {
    format!("card {uuid} has told nothing within {after}")
}
