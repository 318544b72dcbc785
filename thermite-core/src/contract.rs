//! What a kit says and the limits its contract sets.
//!
//! Reading `kit.toml` is `host`'s; here are the types and what must hold of them.

use serde::{Deserialize, Serialize};

use crate::ids::ContentHash;
use crate::limits;
use crate::time::Span;

/// The kind of device a kit measures on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    /// A CUDA GPU.
    CudaGpu,
    /// The machine's CPUs.
    Cpu,
}

impl Target {
    /// The name used in `kit.toml` and settings.
    pub const fn name(self) -> &'static str {
        match self {
            Target::CudaGpu => "cuda-gpu",
            Target::Cpu => "cpu",
        }
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Who takes the time of a run (JUDGING.md, a block).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Timer {
    /// The judge's monotonic clock around the process.
    Wall,
    /// The kit's measuring program writes seconds to descriptor 3; the candidate may run in the same process.
    Reported,
    /// The same, and the kit's author says that the candidate runs apart from it: as device code, or in a process that
    /// can reach neither its clock nor its memory.
    #[serde(rename = "reported_apart")]
    ReportedApart,
}

impl Timer {
    /// Whether the measuring program takes the time.
    pub const fn is_reported(self) -> bool {
        match self {
            Timer::Wall => false,
            Timer::Reported | Timer::ReportedApart => true,
        }
    }
}

/// What happens to what a development run leaves behind on a CPU rig (rule C3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Leftovers {
    /// It is stopped with the run.
    #[default]
    Stop,
    /// After a run that ended by itself it lives on until the rig ends, and is listed.
    Keep,
}

/// One command: the program and its arguments, never a shell line.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(transparent)]
pub struct Argv(pub Vec<String>);

/// A file that a kit's commands read and that no repository holds, such as a model's weights (rule E4): fetched once from
/// its source, known by its content.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ModelFile {
    /// Its name in the folder that runs see (`THERMITE_MODELS`).
    pub name: String,
    /// Where it comes from: `file://`, `https://` or `s3://`.
    pub url: String,
    /// The SHA-256 of its bytes.
    pub sha256: ContentHash,
    /// How many bytes it has.
    pub bytes: u64,
}

/// How to build, check and measure, as a kit says it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Kit {
    /// The kit's name.
    pub name: String,
    /// The kind of device it measures on.
    pub target: Target,
    /// Builds one side in its workspace; none where nothing is to be built.
    pub build: Option<Argv>,
    /// Says whether one side is correct by its exit code; none where the kit does not check.
    pub check: Option<Argv>,
    /// Runs once what is measured.
    pub measure: Argv,
    /// Who takes the time.
    pub timer: Timer,
    /// Globs of the paths a change may touch, relative to the repository's root.
    pub editable: Vec<String>,
    /// Files whose hash names what was measured; empty: the program that `measure` starts, where it is in the workspace.
    pub artefacts: Vec<String>,
    /// Files that its commands read and that the repository does not hold (rule E4).
    #[serde(default)]
    pub models: Vec<ModelFile>,
    /// The limits it sets.
    pub contract: Contract,
}

/// What a contract may set, before a job's first block (rule D8); everything else is the method's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Contract {
    /// The effect the plan is made for, as ln(speed-up).
    pub plan_effect: f64,
    /// The least effect that wins, as ln(speed-up).
    pub gate: f64,
    /// The margin of the null hypothesis, as ln(speed-up).
    pub null_margin: f64,
    /// The least number of blocks for a win.
    pub blocks_least: u32,
    /// The largest number of blocks of a stage.
    pub blocks_most: u32,
    /// How long a development run may hold a device, where the contract says. Where it does not, a shared one 5 minutes
    /// (rule A5), and one of the agents' own for as long as it takes (rule B2).
    pub dev_run_max: Option<Span>,
    /// How long a build may take.
    pub build_max: Span,
    /// How long a check may take.
    pub check_max: Span,
    /// How long one measured run may take.
    pub measure_max: Span,
    /// What happens to a development run's leftovers on a CPU rig.
    pub leftovers: Leftovers,
}

impl Default for Contract {
    fn default() -> Contract {
        Contract {
            plan_effect: libm::log(1.01),
            gate: libm::log(1.005),
            null_margin: 0.0,
            blocks_least: 8,
            blocks_most: 200,
            dev_run_max: None,
            build_max: limits::BUILD_MAX,
            check_max: limits::CHECK_MAX,
            measure_max: limits::MEASURE_MAX,
            leftovers: Leftovers::Stop,
        }
    }
}

/// A contract that cannot hold, with the setting's name as `kit.toml` spells it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("contract.{setting} is {value}; it must be {expected}")]
pub struct ContractFault {
    /// The setting.
    pub setting: &'static str,
    /// What it was.
    pub value: String,
    /// What it must be.
    pub expected: &'static str,
}

impl Contract {
    /// How long one stage can take at most: builds, checks, a measure of noise, and all blocks with their waits for a
    /// quiet device. For certificates, which no wait may pass; the usual stage takes a small part of it.
    pub fn stage_worst(&self) -> Span {
        let blocks = u64::from(limits::NOISE_BLOCKS.saturating_add(self.blocks_most));
        let with_thrown = blocks + blocks.div_ceil(4).max(5);
        // The look that finds the device ready, and the readings around the block.
        let readings = 3 * limits::CPU_READING_MAX.as_millis();
        let block = 6 * self.measure_max.as_millis() + limits::READY_WAIT_MAX.as_millis() + readings;
        // Both sides are laid out by git: a fetch and a checkout each.
        let laid_out = 4 * limits::GIT_COMMAND_MAX.as_millis();
        let set_up = laid_out + 2 * (self.build_max.as_millis() + self.check_max.as_millis());
        Span::millis(set_up.saturating_add(with_thrown.saturating_mul(block)))
    }

    /// Checks that every limit is possible (rule A12: a limit of 0 is refused when asked for).
    ///
    /// # Errors
    /// Names the first setting that cannot hold.
    pub fn check(&self) -> Result<(), ContractFault> {
        fn effect(setting: &'static str, value: f64, least: f64, expected: &'static str) -> Result<(), ContractFault> {
            if value.is_finite() && value >= least && value <= 1.0 {
                return Ok(());
            }
            Err(ContractFault { setting, value: value.to_string(), expected })
        }
        effect("plan_effect", self.plan_effect, 1e-6, "above 0 and at most 1")?;
        effect("gate", self.gate, 0.0, "between 0 and 1")?;
        effect("null_margin", self.null_margin, 0.0, "between 0 and 1")?;
        if self.blocks_least < 1 {
            return Err(ContractFault { setting: "blocks_least", value: "0".into(), expected: "at least 1" });
        }
        if self.blocks_most < self.blocks_least || self.blocks_most > 10_000 {
            return Err(ContractFault {
                setting: "blocks_most",
                value: self.blocks_most.to_string(),
                expected: "at least blocks_least and at most 10000",
            });
        }
        for (setting, span) in [
            ("dev_run_max", self.dev_run_max.unwrap_or(limits::SHARED_DEV_RUN_MAX)),
            ("build_max", self.build_max),
            ("check_max", self.check_max),
            ("measure_max", self.measure_max),
        ] {
            if span == Span::ZERO || span > Span::hours(24) {
                return Err(ContractFault {
                    setting,
                    value: span.to_string(),
                    expected: "longer than 0 s and at most 24 h",
                });
            }
        }
        Ok(())
    }
}
