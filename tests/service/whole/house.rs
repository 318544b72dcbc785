//! A rig with a repository, three lanes and fed load, which can be killed and started again on the same folder.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use rustix::process::{Signal, getuid};
use serde_json::{Value, json};
use tempfile::TempDir;
use thermite_core::log::LogEntry;
use thermite_svc::folder::{Endpoint, OWNER_TOKEN};
use thermite_svc::records::RecordsReader;

use crate::support::assert_replays;

use crate::binary::{Own, Said, apart, command, git, thermite, until};
use crate::fed;

/// The lanes of a house.
pub(crate) const LANES: u32 = 3;
/// The kit of a rig with several devices: what of one job's runs at once with itself is told, not what of two jobs' does.
pub(crate) const MANY: &str = "many.toml";
/// Loops (in thousands) of the champion's program: some milliseconds.
const CHAMPION_LOOPS: u32 = 2_000;
/// The uid that an ordinary user's rig has when the tests run as root.
const ORDINARY: u32 = 70_613;

/// Who a rig is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    /// This user: root, where the tests run as root.
    Me,
    /// An ordinary user, where the tests run as root.
    Ordinary,
}

/// Where a rig's load comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    /// Files that say the machine is idle.
    Quiet,
    /// The machine's own, by links that a test may take away.
    Linked,
}

pub(crate) fn is_root() -> bool {
    getuid().is_root()
}

/// Everyone a rig can be here.
pub(crate) fn everyone() -> Vec<Who> {
    if is_root() {
        return vec![Who::Me, Who::Ordinary];
    }
    println!("not root: the rigs of root are left out");
    vec![Who::Me]
}

/// A rig with its folders.
pub(crate) struct House {
    pub(crate) who: Who,
    folder: TempDir,
    /// What keeps its rig apart from others: accounts and a device lock of its own.
    apart: [(&'static str, String); 2],
    /// The layer its runs are contained by, where it is not the best there is.
    layer: Option<&'static str>,
    server: Mutex<Option<Own>>,
    /// Settings of its rig beyond those of every house.
    settings: Mutex<Vec<(&'static str, String)>>,
    agent: ureq::Agent,
    /// A word in the command lines of all that runs here.
    pub(crate) tag: String,
}

/// A REST answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Value,
}

/// A part of an output: how many bytes from where, how many were written and how many of them are not kept, and whether
/// nothing comes after it.
#[derive(Debug)]
pub(crate) struct Slice {
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    pub(crate) total: u64,
    pub(crate) cut: u64,
    pub(crate) complete: bool,
}

impl Answer {
    #[track_caller]
    pub(crate) fn ok(self) -> Value {
        assert!((200..300).contains(&self.status), "{self:?}");
        self.body
    }
}

impl House {
    /// A house with a kit whose development runs may take `dev_run_max`; no rig yet.
    pub(crate) fn build(who: Who, load: Load, dev_run_max: &str) -> House {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = tempfile::Builder::new().prefix("thermite-whole-").tempdir_in(base()).unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let locks = folder.path().join("locks");
        fs::create_dir(&locks).unwrap();
        let agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .proxy(None)
            .timeout_global(Some(Duration::from_secs(100)))
            .build()
            .new_agent();
        let tag = format!("whole-{}-{number}", std::process::id());
        let house = House {
            who,
            apart: apart(&locks),
            layer: None,
            folder,
            server: Mutex::default(),
            settings: Mutex::default(),
            agent,
            tag,
        };
        fs::write(house.path("probe"), "").unwrap();
        fs::create_dir(house.path("probes")).unwrap();
        house.feed(load);
        house.lay_out(dev_run_max);
        house.give_away();
        house
    }

    /// A house whose rig serves, with a run of three lanes; none where this machine gives no isolation, which is said.
    pub(crate) fn served(who: Who, load: Load, dev_run_max: &str) -> Option<House> {
        let house = House::build(who, load, dev_run_max);
        house.start().then(|| {
            house.begin_run("kit.toml");
            house
        })
    }

    /// Sets a variable that its rig is started with.
    pub(crate) fn set(&self, name: &'static str, value: &str) {
        self.settings.lock().unwrap().push((name, value.to_owned()));
    }

    /// A house that serves, with runs contained by that layer.
    pub(crate) fn served_on(who: Who, layer: &'static str, dev_run_max: &str) -> House {
        let mut house = House::build(who, Load::Quiet, dev_run_max);
        house.layer = Some(layer);
        assert!(house.start(), "{layer} as {who:?}: {}", house.log_text());
        house.begin_run("kit.toml");
        house
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The same as text.
    pub(crate) fn at(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.path("data")
    }

    /// What `THERMITE_PROC_ROOT` names.
    pub(crate) fn feed(&self, load: Load) {
        let root = self.path("fed");
        let _none_yet = fs::create_dir(&root);
        if load == Load::Linked {
            for name in ["proc", "sys", "etc"] {
                std::os::unix::fs::symlink(Path::new("/").join(name), root.join(name)).unwrap();
            }
            return;
        }
        fed::idle(&root);
    }

    fn lay_out(&self, dev_run_max: &str) {
        let repo = self.path("repo");
        fs::create_dir_all(repo.join("src")).unwrap();
        let (one, each) = (self.at("probe"), self.at("probes"));
        let kits = [
            ("kit.toml", &one, dev_run_max, 3, 12, "stop"),
            ("short.toml", &one, "5 s", 3, 12, "stop"),
            ("one-block.toml", &one, dev_run_max, 1, 1, "stop"),
            ("keep.toml", &one, dev_run_max, 3, 12, "keep"),
            (MANY, &each, dev_run_max, 3, 12, "stop"),
        ];
        for (name, probe, most, blocks_least, blocks_most, leftovers) in kits {
            let kit = format!(
                "name = \"whole\"\ntarget = \"cpu\"\nbuild = [\"sh\", \"build.sh\"]\ncheck = [\"test\", \"-s\", \"src/loops\"]\n\
                 measure = [\"./busy\", \"work\", \"{probe}\", \"{}\"]\ntimer = \"reported\"\neditable = [\"src/**\"]\n\
                 artefacts = [\"busy\", \"src/loops\"]\n\n[contract]\nplan_percent = 50\ngate_percent = 10\n\
                 blocks_least = {blocks_least}\nblocks_most = {blocks_most}\ndev_run_max = \"{most}\"\n\
                 leftovers = \"{leftovers}\"\n",
                self.tag
            );
            fs::write(repo.join(name), kit).unwrap();
        }
        fs::write(repo.join("build.sh"), "grep -qx '[0-9]* [a-z0-9-]*' src/loops\n").unwrap();
        fs::copy(shared().join("busy"), repo.join("busy")).unwrap();
        fs::write(repo.join("src/loops"), format!("{CHAMPION_LOOPS} champion\n")).unwrap();
        git(&repo, &["init", "--quiet", "--initial-branch=main"]);
        git(&repo, &["add", "--all"]);
        git(&repo, &["commit", "--quiet", "--message=Begin"]);
        for lane in 1..=LANES {
            let branch = format!("lane-{lane}");
            git(&repo, &["worktree", "add", "--quiet", "-b", &branch, &self.at(&branch), "main"]);
        }
    }

    /// Gives all but the shared parts to the rig's user.
    fn give_away(&self) {
        if self.who == Who::Ordinary {
            let owner = format!("{ORDINARY}:{ORDINARY}");
            let given = Command::new("chown").args(["-R", "-h", &owner]).arg(self.folder.path()).status().unwrap();
            assert!(given.success());
        }
    }

    /// A change of the champion that takes that many loops; commits of the same text and name are one commit each.
    pub(crate) fn change(&self, loops: &str, name: &str) -> String {
        let repo = self.path("repo");
        let main = git(&repo, &["rev-parse", "main"]);
        // Where jobs are judged at once, each has a lock of its own.
        fs::write(self.path("probes").join(name), "").unwrap();
        // Beside every worktree: what is checked out is not touched.
        let blob = self.path("blob");
        fs::write(&blob, format!("{loops} {name}\n")).unwrap();
        let blob = git(&repo, &["hash-object", "-w", blob.to_str().unwrap()]);
        let index = self.at("index");
        let in_index = |args: &[&str]| {
            let mut git = Command::new("git");
            git.arg("-C").arg(&repo).args(["-c", "safe.directory=*"]).args(args);
            let answer = git.env("GIT_INDEX_FILE", &index).env("GIT_CONFIG_GLOBAL", "/dev/null").output().unwrap();
            assert!(answer.status.success(), "{answer:?}");
            String::from_utf8(answer.stdout).unwrap().trim().to_owned()
        };
        in_index(&["read-tree", "main"]);
        in_index(&["update-index", "--cacheinfo", &format!("100644,{blob},src/loops")]);
        let tree = in_index(&["write-tree"]);
        let commit = git(&repo, &["commit-tree", &tree, "-p", &main, "-m", name]);
        // A branch keeps it, and gives the rig a name to find it by.
        git(&repo, &["branch", "--force", name, &commit]);
        self.give_away();
        commit
    }

    /// Three times as fast as the champion.
    pub(crate) fn faster(&self, name: &str) -> String {
        self.change(&(CHAMPION_LOOPS / 3).to_string(), name)
    }

    /// Three times as slow.
    pub(crate) fn slower(&self, name: &str) -> String {
        self.change(&(CHAMPION_LOOPS * 3).to_string(), name)
    }

    /// The program as the rig's user, on this house's data folder.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let plain = command(args);
        let mut command = match self.who {
            Who::Me => plain,
            Who::Ordinary => {
                let mut command = Command::new("setpriv");
                command.args([format!("--reuid={ORDINARY}"), format!("--regid={ORDINARY}"), "--clear-groups".into()]);
                command.arg(shared().join("thermite")).args(args).env("HOME", self.path("home"));
                command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
                command
            }
        };
        command.env("THERMITE_DATA", self.data()).current_dir(self.folder.path());
        command
    }

    /// The program to its end.
    pub(crate) fn say(&self, args: &[&str]) -> Said {
        Said::by(self.command(args).output().unwrap())
    }

    /// `thermite serve` on this house, not started yet.
    pub(crate) fn serve_command(&self) -> Command {
        let mut serve = self.command(&["serve", "--listen", "127.0.0.1:0"]);
        self.log_of(&mut serve);
        serve.env("THERMITE_PROC_ROOT", self.path("fed")).envs(self.apart.clone());
        serve.envs(self.settings.lock().unwrap().iter().map(|(name, value)| (*name, value.as_str())));
        serve.envs(self.layer.map(|layer| ("THERMITE_CONTAINMENT", layer)));
        serve
    }

    /// Has a rig's command write into the house's log.
    pub(crate) fn log_of(&self, serve: &mut Command) {
        let log = fs::OpenOptions::new().create(true).append(true).open(self.path("log")).unwrap();
        serve.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
    }

    /// Starts the rig and waits until it listens; false where this machine gives no isolation, which is said.
    #[must_use]
    pub(crate) fn start(&self) -> bool {
        self.start_as(|serve| serve)
    }

    /// The same, by the command that `set` makes of the one that serves; it must become the rig's own process.
    #[must_use]
    pub(crate) fn start_as(&self, set: impl FnOnce(Command) -> Command) -> bool {
        let mut place = self.server.lock().unwrap();
        assert!(place.is_none(), "one rig at a time");
        let mut server = Own(set(self.serve_command()).spawn().unwrap());
        let mut skipped = false;
        until("the rig listens", || {
            if let Some(status) = server.0.try_wait().unwrap() {
                let log = self.log_text();
                assert!(log.contains(crate::binary::NO_CONTAINMENT), "the rig ended with {status}: {log}");
                println!("skipped: {}", log.trim());
                skipped = true;
            }
            // A killed rig leaves its own behind until the next takes the folder.
            skipped || self.endpoint().is_some_and(|endpoint| endpoint.pid == server.0.id())
        });
        *place = Some(server);
        !skipped
    }

    /// Starts it again.
    pub(crate) fn restart(&self) {
        assert!(self.start(), "the isolation that was there is gone");
    }

    /// Starts it and kills it after a time, which may be before or after it listens.
    pub(crate) fn kill_in_start(&self, after: Duration) {
        let mut server = Own(self.serve_command().spawn().unwrap());
        std::thread::sleep(after);
        server.signal(Signal::KILL);
        server.0.wait().unwrap();
    }

    fn endpoint(&self) -> Option<Endpoint> {
        Endpoint::read(&self.data()).ok().flatten()
    }

    /// Where it listens, such as `http://127.0.0.1:7077`.
    pub(crate) fn url(&self) -> String {
        self.endpoint().unwrap().url
    }

    /// What the busy program says when the rig's user starts it outside of any containment.
    pub(crate) fn by_rigs_user(&self, args: &[&str]) -> String {
        let mut command = match self.who {
            Who::Me => Command::new(shared().join("busy")),
            Who::Ordinary => {
                let mut command = Command::new("setpriv");
                command.args([format!("--reuid={ORDINARY}"), format!("--regid={ORDINARY}"), "--clear-groups".into()]);
                command.arg(shared().join("busy"));
                command
            }
        };
        String::from_utf8(command.args(args).output().unwrap().stdout).unwrap()
    }

    /// What the rig said, over all its lives.
    pub(crate) fn log_text(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// The rig's process.
    pub(crate) fn pid(&self) -> u32 {
        // setpriv becomes the program: the pid stays.
        self.server.lock().unwrap().as_ref().unwrap().0.id()
    }

    /// `kill -9`, and its reaping.
    pub(crate) fn kill(&self) {
        let mut server = self.server.lock().unwrap().take().unwrap();
        server.signal(Signal::KILL);
        server.0.wait().unwrap();
    }

    /// SIGTERM; gives the exit code.
    pub(crate) fn terminate(&self) -> Option<i32> {
        let mut server = self.server.lock().ok()?.take()?;
        server.signal(Signal::TERM);
        let mut code = None;
        until("the rig ends", || {
            code = server.0.try_wait().unwrap();
            code.is_some()
        });
        code.unwrap().code()
    }

    /// Asks the rig; none where the connection fails or breaks.
    pub(crate) fn send(&self, method: &str, path: &str, key: Option<&str>, body: Option<&Value>) -> Option<Answer> {
        let url = format!("{}{path}", self.endpoint()?.url);
        let token = fs::read_to_string(self.data().join(OWNER_TOKEN)).unwrap();
        let mut request = ureq::http::Request::builder().method(method).uri(url);
        request = request.header("authorization", format!("Bearer {}", token.trim()));
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        let text = body.map(Value::to_string).unwrap_or_default();
        let sent = match body {
            Some(_) => self.agent.run(request.header("content-type", "application/json").body(text).unwrap()),
            None => self.agent.run(request.body(()).unwrap()),
        };
        let mut answer = sent.ok()?;
        let status = answer.status().as_u16();
        let text = answer.body_mut().read_to_string().ok()?;
        Some(Answer { status, body: serde_json::from_str(&text).unwrap_or(Value::String(text)) })
    }

    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> Value {
        self.send("GET", path, None, None).unwrap_or_else(|| panic!("no answer: {}", self.log_text())).ok()
    }

    #[track_caller]
    pub(crate) fn post(&self, path: &str, body: &Value) -> Value {
        self.send("POST", path, None, Some(body)).unwrap_or_else(|| panic!("no answer: {}", self.log_text())).ok()
    }

    /// An answer as it came, for what is hashed byte by byte.
    #[track_caller]
    pub(crate) fn get_text(&self, path: &str) -> String {
        let url = format!("{}{path}", self.endpoint().unwrap().url);
        let token = fs::read_to_string(self.data().join(OWNER_TOKEN)).unwrap();
        let request = self.agent.get(url).header("authorization", format!("Bearer {}", token.trim()));
        request.call().unwrap().body_mut().read_to_string().unwrap()
    }

    /// Starts a run with that kit, ending the one there is.
    pub(crate) fn begin_run(&self, kit: &str) {
        for run in self.get("/v1/runs").as_array().unwrap().iter().filter(|run| run["state"] != "ended") {
            self.post(&format!("/v1/runs/{}/end", run["run"].as_str().unwrap()), &json!({}));
        }
        let lanes: Vec<String> = (1..=LANES).map(|lane| self.at(&format!("lane-{lane}"))).collect();
        self.post("/v1/runs", &json!({ "repo": self.at("repo"), "kit": kit, "champion": "main", "lanes": lanes }));
    }

    /// The path of the run that is worked on.
    pub(crate) fn run(&self) -> String {
        let runs = self.get("/v1/runs");
        let run = runs.as_array().unwrap().iter().find(|run| run["state"] != "ended").unwrap();
        format!("/v1/runs/{}", run["run"].as_str().unwrap())
    }

    /// Asks for a development run, and gives its path.
    pub(crate) fn ask(&self, lane: u32, argv: &[&str]) -> String {
        let env = [("ESCAPE_BIN", shared().join("bin").display().to_string())];
        let body = json!({ "argv": argv, "env": env });
        let queued = self.post(&format!("{}/lanes/{lane}/dev-runs", self.run()), &body);
        format!("/v1/dev-runs/{}", queued["dev_run"].as_str().unwrap())
    }

    /// Waits for a development run's end, and gives it.
    pub(crate) fn ended(&self, dev_run: &str) -> Value {
        let mut row = Value::Null;
        until("the development run ends", || {
            row = self.get(&format!("{dev_run}?wait_ms=5000"));
            row["status"]["status"] == "ended"
        });
        row["status"]["end"].clone()
    }

    /// What it wrote, as far as it is text.
    pub(crate) fn output(&self, dev_run: &str) -> String {
        let answer = self.send("GET", &format!("{dev_run}/output"), None, None).unwrap().ok();
        answer.as_str().map_or_else(|| answer.to_string(), str::to_owned)
    }

    /// One answer about its output.
    pub(crate) fn output_from(&self, dev_run: &str, offset: u64) -> Slice {
        let url = format!("{}{dev_run}/output?offset={offset}", self.endpoint().unwrap().url);
        let token = fs::read_to_string(self.data().join(OWNER_TOKEN)).unwrap();
        let request = self.agent.get(url).header("authorization", format!("Bearer {}", token.trim()));
        let mut answer = request.call().unwrap();
        let figure = |name: &str| answer.headers()[name].to_str().unwrap().parse().unwrap();
        let (offset, total, cut) = (figure("thermite-offset"), figure("thermite-total"), figure("thermite-cut"));
        let complete = answer.headers()["thermite-complete"] == "true";
        Slice { offset, total, cut, complete, bytes: answer.body_mut().read_to_vec().unwrap().len() as u64 }
    }

    /// Reads the stream of events, one event after the other, while `go_on` says so or until it breaks.
    pub(crate) fn follow_events(&self, go_on: &mut dyn FnMut(&str) -> bool) {
        let Some(endpoint) = self.endpoint() else { return };
        let token = fs::read_to_string(self.data().join(OWNER_TOKEN)).unwrap();
        let url = format!("{}/v1/events", endpoint.url);
        let request = self.agent.get(url).header("authorization", format!("Bearer {}", token.trim()));
        let Ok(mut answer) = request.call() else { return };
        let lines = BufReader::new(answer.body_mut().as_reader()).lines();
        for line in lines.map_while(Result::ok).filter(|line| line.starts_with("data:")) {
            if !go_on(&line) {
                return;
            }
        }
    }

    /// Waits until a development run's program runs.
    pub(crate) fn running(&self, dev_run: &str) {
        until("the development run runs", || {
            let row = self.get(dev_run);
            assert_ne!(row["status"]["status"], "ended", "{row}");
            row["status"]["status"] == "running"
        });
    }

    /// Submits a change, and gives the job's path.
    pub(crate) fn submit(&self, change: &str) -> String {
        let submitted = self.post(&format!("{}/jobs", self.run()), &json!({ "change": change, "champion": "main" }));
        format!("/v1/jobs/{}", submitted["job"].as_str().unwrap())
    }

    /// Waits for a job's end, and gives it.
    pub(crate) fn judged(&self, job: &str) -> Value {
        let mut row = Value::Null;
        until("the job ends", || {
            row = self.get(job);
            row["status"]["status"] == "ended"
        });
        row["status"].clone()
    }

    /// Waits until what an earlier life left has been looked for.
    pub(crate) fn swept(&self) {
        until("the device is swept", || {
            let rig = self.get("/v1/rig");
            rig["devices"][0]["state"]["state"] != "sweeping"
        });
    }

    /// The log of facts.
    pub(crate) fn facts(&self) -> Vec<LogEntry> {
        let log = RecordsReader::open(&self.data()).unwrap().log().unwrap();
        log.into_iter().map(|recorded| recorded.entry).collect()
    }

    /// A path of the shared folder.
    pub(crate) fn shared(&self, name: &str) -> String {
        shared().join(name).display().to_string()
    }

    /// The processes that have this house's tag, but for the test's own.
    pub(crate) fn tagged(&self) -> Vec<Process> {
        processes(|word| word.contains(&self.tag))
    }

    /// That nothing is left of this house: processes, groups, run files.
    pub(crate) fn assert_traceless(&self) {
        assert_eq!(self.tagged(), [], "processes");
        let files = fs::read_dir(self.data().join("runs/runs")).into_iter().flatten().count();
        assert_eq!(files, 0, "run files");
        let own = format!("thermite-{}", rig_name(&self.data()));
        let groups: Vec<PathBuf> =
            groups().into_iter().filter(|path| path.display().to_string().contains(&own)).collect();
        assert_eq!(groups, [] as [PathBuf; 0], "cgroups");
    }
}

impl Drop for House {
    fn drop(&mut self) {
        self.terminate();
        if self.layer.is_some() {
            // Where the judge's copies are laid out for an account that cannot enter the data folder.
            let _none_without = fs::remove_dir_all(format!("/var/tmp/thermite-{}", rig_name(&self.data())));
        }
        assert_replays(&self.data());
    }
}

/// A process, told from a later one with its pid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    start: String,
    words: String,
}

impl Process {
    pub(crate) fn is_alive(&self) -> bool {
        start_of(self.pid).is_some_and(|start| start == self.start)
    }
}

/// Live processes with such a word in their command line.
pub(crate) fn processes(wanted: impl Fn(&str) -> bool) -> Vec<Process> {
    let pids = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid: u32| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let words = String::from_utf8_lossy(&words).replace('\0', " ");
        let is_other = pid != std::process::id() && words.split(' ').any(&wanted);
        is_other.then(|| Some(Process { pid, start: start_of(pid)?, words }))?
    })
    .collect()
}

/// When a process started; none for one that is gone or only waits to be reaped.
fn start_of(pid: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    (fields[0] != "Z" && fields[0] != "X").then(|| fields[19].to_owned())
}

/// The name that a rig on that data folder gives its groups.
fn rig_name(data: &Path) -> String {
    use sha2::Digest;
    let digest = sha2::Sha256::digest(data.canonicalize().unwrap().as_os_str().as_encoded_bytes());
    digest.iter().take(6).fold("rig-".to_owned(), |name, byte| format!("{name}{byte:02x}"))
}

/// Every group of a cgroup v2 or v1 mount's first two levels that a rig made.
fn groups() -> Vec<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mounts = mounts.lines().filter(|line| line.contains(" - cgroup")).filter_map(|line| line.split(' ').nth(4));
    let mut found = Vec::new();
    for mount in mounts {
        let mut places = vec![(PathBuf::from(mount), 0)];
        while let Some((place, depth)) = places.pop() {
            for entry in fs::read_dir(place).into_iter().flatten().flatten() {
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    if entry.file_name().to_string_lossy().starts_with("thermite-") {
                        found.push(entry.path());
                    } else if depth < 3 {
                        places.push((entry.path(), depth + 1));
                    }
                }
            }
        }
    }
    found
}

/// Where houses are: not below a place that every run has of its own, and open to all where the rig is root.
fn base() -> PathBuf {
    let places = [env!("CARGO_TARGET_TMPDIR"), "/opt", "/srv"].map(PathBuf::from);
    let open = |place: &Path| fs::metadata(place).is_ok_and(|about| about.permissions().mode() & 0o1 != 0);
    let fits = |place: &PathBuf| {
        let is_own = ["/tmp", "/var/tmp", "/run"].iter().any(|own| place.starts_with(own));
        !is_own
            && rustix::fs::access(place, rustix::fs::Access::WRITE_OK).is_ok()
            && (!is_root() || place.ancestors().all(open))
    };
    places.into_iter().find(fits).expect("a folder that lanes' users can enter: the target folder, /opt or /srv")
}

/// A folder that everyone can read, kept for the whole test process: the program, the busy program, the escape cases.
pub(crate) fn shared() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = tempfile::Builder::new().prefix("thermite-whole-shared-").tempdir_in(base()).unwrap().keep();
        remove_at_exit(&folder);
        let sources = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut build = Command::new("cc");
        build.args(["-O1", "-o"]).arg(folder.join("busy")).arg(sources.join("whole/busy.c"));
        assert!(build.status().expect("a C compiler is needed").success());
        if fs::hard_link(thermite(), folder.join("thermite")).is_err() {
            fs::copy(thermite(), folder.join("thermite")).unwrap();
        }
        fs::create_dir(folder.join("cases")).unwrap();
        for entry in fs::read_dir(sources.join("../cases/escape")).unwrap().flatten() {
            fs::copy(entry.path(), folder.join("cases").join(entry.file_name())).unwrap();
        }
        let built =
            Command::new("sh").arg(folder.join("cases/build.sh")).env("ESCAPE_BIN", folder.join("bin")).output();
        let built = built.unwrap();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        let opened = Command::new("chmod").args(["-R", "a+rX"]).arg(&folder).status().unwrap();
        assert!(opened.success());
        folder
    })
}

/// Has a shell remove a folder once this process is gone: a static is never dropped.
fn remove_at_exit(folder: &Path) {
    let script = "while kill -0 \"$1\" 2>/dev/null; do sleep 1; done; rm -rf \"$2\"";
    let this = std::process::id().to_string();
    let mut remove = Command::new("setsid");
    remove.args(["--fork", "sh", "-c", script, "remove", &this]).arg(folder);
    remove.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    remove.status().unwrap();
}

/// A process that takes a CPU for itself.
pub(crate) fn spin() -> Own {
    let child: Child = Command::new(shared().join("busy")).arg("spin").stdin(Stdio::null()).spawn().unwrap();
    Own(child)
}
