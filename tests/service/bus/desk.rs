//! A control of a test's own: the real program beside a real nats-server, asked over REST, killed and started again.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use nkeys::KeyPair;
use rustix::process::Signal;
use serde_json::{Value, json};
use thermite_svc::control::serve::operator_in;
use thermite_svc::folder::DataFolder;
use uuid::Uuid;

use super::nats::{Credentials, Nats, RIG};
use crate::binary::{Own, PATIENCE, Said, command};

/// Control, the bus, and the owner's token.
pub(crate) struct Desk {
    pub(crate) nats: Nats,
    folder: tempfile::TempDir,
    server: Option<Own>,
    /// Where it listens, in all its lives; 0 before the first.
    port: u16,
    agent: ureq::Agent,
}

/// An answer: its status, its body, its `ETag`.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) status: u16,
    pub(crate) body: Value,
    pub(crate) etag: Option<String>,
}

impl Told {
    /// The sentence of a problem of that kind.
    #[track_caller]
    pub(crate) fn problem(&self, status: u16, kind: &str) -> String {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.body["type"], format!("urn:thermite:problem:{kind}"), "{self:?}");
        self.body["detail"].as_str().unwrap().to_owned()
    }

    #[track_caller]
    pub(crate) fn good(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{self:?}");
        self.body
    }
}

/// A process that registers: its key and its start.
pub(crate) struct Process {
    pub(crate) name: Option<&'static str>,
    pub(crate) key: KeyPair,
    pub(crate) boot: Uuid,
}

impl Process {
    pub(crate) fn runner(name: &'static str) -> Process {
        Process { name: Some(name), key: KeyPair::new_user(), boot: Uuid::now_v7() }
    }

    pub(crate) fn core() -> Process {
        Process { name: None, key: KeyPair::new_user(), boot: Uuid::now_v7() }
    }

    /// The same process, started anew.
    pub(crate) fn again(&self) -> Process {
        Process { name: self.name, key: KeyPair::from_seed(&self.key.seed().unwrap()).unwrap(), boot: Uuid::now_v7() }
    }

    fn says(&self) -> Value {
        json!({"runner": self.name, "public_key": self.key.public_key(), "boot": self.boot})
    }
}

impl Desk {
    pub(crate) fn start() -> Desk {
        let folder = tempfile::tempdir().unwrap();
        // Its operator's key comes first: the bus's server is configured with it, as `bus-config` says.
        let data = DataFolder::take(&folder.path().join("data")).unwrap();
        let operator = operator_in(&data).unwrap();
        drop(data);
        let nats = Nats::under(operator);
        let agent = ureq::Agent::config_builder().http_status_as_error(false).build().new_agent();
        let mut desk = Desk { nats, folder, server: None, port: 0, agent };
        desk.start_again();
        desk
    }

    /// Starts control, which must not run.
    pub(crate) fn start_again(&mut self) {
        let log = std::fs::File::options().create(true).append(true).open(self.path("log")).unwrap();
        let listen = format!("127.0.0.1:{}", self.port);
        let mut serve = command(&["control", "serve", "--listen", &listen, "--nats-url", &self.nats.url()]);
        serve.arg("--data").arg(self.path("data")).arg("--nats-ca-file").arg(self.nats.ca());
        serve.stdout(log.try_clone().unwrap()).stderr(log);
        // A control that was killed leaves the file that says where it listened.
        let endpoint = self.path("data/endpoint.json");
        let _it_may_be_gone = std::fs::remove_file(&endpoint);
        let mut server = Own(serve.spawn().unwrap());
        let began = Instant::now();
        while !endpoint.exists() {
            assert!(server.0.try_wait().unwrap().is_none(), "control ended: {}", self.log());
            assert!(began.elapsed() < PATIENCE, "control does not come up: {}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
        self.server = Some(server);
        self.port = self.url().rsplit(':').next().and_then(|port| port.parse().ok()).unwrap();
    }

    /// Kills it as `kill -9` does.
    pub(crate) fn kill(&mut self) {
        let mut server = self.server.take().expect("it runs");
        server.0.kill().unwrap();
        server.0.wait().unwrap();
    }

    /// Kills it while somebody else asks it; [`Desk::kill`] then waits for its end.
    pub(crate) fn kill_from_elsewhere(&self) {
        self.server.as_ref().expect("it runs").signal(Signal::KILL);
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    pub(crate) fn url(&self) -> String {
        let json = std::fs::read(self.path("data/endpoint.json")).unwrap();
        serde_json::from_slice::<Value>(&json).unwrap()["url"].as_str().unwrap().to_owned()
    }

    pub(crate) fn owner(&self) -> String {
        std::fs::read_to_string(self.path("data/owner-token")).unwrap().trim().to_owned()
    }

    /// Asks as the owner.
    pub(crate) fn ask(&self, method: &str, path: &str, body: &Value) -> Told {
        self.ask_as(&self.owner(), method, path, body)
    }

    pub(crate) fn get(&self, path: &str) -> Value {
        self.ask("GET", path, &Value::Null).good(200)
    }

    pub(crate) fn ask_as(&self, token: &str, method: &str, path: &str, body: &Value) -> Told {
        self.try_ask(token, method, path, &[], body).unwrap()
    }

    /// As [`Desk::ask_as`], with headers; it fails where control is killed meanwhile.
    pub(crate) fn try_ask(
        &self,
        token: &str,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &Value,
    ) -> Result<Told, ureq::Error> {
        let mut request = ureq::http::Request::builder().method(method).uri(format!("{}{path}", self.url()));
        request = request.header("authorization", format!("Bearer {token}"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let bytes = if body.is_null() {
            Vec::new()
        } else {
            request = request.header("content-type", "application/json");
            serde_json::to_vec(body).unwrap()
        };
        let mut answer = self.agent.run(request.body(bytes).unwrap())?;
        let etag = answer.headers().get("etag").map(|etag| etag.to_str().unwrap().to_owned());
        let text = answer.body_mut().read_to_string()?;
        let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
        Ok(Told { status: answer.status().as_u16(), body, etag })
    }

    /// Makes the rig of these tests; its token.
    pub(crate) fn make_rig(&self) -> String {
        let made = self.ask("POST", "/v1/rigs", &json!({"name": RIG})).good(201);
        made["secret"].as_str().unwrap().to_owned()
    }

    /// Asks for rights.
    pub(crate) fn register(&self, token: &str, process: &Process) -> Told {
        self.ask_as(token, "POST", &format!("/v1/rigs/{RIG}/bus/register"), &process.says())
    }

    /// Rights that are given.
    #[track_caller]
    pub(crate) fn admitted(&self, token: &str, process: &Process) -> Credentials {
        let rights = self.register(token, process).good(200);
        assert_eq!(rights["nats_url"], self.nats.url());
        assert!(rights["ca"].as_str().unwrap().contains("BEGIN CERTIFICATE"));
        let key = KeyPair::from_seed(&process.key.seed().unwrap()).unwrap();
        Credentials { key, jwt: rights["jwt"].as_str().unwrap().to_owned() }
    }

    /// The program's own command on this control.
    pub(crate) fn say(&self, args: &[&str]) -> Said {
        let mut command = command(&["control"]);
        command.args(args).arg("--data").arg(self.path("data"));
        Said::by(command.output().unwrap())
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("control said:\n{}", self.log());
        }
    }
}
