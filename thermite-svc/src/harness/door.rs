//! The harness's side: one supervisor at a time, checked by the kernel's word on who it is. When it is gone, or has said
//! nothing for too long, everything that runs is ended and proved gone before the next one is let in.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fs::{self, DirBuilder};
use std::future::Future;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use futures_util::future::join_all;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio::task::{JoinSet, spawn_local};
use tokio::time::{sleep, timeout};
use tracing::{debug, info, warn};

use thermite_actors::ports::{MemberPorts, StageRef, StopProof};
use thermite_core::ids::HoldId;
use thermite_core::job::{JobSpec, StageKind};
use thermite_core::limits;
use thermite_core::stage::StageStep;

use super::frames;
use super::words::{Answer, Answered, Ask, Asked, DeviceSaid, Greeting, LaunchedSaid, Welcome, document, read};

/// The socket's name, in a folder of its own.
pub const SOCKET: &str = "harness.sock";

/// The harness's socket cannot be had.
#[derive(Debug, thiserror::Error)]
#[error("socket {}: {what} failed: {source}", path.display())]
pub struct SocketFault {
    /// The socket.
    pub path: PathBuf,
    /// What was tried.
    pub what: &'static str,
    /// The cause.
    pub source: io::Error,
}

/// A harness's open socket; gone when this is let go of.
pub struct HarnessDoor {
    path: PathBuf,
    listener: UnixListener,
}

impl HarnessDoor {
    /// Opens the socket in `folder`, which is made and closed to others. Whoever calls has the data folder, so that what
    /// lies there is a dead harness's.
    ///
    /// # Errors
    /// Where it cannot be had.
    pub fn open(folder: &Path) -> Result<HarnessDoor, SocketFault> {
        let path = folder.join(SOCKET);
        let fault = |what| {
            let path = path.clone();
            move |source| SocketFault { path, what, source }
        };
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(fault("making its folder"))?;
        // Before there is a socket: nobody else can come to it at any moment.
        fs::set_permissions(folder, fs::Permissions::from_mode(0o700))
            .map_err(fault("closing its folder to others"))?;
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(fault("removing an old one")(error)),
            Ok(()) | Err(_) => {}
        }
        let listener = UnixListener::bind(&path).map_err(fault("listening"))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).map_err(fault("closing it to others"))?;
        Ok(HarnessDoor { path, listener })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for HarnessDoor {
    fn drop(&mut self) {
        let _gone_already = fs::remove_file(&self.path);
    }
}

/// Whether a process of that user may be the supervisor: this process's own user, or root.
pub fn may_supervise(peer: u32, own: u32) -> bool {
    peer == own || peer == 0
}

/// Serves supervisors of `rig`, one after the other, until `told_to_end`; then ends what runs.
///
/// Sweeps first: nobody is let in before all that an earlier harness left is proved gone.
pub async fn serve(door: HarnessDoor, rig: &str, members: Vec<MemberPorts>, told_to_end: impl Future<Output = ()>) {
    let floor = Rc::new(Floor { rig: rig.to_owned(), members, holds: RefCell::default(), taken: Cell::new(true) });
    let mut told_to_end = std::pin::pin!(told_to_end);
    let first = Rc::clone(&floor);
    spawn_local(async move {
        first.clear().await;
        first.taken.set(false);
        info!("nothing runs here; a supervisor may come");
    });
    let own = rustix::process::geteuid().as_raw();
    loop {
        let came = tokio::select! {
            came = door.listener.accept() => came,
            () = &mut told_to_end => break,
        };
        let stream = match came {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Descriptors have run out, most likely: what holds them ends.
                warn!(%error, "nobody can be let in");
                sleep(limits::HARNESS_RETRY_EVERY.to_std()).await;
                continue;
            }
        };
        match stream.peer_cred() {
            Ok(peer) if may_supervise(peer.uid(), own) => {
                spawn_local(Rc::clone(&floor).receive(stream));
            }
            Ok(peer) => warn!(uid = peer.uid(), pid = peer.pid(), "another user's process is not let in"),
            Err(error) => warn!(%error, "a process that the kernel does not name is not let in"),
        }
    }
    drop(door);
    if timeout(limits::RIG_END_MAX.to_std(), floor.end_all()).await.is_err() {
        warn!("what runs is left to its launchers, which end it with this process");
    }
}

/// The devices and what runs on them.
struct Floor {
    rig: String,
    members: Vec<MemberPorts>,
    /// Holds that anything was started under and whose end is not proved.
    holds: RefCell<BTreeSet<HoldId>>,
    /// Whether a supervisor is here, or what one left is being ended.
    taken: Cell<bool>,
}

impl Floor {
    /// Has a supervisor in, where none is, for as long as it stays; then ends what it left.
    async fn receive(self: Rc<Self>, mut stream: UnixStream) {
        let greeting = timeout(limits::HARNESS_HELLO_MAX.to_std(), frames::read::<Greeting>(&mut stream)).await;
        let greeting = match greeting {
            Ok(Ok(greeting)) => greeting,
            Ok(Err(error)) => return warn!(%error, "who came does not speak as a supervisor does"),
            Err(_) => return warn!("who came said nothing"),
        };
        let welcome = if greeting.rig != self.rig {
            Welcome::NotNow { why: format!("this harness works for rig {}, not {}", self.rig, greeting.rig) }
        } else if self.taken.get() {
            Welcome::NotNow { why: "what ran before is being ended, or a supervisor is here".to_owned() }
        } else {
            self.taken.set(true);
            Welcome::Devices(self.devices())
        };
        let is_in = matches!(welcome, Welcome::Devices(_));
        let said = frames::write(&mut stream, &welcome).await;
        if !is_in {
            return;
        }
        match said {
            Ok(()) => {
                info!("a supervisor is here");
                let why = self.attend(stream).await;
                info!(why, "the supervisor is gone: what runs is ended");
            }
            Err(error) => info!(%error, "the supervisor went at once"),
        }
        self.end_all().await;
        self.clear().await;
        self.taken.set(false);
    }

    fn devices(&self) -> Vec<DeviceSaid> {
        let said = |member: &MemberPorts| {
            DeviceSaid::new(member.driver.facts(), member.executor.containment(), member.driver.index())
        };
        self.members.iter().map(said).collect()
    }

    /// Carries out what the supervisor asks; says why it ended.
    async fn attend(self: &Rc<Self>, stream: UnixStream) -> String {
        let (mut from, mut to) = stream.into_split();
        let (answers, mut outgoing) = mpsc::unbounded_channel::<Vec<u8>>();
        let mut work = JoinSet::new();
        work.spawn_local(async move {
            while let Some(frame) = outgoing.recv().await {
                if tokio::io::AsyncWriteExt::write_all(&mut to, &frame).await.is_err() {
                    // Reading ends too, which is where it is said.
                    return;
                }
            }
        });
        let why = loop {
            while let Some(_done) = work.try_join_next() {}
            match timeout(limits::HARNESS_SILENCE_MAX.to_std(), frames::read::<Asked>(&mut from)).await {
                Ok(Ok(asked)) => {
                    let (floor, answers) = (Rc::clone(self), answers.clone());
                    work.spawn_local(async move {
                        let Asked { number, device, what } = asked;
                        let what = floor.answer(device, what).await;
                        match frames::framed(&Answered { number, what }) {
                            Ok(frame) => {
                                let _nobody_reads = answers.send(frame);
                            }
                            Err(fault) => warn!(%fault, "an answer that does not fit"),
                        }
                    });
                }
                Ok(Err(error)) => break error.to_string(),
                Err(_) => break format!("it said nothing for {}", limits::HARNESS_SILENCE_MAX),
            }
        };
        // Nobody may begin anything more; what is under way ends with its hold.
        drop(from);
        self.end_all().await;
        work.shutdown().await;
        why
    }

    async fn answer(&self, device: u16, what: Ask) -> Answer {
        let Some(member) = self.members.get(usize::from(device)) else {
            return Answer::NotUnderstood(format!("there is no device {device}"));
        };
        let id = |number| HoldId { member: member.member, number };
        let MemberPorts { driver, executor, .. } = member;
        match what {
            Ask::Alive => Answer::Alive,
            Ask::Sweep => executor.sweep().await.into(),
            Ask::Start { hold, spec } => match read(&spec) {
                Ok(spec) => {
                    self.holds.borrow_mut().insert(id(hold));
                    Answer::Started(executor.start(id(hold), spec).await.map(LaunchedSaid::from))
                }
                Err(why) => Answer::NotUnderstood(why),
            },
            Ask::Exited { hold } => Answer::Exited(executor.exited(id(hold)).await),
            Ask::Stop { hold, gently } => self.stop(id(hold), member, gently).await.into(),
            Ask::Step { hold, stage, step } => {
                let read = read::<(JobSpec, StageKind, u32)>(&stage).and_then(|stage| Ok((stage, read(&step)?)));
                let ((job, stage, attempt), step): (_, StageStep) = match read {
                    Ok(read) => read,
                    Err(why) => return Answer::NotUnderstood(why),
                };
                self.holds.borrow_mut().insert(id(hold));
                let stage = StageRef { job: job.into(), stage, attempt };
                match document(&executor.step(id(hold), stage, step).await) {
                    Ok(report) => Answer::Reported(report),
                    Err(why) => Answer::NotUnderstood(why),
                }
            }
            Ask::EndLeftovers => executor.end_leftovers().await.into(),
            Ask::Read => match driver.read().await.map(|reading| document(&reading)) {
                Ok(Ok(reading)) => Answer::Read(Ok(reading)),
                Ok(Err(why)) => Answer::NotUnderstood(why),
                Err(fault) => Answer::Read(Err(fault.into())),
            },
            Ask::Released { within } => driver.released(within).await.into(),
            Ask::AtFault => Answer::AtFault(driver.at_fault().await.into()),
        }
    }

    async fn stop(&self, hold: HoldId, member: &MemberPorts, gently: bool) -> StopProof {
        let proof = member.executor.stop(hold, gently).await;
        if proof == StopProof::Empty {
            self.holds.borrow_mut().remove(&hold);
        }
        proof
    }

    /// Ends what runs under all holds, and what was kept of earlier ones.
    async fn end_all(&self) {
        let holds = self.holds.borrow().clone();
        let stops = holds.into_iter().filter_map(|hold| {
            let member = self.members.iter().find(|member| member.member == hold.member)?;
            Some(async move {
                match self.stop(hold, member, false).await {
                    StopProof::Empty => debug!(%hold, "ended"),
                    StopProof::NotProved { why } => warn!(%hold, why, "its end is not proved"),
                }
            })
        });
        join_all(stops).await;
        join_all(self.members.iter().map(|member| member.executor.end_leftovers())).await;
    }

    /// Sweeps until the kernel itself says that nothing is left.
    async fn clear(&self) {
        loop {
            let mut left = Vec::new();
            // One after the other: the first is of all devices.
            for member in &self.members {
                if let StopProof::NotProved { why } = member.executor.sweep().await {
                    left.push(why);
                }
            }
            if left.is_empty() {
                self.holds.borrow_mut().clear();
                return;
            }
            warn!(left = left.join("; "), "something is left of what ran; no supervisor is let in");
            sleep(limits::HARNESS_SWEEP_EVERY.to_std()).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_harness_own_user_and_root_may_supervise() {
        assert!(may_supervise(1_000, 1_000));
        assert!(may_supervise(0, 1_000));
        assert!(!may_supervise(1_001, 1_000));
        assert!(!may_supervise(1_000, 0));
    }
}
