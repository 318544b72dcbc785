//! A rig's REST door from outside: blocking, over one kept connection, with no runtime started for it.
//!
//! Where the rig is and which token opens it come from its data folder, or from what the caller names instead.

pub(crate) mod control;
mod tokens;

use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use ureq::http::Response;
use ureq::{Agent, Body};
use uuid::Uuid;

use thermite_actors::noise::DeviceNoise;
use thermite_actors::ports::OutputSlice;
use thermite_actors::view::{DevRunRow, JobRow, RigView, RunRow, RunnersView, SplitView};
use thermite_core::ids::MemberId;
use thermite_core::ids::{DevRunId, JobId, RunId};
use thermite_core::job::StageKind;
use thermite_core::limits;
use thermite_core::runners::ProcessAsk;
use thermite_core::split::SplitAsk;
use thermite_core::why::Explanation;
use thermite_svc::folder::{Endpoint, OWNER_TOKEN};
use thermite_svc::server::bodies::{AskDevRun, Queued, RunStarted, StartRun, SubmitJob, Submitted};
use thermite_svc::server::noise::{AlarmCleared, MeasuredAgain};
use thermite_svc::server::problem::Problem;
use thermite_svc::server::split::{Drained, SplitPreview};

/// How long a connection to the rig may take to come about.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// How long the rig may take for one answer, beyond what it was asked to wait. A cancel is answered after at most 10 s
/// (rule A10), a start waits for the disk.
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// How long one stream of events is read before it is asked for anew: one whose other end vanished is then noticed.
const EVENTS_MAX: Duration = Duration::from_secs(60);
/// How often an asking with an idempotency key is sent again when the connection breaks (rule A13).
const TRIES_MAX: u32 = 3;
/// The largest answer read, in bytes: a record of 10,000 blocks with all readings is some 60 MB.
const ANSWER_BYTES_MAX: u64 = 128 * 1024 * 1024;

/// Where a rig is, as far as the caller says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The rig's address, such as `http://127.0.0.1:7077`; else the data folder tells it.
    pub(crate) url: Option<String>,
    /// The file with the token; else the owner's in the data folder.
    pub(crate) token_file: Option<PathBuf>,
    /// The rig's data folder.
    pub(crate) folder: PathBuf,
}

/// Why the rig's answer is not what was asked for. Each sentence names the thing, the value and the way out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Fault {
    /// No address is known.
    #[error("no rig runs on {folder}: {why}; start one with `thermite serve`, or name one with --url")]
    NoRig {
        /// The data folder.
        folder: String,
        /// What is missing.
        why: String,
    },
    /// Nobody listens, or the connection broke.
    #[error("no rig answers at {url}: {why}; start one with `thermite serve`, or name another with --url")]
    Unreachable {
        /// The address.
        url: String,
        /// The cause.
        why: String,
    },
    /// The token cannot be read.
    #[error("token file {path} cannot be read: {why}; name another with --token-file")]
    TokenFile {
        /// The file.
        path: String,
        /// The cause.
        why: String,
    },
    /// The rig says that the asker may not.
    #[error("{sentence}")]
    Refused {
        /// The rig's own sentence.
        sentence: String,
    },
    /// The rig says that it cannot; nobody's fault.
    #[error("{sentence}")]
    Infrastructure {
        /// The rig's own sentence.
        sentence: String,
    },
    /// What answers does not speak as a rig does.
    #[error("{url} does not answer as a rig does: {what}; check --url")]
    NotARig {
        /// The address.
        url: String,
        /// What it said.
        what: String,
    },
}

/// The door.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    agent: Agent,
    base: String,
    bearer: String,
    place: Place,
}

/// What a run is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunChange {
    /// Take no new work; its jobs keep their place.
    Pause,
    /// Go on.
    Resume,
    /// Be over.
    End,
}

impl RunChange {
    /// The word in the address.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            RunChange::Pause => "pause",
            RunChange::Resume => "resume",
            RunChange::End => "end",
        }
    }
}

impl Client {
    /// Finds the rig and the token. Says nothing to the rig yet.
    ///
    /// # Errors
    /// Where no address is known or the token cannot be read.
    pub(crate) fn open(place: &Place) -> Result<Client, Fault> {
        let (base, bearer) = door_at(place)?;
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .proxy(None)
            // Each step has its limit; one over all of them would cost every request a thread for looking up the host.
            .timeout_connect(Some(CONNECT_MAX))
            .timeout_send_request(Some(ANSWER_MAX))
            .timeout_send_body(Some(ANSWER_MAX))
            .timeout_recv_response(Some(ANSWER_MAX))
            .timeout_recv_body(Some(ANSWER_MAX))
            .build()
            .new_agent();
        Ok(Client { agent, base, bearer, place: place.clone() })
    }

    /// The same door looked for again, for whoever outlasts a rig: its next life may listen elsewhere.
    pub(crate) fn again(&self) -> Result<Client, Fault> {
        let (base, bearer) = door_at(&self.place)?;
        Ok(Client { agent: self.agent.clone(), base, bearer, place: self.place.clone() })
    }

    /// The rig's address.
    pub(crate) fn base(&self) -> &str {
        &self.base
    }

    /// The whole rig.
    pub(crate) fn rig(&self) -> Result<RigView, Fault> {
        self.get("/v1/rig")
    }

    /// All runs.
    pub(crate) fn runs(&self) -> Result<Vec<RunRow>, Fault> {
        self.all("/v1/runs", |row: &RunRow| row.run.to_string())
    }

    /// A whole listing, page by page; `name` is what a row is named by where the next page begins.
    fn all<T: DeserializeOwned>(&self, path: &str, name: impl Fn(&T) -> String) -> Result<Vec<T>, Fault> {
        let most = limits::ROWS_LISTED_MAX;
        let mut rows: Vec<T> = self.get(&format!("{path}?limit={most}"))?;
        let mut got = rows.len();
        while let Some(last) = rows.last().filter(|_| got == most) {
            let page: Vec<T> = self.get(&format!("{path}?limit={most}&after={}", name(last)))?;
            got = page.len();
            rows.extend(page);
        }
        Ok(rows)
    }

    /// The first of all runs: one that is not over, where there is any.
    pub(crate) fn first_run(&self) -> Result<Option<RunRow>, Fault> {
        let first: Vec<RunRow> = self.get("/v1/runs?limit=1")?;
        Ok(first.into_iter().next())
    }

    /// Starts a run. With the same `key` it is started once (rule A13).
    pub(crate) fn start_run(&self, request: &StartRun, key: Option<String>) -> Result<RunId, Fault> {
        Ok(self.post::<RunStarted>("/v1/runs", request, key.unwrap_or_else(fresh_key))?.run)
    }

    /// Pauses, resumes or ends a run.
    pub(crate) fn change_run(&self, run: RunId, change: RunChange) -> Result<(), Fault> {
        let path = format!("/v1/runs/{run}/{}", change.word());
        self.send_with_key(&path, &serde_json::json!({}), &fresh_key()).map(drop)
    }

    /// Asks for a development run. With the same `key` it is asked for once (rule A13).
    pub(crate) fn ask(&self, run: RunId, lane: u32, ask: &AskDevRun, key: Option<String>) -> Result<Queued, Fault> {
        let path = format!("/v1/runs/{run}/lanes/{lane}/dev-runs");
        self.post(&path, ask, key.unwrap_or_else(fresh_key))
    }

    /// One development run.
    pub(crate) fn dev_run(&self, dev_run: DevRunId) -> Result<DevRunRow, Fault> {
        self.get(&format!("/v1/dev-runs/{dev_run}"))
    }

    /// What a development run wrote from `offset` on; waits at most `wait` for more.
    pub(crate) fn output(&self, dev_run: DevRunId, offset: u64, wait: Duration) -> Result<OutputSlice, Fault> {
        let path = format!("/v1/dev-runs/{dev_run}/output?offset={offset}&wait_ms={}", wait.as_millis());
        let answer = self.request(|| {
            self.agent
                .get(format!("{}{path}", self.base))
                .header("authorization", &self.bearer)
                .config()
                .timeout_recv_response(Some(ANSWER_MAX + wait))
                .build()
                .call()
        })?;
        let figure = |name: &str| answer.headers().get(name)?.to_str().ok()?.parse::<u64>().ok();
        let (from, total, cut) = (figure("thermite-offset"), figure("thermite-total"), figure("thermite-cut"));
        let complete = answer.headers().get("thermite-complete").is_some_and(|value| value == "true");
        let bytes = self.bytes_of(answer)?;
        let offset = from.unwrap_or(offset);
        let total = total.unwrap_or(offset + bytes.len() as u64);
        Ok(OutputSlice { bytes, offset, total, cut: cut.unwrap_or(0), complete })
    }

    /// Cancels a development run; answers once nothing of it is left, or after 10 s (rule A10).
    pub(crate) fn cancel(&self, dev_run: DevRunId) -> Result<(), Fault> {
        self.request(|| {
            self.agent
                .delete(format!("{}/v1/dev-runs/{dev_run}", self.base))
                .header("authorization", &self.bearer)
                .call()
        })
        .map(drop)
    }

    /// Submits a change to the judge. With the same `key` it is submitted once (rule A13).
    pub(crate) fn submit(&self, run: RunId, submit: &SubmitJob, key: Option<String>) -> Result<Submitted, Fault> {
        let path = format!("/v1/runs/{run}/jobs");
        self.post(&path, submit, key.unwrap_or_else(fresh_key))
    }

    /// One job.
    pub(crate) fn job(&self, job: JobId) -> Result<JobRow, Fault> {
        self.get(&format!("/v1/jobs/{job}"))
    }

    /// Why something waits, or came out as it did.
    pub(crate) fn why(&self, id: &str) -> Result<Explanation, Fault> {
        let id: String = id.bytes().map(plain_or_escaped).collect();
        self.get(&format!("/v1/why/{id}"))
    }

    /// A stage's record as it is stored; the deciding one where no stage is named.
    pub(crate) fn verdict(&self, job: JobId, stage: Option<StageKind>) -> Result<String, Fault> {
        let path = match stage {
            Some(stage) => format!("/v1/jobs/{job}/verdict?stage={stage}"),
            None => format!("/v1/jobs/{job}/verdict"),
        };
        let bytes = self.bytes_of(self.fetch(&path)?)?;
        String::from_utf8(bytes).map_err(|_| self.not_a_rig("its record is not UTF-8 text"))
    }

    /// What happens at the rig, as server-sent events, from the one after `last` on where that is still kept. Ends by
    /// itself after a while; a reader that comes back with its last id misses nothing.
    pub(crate) fn events(&self, last: Option<&str>) -> Result<impl BufRead + use<>, Fault> {
        let answer = self.request(|| {
            let mut asked = self.agent.get(format!("{}/v1/events", self.base)).header("authorization", &self.bearer);
            if let Some(last) = last {
                asked = asked.header("last-event-id", last);
            }
            asked.config().timeout_recv_body(Some(EVENTS_MAX)).build().call()
        })?;
        Ok(BufReader::new(answer.into_body().into_reader()))
    }

    /// Each device's noise.
    pub(crate) fn noise(&self) -> Result<Vec<DeviceNoise>, Fault> {
        self.get("/v1/noise")
    }

    /// Has a device's noise measured anew.
    pub(crate) fn noise_again(&self, device: MemberId) -> Result<MeasuredAgain, Fault> {
        self.post(&format!("/v1/noise/{}/again", device.0), &serde_json::json!({}), fresh_key())
    }

    /// Clears a device's alarm.
    pub(crate) fn clear_alarm(&self, device: MemberId) -> Result<AlarmCleared, Fault> {
        self.post(&format!("/v1/noise/{}/clear", device.0), &serde_json::json!({}), fresh_key())
    }

    /// Which cards are the judge's and which the lanes'.
    pub(crate) fn split(&self) -> Result<SplitView, Fault> {
        self.get("/v1/split")
    }

    /// What a new split would change and end.
    pub(crate) fn split_preview(&self, new: &SplitAsk) -> Result<SplitPreview, Fault> {
        self.put("/v1/split?dry_run=true", new, None)
    }

    /// Sets the split where its revision is still that one; answers once it is in force.
    pub(crate) fn set_split(&self, new: &SplitAsk, read: u64) -> Result<SplitView, Fault> {
        self.put("/v1/split", new, Some(read))
    }

    /// The rig's runners on other machines.
    pub(crate) fn runners(&self) -> Result<RunnersView, Fault> {
        self.get("/v1/rig/runners")
    }

    /// Sets them where their revision is still that one; answers once they are in force.
    pub(crate) fn set_runners(&self, list: &[ProcessAsk], read: u64) -> Result<RunnersView, Fault> {
        self.put("/v1/rig/runners", &list, Some(read))
    }

    /// Drains a device, or undoes that.
    pub(crate) fn drain(&self, device: MemberId, drained: bool) -> Result<Drained, Fault> {
        let word = if drained { "drain" } else { "undrain" };
        self.post(&format!("/v1/devices/{}/{word}", device.0), &serde_json::json!({}), fresh_key())
    }

    fn put<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize, read: Option<u64>) -> Result<T, Fault> {
        let answer = self.request(|| {
            let mut put = self.agent.put(format!("{}{path}", self.base)).header("authorization", &self.bearer);
            if let Some(read) = read {
                put = put.header("if-match", format!("\"{read}\""));
            }
            // What has a device is ended first.
            put.config()
                .timeout_recv_response(Some(ANSWER_MAX + limits::NEW_SPLIT_MAX.to_std()))
                .build()
                .send_json(body)
        })?;
        self.read(path, answer)
    }

    fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Fault> {
        self.read(path, self.fetch(path)?)
    }

    fn fetch(&self, path: &str) -> Result<Response<Body>, Fault> {
        self.request(|| self.agent.get(format!("{}{path}", self.base)).header("authorization", &self.bearer).call())
    }

    fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize, key: String) -> Result<T, Fault> {
        self.read(path, self.send_with_key(path, body, &key)?)
    }

    /// The key makes sending again safe: a broken connection leaves open whether the rig heard it.
    fn send_with_key(&self, path: &str, body: &impl Serialize, key: &str) -> Result<Response<Body>, Fault> {
        let send = || {
            self.agent
                .post(format!("{}{path}", self.base))
                .header("authorization", &self.bearer)
                .header("idempotency-key", key)
                .send_json(body)
        };
        let mut tries = 1;
        loop {
            match send() {
                Err(ureq::Error::Io(error)) if tries < TRIES_MAX && broke_on_the_way(&error) => tries += 1,
                answer => return self.request(|| answer),
            }
        }
    }

    fn request(&self, call: impl FnOnce() -> Result<Response<Body>, ureq::Error>) -> Result<Response<Body>, Fault> {
        let answer = call().map_err(|error| self.unreachable(&error))?;
        let status = answer.status();
        if status.is_success() {
            return Ok(answer);
        }
        let bytes = self.bytes_of(answer)?;
        let problem: Result<Problem, _> = serde_json::from_slice(&bytes);
        let sentence = problem.map_err(|_| self.not_a_rig(&format!("HTTP status {status}")))?.detail;
        if status.is_server_error() {
            return Err(Fault::Infrastructure { sentence });
        }
        Err(Fault::Refused { sentence })
    }

    fn read<T: DeserializeOwned>(&self, path: &str, answer: Response<Body>) -> Result<T, Fault> {
        let bytes = self.bytes_of(answer)?;
        serde_json::from_slice(&bytes).map_err(|error| self.not_a_rig(&format!("{path}: {error}")))
    }

    fn bytes_of(&self, answer: Response<Body>) -> Result<Vec<u8>, Fault> {
        let mut bytes = Vec::new();
        let mut reader = answer.into_body().into_reader().take(ANSWER_BYTES_MAX);
        reader
            .read_to_end(&mut bytes)
            .map_err(|error| Fault::Unreachable { url: self.base.clone(), why: plain(&error) })?;
        Ok(bytes)
    }

    fn unreachable(&self, error: &ureq::Error) -> Fault {
        let why = match error {
            ureq::Error::Io(error) => plain(error),
            ureq::Error::HostNotFound => "the host is not known".to_owned(),
            ureq::Error::Timeout(_) => "it does not answer in time".to_owned(),
            error => error.to_string(),
        };
        Fault::Unreachable { url: self.base.clone(), why }
    }

    fn not_a_rig(&self, what: &str) -> Fault {
        Fault::NotARig { url: self.base.clone(), what: what.to_owned() }
    }
}

/// A byte as a URL's path has it.
fn plain_or_escaped(byte: u8) -> String {
    if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
        char::from(byte).to_string()
    } else {
        format!("%{byte:02X}")
    }
}

/// Where the rig listens, and what opens it.
fn door_at(place: &Place) -> Result<(String, String), Fault> {
    let url = match &place.url {
        Some(url) => url.trim_end_matches('/').to_owned(),
        None => address_in(&place.folder)?,
    };
    let token_file = place.token_file.clone().unwrap_or_else(|| place.folder.join(OWNER_TOKEN));
    let token = std::fs::read_to_string(&token_file)
        .map_err(|error| Fault::TokenFile { path: token_file.display().to_string(), why: plain(&error) })?;
    Ok((url, format!("Bearer {}", token.trim())))
}

fn address_in(folder: &Path) -> Result<String, Fault> {
    let no_rig = |why: String| Fault::NoRig { folder: folder.display().to_string(), why };
    match Endpoint::read(folder) {
        Ok(Some(endpoint)) => Ok(endpoint.url),
        Ok(None) => Err(no_rig("it has no endpoint.json".to_owned())),
        Err(error) => Err(no_rig(format!("endpoint.json: {}", plain(&error)))),
    }
}

/// The error in words, without the number that the standard library adds.
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    let words = text.split(" (os error").next().unwrap_or(&text);
    let mut letters = words.chars();
    match letters.next() {
        Some(first) => first.to_lowercase().chain(letters).collect(),
        None => text,
    }
}

fn broke_on_the_way(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::UnexpectedEof
    )
}

/// An idempotency key that nothing else has (rule A13).
pub(crate) fn fresh_key() -> String {
    Uuid::now_v7().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::TcpListener;

    #[test]
    fn a_folder_where_no_rig_runs_is_named_with_the_way_out() {
        let folder = tempfile::tempdir().unwrap();
        let place = Place { url: None, token_file: None, folder: folder.path().to_owned() };

        let fault = Client::open(&place).unwrap_err();

        assert_eq!(
            fault.to_string(),
            format!(
                "no rig runs on {}: it has no endpoint.json; start one with `thermite serve`, or name \
                 one with --url",
                folder.path().display()
            )
        );
    }

    #[test]
    fn an_address_where_nobody_listens_is_named_with_the_way_out() {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let (_folder, client) = client_of(&format!("http://{free}"));

        let fault = client.rig().unwrap_err();

        assert_eq!(
            fault.to_string(),
            format!(
                "no rig answers at http://{free}: connection refused; start one with `thermite serve`, or name another \
                 with --url"
            )
        );
    }

    #[test]
    fn a_refusal_is_the_rigs_own_sentence() {
        let (url, server) = answers(
            "409 Conflict",
            "application/problem+json",
            r#"{"type":"about:blank","title":"refused","status":409,"detail":"lane 7 does not exist"}"#,
        );
        let (_folder, client) = client_of(&url);
        let ask = AskDevRun { argv: vec!["true".into()], env: Vec::new(), attached: true };

        let fault = client.ask(RunId(Uuid::nil()), 7, &ask, Some("k1".into())).unwrap_err();

        assert_eq!(fault, Fault::Refused { sentence: "lane 7 does not exist".into() });
        let asked = server.join().unwrap();
        assert!(asked.starts_with(&format!("POST /v1/runs/{}/lanes/7/dev-runs HTTP/1.1", Uuid::nil())), "{asked}");
        assert!(asked.contains("authorization: Bearer secret\r\n"), "{asked}");
        assert!(asked.contains("idempotency-key: k1\r\n"), "{asked}");
    }

    #[test]
    fn a_rig_that_cannot_is_told_apart_from_one_that_refuses() {
        let body = r#"{"type":"about:blank","title":"infrastructure","status":507,"detail":"the records cannot be written: disk full"}"#;
        let (url, server) = answers("507 Insufficient Storage", "application/problem+json", body);
        let (_folder, client) = client_of(&url);

        let fault = client.rig().unwrap_err();

        assert_eq!(fault, Fault::Infrastructure { sentence: "the records cannot be written: disk full".into() });
        server.join().unwrap();
    }

    #[test]
    fn something_else_that_answers_is_no_rig() {
        let (url, server) = answers("200 OK", "text/html", "<html>");
        let (_folder, client) = client_of(&url);

        let fault = client.rig().unwrap_err();

        assert!(matches!(&fault, Fault::NotARig { url: named, .. } if *named == url), "{fault}");
        server.join().unwrap();
    }

    fn client_of(url: &str) -> (tempfile::TempDir, Client) {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(OWNER_TOKEN), "secret\n").unwrap();
        let place = Place { url: Some(url.into()), token_file: None, folder: folder.path().to_owned() };
        let client = Client::open(&place).unwrap();
        (folder, client)
    }

    /// Answers one request and gives back its head.
    fn answers(status: &str, kind: &str, body: &str) -> (String, std::thread::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let length = body.len();
        let answer = format!(
            "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
        );
        let server = std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") {
                socket.read_exact(&mut byte).unwrap();
                head.push(byte[0]);
            }
            socket.write_all(answer.as_bytes()).unwrap();
            let head = String::from_utf8(head).unwrap();
            let body: usize = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "))
                .map_or(0, |length| length.parse().unwrap());
            // Read to the end, so that closing does not reset what was answered.
            socket.read_exact(&mut vec![0; body]).unwrap();
            head
        });
        (url, server)
    }
}
