//! What requests and answers carry where it is not one of the rig's own views. Apart from core's types, so that a
//! change there does not change what clients send; bounded, and strict about fields that do not exist.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use thermite_actors::ports::RunRequest;
use thermite_actors::rig;
use thermite_core::dev_run::DevRunEnd;
use thermite_core::ids::{DevRunId, JobId, RunId};
use thermite_core::lane::Caller;
use thermite_core::limits;
use thermite_core::refusal::Refusal;
use thermite_core::run::RunState;
use utoipa::ToSchema;
use utoipa::openapi::schema::{Array, ArrayBuilder, Object, ObjectBuilder, Schema, Type};

/// `POST /v1/runs`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StartRun {
    /// The repository.
    #[schema(min_length = 1, max_length = 4096, example = "/home/me/project")]
    pub repo: String,
    /// The kit's file, relative to the repository's root.
    #[schema(min_length = 1, max_length = 4096, example = "kit.toml")]
    pub kit: String,
    /// The champion's revision.
    #[schema(min_length = 1, max_length = 4096, example = "main")]
    pub champion: String,
    /// The lanes' worktrees, lane 1 first.
    #[schema(max_items = 16, example = json!(["/home/me/lane-1"]))]
    pub lanes: Vec<String>,
}

/// The answer to it: 201.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunStarted {
    /// The run.
    pub run: RunId,
}

/// The answer to `POST /v1/runs/{run}/pause`, `resume` and `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunChanged {
    /// The run.
    pub run: RunId,
    /// What it is.
    pub state: RunState,
}

/// `POST /v1/runs/{run}/lanes/{n}/dev-runs`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AskDevRun {
    /// The program and its arguments.
    #[schema(schema_with = command)]
    pub argv: Vec<String>,
    /// Environment beyond the plain one of every run, as pairs of name and value.
    #[serde(default)]
    #[schema(schema_with = names_and_values)]
    pub env: Vec<(String, String)>,
    /// Whether it ends 10 s after nobody follows its output any more (rule A10).
    #[serde(default)]
    pub attached: bool,
}

/// What the kernel takes as an argument or a value.
const NO_NUL: &str = "^[^\\u0000]*$";

fn text(pattern: &str) -> Object {
    ObjectBuilder::new().schema_type(Type::String).pattern(Some(pattern)).build()
}

/// The program is named; the others may be empty.
fn command() -> Array {
    ArrayBuilder::new()
        .description(Some("The program and its arguments."))
        .prefix_items([Schema::Object(text("^[^\\u0000]+$"))])
        .items(text(NO_NUL))
        .min_items(Some(1))
        .max_items(Some(limits::COMMAND_ARGS_MAX))
        .examples([serde_json::json!(["true"])])
        .build()
}

/// A pair has exactly two texts, which a tuple's own schema does not say.
fn names_and_values() -> Array {
    let pair = ArrayBuilder::new()
        .prefix_items([Schema::Object(text("^[^=\\u0000]+$")), Schema::Object(text(NO_NUL))])
        .items(text(NO_NUL))
        .min_items(Some(2))
        .max_items(Some(2));
    ArrayBuilder::new()
        .description(Some("Environment beyond the plain one of every run, as pairs of name and value."))
        .items(pair)
        .max_items(Some(limits::COMMAND_ENV_MAX))
        .build()
}

/// The answer to it: 202.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Queued {
    /// The development run.
    pub dev_run: DevRunId,
    /// How many are served before it.
    pub ahead: u32,
}

/// The answer to `DELETE /v1/dev-runs/{id}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Over {
    /// The development run.
    pub dev_run: DevRunId,
    /// How it ended.
    #[serde(flatten)]
    pub end: DevRunEnd,
    /// Rule A8, on every result.
    pub note: String,
}

/// `POST /v1/runs/{run}/jobs`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SubmitJob {
    /// The change's revision.
    #[schema(min_length = 1, max_length = 4096, example = "my-branch")]
    pub change: String,
    /// The champion's revision; the run's champion where none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub champion: Option<String>,
}

/// The answer to it: 202.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Submitted {
    /// The job.
    pub job: JobId,
    /// How many jobs are before it.
    pub ahead: u32,
    /// Whether it was there before: asked with the same key, or the same change against the same champion.
    pub same: bool,
}

/// The environment names that a development run's program gets from the rig alone are the host's matter; here only
/// what the kernel takes is checked.
impl AskDevRun {
    /// The asking in the rig's words.
    ///
    /// # Errors
    /// Where the command is beyond what the kernel and the records take.
    pub(crate) fn checked(self, run: RunId, lane: u32, key: Option<String>) -> Result<rig::AskDevRun, Refusal> {
        let AskDevRun { argv, env, attached } = self;
        if argv.first().is_none_or(String::is_empty) {
            return Err(Refusal::EmptyCommand);
        }
        let too_long = |size, unit: &str, most| Refusal::CommandTooLong { size, unit: unit.to_owned(), most };
        if argv.len() > limits::COMMAND_ARGS_MAX {
            return Err(too_long(argv.len(), "arguments", limits::COMMAND_ARGS_MAX));
        }
        if env.len() > limits::COMMAND_ENV_MAX {
            return Err(too_long(env.len(), "environment variables", limits::COMMAND_ENV_MAX));
        }
        let bytes = argv.iter().chain(env.iter().flat_map(|(name, value)| [name, value])).map(String::len).sum();
        if bytes > limits::COMMAND_BYTES_MAX {
            return Err(too_long(bytes, "bytes with its environment", limits::COMMAND_BYTES_MAX));
        }
        if let Some(argument) = argv.iter().find(|argument| argument.contains('\0')) {
            return Err(impossible("an argument", argument, "text without a NUL byte"));
        }
        for (name, value) in &env {
            if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
                let what = "a name without `=` and a value, both without a NUL byte";
                return Err(impossible("an environment variable", &format!("{name}={value}"), what));
            }
        }
        let caller = if attached { Caller::Attached } else { Caller::Detached };
        Ok(rig::AskDevRun { run, lane, argv, env, caller, key })
    }
}

impl StartRun {
    /// The asking in the rig's words.
    ///
    /// # Errors
    /// Where a text is longer than any path or revision.
    pub(crate) fn checked(self) -> Result<RunRequest, Refusal> {
        let StartRun { repo, kit, champion, lanes } = self;
        fits("repo", &repo)?;
        fits("kit", &kit)?;
        fits("champion", &champion)?;
        for lane in &lanes {
            fits("a lane's worktree", lane)?;
        }
        let most = usize::from(thermite_core::ids::LANE_MAX);
        if lanes.len() > most {
            return Err(impossible("the number of lanes", &lanes.len().to_string(), &format!("at most {most}")));
        }
        let lanes = lanes.into_iter().map(PathBuf::from).collect();
        Ok(RunRequest { repo: repo.into(), kit: kit.into(), champion, lanes })
    }
}

impl SubmitJob {
    /// The asking in the rig's words.
    ///
    /// # Errors
    /// Where a text is longer than any revision.
    pub(crate) fn checked(self, run: RunId, key: Option<String>) -> Result<rig::SubmitJob, Refusal> {
        let SubmitJob { change, champion } = self;
        fits("change", &change)?;
        if let Some(champion) = &champion {
            fits("champion", champion)?;
        }
        Ok(rig::SubmitJob { run, champion, change, key })
    }
}

impl Over {
    /// The answer about one development run's end, with what is said beside it ([`note_of_dev_run`](thermite_core::texts::note_of_dev_run)).
    pub fn new(dev_run: DevRunId, end: DevRunEnd, note: String) -> Over {
        Over { dev_run, end, note }
    }
}

fn fits(thing: &str, value: &str) -> Result<(), Refusal> {
    if value.is_empty() {
        return Err(impossible(thing, "empty", "given"));
    }
    if value.contains('\0') || value.len() > limits::REST_TEXT_BYTES_MAX {
        let most = format!("at most {} bytes, without a NUL byte", limits::REST_TEXT_BYTES_MAX);
        return Err(impossible(thing, value, &most));
    }
    Ok(())
}

/// The value is cut where it would fill the answer.
fn impossible(thing: &str, value: &str, expected: &str) -> Refusal {
    Refusal::Impossible { thing: thing.to_owned(), value: super::request::shown(value), expected: expected.to_owned() }
}
