//! The doors: each parses, sends the rig one message, and says the answer in this harness' words.

use std::error::Error;
use std::net::TcpListener;

use actix_web::http::StatusCode;
use actix_web::{App, HttpResponse, HttpServer, ResponseError, web};
use serde::{Deserialize, Serialize};
use thermite_actors::host::launch::CaptureDir;
use thermite_actors::ports::Outputs;
use thermite_actors::rig::{AskDevRun, No, Rig, SubmitJob};
use thermite_actors::view::JobStatus;
use thermite_core::ids::{JobId, RunId};
use thermite_core::job::JobOutcome;
use thermite_core::lane::Caller;
use thermite_core::texts;

use crate::rig::{Place, start};

/// How much of a command's output an answer carries.
const OUTPUT_SHOWN: usize = 16 * 1024;

/// What a handler has; the rig's handle goes to any thread.
#[derive(Clone)]
struct Door {
    rig: Rig,
    run: RunId,
    outputs: CaptureDir,
}

/// Serves on loopback until Ctrl-C, then ends the rig by its rules.
pub(crate) fn serve(place: Place, port: u16) -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind(("127.0.0.1", port))?;
    println!("own-http: http://{}", listener.local_addr()?);
    serve_on(listener, place, async {
        // Without signals it is ended by being killed; the next start finds what it left.
        drop(tokio::signal::ctrl_c().await);
    })
}

/// Serves on `listener` until `end`.
pub(crate) fn serve_on(
    listener: TcpListener,
    place: Place,
    end: impl Future<Output = ()> + 'static,
) -> Result<(), Box<dyn Error>> {
    // All policy actors live on this thread; the server's workers are others.
    actix_web::rt::System::new().block_on(async move {
        let harness = start(&place).await?;
        let door = Door { rig: harness.rig.clone(), run: harness.run, outputs: harness.outputs.clone() };
        let server = HttpServer::new(move || App::new().app_data(web::Data::new(door.clone())).configure(routes));
        let server = server.workers(2).disable_signals().listen(listener)?.run();
        let handle = server.handle();
        actix_web::rt::spawn(server);
        end.await;
        harness.rig.end().await;
        handle.stop(true).await;
        Ok(())
    })
}

fn routes(config: &mut web::ServiceConfig) {
    config
        .route("/", web::get().to(who_has_it))
        .route("/commands", web::post().to(command))
        .route("/changes", web::post().to(change))
        .route("/changes/{id}", web::get().to(how_it_stands));
}

#[derive(Deserialize)]
struct Command {
    lane: u32,
    argv: Vec<String>,
}

#[derive(Deserialize)]
struct Change {
    revision: String,
}

#[derive(Serialize)]
struct Answer {
    id: String,
    says: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    over: Option<bool>,
}

/// The two kinds of no: what the asker can mend, and what passes by itself.
#[derive(Debug)]
struct Refused(No);

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl ResponseError for Refused {
    fn status_code(&self) -> StatusCode {
        match self.0 {
            No::Refusal(_) => StatusCode::CONFLICT,
            No::Infrastructure(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

async fn command(door: web::Data<Door>, asked: web::Json<Command>) -> Result<HttpResponse, Refused> {
    let Command { lane, argv } = asked.into_inner();
    let ask = AskDevRun { run: door.run, lane, argv, env: Vec::new(), caller: Caller::Detached, key: None };
    let queued = door.rig.ask(ask).await.map_err(Refused)?;
    let end = door.rig.dev_run_end(queued.dev_run).await.map_err(Refused)?;
    let printed = door.outputs.read(queued.dev_run, 0, OUTPUT_SHOWN).map(|slice| slice.bytes).unwrap_or_default();
    Ok(HttpResponse::Ok().json(serde_json::json!({
        "end": end,
        "output": String::from_utf8_lossy(&printed),
        "note": texts::DIAGNOSTIC_ONLY,
    })))
}

async fn change(door: web::Data<Door>, asked: web::Json<Change>) -> Result<HttpResponse, Refused> {
    let submit = SubmitJob { run: door.run, champion: None, change: asked.into_inner().revision, key: None };
    let submitted = door.rig.submit(submit).await.map_err(Refused)?;
    let says = format!("{} ahead of it", submitted.ahead);
    Ok(HttpResponse::Accepted().json(Answer { id: submitted.job.to_string(), says, over: None }))
}

async fn how_it_stands(door: web::Data<Door>, id: web::Path<String>) -> Result<HttpResponse, Refused> {
    let Ok(job) = id.parse::<JobId>() else { return Ok(HttpResponse::NotFound().body("no such change")) };
    let row = door.rig.job(job).await.map_err(Refused)?;
    let (over, says) = match row.status {
        JobStatus::Recording { .. } | JobStatus::Concluding { .. } => (false, "is being written down".to_owned()),
        // Every wait has one sentence, and it is the rig's.
        JobStatus::Waiting { sentence, .. } => (false, sentence),
        JobStatus::Measuring { sentence, .. } => (false, sentence.unwrap_or_else(|| "is being measured".to_owned())),
        JobStatus::Ended { outcome, .. } => (true, in_words(&outcome)),
    };
    Ok(HttpResponse::Ok().json(Answer { id: job.to_string(), says, over: Some(over) }))
}

fn in_words(outcome: &JobOutcome) -> String {
    match outcome {
        JobOutcome::Win { adopted: true } => "faster, and the champion from here on".to_owned(),
        JobOutcome::Win { adopted: false } => texts::WIN_NOT_ADOPTED.to_owned(),
        JobOutcome::NoGain { slower: true } => "slower".to_owned(),
        JobOutcome::NoGain { slower: false } => "not faster".to_owned(),
        JobOutcome::Undecided => "neither faster nor not, as far as could be seen".to_owned(),
        JobOutcome::ChangeFailed { why, .. } => format!("it fails: {why}"),
        JobOutcome::NoVerdict { why } => format!("nobody knows: {why}; ask again"),
    }
}

async fn who_has_it(door: web::Data<Door>) -> Result<HttpResponse, Refused> {
    let view = door.rig.view().await.map_err(Refused)?;
    Ok(HttpResponse::Ok().json(view.devices))
}
