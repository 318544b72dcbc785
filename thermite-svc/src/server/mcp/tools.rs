//! The tools: what they take, and what comes of them.

use std::borrow::Cow;
use std::future::ready;
use std::time::Duration;

use actix_web::web::Data;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation, JsonObject, ListToolsResult,
    PaginatedRequestParams, ProgressNotificationParam, ServerCapabilities, ServerConfig, Tool, ToolAnnotations,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use thermite_actors::rig::No;
use thermite_actors::view::{JobStatus, RunRow};
use thermite_core::ids::{JobId, RunId};
use thermite_core::limits;
use thermite_core::refusal::Refusal;
use thermite_core::run::RunState;

use super::super::Door;
use super::super::bodies::{SubmitJob, Submitted};
use super::super::problem::Problem;
use super::experiment::{Experiment, RunExperiment};
use super::{Caller, words};

/// What every agent is told of the server.
const INSTRUCTIONS: &str = "You are one lane of a Thermite rig: you try commands on a device that lanes and a judge take \
    turns on. run_experiment runs one command there and answers with its output; its numbers never count. submit hands \
    your change to the judge, which measures it against the champion; only its verdict counts. status says how things \
    stand.";

/// A lane's tools.
#[derive(Clone)]
pub(super) struct LaneTools {
    door: Data<Door>,
}

/// What a tool comes to: words for the agent, the same as a value for programs, and whether it is a no.
pub(super) struct Said {
    pub(super) words: String,
    pub(super) value: Value,
    pub(super) is_no: bool,
}

/// The second kind of what a tool comes to: a no, in the rig's words.
pub(super) enum ToolNo {
    /// The rig's.
    Rig(No),
    /// The arguments', with the place in them.
    Arguments(String),
}

impl From<No> for ToolNo {
    fn from(no: No) -> ToolNo {
        ToolNo::Rig(no)
    }
}

impl From<Refusal> for ToolNo {
    fn from(refusal: Refusal) -> ToolNo {
        ToolNo::Rig(refusal.into())
    }
}

impl From<ToolNo> for Said {
    fn from(no: ToolNo) -> Said {
        match no {
            ToolNo::Arguments(why) => Said { value: json!({ "problem": why }), words: why, is_no: true },
            ToolNo::Rig(no) => {
                let problem = Problem::from(no);
                let words = problem.detail.clone();
                Said { words, value: json!({ "problem": problem }), is_no: true }
            }
        }
    }
}

/// `submit`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Submit {
    change: Option<String>,
    run: Option<RunId>,
}

/// `status`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Status {
    job: Option<JobId>,
    run: Option<RunId>,
    #[serde(default)]
    wait_seconds: u64,
}

/// Tells a caller how its call goes, where it asked for that.
pub(super) struct Progress<'a> {
    context: &'a RequestContext<RoleServer>,
    told: f64,
}

impl<'a> Progress<'a> {
    pub(super) fn of(context: &'a RequestContext<RoleServer>) -> Progress<'a> {
        Progress { context, told: 0.0 }
    }

    /// Says one thing more.
    pub(super) async fn tell(&mut self, words: String) {
        let Some(token) = self.context.meta.get_progress_token() else { return };
        self.told += 1.0;
        let told = ProgressNotificationParam::new(token, self.told).with_message(words);
        // A caller that cannot be told any more is noticed by its stream.
        let _ = self.context.peer.notify_progress(told).await;
    }
}

impl LaneTools {
    pub(super) fn new(door: Data<Door>) -> LaneTools {
        LaneTools { door }
    }

    async fn submit(&self, caller: &Caller, asked: Submit) -> Result<Said, ToolNo> {
        let run = run_of(&self.door, caller, asked.run).await?;
        // The lane's tree as it stands, uncommitted work included.
        let change = asked.change.unwrap_or_else(|| format!("lane:{}", caller.lane.number()));
        let body = SubmitJob { change, champion: None };
        let submitted = self.door.rig.submit(body.checked(run.run, None)?).await?;
        let row = self.door.rig.job(submitted.job).await?;
        let words = words::submitted(&submitted, &row);
        let value = json!({
            "submitted": Submitted { job: submitted.job, ahead: submitted.ahead, same: submitted.same },
            "job": row,
        });
        Ok(Said { words, value, is_no: false })
    }

    async fn status(&self, caller: &mut Caller, asked: Status, told: &mut Progress<'_>) -> Result<Said, ToolNo> {
        let most = limits::MCP_STATUS_WAIT_MAX;
        if asked.wait_seconds * 1_000 > most.as_millis() {
            let why = format!("wait_seconds is {}; it may be at most {}", asked.wait_seconds, most.as_millis() / 1_000);
            return Err(ToolNo::Arguments(why));
        }
        let Some(job) = asked.job else {
            if asked.wait_seconds > 0 {
                return Err(ToolNo::Arguments("wait_seconds waits for a job's verdict: name the job too".to_owned()));
            }
            let run = run_of(&self.door, caller, asked.run).await?;
            let view = self.door.rig.view().await?;
            let words = words::rig(&view, caller.lane, &run);
            return Ok(Said { words, value: json!({ "rig": view }), is_no: false });
        };
        let until = tokio::time::Instant::now() + Duration::from_secs(asked.wait_seconds);
        let mut over = self.door.over.clone();
        loop {
            let row = self.door.rig.job(job).await?;
            if caller.run.is_some_and(|own| own != row.run) {
                return Err(Refusal::UnknownJob { job }.into());
            }
            let is_over = matches!(row.status, JobStatus::Ended { .. });
            if is_over || tokio::time::Instant::now() >= until || *over.borrow() {
                return Ok(Said { words: words::job(&row), value: json!({ "job": row }), is_no: false });
            }
            told.tell(words::job(&row)).await;
            tokio::select! {
                () = tokio::time::sleep(limits::MCP_SIGN_OF_LIFE.to_std()) => {}
                () = tokio::time::sleep_until(until) => {}
                _ = over.wait_for(|over| *over) => {}
                () = caller.gone() => return Err(ToolNo::Arguments("the caller went away".to_owned())),
            }
        }
    }

    async fn carry_out(&self, request: CallToolRequestParams, context: &RequestContext<RoleServer>) -> Option<Said> {
        let parts = context.extensions.get::<http::request::Parts>();
        let mut caller = parts.and_then(|parts| parts.extensions.get::<Caller>()).cloned()?;
        let mut told = Progress::of(context);
        let arguments = request.arguments.unwrap_or_default();
        let said = match request.name.as_ref() {
            RUN_EXPERIMENT => match read::<RunExperiment>(arguments) {
                Ok(asked) => Experiment::new(&self.door, &mut caller, context).carry_out(asked, &mut told).await,
                Err(no) => Err(no),
            },
            SUBMIT => match read::<Submit>(arguments) {
                Ok(asked) => self.submit(&caller, asked).await,
                Err(no) => Err(no),
            },
            STATUS => match read::<Status>(arguments) {
                Ok(asked) => self.status(&mut caller, asked, &mut told).await,
                Err(no) => Err(no),
            },
            _ => return None,
        };
        Some(said.unwrap_or_else(Said::from))
    }
}

impl Caller {
    /// Answers once nobody reads the call's answer any more.
    pub(super) async fn gone(&mut self) {
        // Nothing is ever sent: only the sender's end is told.
        while self.here.changed().await.is_ok() {}
    }
}

impl ServerHandler for LaneTools {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("thermite", env!("CARGO_PKG_VERSION")))
            .with_instructions(INSTRUCTIONS)
    }

    fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> impl Future<Output = Result<ListToolsResult, ErrorData>> + Send + '_ {
        ready(Ok(ListToolsResult::with_all_items(tools())))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        tools().into_iter().find(|tool| tool.name == name)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let name = request.name.clone();
        let Some(said) = self.carry_out(request, &context).await else {
            let known = format!("there is no tool {name:?}; there are {RUN_EXPERIMENT}, {SUBMIT} and {STATUS}");
            return Err(ErrorData::invalid_params(known, None));
        };
        let words = vec![ContentBlock::text(said.words)];
        let mut result = if said.is_no { CallToolResult::error(words) } else { CallToolResult::success(words) };
        result.structured_content = Some(said.value);
        Ok(result.into())
    }
}

/// The run a lane works on: the one named, else its token's, else the one that is being worked on.
pub(super) async fn run_of(door: &Door, caller: &Caller, named: Option<RunId>) -> Result<RunRow, ToolNo> {
    if let Some(named) = named {
        if caller.run.is_some_and(|own| own != named) {
            return Err(ToolNo::Arguments(format!("your token is not for run {named}; leave `run` out")));
        }
        return Ok(door.rig.run(named).await?);
    }
    if let Some(own) = caller.run {
        return Ok(door.rig.run(own).await?);
    }
    let runs = door.rig.runs(None, 1).await?;
    let worked_on = runs.into_iter().find(|run| run.state != RunState::Ended);
    worked_on.ok_or_else(|| ToolNo::Arguments("no run is being worked on; ask the rig's owner to start one".to_owned()))
}

fn read<T: DeserializeOwned>(arguments: JsonObject) -> Result<T, ToolNo> {
    serde_path_to_error::deserialize(Value::Object(arguments)).map_err(|error| {
        let at = error.path().to_string();
        let at = if at == "." { String::new() } else { format!("{at}: ") };
        ToolNo::Arguments(format!("{at}{}", error.into_inner()))
    })
}

const RUN_EXPERIMENT: &str = "run_experiment";
const SUBMIT: &str = "submit";
const STATUS: &str = "status";

fn tools() -> Vec<Tool> {
    let run = json!({ "type": "string", "format": "uuid", "description": "The run; the one being worked on where none is given." });
    vec![
        tool(
            RUN_EXPERIMENT,
            "Run one command on the device, in your own tree, when it is your turn; answers with its exit code and \
             output. It waits behind the judge and other lanes and tells why. What it measures never counts: only the \
             judge's verdict does. Cancel the call to cancel the run. Example: {\"command\": \"cargo bench -- sort\"}",
            json!({
                "type": "object",
                "properties": {
                    "command": { "type": "string", "minLength": 1, "description": "A line for `sh -c`." },
                    "argv": {
                        "type": "array", "items": { "type": "string" }, "minItems": 1,
                        "description": "The program and its arguments, instead of `command`."
                    },
                    "env": {
                        "type": "object", "additionalProperties": { "type": "string" },
                        "description": "Variables beyond the plain environment of every run."
                    },
                    "run": run,
                },
                "additionalProperties": false,
            }),
            ToolAnnotations::new().read_only(false).open_world(false),
        ),
        tool(
            SUBMIT,
            "Submit your change to the judge, which measures it against the champion; answers once it has its place in \
             the queue. Ask `status` with the job for the verdict. Without `change` your tree is taken as it stands, \
             uncommitted work included. Only the kit's editable paths count.",
            json!({
                "type": "object",
                "properties": {
                    "change": { "type": "string", "minLength": 1, "description": "A revision, such as a commit or branch." },
                    "run": run,
                },
                "additionalProperties": false,
            }),
            ToolAnnotations::new().read_only(false).idempotent(true).open_world(false),
        ),
        tool(
            STATUS,
            "How things stand: your own development run and your run's jobs, who has the devices and the runners on other \
             machines, whether those take runs, and why you wait. With `job`, that job and its verdict; with \
             `wait_seconds` too, waits for the verdict that long. Example: {\"job\": \"0190...\", \"wait_seconds\": 600}",
            json!({
                "type": "object",
                "properties": {
                    "job": { "type": "string", "format": "uuid", "description": "A job, as submit answered it." },
                    "wait_seconds": {
                        "type": "integer", "minimum": 0, "maximum": limits::MCP_STATUS_WAIT_MAX.as_millis() / 1_000,
                        "description": "How long to wait for the job's verdict."
                    },
                    "run": run,
                },
                "additionalProperties": false,
            }),
            ToolAnnotations::new().read_only(true).open_world(false),
        ),
    ]
}

fn tool(name: &'static str, description: &'static str, schema: Value, annotations: ToolAnnotations) -> Tool {
    let Value::Object(schema) = schema else { unreachable!("every tool's schema is an object") };
    let mut tool = Tool::new(Cow::Borrowed(name), Cow::Borrowed(description), std::sync::Arc::new(schema));
    tool.annotations = Some(annotations);
    tool
}
