//! The two small kits inside this program, and which of them a machine is tried with.

use std::process::{Command, Stdio};

use thermite_core::contract::Target;

use super::TryFault;
use super::kit::{Expected, last_line};

macro_rules! example {
    ($path:literal) => {
        include_str!(concat!("../../../examples/kits/", $path))
    };
}

/// A kit with three changes of the one file that its changes are of.
#[derive(Debug)]
pub(super) struct TrialKit {
    /// The kind of device it measures on.
    pub(super) target: Target,
    /// What needs to be on `PATH`, beside git.
    pub(super) compiler: &'static str,
    /// What the champion is, as a commit says it.
    pub(super) subject: &'static str,
    /// The kit's file.
    pub(super) toml: &'static str,
    /// The speed-up its contract plans for, in percent.
    pub(super) plan_percent: u8,
    /// The champion's files beside it, by name.
    pub(super) files: &'static [(&'static str, &'static str)],
    /// The one that changes are of.
    pub(super) changed: &'static str,
    /// What is built, which git does not keep.
    pub(super) ignored: &'static str,
    /// What an agent would try: a shell's line that builds the program and runs it.
    pub(super) command: &'static str,
    /// A change for each lane.
    pub(super) changes: [Change; 3],
}

/// One lane's change.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    pub(super) name: &'static str,
    pub(super) text: &'static str,
    pub(super) why: &'static str,
    pub(super) expected: Expected,
}

/// A Rust program on the machine's CPUs.
pub(super) static ON_CPUS: TrialKit = TrialKit {
    target: Target::Cpu,
    compiler: "rustc",
    subject: "Sum the primes below 1,000,000",
    toml: example!("rust-sum/kit.toml"),
    plan_percent: 5,
    files: &[("check.sh", example!("rust-sum/check.sh")), ("sum.rs", example!("rust-sum/sum.rs"))],
    changed: "sum.rs",
    ignored: "/sum\n",
    command: "rustc -O -o sum sum.rs && ./sum",
    changes: [
        Change {
            name: "fewer-divisors",
            text: example!("rust-sum/changes/fewer-divisors.rs"),
            why: "Leave out divisors that end in 5",
            expected: Expected::Win,
        },
        Change {
            name: "other-names",
            text: example!("rust-sum/changes/other-names.rs"),
            why: "Rename",
            expected: Expected::NoGain,
        },
        Change {
            name: "past-the-root",
            text: example!("rust-sum/changes/past-the-root.rs"),
            why: "Try divisors some way past the root",
            expected: Expected::Slower,
        },
    ],
};

/// A kernel on a GPU.
pub(super) static ON_GPU: TrialKit = TrialKit {
    target: Target::CudaGpu,
    compiler: "nvcc",
    subject: "Smooth a grid",
    toml: example!("cuda-smooth/kit.toml"),
    plan_percent: 20,
    files: &[
        ("build.sh", example!("cuda-smooth/build.sh")),
        ("check.cu", example!("cuda-smooth/check.cu")),
        ("grid.h", example!("cuda-smooth/grid.h")),
        ("measure.cu", example!("cuda-smooth/measure.cu")),
        ("smooth.cu", example!("cuda-smooth/smooth.cu")),
        ("trust.h", example!("cuda-smooth/trust.h")),
    ],
    changed: "smooth.cu",
    ignored: "/measure\n/check\n",
    // The time goes to descriptor 3.
    command: "sh build.sh && ./measure 3>&1",
    changes: [
        Change {
            name: "along-rows",
            text: example!("cuda-smooth/changes/along-rows.cu"),
            why: "Let threads side by side take cells side by side",
            expected: Expected::Win,
        },
        Change {
            name: "other-names",
            text: example!("cuda-smooth/changes/other-names.cu"),
            why: "Rename",
            expected: Expected::NoGain,
        },
        Change {
            name: "copy-first",
            text: example!("cuda-smooth/changes/copy-first.cu"),
            why: "Copy the grid before it is smoothed",
            expected: Expected::Slower,
        },
    ],
};

/// Which kit, and why that one.
#[derive(Debug)]
pub(super) struct Choice {
    /// The kit.
    pub(super) kit: &'static TrialKit,
    /// What the machine is tried as, and why, fit to follow a colon.
    pub(super) why: String,
}

/// What decides.
pub(super) struct Ground {
    /// The models of the GPUs that the driver lists; else why it lists none.
    pub(super) cards: Result<Vec<String>, String>,
    /// Why nvcc cannot be run, where it cannot.
    pub(super) no_nvcc: Option<String>,
}

impl Ground {
    /// This machine, which is looked at only where that decides.
    pub(super) fn of_this_machine(cards: Result<Vec<String>, String>) -> Ground {
        Ground { cards, no_nvcc: cannot_run(ON_GPU.compiler) }
    }
}

/// The GPU where there is one with nvcc, else the CPUs; the wish goes before both.
pub(super) fn choose(wish: Option<Target>, ground: impl FnOnce() -> Ground) -> Result<Choice, TryFault> {
    if wish == Some(Target::Cpu) {
        return Ok(Choice { kit: &ON_CPUS, why: "the machine's CPUs, as asked".to_owned() });
    }
    let Ground { cards, no_nvcc } = ground();
    let lacking = match (&cards, no_nvcc) {
        (Err(why), _) => why.clone(),
        (Ok(cards), _) if cards.is_empty() => "the GPU driver lists no GPU".to_owned(),
        (Ok(_), Some(why)) => format!("there is a GPU, and nvcc cannot be run: {why}"),
        (Ok(cards), None) => {
            let asked = if wish.is_some() { ", as asked" } else { ", since there is nvcc too" };
            let found = match cards.as_slice() {
                [one] => one.clone(),
                all => format!("{} GPUs ({})", all.len(), all[0]),
            };
            return Ok(Choice { kit: &ON_GPU, why: format!("{found}{asked}") });
        }
    };
    match wish {
        Some(Target::CudaGpu) => Err(TryFault::Target { why: lacking }),
        Some(Target::Cpu) | None => {
            Ok(Choice { kit: &ON_CPUS, why: format!("the machine's CPUs, not a GPU: {lacking}") })
        }
    }
}

impl TrialKit {
    /// Says which program is missing, before anything is made.
    pub(super) fn needs_are_here(&self) -> Result<(), TryFault> {
        for program in ["git", self.compiler] {
            if let Some(why) = cannot_run(program) {
                return Err(TryFault::Program { program, why });
            }
        }
        Ok(())
    }
}

fn cannot_run(program: &str) -> Option<String> {
    match Command::new(program).arg("--version").stdin(Stdio::null()).output() {
        Ok(answer) if answer.status.success() => None,
        Ok(answer) => Some(last_line(&answer.stderr)),
        Err(error) => Some(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_with_nvcc_is_taken_and_said() {
        let of = |cards: &[&str]| Ground { cards: Ok(cards.iter().map(ToString::to_string).collect()), no_nvcc: None };

        let one = choose(None, || of(&["NVIDIA H200"])).unwrap();
        let two = choose(None, || of(&["NVIDIA H200", "NVIDIA H200"])).unwrap();
        let asked = choose(Some(Target::CudaGpu), || of(&["NVIDIA H200"])).unwrap();

        assert_eq!((one.kit.target, one.why.as_str()), (Target::CudaGpu, "NVIDIA H200, since there is nvcc too"));
        assert_eq!(two.why, "2 GPUs (NVIDIA H200), since there is nvcc too");
        assert_eq!(asked.why, "NVIDIA H200, as asked");
    }

    #[test]
    fn without_a_gpu_or_nvcc_the_cpus_are_taken_with_the_reason() {
        let no_driver = || Ground { cards: Err("no driver".into()), no_nvcc: None };
        let no_card = || Ground { cards: Ok(Vec::new()), no_nvcc: None };
        let no_nvcc = || Ground { cards: Ok(vec!["NVIDIA H200".into()]), no_nvcc: Some("not found".into()) };
        let reasons = [
            (choose(None, no_driver), "no driver"),
            (choose(None, no_card), "the GPU driver lists no GPU"),
            (choose(None, no_nvcc), "there is a GPU, and nvcc cannot be run: not found"),
        ];

        for (choice, why) in reasons {
            let choice = choice.unwrap();
            assert_eq!(choice.kit.target, Target::Cpu);
            assert_eq!(choice.why, format!("the machine's CPUs, not a GPU: {why}"));
        }
        let refused = choose(Some(Target::CudaGpu), no_nvcc).unwrap_err().to_string();
        assert_eq!(refused, "no GPU can be tried: there is a GPU, and nvcc cannot be run: not found; try --target cpu");
    }

    #[test]
    fn cpus_that_were_asked_for_are_taken_unseen() {
        let choice = choose(Some(Target::Cpu), || panic!("the machine is not looked at")).unwrap();

        assert_eq!((choice.kit.target, choice.why.as_str()), (Target::Cpu, "the machine's CPUs, as asked"));
    }
}
