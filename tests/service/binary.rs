//! The real program as its users have it: built once, started with arguments, a rig of its own where one is needed.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// How long anything may take that has no reason to take long; a busy machine is no reason to fail.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// What a rig says where this machine cannot contain runs: then there is none to test.
pub(crate) const NO_CONTAINMENT: &str = "no containment for a run here";

/// The program, as it stands in the sources: cargo builds it where it is older.
pub(crate) fn thermite() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        // target/debug/deps/service-0123: the program lies two folders up.
        let own = std::env::current_exe().unwrap();
        let folder = own.ancestors().nth(2).unwrap();
        let mut build = Command::new(env!("CARGO"));
        // As tests/run.sh builds it: with another set of features everything would be built anew.
        build.args(["build", "--quiet", "--workspace", "--all-features", "--bin", "thermite"]);
        build.current_dir(env!("CARGO_MANIFEST_DIR")).arg("--target-dir").arg(folder.parent().unwrap());
        if folder.file_name().is_some_and(|name| name == "release") {
            build.arg("--release");
        }
        let built = build.status().unwrap();
        assert!(built.success(), "the program does not build: {built}");
        folder.join("thermite")
    })
}

/// The program with arguments and the environment of a plain shell, not started yet: whatever surrounds the test (a
/// CI, an editor, a rig of one's own) must steer neither the program nor what it starts.
pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(thermite());
    let steers = |name: &str| {
        name.starts_with("THERMITE_") || ["CI", "NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "COLORTERM"].contains(&name)
    };
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(steers)) {
        command.env_remove(name);
    }
    command.env("TERM", "xterm");
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// What keeps a test's rig apart from all others on this machine: accounts of its own, since the sweep at a rig's
/// start ends whatever runs as its accounts, and a device lock of its own.
pub(crate) fn apart(locks: &Path) -> [(&'static str, String); 2] {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let base = 300_000 + std::process::id() % 100_000 * 1_000 + NEXT.fetch_add(1, Ordering::Relaxed) * 20;
    [("THERMITE_UID_BASE", base.to_string()), ("THERMITE_DEVICE_LOCKS", locks.display().to_string())]
}

/// What a finished program said.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Said {
    pub(crate) fn by(output: Output) -> Said {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Said { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    /// The one line that says why it did not work.
    #[track_caller]
    pub(crate) fn refused_with(&self, code: i32) -> &str {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert_eq!(self.out, "", "{self:?}");
        let sentence = self.err.strip_prefix("thermite: ").and_then(|rest| rest.strip_suffix('\n'));
        let sentence = sentence.unwrap_or_else(|| panic!("not one line by thermite: {self:?}"));
        assert!(!sentence.contains('\n'), "more than one line: {self:?}");
        sentence
    }
}

/// A process of this test's own, ended when it is let go of.
pub(crate) struct Own(pub(crate) Child);

impl Own {
    pub(crate) fn signal(&self, signal: Signal) {
        // It was not waited for, so the pid is still its own.
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    /// Its end, and what it said.
    pub(crate) fn end(mut self) -> Said {
        let mut output = Output { status: Default::default(), stdout: Vec::new(), stderr: Vec::new() };
        let err = self.0.stderr.take().map(read_all);
        let out = self.0.stdout.take().map(read_all);
        output.status = self.0.wait().unwrap();
        output.stdout = out.map(|thread| thread.join().unwrap()).unwrap_or_default();
        output.stderr = err.map(|thread| thread.join().unwrap()).unwrap_or_default();
        Said::by(output)
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        if let Ok(None) = self.0.try_wait() {
            let _gone_meanwhile = self.0.kill();
            let _gone_meanwhile = self.0.wait();
        }
    }
}

fn read_all(mut stream: impl std::io::Read + Send + 'static) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        bytes
    })
}

/// A real rig on a folder of its own, with one run of two lanes where that was asked for.
pub(crate) struct Served {
    server: Own,
    folder: tempfile::TempDir,
}

impl Served {
    /// A rig without a run; none where this machine gives no isolation, which is said.
    pub(crate) fn start() -> Option<Served> {
        let folder = tempfile::tempdir().unwrap();
        let log = std::fs::File::create(folder.path().join("log")).unwrap();
        let mut serve = command(&["serve", "--listen", "127.0.0.1:0"]);
        serve.arg("--data").arg(folder.path().join("data")).stdout(log.try_clone().unwrap()).stderr(log);
        let locks = folder.path().join("locks");
        serve.envs(apart(&locks));
        let mut server = Own(serve.spawn().unwrap());
        let began = Instant::now();
        while !folder.path().join("data/endpoint.json").exists() {
            let log = || std::fs::read_to_string(folder.path().join("log")).unwrap();
            if let Some(status) = server.0.try_wait().unwrap() {
                let log = log();
                if log.contains(NO_CONTAINMENT) {
                    println!("skipped: {}", log.trim());
                    return None;
                }
                panic!("the rig ended with {status}: {log}");
            }
            assert!(began.elapsed() < PATIENCE, "the rig does not come up: {}", log());
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(Served { server, folder })
    }

    /// A rig with a run of two lanes.
    pub(crate) fn with_run() -> Option<Served> {
        let served = Served::start()?;
        served.lay_out(KIT);
        let said = served.say(&served.start_args());
        assert_eq!(said.code, Some(0), "{said:?}");
        Some(served)
    }

    /// Makes the repository with that kit, and two lanes.
    pub(crate) fn lay_out(&self, kit: &str) {
        let repo = self.path("repo");
        std::fs::create_dir_all(repo.join("src")).unwrap();
        std::fs::write(repo.join("kit.toml"), kit).unwrap();
        std::fs::write(repo.join("build.sh"), "sh -n src/program && cp src/program program && chmod +x program\n")
            .unwrap();
        std::fs::write(repo.join("src/program"), "#!/bin/sh\necho 1\n").unwrap();
        git(&repo, &["init", "--quiet", "--initial-branch=main"]);
        git(&repo, &["add", "--all"]);
        git(&repo, &["commit", "--quiet", "--message=Begin"]);
        for lane in ["lane-1", "lane-2"] {
            git(&repo, &["worktree", "add", "--quiet", "-b", lane, self.path(lane).to_str().unwrap(), "main"]);
        }
    }

    /// The arguments that start the run.
    pub(crate) fn start_args(&self) -> Vec<String> {
        let path = |name: &str| self.path(name).display().to_string();
        let (repo, one, two) = (path("repo"), path("lane-1"), path("lane-2"));
        let args = ["start", "--repo", &repo, "--champion", "main", "--lane", &one, "--lane", &two];
        args.map(str::to_owned).to_vec()
    }

    /// Commits a file's text on lane 1's branch, and gives the commit.
    pub(crate) fn change(&self, file: &str, text: &str) -> String {
        let lane = self.path("lane-1");
        std::fs::write(lane.join(file), text).unwrap();
        git(&lane, &["add", "--all"]);
        git(&lane, &["commit", "--quiet", "--message=Change"]);
        git(&lane, &["rev-parse", "HEAD"])
    }

    /// A place in this test's folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The program on this rig, not started yet.
    pub(crate) fn command(&self, args: &[impl AsRef<str>]) -> Command {
        let args: Vec<&str> = args.iter().map(AsRef::as_ref).collect();
        let mut command = command(&args);
        command.env("THERMITE_DATA", self.path("data"));
        command
    }

    /// The program on this rig, to its end.
    pub(crate) fn say(&self, args: &[impl AsRef<str>]) -> Said {
        Said::by(self.command(args).output().unwrap())
    }

    /// The server, to be ended by a test.
    pub(crate) fn server(&self) -> &Own {
        &self.server
    }
}

impl Served {
    /// Ends the rig by its rules, so that no run, group or mount is left.
    pub(crate) fn end(&mut self) {
        if let Ok(None) = self.server.0.try_wait() {
            self.server.signal(Signal::TERM);
            let began = Instant::now();
            while began.elapsed() < PATIENCE && matches!(self.server.0.try_wait(), Ok(None)) {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.end(); // What does not end is killed by `Own`.
        crate::support::assert_replays(&self.path("data"));
    }
}

/// A kit whose development runs end at 2 s and whose champion builds.
pub(crate) const KIT: &str = r#"name = "small"
target = "cpu"
build = ["sh", "build.sh"]
measure = ["./program"]
editable = ["src/**"]

[contract]
dev_run_max = "2 s"
"#;

/// Git, whatever the caller's own settings are.
pub(crate) fn git(folder: &Path, args: &[&str]) -> String {
    let answer = Command::new("git")
        .arg("-C")
        .arg(folder)
        .args(["-c", "user.name=test", "-c", "user.email=test@example.invalid", "-c", "commit.gpgsign=false"])
        .args(["-c", "safe.directory=*"])
        .args(args)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null")
        .output()
        .unwrap();
    assert!(answer.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&answer.stderr));
    String::from_utf8(answer.stdout).unwrap().trim().to_owned()
}

/// Waits until something is so.
pub(crate) fn until(what: &str, mut so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !so() {
        assert!(began.elapsed() < PATIENCE, "not within {} s: {what}", PATIENCE.as_secs());
        std::thread::sleep(Duration::from_millis(10));
    }
}
