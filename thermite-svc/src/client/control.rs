//! Control's REST door from outside: blocking, without a runtime.

use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use thermite_svc::control::trust;
use thermite_svc::folder::{Endpoint, OWNER_TOKEN};
use thermite_svc::server::problem::Problem;
use ureq::Agent;
use ureq::tls::TlsConfig;

use super::Fault;

/// How long control may take for one answer: a removal waits for the bus.
const ANSWER_MAX: Duration = Duration::from_secs(60);
const ANSWER_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Where control is, as far as the caller says it.
#[derive(Clone, Debug)]
pub(crate) struct ControlPlace {
    /// Its address; else its data folder tells it.
    pub(crate) url: Option<String>,
    /// The file with the token; else the owner's in its data folder.
    pub(crate) token_file: Option<PathBuf>,
    /// How its certificate is checked, where it has one.
    pub(crate) tls: Option<TlsConfig>,
    /// Its data folder.
    pub(crate) folder: PathBuf,
}

/// The door.
pub(crate) struct ControlClient {
    agent: Agent,
    base: String,
    bearer: String,
}

impl ControlClient {
    /// Finds control and the token. Says nothing to it yet.
    pub(crate) fn open(place: &ControlPlace) -> Result<ControlClient, Fault> {
        let base = match &place.url {
            Some(url) => url.trim_end_matches('/').to_owned(),
            None => endpoint(place)?,
        };
        let token_file = place.token_file.clone().unwrap_or_else(|| place.folder.join(OWNER_TOKEN));
        let unreadable = |path: &PathBuf, why: String| Fault::TokenFile { path: path.display().to_string(), why };
        let token = std::fs::read_to_string(&token_file).map_err(|error| unreadable(&token_file, error.to_string()))?;
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .proxy(None)
            .max_redirects(0)
            .timeout_global(Some(ANSWER_MAX));
        if let Some(tls) = &place.tls {
            config = config.tls_config(tls.clone());
        }
        let bearer = format!("Bearer {}", token.trim());
        Ok(ControlClient { agent: config.build().new_agent(), base, bearer })
    }

    /// Reads.
    pub(crate) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Fault> {
        self.answered(self.agent.get(self.url(path)).header("authorization", &self.bearer).call())
    }

    /// Makes.
    pub(crate) fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, Fault> {
        self.answered(self.agent.post(self.url(path)).header("authorization", &self.bearer).send_json(body))
    }

    /// Sets what is still at that revision.
    pub(crate) fn put<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize, read: u64) -> Result<T, Fault> {
        let put = self.agent.put(self.url(path)).header("authorization", &self.bearer);
        self.answered(put.header("if-match", format!("\"{read}\"")).send_json(body))
    }

    /// Removes.
    pub(crate) fn delete<T: DeserializeOwned>(&self, path: &str) -> Result<T, Fault> {
        self.answered(self.agent.delete(self.url(path)).header("authorization", &self.bearer).call())
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    fn answered<T: DeserializeOwned>(
        &self,
        answer: Result<ureq::http::Response<ureq::Body>, ureq::Error>,
    ) -> Result<T, Fault> {
        let cannot = |sentence: String| Fault::Infrastructure { sentence };
        let away = |why: String| {
            cannot(format!(
                "control does not answer at {}: {why}; start it with `thermite control serve`, or name another with --url",
                self.base
            ))
        };
        let mut answer = answer.map_err(|error| match trust::is_disbelief(&error) {
            true => cannot(format!("{} is not believed to be control: {error}; {}", self.base, trust::CHECKED_AGAINST)),
            false => away(error.to_string()),
        })?;
        let status = answer.status();
        let body = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_vec();
        let body = body.map_err(|error| away(error.to_string()))?;
        let strange =
            |what: String| cannot(format!("{} does not answer as control does: {what}; check --url", self.base));
        if status.is_success() {
            let body = if body.is_empty() { b"null" } else { body.as_slice() };
            return serde_json::from_slice(body).map_err(|error| strange(error.to_string()));
        }
        let problem: Problem = serde_json::from_slice(&body).map_err(|_| strange(format!("HTTP status {status}")))?;
        if status.is_server_error() {
            Err(cannot(problem.detail))
        } else {
            Err(Fault::Refused { sentence: problem.detail })
        }
    }
}

fn endpoint(place: &ControlPlace) -> Result<String, Fault> {
    let folder = place.folder.display();
    let none = |why: String| Fault::Infrastructure {
        sentence: format!(
            "no control serves on {folder}: {why}; start it with `thermite control serve`, or name one with --url"
        ),
    };
    match Endpoint::read(&place.folder) {
        Ok(Some(endpoint)) => Ok(endpoint.url),
        Ok(None) => Err(none("it has no endpoint.json".to_owned())),
        Err(error) => Err(none(format!("endpoint.json: {error}"))),
    }
}
