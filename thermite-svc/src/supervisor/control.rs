//! What a process asks control for: rights on the bus for its key, by its token, over HTTPS.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use thermite_core::limits;
use thermite_core::wire::ProcessName;
use ureq::tls::TlsConfig;
use uuid::Uuid;

use crate::bus::subjects::RigName;
use crate::control::trust;

/// Longer answers are not read.
const ANSWER_BYTES_MAX: u64 = 256 * 1024;

/// What is registered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Registration {
    /// The runner's name; none for a core.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runner: Option<ProcessName>,
    /// The public half of the process's key.
    pub public_key: String,
    /// This start of the process.
    pub boot: Uuid,
}

/// Rights on the bus.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registered {
    /// The JWT for the key.
    pub jwt: String,
    /// The bus's address.
    pub nats_url: String,
    /// The certificates that the bus's is checked against (PEM), where they are not the system's.
    #[serde(default)]
    pub ca: Option<String>,
    /// When the JWT ends, in seconds since 1970.
    pub expires: u64,
}

impl fmt::Debug for Registered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The JWT is not shown: logs are read by many.
        write!(f, "rights on {} until {}", self.nats_url, self.expires)
    }
}

/// Control gives no rights.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlFault {
    /// It cannot be reached, or cannot now: asked again.
    #[error("control does not answer: {0}")]
    Away(String),
    /// The token is no longer good, or the runner was removed.
    #[error("control lets this process in no longer: {0}")]
    Barred(String),
    /// It refuses what is asked.
    #[error("control refuses: {0}")]
    Refused(String),
}

/// Registers a key and asks for rights on the bus. Blocks, at most [`limits::CONTROL_ANSWER_MAX`].
///
/// # Errors
/// Says why there are none.
pub fn register(
    control: &str,
    tls: TlsConfig,
    token: &str,
    rig: &RigName,
    registration: &Registration,
) -> Result<Registered, ControlFault> {
    crate::bus::connection::install_tls();
    let config = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .tls_config(tls)
        // A redirection would take the token elsewhere.
        .max_redirects(0)
        .timeout_global(Some(Duration::from_millis(limits::CONTROL_ANSWER_MAX.as_millis())))
        .build();
    let url = format!("{}/v1/rigs/{rig}/bus/register", control.trim_end_matches('/'));
    let answer = ureq::Agent::new_with_config(config)
        .post(&url)
        .header("authorization", format!("Bearer {token}"))
        .send_json(registration);
    let mut answer = answer.map_err(|error| ControlFault::Away(unreached(&url, &error)))?;
    let status = answer.status().as_u16();
    let body = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_string();
    let body = body.map_err(|error| ControlFault::Away(format!("{url}: {error}")))?;
    read(status, &body)
}

/// Why control was not reached; a certificate that is not believed is told what it was checked against.
fn unreached(url: &str, error: &ureq::Error) -> String {
    let told = format!("{url}: {error}");
    if trust::is_disbelief(error) { format!("{told}; {}", trust::CHECKED_AGAINST) } else { told }
}

fn read(status: u16, body: &str) -> Result<Registered, ControlFault> {
    match status {
        200 | 201 => serde_json::from_str(body)
            .map_err(|error| ControlFault::Away(format!("what it answers cannot be read: {error}"))),
        401 | 410 => Err(ControlFault::Barred(said(status, body))),
        408 | 425 | 429 | 500..=599 => Err(ControlFault::Away(said(status, body))),
        other => Err(ControlFault::Refused(said(other, body))),
    }
}

/// The sentence of a problem (RFC 9457), else its status.
fn said(status: u16, body: &str) -> String {
    #[derive(Deserialize)]
    struct Problem {
        detail: Option<String>,
        title: Option<String>,
    }
    let problem = serde_json::from_str::<Problem>(body).ok();
    let sentence = problem.and_then(|problem| problem.detail.or(problem.title));
    sentence.map_or_else(|| format!("status {status}"), |sentence| crate::plain::plain(&sentence))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removed_runner_is_told_from_a_control_that_is_away_and_from_a_refusal() {
        let problem = r#"{"title":"gone","detail":"runner box-2 was removed","status":410}"#;

        assert_eq!(read(410, problem), Err(ControlFault::Barred("runner box-2 was removed".to_owned())));
        assert_eq!(read(401, "not json"), Err(ControlFault::Barred("status 401".to_owned())));
        assert_eq!(read(503, ""), Err(ControlFault::Away("status 503".to_owned())));
        assert_eq!(read(409, r#"{"title":"another key"}"#), Err(ControlFault::Refused("another key".to_owned())));
        assert!(matches!(read(200, "{}"), Err(ControlFault::Away(_))));
    }

    #[test]
    fn rights_are_read_whatever_else_is_said_and_never_shown() {
        let body = r#"{"jwt":"secret.jwt","nats_url":"tls://bus:4222","expires":7,"subjects":["x"]}"#;

        let rights = read(200, body).unwrap();

        assert_eq!((rights.expires, rights.ca.as_deref()), (7, None));
        assert!(!format!("{rights:?}").contains("secret"));
    }
}
