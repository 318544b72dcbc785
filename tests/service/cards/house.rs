//! A GPU rig with a repository, two lanes, and cards that a test changes while it runs.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use rustix::process::{Signal, getuid};
use serde_json::{Value, json};
use tempfile::TempDir;
use thermite_svc::folder::{Endpoint, OWNER_TOKEN};

use crate::binary::{Own, Said, apart, command, git, thermite, until};

/// Makes a program of a measured time: as long as `src/ms` says, but for some thousandths, which are its noise.
const MEASURE_C: &str = r#"#include <stdio.h>
#include <time.h>
int main(void) {
    FILE *f = fopen("src/ms", "r");
    long ms;
    struct timespec now, nap = {0, 30000000};
    if (!f || fscanf(f, "%ld", &ms) != 1) return 1;
    clock_gettime(CLOCK_MONOTONIC, &now);
    nanosleep(&nap, 0);
    dprintf(3, "%.9f\n", ms / 1000.0 * (1 + now.tv_nsec / 1000 % 1000 / 200000.0));
    return 0;
}
"#;

const KIT: &str = r#"name = "cards"
target = "cuda-gpu"
build = ["cc", "-O1", "-o", "measure", "measure.c"]
check = ["test", "-s", "src/ms"]
measure = ["./measure"]
timer = "reported"
editable = ["src/**"]
artefacts = ["measure", "src/ms"]

[contract]
plan_percent = 50
gate_percent = 10
blocks_least = 3
blocks_most = 12
"#;

/// One card as the fake library tells of it.
#[derive(Clone)]
pub(super) struct FakeCard {
    pub(super) model: &'static str,
    /// Lines beyond those of a well and idle card.
    pub(super) extra: Vec<String>,
}

/// A rig with its cards.
pub(super) struct CardHouse {
    folder: TempDir,
    /// Tells its cards from those of other houses: the library looks through the machine's processes for who uses them.
    number: u32,
    apart: [(&'static str, String); 2],
    cards: Mutex<Vec<FakeCard>>,
    settings: Vec<(&'static str, String)>,
    server: Mutex<Option<Own>>,
    agent: ureq::Agent,
}

/// A REST answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) etag: Option<String>,
    pub(super) body: Value,
}

/// The library, built where it is older than its sources.
pub(super) fn library() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let own = std::env::current_exe().unwrap();
        let folder = own.ancestors().nth(2).unwrap();
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "--package", "thermite-fake-nvml"]).current_dir(env!("CARGO_MANIFEST_DIR"));
        build.arg("--target-dir").arg(folder.parent().unwrap());
        if folder.file_name().is_some_and(|name| name == "release") {
            build.arg("--release");
        }
        assert!(build.status().unwrap().success(), "the fake library does not build");
        folder.join("libnvidia_ml.so")
    })
}

impl CardHouse {
    /// A house of so many like cards; none where no device node can be made, which is said.
    pub(super) fn of(count: usize) -> Option<CardHouse> {
        CardHouse::with(vec!["Stand-in A"; count], &[])
    }

    /// A house of these models, with settings beyond those of every house.
    pub(super) fn with(models: Vec<&'static str>, settings: &[(&'static str, &str)]) -> Option<CardHouse> {
        if !getuid().is_root() {
            println!("skipped: not root, so no device node can be made that stands for a card");
            return None;
        }
        let folder = tempfile::Builder::new().prefix("thermite-cards-").tempdir_in("/var/tmp").unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        for name in ["dev", "locks"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let nodes = (0..models.len()).map(|card| format!("nvidia{card}")).chain(["nvidiactl".to_owned()]);
        for node in nodes {
            // Each is a second /dev/null: it opens, and harms nobody.
            let node = folder.path().join("dev").join(node);
            let made = Command::new("mknod").args(["-m", "666"]).arg(&node).args(["c", "1", "3"]).status().unwrap();
            assert!(made.success());
        }
        fs::copy(library(), folder.path().join("nvml.so")).unwrap();
        let agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .proxy(None)
            .timeout_global(Some(Duration::from_secs(100)))
            .build()
            .new_agent();
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let house = CardHouse {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            apart: apart(&folder.path().join("locks")),
            cards: Mutex::new(models.into_iter().map(|model| FakeCard { model, extra: Vec::new() }).collect()),
            settings: settings.iter().map(|(name, value)| (*name, (*value).to_owned())).collect(),
            folder,
            server: Mutex::default(),
            agent,
        };
        house.tell();
        house.lay_out();
        Some(house)
    }

    /// The same, serving with a run of two lanes.
    pub(super) fn served(count: usize) -> Option<CardHouse> {
        let house = CardHouse::of(count)?;
        house.start();
        house.begin_run();
        Some(house)
    }

    /// A card's UUID.
    pub(super) fn uuid(&self, card: usize) -> String {
        format!("GPU-{:08x}-0000-0000-{:04x}-{card:012}", std::process::id(), self.number)
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn at(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// Changes a card; the driver sees it at its next look.
    pub(super) fn change(&self, card: usize, extra: &[&str]) {
        self.cards.lock().unwrap()[card].extra = extra.iter().map(ToString::to_string).collect();
        self.tell();
    }

    fn tell(&self) {
        let mut text = "driver 580.82.07\n".to_owned();
        for (at, card) in self.cards.lock().unwrap().iter().enumerate() {
            let (uuid, model) = (self.uuid(at), card.model);
            text += &format!(
                "card\nuuid {uuid}\nname {model}\nminor {at}\nmemory 80000 600\nuse 0\ntemperature 40\nslow_down_at 90\n\
                 reasons 1\nclocks 345 2619\nclock_max 1980\npower 75000\nmig 0\nfollows 500 97\n"
            );
            card.extra.iter().for_each(|line| text += &format!("{line}\n"));
        }
        // Put in place at once: a look never finds half of it.
        fs::write(self.path("new"), text).unwrap();
        fs::rename(self.path("new"), self.path("nvml.so.state")).unwrap();
    }

    fn lay_out(&self) {
        let repo = self.path("repo");
        fs::create_dir_all(repo.join("src")).unwrap();
        fs::write(repo.join("kit.toml"), KIT).unwrap();
        fs::write(repo.join("measure.c"), MEASURE_C).unwrap();
        fs::write(repo.join("src/ms"), "90\n").unwrap();
        git(&repo, &["init", "--quiet", "--initial-branch=main"]);
        git(&repo, &["add", "--all"]);
        git(&repo, &["commit", "--quiet", "--message=Begin"]);
        for lane in ["lane-1", "lane-2"] {
            git(&repo, &["worktree", "add", "--quiet", "-b", lane, &self.at(lane), "main"]);
        }
    }

    /// A change that is three times as fast, on a branch of that name.
    pub(super) fn faster(&self, name: &str) {
        let tree = self.path(name);
        git(&self.path("repo"), &["worktree", "add", "--quiet", "-b", name, &self.at(name), "main"]);
        fs::write(tree.join("src/ms"), "30\n").unwrap();
        git(&tree, &["commit", "--quiet", "--all", "--message=Faster"]);
    }

    /// The program on this house's rig and cards, to its end.
    pub(super) fn say(&self, args: &[&str]) -> Said {
        Said::by(self.command(args).output().unwrap())
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = command(args);
        command.env("THERMITE_DATA", self.path("data")).env("THERMITE_TARGET", "cuda-gpu");
        self.surround(command)
    }

    /// A command that finds this house's cards.
    pub(super) fn surround(&self, mut command: Command) -> Command {
        command.env("THERMITE_NVML_LIB", self.path("nvml.so")).env("THERMITE_DEVICE_NODES", self.path("dev"));
        command.envs(self.apart.clone()).envs(self.settings.iter().map(|(name, value)| (*name, value.as_str())));
        command
    }

    pub(super) fn start(&self) {
        let log = fs::OpenOptions::new().create(true).append(true).open(self.path("log")).unwrap();
        let mut serve = self.command(&["serve", "--listen", "127.0.0.1:0"]);
        serve.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let mut server = Own(serve.spawn().unwrap());
        until("the rig listens", || {
            let ended = server.0.try_wait().unwrap();
            assert!(ended.is_none(), "the rig ended with {ended:?}: {}", self.log());
            Endpoint::read(&self.path("data")).ok().flatten().is_some_and(|endpoint| endpoint.pid == server.0.id())
        });
        *self.server.lock().unwrap() = Some(server);
        until("every card has been swept", || self.devices().iter().all(|row| row["state"]["state"] != "sweeping"));
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// SIGTERM, and the exit code.
    pub(super) fn end(&self) {
        let server = self.server.lock().unwrap().take().unwrap();
        server.signal(Signal::TERM);
        let said = server.end();
        assert_eq!(said.code, Some(0), "{}", self.log());
    }

    pub(super) fn begin_run(&self) {
        let lanes = [self.at("lane-1"), self.at("lane-2")];
        let body = json!({ "repo": self.at("repo"), "kit": "kit.toml", "champion": "main", "lanes": lanes });
        self.ok("POST", "/v1/runs", Some(&body));
    }

    pub(super) fn send(&self, method: &str, path: &str, if_match: Option<&str>, body: Option<&Value>) -> Answer {
        let endpoint = Endpoint::read(&self.path("data")).unwrap().unwrap();
        let token = fs::read_to_string(self.path("data").join(OWNER_TOKEN)).unwrap();
        let request = ureq::http::Request::builder().method(method).uri(format!("{}{path}", endpoint.url));
        let mut request = request.header("authorization", format!("Bearer {}", token.trim()));
        if let Some(etag) = if_match {
            request = request.header("if-match", etag);
        }
        let text = body.map(Value::to_string).unwrap_or_default();
        let mut answer = match body {
            Some(_) => self.agent.run(request.header("content-type", "application/json").body(text).unwrap()),
            None => self.agent.run(request.body(()).unwrap()),
        }
        .unwrap_or_else(|error| panic!("{method} {path}: {error}: {}", self.log()));
        let etag = answer.headers().get("etag").map(|etag| etag.to_str().unwrap().to_owned());
        let status = answer.status().as_u16();
        let text = answer.body_mut().read_to_string().unwrap();
        Answer { status, etag, body: serde_json::from_str(&text).unwrap_or(Value::String(text)) }
    }

    #[track_caller]
    pub(super) fn ok(&self, method: &str, path: &str, body: Option<&Value>) -> Value {
        let answer = self.send(method, path, None, body);
        assert!((200..300).contains(&answer.status), "{method} {path}: {answer:?}");
        answer.body
    }

    pub(super) fn get(&self, path: &str) -> Value {
        self.ok("GET", path, None)
    }

    /// The devices as the view has them.
    pub(super) fn devices(&self) -> Vec<Value> {
        self.get("/v1/rig")["devices"].as_array().unwrap().clone()
    }

    /// Waits until a card is as wanted, and gives its row.
    pub(super) fn until_card(&self, card: usize, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let mut row = Value::Null;
        until(what, || {
            row = self.devices()[card].clone();
            is_so(&row)
        });
        row
    }

    fn run(&self) -> String {
        let runs = self.get("/v1/runs");
        let run = runs.as_array().unwrap().iter().find(|run| run["state"] != "ended").unwrap();
        format!("/v1/runs/{}", run["run"].as_str().unwrap())
    }

    /// Asks for a development run, and gives its path.
    pub(super) fn ask(&self, lane: u32, argv: &[&str]) -> String {
        let queued = self.ok("POST", &format!("{}/lanes/{lane}/dev-runs", self.run()), Some(&json!({ "argv": argv })));
        format!("/v1/dev-runs/{}", queued["dev_run"].as_str().unwrap())
    }

    /// Submits a change, and gives the job's path.
    pub(super) fn submit(&self, change: &str) -> String {
        let job = self.ok("POST", &format!("{}/jobs", self.run()), Some(&json!({ "change": change })));
        format!("/v1/jobs/{}", job["job"].as_str().unwrap())
    }

    /// Waits until something's status is that, and gives its row.
    pub(super) fn until_status(&self, path: &str, status: &str) -> Value {
        let mut row = Value::Null;
        until(&format!("{path} is {status}"), || {
            row = self.get(path);
            assert!(row["status"]["status"] != "ended" || status == "ended", "{row}");
            row["status"]["status"] == status
        });
        row
    }

    /// What a development run wrote.
    pub(super) fn output(&self, dev_run: &str) -> String {
        match self.get(&format!("{dev_run}/output")) {
            Value::String(text) => text,
            other => other.to_string(),
        }
    }
}

impl Drop for CardHouse {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("{}", self.log());
        }
        if let Some(server) = self.server.get_mut().ok().and_then(Option::take) {
            server.signal(Signal::TERM);
            server.end();
        }
    }
}

/// The program, told to be built before a clock runs.
pub(super) fn built() {
    thermite();
    library();
}
