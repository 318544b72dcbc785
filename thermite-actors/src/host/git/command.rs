//! Runs one git command with a time limit, bounded output and an environment of the rig's own.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use thermite_core::limits;
use thermite_core::time::Span;

/// The most that is read of a git command's output, in bytes.
const OUTPUT_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// How much is kept of what a git command says about a failure, in bytes.
const STDERR_BYTES_MAX: usize = 4 * 1024;

/// A git command that did not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GitFault {
    /// There is no git, or it could not be started.
    #[error("git could not be started: {0}")]
    NotStarted(String),
    /// It ended with a failure.
    #[error("git {command} failed: {said}")]
    Failed {
        /// The subcommand.
        command: String,
        /// What it said.
        said: String,
    },
    /// It was ended at its time limit.
    #[error("git {command} took longer than {limit} and was ended")]
    TookTooLong {
        /// The subcommand.
        command: String,
        /// The limit.
        limit: Span,
    },
    /// Its output, or a file it needs, is not what was expected.
    #[error("{0}")]
    Unexpected(String),
}

/// One git command to be.
pub struct GitCommand {
    name: String,
    command: Command,
    input: Vec<u8>,
    /// Where its output goes; to the caller without it.
    output: Option<File>,
    limit: Span,
}

impl GitCommand {
    /// A command of the git found in `PATH`, whose only configuration outside a repository is `config`.
    ///
    /// What a repository's own configuration could make it run is set on the command line, which is stronger: hooks,
    /// the file system monitor, lazy fetches. Filters are kept out by the rig's own attributes (see [`super`]).
    pub fn new(config: &Path, subcommand: &str) -> GitCommand {
        let mut command = Command::new("git");
        command.env_clear();
        if let Some(path) = std::env::var_os("PATH") {
            command.env("PATH", path);
        }
        for (name, value) in [
            ("LC_ALL", "C"),
            ("HOME", "/nonexistent"),
            ("GIT_CONFIG_NOSYSTEM", "1"),
            ("GIT_ATTR_NOSYSTEM", "1"),
            ("GIT_OPTIONAL_LOCKS", "0"),
            ("GIT_TERMINAL_PROMPT", "0"),
            ("GIT_ASKPASS", "false"),
            ("GIT_EDITOR", "false"),
            ("GIT_PAGER", "cat"),
            ("GIT_NO_LAZY_FETCH", "1"),
            ("GIT_NO_REPLACE_OBJECTS", "1"),
            ("GIT_LITERAL_PATHSPECS", "1"),
            ("GIT_ALLOW_PROTOCOL", "file"),
            ("GIT_ADVICE", "0"),
        ] {
            command.env(name, value);
        }
        command.env("GIT_CONFIG_GLOBAL", config);
        for setting in FIXED_SETTINGS {
            command.arg("-c").arg(setting);
        }
        command.arg("--no-pager");
        GitCommand {
            name: subcommand.to_owned(),
            command,
            input: Vec::new(),
            output: None,
            limit: limits::GIT_COMMAND_MAX,
        }
    }

    /// Works on this repository's git folder.
    pub fn git_dir(mut self, folder: &Path) -> GitCommand {
        self.command.env("GIT_DIR", folder);
        self
    }

    /// Runs in this folder.
    pub fn cwd(mut self, folder: &Path) -> GitCommand {
        self.command.current_dir(folder);
        self
    }

    /// Sets one more variable.
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> GitCommand {
        self.command.env(name, value);
        self
    }

    /// What it reads from its standard input.
    pub fn input(mut self, bytes: Vec<u8>) -> GitCommand {
        self.input = bytes;
        self
    }

    /// Has what it writes on its standard output appended to a file, for more of it than memory should hold.
    pub fn output_to(mut self, file: File) -> GitCommand {
        self.output = Some(file);
        self
    }

    /// Another time limit than [`limits::GIT_COMMAND_MAX`].
    pub fn limit(mut self, limit: Span) -> GitCommand {
        self.limit = limit;
        self
    }

    /// Runs it with these arguments.
    ///
    /// # Errors
    /// Where it cannot be started, takes too long, or ends with a failure.
    pub fn run<I>(self, arguments: I) -> Result<Vec<u8>, GitFault>
    where
        I: IntoIterator,
        I::Item: Into<OsString>,
    {
        let name = self.name.clone();
        let (status, out, said) = self.status(arguments)?;
        if status.success() { Ok(out) } else { Err(GitFault::Failed { command: name, said: said_of(&said, status) }) }
    }

    /// Runs it with these arguments; a failure it tells by its exit status is an answer, not a fault.
    ///
    /// # Errors
    /// Where it cannot be started or takes too long.
    pub fn asks<I>(self, arguments: I) -> Result<Option<Vec<u8>>, GitFault>
    where
        I: IntoIterator,
        I::Item: Into<OsString>,
    {
        let (status, out, _) = self.status(arguments)?;
        Ok(status.success().then_some(out))
    }

    fn status<I>(mut self, arguments: I) -> Result<(ExitStatus, Vec<u8>, Vec<u8>), GitFault>
    where
        I: IntoIterator,
        I::Item: Into<OsString>,
    {
        self.command.arg(&self.name).args(arguments.into_iter().map(Into::into));
        let to_file = self.output.take();
        let is_captured = to_file.is_none();
        let output = to_file.map_or_else(Stdio::piped, Stdio::from);
        self.command.stdin(Stdio::piped()).stdout(output).stderr(Stdio::piped());
        // A group of its own: what git starts is ended with it.
        self.command.process_group(0);
        let mut child = self.command.spawn().map_err(|error| GitFault::NotStarted(error.to_string()))?;
        let mut stdin = child.stdin.take().expect("stdin was asked for as a pipe");
        let stdout = is_captured.then(|| child.stdout.take().expect("stdout was asked for as a pipe"));
        let stderr = child.stderr.take().expect("stderr was asked for as a pipe");
        let input = std::mem::take(&mut self.input);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                // A git that ends early closes the pipe; its exit status then says why.
                drop(stdin.write_all(&input));
            });
            let out = scope.spawn(move || match stdout {
                Some(stdout) => read_bounded(stdout, OUTPUT_BYTES_MAX),
                None => (Vec::new(), true),
            });
            let said = scope.spawn(move || read_bounded(stderr, STDERR_BYTES_MAX as u64));
            let ended = wait(&mut child, self.limit);
            let (out, complete) = out.join().expect("reading a pipe does not panic");
            let (said, _) = said.join().expect("reading a pipe does not panic");
            match ended {
                Ok(Some(status)) if complete => Ok((status, out, said)),
                Ok(Some(_)) => {
                    Err(GitFault::Unexpected(format!("git {} wrote more than {OUTPUT_BYTES_MAX} bytes", self.name)))
                }
                Ok(None) => Err(GitFault::TookTooLong { command: self.name.clone(), limit: self.limit }),
                Err(error) => Err(GitFault::NotStarted(error.to_string())),
            }
        })
    }
}

/// What a repository's own configuration must not decide.
const FIXED_SETTINGS: [&str; 10] = [
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.untrackedCache=false",
    "core.attributesFile=/dev/null",
    "core.excludesFile=/dev/null",
    "core.quotePath=false",
    "core.alternateRefsCommand=true",
    "protocol.ext.allow=never",
    "safe.directory=*",
    "gc.auto=0",
];

/// The bytes up to a limit, reading on to the end so that the writer is never held up, and whether they are all.
fn read_bounded(mut pipe: impl Read, most: u64) -> (Vec<u8>, bool) {
    let mut kept = Vec::new();
    drop(pipe.by_ref().take(most).read_to_end(&mut kept));
    let more = std::io::copy(&mut pipe, &mut std::io::sink()).unwrap_or(0);
    (kept, more == 0)
}

/// Waits for the child's exit, then ends its whole group; `None` where the limit came first.
fn wait(child: &mut Child, limit: Span) -> std::io::Result<Option<ExitStatus>> {
    let pid = Pid::from_child(child);
    let exited = pidfd_open(pid, PidfdFlags::empty())
        .and_then(|pidfd| {
            let limit = Timespec {
                tv_sec: (limit.as_millis() / 1_000) as i64,
                tv_nsec: (limit.as_millis() % 1_000 * 1_000_000) as i64,
            };
            loop {
                match poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&limit)) {
                    Err(rustix::io::Errno::INTR) => {}
                    ready => return ready,
                }
            }
        })
        .map(|ready| ready > 0);
    // Not reaped yet, so the number still names this group: a helper that holds a pipe open is ended too.
    // It may hold nothing but the one that has ended: then there is nobody to tell.
    let _ = kill_process_group(pid, Signal::KILL);
    let status = child.wait()?;
    Ok(exited?.then_some(status))
}

/// What git said, on one line and cut, or its exit status where it said nothing.
fn said_of(said: &[u8], status: ExitStatus) -> String {
    let text = String::from_utf8_lossy(said);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    if lines.is_empty() {
        return status.to_string();
    }
    let mut joined = lines.join("; ");
    if let Some((cut, _)) = joined.char_indices().nth(600) {
        joined.truncate(cut);
        joined.push_str("...");
    }
    joined
}

/// A path out of git's output.
pub fn path_of(bytes: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;

    PathBuf::from(OsStr::from_bytes(bytes))
}
