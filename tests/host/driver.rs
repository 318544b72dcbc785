//! Starts rigs for the tests, as root and as an ordinary user, and talks to them.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use thermite_actors::host::launch::{Grant, Identity, LaunchSpec};

/// How long anything may take that is expected to come: far more than it needs, also under load.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The uid of runs of a root rig.
pub(crate) const RUNS_UID: u32 = 70_512;

/// Who a rig is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    /// Root.
    Root,
    /// An ordinary user: this one, or another where the tests run as root.
    Ordinary,
    /// An ordinary user with a cgroup of its own: only where the tests run as root.
    Delegated,
}

pub(crate) fn is_root() -> bool {
    rustix::process::getuid().is_root()
}

/// Everyone a rig can be here.
pub(crate) fn everyone() -> Vec<Who> {
    if !is_root() {
        println!("not root: the tests of a root rig, and of a user with a cgroup of its own, are left out");
        return vec![Who::Ordinary];
    }
    if cgroup_mount().is_none() {
        println!("no cgroup v2 is mounted: the tests of a user with a cgroup of its own are left out");
        return vec![Who::Root, Who::Ordinary];
    }
    vec![Who::Root, Who::Ordinary, Who::Delegated]
}

/// A place and a rig for everyone a rig can be here, one after the other; who can launch nothing is said and left out.
pub(crate) fn rigs() -> impl Iterator<Item = (Place, Rig)> {
    everyone().into_iter().filter_map(|who| {
        let place = Place::new(who);
        let rig = Rig::start(&place);
        rig.isolates().then_some((place, rig))
    })
}

/// Where cgroup v2 is.
pub(crate) fn cgroup_mount() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = mounts.lines().find(|line| line.contains(" - cgroup2 "))?;
    Some(line.split(' ').nth(4)?.into())
}

/// A name that nothing else on the machine has.
pub(crate) fn unique(what: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{what}-{}-{:x}-{n}", std::process::id(), now.tv_sec * 1_000_000_000 + now.tv_nsec)
}

/// Where the tests' folders are: not under `/tmp`, which every run has one of its own of, where there is such a place
/// that all can enter.
fn base() -> PathBuf {
    let own = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let open = |place: &Path| fs::metadata(place).is_ok_and(|about| about.permissions().mode() & 0o1 != 0);
    let is_writable = rustix::fs::access(own, rustix::fs::Access::WRITE_OK).is_ok();
    if is_writable && own.ancestors().all(open) { own.to_owned() } else { std::env::temp_dir() }
}

/// Folders for one test, with what its rig and its runs need.
pub(crate) struct Place {
    pub(crate) who: Who,
    pub(crate) root: tempfile::TempDir,
    /// The group that was given to a user.
    delegated: Option<PathBuf>,
    /// What its rig is told of containment.
    pub(crate) wanted: &'static str,
    /// The uid of its runs, where the rig is root: their own alone, where they are ended by it.
    pub(crate) runs_uid: u32,
    /// The uid of an ordinary user's rig where the tests run as root: the kernel counts processes by user, and another
    /// test's rig may use up all that it gives.
    pub(crate) rigs_uid: u32,
}

/// A uid that no other test of this machine has, and the next is nobody's either: what is ended by its uid must be.
fn own_uid() -> u32 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let n = NEXT.fetch_add(2, Ordering::Relaxed) % 10_000;
    100_000_000 + (std::process::id() % 100_000) * 10_000 + u32::try_from(n).unwrap()
}

impl Place {
    /// A place whose rig uses the layers that `wanted` says.
    pub(crate) fn with_layers(who: Who, wanted: &'static str) -> Place {
        let mut place = Place::new(who);
        place.wanted = wanted;
        if who == Who::Root {
            place.runs_uid = own_uid();
            std::os::unix::fs::chown(place.path("work"), Some(place.runs_uid), Some(place.runs_uid)).unwrap();
        }
        place
    }

    /// Whether runs have a view of their own.
    fn has_own_view(&self) -> bool {
        self.wanted.starts_with("best") || self.wanted.starts_with("namespaces")
    }

    /// A script of the escape cases as a run of this place reaches it.
    pub(crate) fn case(&self, script: &str) -> String {
        if self.has_own_view() { format!("/run/cases/{script}") } else { cases().join(script).display().to_string() }
    }

    /// What a rig of this place is opened with.
    pub(crate) fn opening(&self, name: &str) -> Value {
        json!({
            "rig": name, "state": self.path("state"), "hidden": [self.path("data")], "wanted": self.wanted,
            "trial_uid": (self.who == Who::Root && !self.has_own_view()).then_some(self.runs_uid + 1),
        })
    }

    pub(crate) fn new(who: Who) -> Place {
        let root = tempfile::Builder::new().prefix("thermite-host-").tempdir_in(base()).unwrap();
        fs::set_permissions(root.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let rigs_uid = own_uid();
        let delegated = (who == Who::Delegated).then(|| delegate(rigs_uid));
        let place = Place { who, root, delegated, wanted: "best", runs_uid: RUNS_UID, rigs_uid };
        for folder in ["state", "data", "work", "out", "open"] {
            let path = place.path(folder);
            fs::create_dir(&path).unwrap();
            if is_root() && who != Who::Root {
                std::os::unix::fs::chown(&path, Some(rigs_uid), Some(rigs_uid)).unwrap();
            }
        }
        if who == Who::Root {
            std::os::unix::fs::chown(place.path("work"), Some(RUNS_UID), Some(RUNS_UID)).unwrap();
        }
        fs::write(place.path("data/secret"), "not for runs").unwrap();
        fs::set_permissions(place.path("open"), fs::Permissions::from_mode(0o777)).unwrap();
        place
    }

    pub(crate) fn path(&self, below: &str) -> PathBuf {
        self.root.path().join(below)
    }

    /// The rig's program as the place's user.
    pub(crate) fn command(&self) -> Command {
        if let Some(group) = &self.delegated {
            // Joining takes root, so a shell does it before it becomes the user.
            let script = "echo $$ >\"$1/cgroup.procs\" && shift && exec setpriv --clear-groups \"$@\"";
            let mut command = Command::new("sh");
            command.args(["-c", script, "join"]).arg(group);
            let uid = self.rigs_uid;
            command.args([format!("--reuid={uid}"), format!("--regid={uid}")]).arg(rig_program());
            return command;
        }
        let mut command = Command::new(rig_program());
        if self.who == Who::Ordinary && is_root() {
            command.uid(self.rigs_uid).gid(self.rigs_uid);
        }
        command
    }

    /// The cgroups of a rig that are there.
    pub(crate) fn groups(&self, rig: &str) -> Vec<PathBuf> {
        let parents = self.delegated.clone().into_iter().chain(cgroup_mount());
        let groups = parents.flat_map(|parent| fs::read_dir(parent).into_iter().flatten());
        let prefix = format!("thermite-{rig}.");
        groups
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.file_name().unwrap().to_string_lossy().starts_with(&prefix))
            .collect()
    }

    /// A run of a command in the workspace, its output in `out/NAME`.
    pub(crate) fn spec(&self, argv: &[&str]) -> LaunchSpec {
        let name = unique("run");
        let identity = match self.who {
            Who::Root => Identity::Dedicated { uid: self.runs_uid, gid: self.runs_uid },
            Who::Ordinary | Who::Delegated => Identity::RigsUser,
        };
        let escape_bin_at = if self.has_own_view() { "/run/escape-bin" } else { escape_bin() };
        let given = [
            (cases(), "/run/cases".into()),
            (escape_bin().into(), "/run/escape-bin".into()),
            (rig_program(), "/run/host-rig".into()),
        ];
        LaunchSpec {
            capture: Some(self.path("out").join(&name)),
            name,
            argv: argv.iter().map(|&argument| argument.to_owned()).collect(),
            env: vec![
                ("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into()),
                ("HOME".into(), thermite_actors::host::launch::HOME_AT.into()),
                ("ESCAPE_BIN".into(), escape_bin_at.into()),
            ],
            workspace: self.path("work"),
            workspace_at: "/run/thermite/work".into(),
            workspace_read_only: false,
            read_only: if self.has_own_view() { given.into() } else { Vec::new() },
            hidden: vec![self.path("data")],
            grant: Grant::default(),
            identity,
            reports_times: false,
            keeps_leftovers: false,
        }
    }

    /// The kept output of a run.
    pub(crate) fn output(&self, spec: &LaunchSpec) -> String {
        self.output_now(spec)
    }

    /// What is kept so far of a run that may be under way.
    pub(crate) fn output_now(&self, spec: &LaunchSpec) -> String {
        // Read by the public way: the file's name is the development run's there, so it is linked to one.
        let dev_run = thermite_core::ids::DevRunId(uuid::Uuid::now_v7());
        let outputs = thermite_actors::host::launch::CaptureDir::open(self.path("read")).unwrap();
        std::os::unix::fs::symlink(spec.capture.as_ref().unwrap(), outputs.file(dev_run)).unwrap();
        let mut text = Vec::new();
        let mut offset = 0;
        while let Some(slice) = thermite_actors::ports::Outputs::read(&outputs, dev_run, offset, 1 << 20) {
            if slice.bytes.is_empty() {
                break;
            }
            offset = slice.offset + slice.bytes.len() as u64;
            text.extend(slice.bytes);
        }
        String::from_utf8_lossy(&text).into_owned()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(group) = &self.delegated {
            // What was in it is being reaped by whoever started it.
            wait_until("the user's cgroup is removed", || fs::remove_dir(group).is_ok());
        }
    }
}

/// Makes a cgroup and gives it to an ordinary user.
fn delegate(uid: u32) -> PathBuf {
    let group = cgroup_mount().unwrap().join(unique("host-tests"));
    fs::create_dir(&group).unwrap();
    for part in ["", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads"] {
        std::os::unix::fs::chown(group.join(part), Some(uid), Some(uid)).unwrap();
    }
    group
}

/// The escape cases, where every user can read them: the checkout may lie in a home that only root can enter.
pub(crate) fn cases() -> PathBuf {
    shared_folder().join("cases")
}

/// A folder that everyone can read, kept for the whole test process, with the rig, the escape cases and their built
/// helper in it.
fn shared_folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = base().join(unique("thermite-host-shared"));
        fs::create_dir(&folder).unwrap();
        fs::create_dir(folder.join("bin")).unwrap();
        fs::create_dir(folder.join("cases")).unwrap();
        fs::copy(env!("CARGO_BIN_EXE_host-rig"), folder.join("host-rig")).unwrap();
        let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cases/escape");
        for case in fs::read_dir(checkout).unwrap() {
            let case = case.unwrap();
            let to = folder.join("cases").join(case.file_name());
            fs::copy(case.path(), &to).unwrap();
            fs::set_permissions(to, fs::Permissions::from_mode(0o755)).unwrap();
        }
        // Built from the copies: the scripts build again where their source is the newer.
        let build = folder.join("cases/build.sh");
        let built = Command::new("sh").arg(build).env("ESCAPE_BIN", folder.join("bin")).output();
        let built = built.unwrap();
        assert!(built.status.success(), "a C compiler is needed: {}", String::from_utf8_lossy(&built.stderr));
        let opened = ["", "bin", "bin/escape", "cases", "host-rig"].map(|part| folder.join(part));
        for path in opened {
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        remove_at_exit(&folder);
        folder
    })
}

/// Has a shell remove a folder once this process is gone: a static is never dropped.
fn remove_at_exit(folder: &Path) {
    // `setsid --fork` ends at once, so there is nobody to wait for.
    let script = "while kill -0 \"$1\" 2>/dev/null; do sleep 1; done; rm -rf \"$2\"";
    let this = std::process::id().to_string();
    Command::new("setsid")
        .args(["--fork", "sh", "-c", script, "remove", &this])
        .arg(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap();
}

pub(crate) fn escape_bin() -> &'static str {
    static BIN: OnceLock<String> = OnceLock::new();
    BIN.get_or_init(|| shared_folder().join("bin").to_str().unwrap().to_owned())
}

/// The rig's program, where every user can execute it.
pub(crate) fn rig_program() -> PathBuf {
    shared_folder().join("host-rig")
}

/// A rig process under the test's control; ended with it.
pub(crate) struct Rig {
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
    early: BTreeMap<u64, Value>,
    next: u64,
    pub(crate) name: String,
    pub(crate) containment: Value,
}

impl Rig {
    /// Starts a rig and opens its launcher.
    pub(crate) fn start(place: &Place) -> Rig {
        Rig::start_named(place, &unique("t"))
    }

    pub(crate) fn start_named(place: &Place, name: &str) -> Rig {
        let mut rig = Rig::spawn(place.command(), name);
        rig.containment = rig.ok("open", place.opening(name));
        rig
    }

    /// Starts a rig process that has opened nothing.
    pub(crate) fn spawn(mut command: Command, name: &str) -> Rig {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let requests = child.stdin.take().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        let name = name.to_owned();
        Rig { child, requests, answers, early: BTreeMap::new(), next: 0, name, containment: Value::Null }
    }

    /// Whether layer A is there; says why not.
    pub(crate) fn isolates(&self) -> bool {
        if !self.has("namespaces") {
            println!("nothing can be launched here, so nothing is tested: {}", self.containment["missing"]);
        }
        self.has("namespaces")
    }

    /// Whether a layer is in force.
    pub(crate) fn has(&self, layer: &str) -> bool {
        self.containment["layers"].as_array().unwrap().iter().any(|found| found == layer)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a request; its answer is asked for by the number.
    pub(crate) fn ask(&mut self, what: &str, mut request: Value) -> u64 {
        self.next += 1;
        request["id"] = self.next.into();
        request["do"] = what.into();
        writeln!(self.requests, "{request}").unwrap();
        self.next
    }

    pub(crate) fn answer(&mut self, id: u64) -> Result<Value, String> {
        loop {
            if let Some(answer) = self.early.remove(&id) {
                return match answer.get("fault") {
                    Some(fault) => Err(fault.as_str().unwrap().to_owned()),
                    None => Ok(answer["ok"].clone()),
                };
            }
            let mut line = String::new();
            assert!(self.answers.read_line(&mut line).unwrap() > 0, "the rig ended");
            let answer: Value = serde_json::from_str(&line).unwrap();
            self.early.insert(answer["id"].as_u64().unwrap(), answer);
        }
    }

    pub(crate) fn call(&mut self, what: &str, request: Value) -> Result<Value, String> {
        let id = self.ask(what, request);
        self.answer(id)
    }

    pub(crate) fn ok(&mut self, what: &str, request: Value) -> Value {
        self.call(what, request).unwrap_or_else(|fault| panic!("{what}: {fault}"))
    }

    pub(crate) fn launch(&mut self, spec: &LaunchSpec) -> Value {
        self.ok("launch", json!({ "spec": spec }))
    }

    /// Launches and opens the gate.
    pub(crate) fn run(&mut self, spec: &LaunchSpec) -> Value {
        let facts = self.launch(spec);
        self.ok("go", of(spec));
        facts
    }

    /// Runs to the end and proves it; how it ended.
    pub(crate) fn run_to_end(&mut self, spec: &LaunchSpec) -> Value {
        self.run(spec);
        let ended = self.ok("ended", of(spec));
        assert_eq!(self.ok("stop", of(spec)), "empty");
        self.ok("finished", of(spec));
        ended
    }

    /// Kills the rig as the kernel would when memory runs out.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        // Its runs end with it, by their lifelines.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A request about a run.
pub(crate) fn of(spec: &LaunchSpec) -> Value {
    json!({ "run": spec.name })
}

/// Processes (no zombies) with `tag` among their arguments, seen from outside: what `count.sh` counts.
pub(crate) fn alive(tag: &str) -> usize {
    let processes = fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let pid: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
        fs::read(format!("/proc/{pid}/cmdline")).ok()
    });
    processes.filter(|line| line.split(|byte| *byte == 0).skip(1).any(|argument| argument == tag.as_bytes())).count()
}

/// Waits until something is so.
pub(crate) fn wait_until(what: &str, mut so: impl FnMut() -> bool) {
    let by = Instant::now() + PATIENCE;
    while !so() {
        assert!(Instant::now() < by, "not within {} s: {what}", PATIENCE.as_secs());
        std::thread::sleep(Duration::from_millis(2));
    }
}
