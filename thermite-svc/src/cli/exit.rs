//! What each end of a command says by its exit code.
//!
//! `thermite run` passes the command's own code on, so everything else it may say lies where few programs do:
//! `timeout`'s 124, and 64 to 75 of `sysexits.h`.

use thermite_core::dev_run::{DevRunEnd, Exit};
use thermite_core::job::JobOutcome;
use thermite_core::refusal::Refusal;
use thermite_svc::settings::SettingFault;

use crate::client::Fault;

/// It went well.
pub(crate) const OK: u8 = 0;
/// `verify`: the record does not hold.
pub(crate) const DOES_NOT_HOLD: u8 = 1;
/// `doctor`: something that a rig needs is missing.
pub(crate) const UNFIT: u8 = 1;
/// `try`: something is not as expected.
pub(crate) const DIFFERS: u8 = 1;
/// `judge`: the job has no verdict, or the rig cannot say.
pub(crate) const NO_VERDICT: u8 = 4;
/// The arguments are wrong.
pub(crate) const USAGE: u8 = 64;
/// The rig says that the asker may not.
pub(crate) const REFUSED: u8 = 69;
/// Nobody's fault: the rig is not there or cannot.
pub(crate) const INFRASTRUCTURE: u8 = 70;
/// A file or a socket cannot be read, written or made.
pub(crate) const IO: u8 = 74;
/// The development run left the line without a device (rule A6).
pub(crate) const GAVE_UP: u8 = 75;
/// The development run was ended at its limit (rule A5).
pub(crate) const LIMIT: u8 = 124;
/// It was cancelled (rule A10).
pub(crate) const CANCELLED: u8 = 130;

/// One code of one command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code {
    /// The command, or what all have in common.
    pub(crate) command: &'static str,
    /// The code.
    pub(crate) code: &'static str,
    /// What it says.
    pub(crate) means: &'static str,
}

const EVERY: &str = "every command";

const fn code(command: &'static str, code: &'static str, means: &'static str) -> Code {
    Code { command, code, means }
}

/// Every code and what it says: `thermite exit-codes` and `docs/cli.md` show this.
pub(crate) const TABLE: &[Code] = &[
    code(EVERY, "0", "it went well"),
    code(EVERY, "64", "wrong usage, or a wrong setting"),
    code(EVERY, "69", "the rig refused, or what was named is not there; the sentence says why"),
    code(EVERY, "70", "infrastructure: the rig is not there or cannot; nobody's fault"),
    code("run", "0..255", "the command's own code; 128 + N when signal N ended it"),
    code("run", "124", "ended at its limit"),
    code("run", "75", "gave up waiting; try again later"),
    code("run", "69", "refused"),
    code("run", "70", "infrastructure; run the command again"),
    code("run", "130", "cancelled: by Ctrl-C, by `thermite cancel`, or because nobody reads its output any more"),
    code("judge", "0", "win"),
    code("judge", "1", "no gain"),
    code("judge", "2", "undecided"),
    code("judge", "3", "the change failed to build, check or measure"),
    code("judge", "4", "no verdict, or infrastructure"),
    code("judge", "69", "refused"),
    code("judge", "130", "left before the verdict; the job goes on"),
    code("verify", "0", "the record holds"),
    code("verify", "1", "it does not"),
    code("cancel", "70", "its end is not proved; its device is out of service"),
    code("top", "69", "not on a terminal"),
    code("try", "0", "all steps ran, every verdict is of the expected kind, every record holds"),
    code("try", "1", "not so"),
    code("try", "130", "ended by Ctrl-C"),
    code("serve", "0", "ended by its rules"),
    code("serve", "70", "this machine cannot be a rig"),
    code("serve", "71", "the system gave no threads or signals"),
    code("serve", "74", "the data folder cannot be read or written"),
    code("serve", "75", "something is in use by another program: data folder, device, address"),
    code("serve", "78", "something named cannot be used: another program's folder, newer records, an address"),
    code("supervisor", "0", "ended by its rules"),
    code("supervisor", "69", "control lets it in no longer, or refuses it"),
    code("supervisor", "70", "its harness came back with other devices"),
    code("supervisor", "71", "the system gave no threads or signals"),
    code("supervisor", "74", "the data folder cannot be read or written"),
    code("supervisor", "75", "the data folder is in use by another program"),
    code("supervisor", "78", "something named cannot be used: another program's folder, a key, the bus's address"),
    code("harness", "0", "ended by its rules"),
    code("harness", "70", "this machine cannot be a runner"),
    code("harness", "74", "the data folder or the socket cannot be had"),
    code("harness", "75", "data folder or device is in use by another program"),
];

/// How a development run ended.
pub(crate) fn of_dev_run(end: &DevRunEnd) -> u8 {
    match end {
        DevRunEnd::Exited { exit: Exit::Code(code), .. } => low_byte(*code),
        DevRunEnd::Exited { exit: Exit::Signal(signal), .. } => low_byte(128 + signal),
        DevRunEnd::LimitReached { .. } => LIMIT,
        DevRunEnd::Cancelled => CANCELLED,
        DevRunEnd::GaveUp { .. } => GAVE_UP,
        DevRunEnd::NotStarted { .. }
        | DevRunEnd::NotProved { .. }
        | DevRunEnd::RigEnded
        | DevRunEnd::NewSplit
        | DevRunEnd::RunnerLost { .. } => INFRASTRUCTURE,
    }
}

/// How a job ended.
pub(crate) fn of_job(outcome: &JobOutcome) -> u8 {
    match outcome {
        JobOutcome::Win { .. } => OK,
        JobOutcome::NoGain { .. } => 1,
        JobOutcome::Undecided => 2,
        JobOutcome::ChangeFailed { .. } => 3,
        JobOutcome::NoVerdict { .. } => NO_VERDICT,
    }
}

/// Why a rig's answer is not what was asked for.
pub(crate) fn of_fault(fault: &Fault) -> u8 {
    match fault {
        Fault::Refused { .. } | Fault::TokenFile { .. } => REFUSED,
        Fault::NoRig { .. } | Fault::Unreachable { .. } | Fault::Infrastructure { .. } | Fault::NotARig { .. } => {
            INFRASTRUCTURE
        }
    }
}

/// Why a command did not come to its end.
pub(crate) fn of_error(error: &anyhow::Error) -> u8 {
    if let Some(fault) = error.downcast_ref::<Fault>() {
        return of_fault(fault);
    }
    if error.is::<SettingFault>() {
        return USAGE;
    }
    if error.is::<Refusal>() { REFUSED } else { INFRASTRUCTURE }
}

/// What the kernel itself makes of an exit code.
fn low_byte(code: i32) -> u8 {
    (code & 0xff) as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermite_core::hold::RunnerLoss;
    use thermite_core::job::ChangeStep;
    use thermite_core::refusal::GaveUp;
    use thermite_core::time::Span;

    #[test]
    fn the_documented_table_is_this_one() {
        let docs = include_str!("../../../docs/cli.md");
        let rows: String =
            TABLE.iter().map(|row| format!("| {} | {} | {} |\n", row.command, row.code, row.means)).collect();

        assert!(docs.contains(&rows), "docs/cli.md must have these rows:\n{rows}");
    }

    #[test]
    fn a_development_runs_end_has_the_code_that_help_promises() {
        let exited = |exit| DevRunEnd::Exited { exit, ran: Span::seconds(1) };
        let table = [
            (exited(Exit::Code(0)), 0),
            (exited(Exit::Code(7)), 7),
            (exited(Exit::Code(255)), 255),
            (exited(Exit::Signal(9)), 137),
            (exited(Exit::Signal(15)), 143),
            (DevRunEnd::LimitReached { limit: Span::minutes(5) }, 124),
            (DevRunEnd::Cancelled, 130),
            (DevRunEnd::GaveUp { why: GaveUp::JudgeKeptDevice }, 75),
            (DevRunEnd::GaveUp { why: GaveUp::RunPaused }, 75),
            (DevRunEnd::NotStarted { why: "exec: no such file".into() }, 70),
            (DevRunEnd::NotProved { why: "pid 7".into() }, 70),
            (DevRunEnd::RigEnded, 70),
            (DevRunEnd::NewSplit, 70),
            (DevRunEnd::RunnerLost { how: RunnerLoss::Away }, 70),
        ];
        for (end, code) in table {
            assert_eq!(of_dev_run(&end), code, "{end:?}");
        }
    }

    #[test]
    fn a_jobs_outcome_has_the_code_that_help_promises() {
        let table = [
            (JobOutcome::Win { adopted: true }, 0),
            (JobOutcome::Win { adopted: false }, 0),
            (JobOutcome::NoGain { slower: false }, 1),
            (JobOutcome::NoGain { slower: true }, 1),
            (JobOutcome::Undecided, 2),
            (JobOutcome::ChangeFailed { step: ChangeStep::Build, why: "exit code 1".into() }, 3),
            (JobOutcome::NoVerdict { why: "throttled 6 of 20 blocks".into() }, 4),
        ];
        for (outcome, code) in table {
            assert_eq!(of_job(&outcome), code, "{outcome:?}");
        }
    }

    #[test]
    fn a_refusal_and_a_failure_have_codes_of_their_own() {
        let refused = anyhow::Error::new(Fault::Refused { sentence: "no".into() });
        let cannot = anyhow::Error::new(Fault::Infrastructure { sentence: "cannot".into() });

        assert_eq!(of_error(&refused.context("said so")), 69);
        assert_eq!(of_error(&cannot), 70);
        assert_eq!(of_error(&anyhow::Error::new(Refusal::EmptyCommand)), 69);
    }
}
