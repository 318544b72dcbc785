//! The supervisor's side: its harness's devices as the ports that a local device has.
//!
//! Whatever is asked of a harness that is away, or goes away, is answered as a machine answers that has just lost what ran:
//! a start fails, a run has been killed, a stop is proved by the next harness, which has swept before it lets anybody in.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use futures_util::future::LocalBoxFuture;
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::spawn_local;
use tokio::time::{interval, sleep, timeout};
use tracing::{debug, info, warn};

use thermite_actors::host::clock;
use thermite_actors::host::clock::BootClock;
use thermite_actors::ports::{Clock, DeviceFacts, DeviceFault, Executor, Launched, StageRef, StopProof, TargetDriver};
use thermite_core::dev_run::{DevRunSpec, Exit};
use thermite_core::ids::HoldId;
use thermite_core::limits;
use thermite_core::readiness::Reading;
use thermite_core::stage::{StageStep, StepReport};
use thermite_core::time::Span;

use super::frames;
use super::words::{Answer, Answered, Ask, Asked, DeviceSaid, FaultSaid, Greeting, Welcome, document, read};

const SIGKILL: i32 = 9;
const AWAY: &str = "its harness is away";

/// A harness that serves other devices than before: whoever relied on them begins anew.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the harness serves other devices than before: {was} then, {is} today")]
pub struct OtherDevices {
    /// What it served.
    pub was: String,
    /// What it serves.
    pub is: String,
}

/// A supervisor's way to its harness.
#[derive(Clone)]
pub struct HarnessLink(Rc<Inner>);

struct Inner {
    socket: PathBuf,
    rig: String,
    /// How many harnesses were met so far, and whether the last is here.
    at: watch::Sender<At>,
    devices: RefCell<Vec<DeviceSaid>>,
    out: RefCell<Option<mpsc::UnboundedSender<Vec<u8>>>>,
    waiting: RefCell<BTreeMap<u64, oneshot::Sender<Answer>>>,
    next: Cell<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct At {
    met: u64,
    is_here: bool,
}

impl At {
    /// Another one with each coming and going.
    fn stamp(self) -> u64 {
        2 * self.met + u64::from(self.is_here)
    }
}

impl HarnessLink {
    /// A way to the harness of `rig` whose socket is `socket`.
    pub fn new(socket: &Path, rig: &str) -> HarnessLink {
        HarnessLink(Rc::new(Inner {
            socket: socket.to_owned(),
            rig: rig.to_owned(),
            at: watch::Sender::new(At { met: 0, is_here: false }),
            devices: RefCell::default(),
            out: RefCell::default(),
            waiting: RefCell::default(),
            next: Cell::new(1),
        }))
    }

    /// Whether the harness is here.
    pub fn is_here(&self) -> bool {
        self.0.at.borrow().is_here
    }

    /// Answers when a harness comes or goes after `seen`; what is so then. 0 has seen nothing.
    pub async fn changed(&self, seen: u64) -> (u64, bool) {
        let mut at = self.0.at.subscribe();
        let told = at.wait_for(|at| at.stamp() != seen).await;
        told.map_or((seen, false), |at| (at.stamp(), at.is_here))
    }

    /// Answers once a harness is here; how many devices it serves.
    pub async fn came(&self) -> usize {
        let _ = self.0.at.subscribe().wait_for(|at| at.is_here).await;
        self.0.devices.borrow().len()
    }

    /// The device `at`, from 0, as the ports of a local one. The harness must have come.
    pub fn device(&self, at: u16) -> HarnessDevice {
        HarnessDevice { link: self.clone(), at, begun: Rc::default() }
    }

    /// Keeps the way open, for as long as the process lives.
    ///
    /// # Errors
    /// Where the harness comes back with other devices.
    pub async fn keep(&self) -> OtherDevices {
        let mut said = String::new();
        loop {
            match self.meet().await {
                Ok(stream) => {
                    said.clear();
                    info!("the harness is here");
                    let why = self.attend(stream).await;
                    warn!(why, "the harness is gone");
                    self.0.gone();
                }
                Err(NotMet::Other(other)) => return other,
                Err(NotMet::Not(why)) if why != said => {
                    info!(why, socket = %self.0.socket.display(), "the harness cannot be had yet");
                    said = why;
                }
                Err(NotMet::Not(_)) => {}
            }
            sleep(limits::HARNESS_RETRY_EVERY.to_std()).await;
        }
    }

    async fn meet(&self) -> Result<UnixStream, NotMet> {
        let not = |error: std::io::Error| NotMet::Not(error.to_string());
        let mut stream = UnixStream::connect(&self.0.socket).await.map_err(not)?;
        let own = rustix::process::geteuid().as_raw();
        let peer = stream.peer_cred().map_err(not)?.uid();
        if !super::door::may_supervise(own, peer) && peer != 0 {
            return Err(NotMet::Not(format!("another user's process (uid {peer}) listens there")));
        }
        frames::write(&mut stream, &Greeting { rig: self.0.rig.clone() }).await.map_err(not)?;
        let welcome = timeout(limits::HARNESS_HELLO_MAX.to_std(), frames::read::<Welcome>(&mut stream)).await;
        let devices = match welcome {
            Ok(Ok(Welcome::Devices(devices))) => devices,
            Ok(Ok(Welcome::NotNow { why })) => return Err(NotMet::Not(why)),
            Ok(Err(error)) => return Err(not(error)),
            Err(_) => return Err(NotMet::Not("it says nothing".to_owned())),
        };
        let met = self.0.at.borrow().met;
        if met > 0 {
            let names = |devices: &[DeviceSaid]| devices.iter().map(|said| said.uuid.clone()).collect::<Vec<_>>();
            let (was, is) = (names(&self.0.devices.borrow()), names(&devices));
            if was != is {
                return Err(NotMet::Other(OtherDevices { was: was.join(", "), is: is.join(", ") }));
            }
        }
        *self.0.devices.borrow_mut() = devices;
        Ok(stream)
    }

    /// Carries words to and fro until the harness is gone; says why.
    async fn attend(&self, stream: UnixStream) -> String {
        let (mut from, mut to) = stream.into_split();
        let (out, mut outgoing) = mpsc::unbounded_channel::<Vec<u8>>();
        *self.0.out.borrow_mut() = Some(out);
        self.0.at.send_modify(|at| *at = At { met: at.met + 1, is_here: true });
        let writer = async {
            while let Some(frame) = outgoing.recv().await {
                if let Err(error) = tokio::io::AsyncWriteExt::write_all(&mut to, &frame).await {
                    return error.to_string();
                }
            }
            "this side is ending".to_owned()
        };
        let reader = async {
            loop {
                match timeout(limits::HARNESS_SILENCE_MAX.to_std(), frames::read::<Answered>(&mut from)).await {
                    Ok(Ok(Answered { number, what })) => {
                        if let Some(waits) = self.0.waiting.borrow_mut().remove(&number) {
                            let _gave_up = waits.send(what);
                        }
                    }
                    Ok(Err(error)) => return error.to_string(),
                    Err(_) => return format!("it said nothing for {}", limits::HARNESS_SILENCE_MAX),
                }
            }
        };
        let alive = async {
            let mut ticks = interval(limits::HARNESS_ALIVE_EVERY.to_std());
            loop {
                ticks.tick().await;
                drop(self.0.send(0, Ask::Alive));
            }
        };
        tokio::select! {
            why = writer => why,
            why = reader => why,
            () = alive => unreachable!("it goes on until the others end"),
        }
    }
}

enum NotMet {
    /// Not now.
    Not(String),
    /// It is another than it was.
    Other(OtherDevices),
}

impl Inner {
    /// Sends a question; the answer comes unless the harness goes first.
    fn send(&self, device: u16, what: Ask) -> Option<oneshot::Receiver<Answer>> {
        let out = self.out.borrow().clone()?;
        let number = self.next.get();
        self.next.set(number + 1);
        let frame = match frames::framed(&Asked { number, device, what }) {
            Ok(frame) => frame,
            Err(fault) => {
                warn!(%fault, "a question that does not fit");
                return None;
            }
        };
        let (sender, answer) = oneshot::channel();
        self.waiting.borrow_mut().insert(number, sender);
        out.send(frame).ok()?;
        Some(answer)
    }

    fn gone(&self) {
        *self.out.borrow_mut() = None;
        self.at.send_modify(|at| at.is_here = false);
        // Who waits hears that no answer comes.
        self.waiting.borrow_mut().clear();
    }
}

/// One device of a harness.
#[derive(Clone)]
pub struct HarnessDevice {
    link: HarnessLink,
    at: u16,
    /// Which harness each live hold was begun on.
    begun: Rc<RefCell<BTreeMap<u64, u64>>>,
}

impl HarnessDevice {
    /// The answer; none where the harness is away or goes.
    fn ask(&self, what: Ask) -> LocalBoxFuture<'static, Option<Answer>> {
        let sent = self.link.0.send(self.at, what);
        Box::pin(async move { sent?.await.ok() })
    }

    fn said(&self) -> DeviceSaid {
        self.link.0.devices.borrow()[usize::from(self.at)].clone()
    }

    /// Whether its harness is here.
    pub fn is_here(&self) -> bool {
        self.link.is_here()
    }

    /// Notes which harness a hold's work is begun on.
    fn begin(&self, hold: HoldId) {
        let met = self.link.0.at.borrow().met;
        self.begun.borrow_mut().entry(hold.number).or_insert(met);
    }

    /// The proof, where a later harness is here than `begun`: it has swept before it let this process in.
    async fn proved_by_the_next(&self, begun: u64) -> StopProof {
        let latest = BootClock.now() + limits::HARNESS_BACK_MAX;
        let mut at = self.link.0.at.subscribe();
        let next = at.wait_for(|at| at.is_here && at.met > begun);
        tokio::select! {
            _ = next => StopProof::Empty,
            () = clock::sleep_until(latest) => StopProof::NotProved {
                why: format!("{AWAY} for {}; what ran ends with it, but nobody says so", limits::HARNESS_BACK_MAX),
            },
        }
    }

    fn proof(answer: Option<Answer>) -> Option<StopProof> {
        match answer? {
            Answer::Proof { not_proved: None } => Some(StopProof::Empty),
            Answer::Proof { not_proved: Some(why) } => Some(StopProof::NotProved { why }),
            other => Some(StopProof::NotProved { why: not_understood(&other) }),
        }
    }
}

fn not_understood(answer: &Answer) -> String {
    match answer {
        Answer::NotUnderstood(why) => format!("its harness does not understand: {why}"),
        Answer::Alive
        | Answer::Proof { .. }
        | Answer::Started(_)
        | Answer::Exited(_)
        | Answer::Reported(_)
        | Answer::Read(_)
        | Answer::AtFault(_) => "its harness answers something else".to_owned(),
    }
}

impl Executor for HarnessDevice {
    fn sweep(&self) -> LocalBoxFuture<'static, StopProof> {
        let device = self.clone();
        Box::pin(async move {
            let met = device.link.0.at.borrow().met;
            let answer = device.ask(Ask::Sweep).await;
            match HarnessDevice::proof(answer) {
                Some(proof) => proof,
                None => device.proved_by_the_next(met).await,
            }
        })
    }

    fn start(&self, hold: HoldId, spec: DevRunSpec) -> LocalBoxFuture<'static, Result<Launched, String>> {
        self.begin(hold);
        let device = self.clone();
        Box::pin(async move {
            let spec = document(&spec)?;
            match device.ask(Ask::Start { hold: hold.number, spec }).await {
                Some(Answer::Started(started)) => started.map(Launched::from),
                Some(other) => Err(not_understood(&other)),
                None => Err(AWAY.to_owned()),
            }
        })
    }

    fn exited(&self, hold: HoldId) -> LocalBoxFuture<'static, Exit> {
        let answer = self.ask(Ask::Exited { hold: hold.number });
        Box::pin(async move {
            match answer.await {
                Some(Answer::Exited(exit)) => exit,
                Some(other) => {
                    debug!(why = not_understood(&other), "no exit is known");
                    Exit::Signal(SIGKILL)
                }
                // It was ended with its harness.
                None => Exit::Signal(SIGKILL),
            }
        })
    }

    fn stop(&self, hold: HoldId, gently: bool) -> LocalBoxFuture<'static, StopProof> {
        let device = self.clone();
        Box::pin(async move {
            let At { met, .. } = *device.link.0.at.borrow();
            let begun = device.begun.borrow().get(&hold.number).copied().unwrap_or(met);
            let proof = if device.is_here() && begun == met {
                HarnessDevice::proof(device.ask(Ask::Stop { hold: hold.number, gently }).await)
            } else {
                None
            };
            let proof = match proof {
                Some(proof) => proof,
                None => device.proved_by_the_next(begun).await,
            };
            if proof == StopProof::Empty {
                device.begun.borrow_mut().remove(&hold.number);
            }
            proof
        })
    }

    fn step(&self, hold: HoldId, stage: StageRef, step: StageStep) -> LocalBoxFuture<'static, StepReport> {
        self.begin(hold);
        let device = self.clone();
        Box::pin(async move {
            let StageRef { job, stage, attempt } = stage;
            let asked = document(&(job.as_ref(), stage, attempt)).and_then(|stage| Ok((stage, document(&step)?)));
            let (stage, step) = match asked {
                Ok(asked) => asked,
                Err(why) => return StepReport::NotCarriedOut { why },
            };
            match device.ask(Ask::Step { hold: hold.number, stage, step }).await {
                Some(Answer::Reported(report)) => read(&report).unwrap_or_else(|why| StepReport::NotCarriedOut { why }),
                Some(other) => StepReport::NotCarriedOut { why: not_understood(&other) },
                None => StepReport::NotCarriedOut { why: AWAY.to_owned() },
            }
        })
    }

    fn containment(&self) -> Option<String> {
        self.said().containment
    }

    fn end_leftovers(&self) -> LocalBoxFuture<'static, StopProof> {
        let device = self.clone();
        Box::pin(async move {
            let met = device.link.0.at.borrow().met;
            match HarnessDevice::proof(device.ask(Ask::EndLeftovers).await) {
                Some(proof) => proof,
                None => device.proved_by_the_next(met).await,
            }
        })
    }
}

impl TargetDriver for HarnessDevice {
    fn facts(&self) -> DeviceFacts {
        self.said().facts()
    }

    fn read(&self) -> LocalBoxFuture<'static, Result<Reading, DeviceFault>> {
        let answer = self.ask(Ask::Read);
        Box::pin(async move {
            match answer.await {
                Some(Answer::Read(Ok(reading))) => read(&reading).map_err(DeviceFault::Other),
                Some(Answer::Read(Err(fault))) => Err(fault.into()),
                Some(other) => Err(DeviceFault::Other(not_understood(&other))),
                None => Err(DeviceFault::Other(AWAY.to_owned())),
            }
        })
    }

    fn index(&self) -> Option<u32> {
        self.said().index
    }

    fn released(&self, within: Span) -> LocalBoxFuture<'static, StopProof> {
        let device = self.clone();
        Box::pin(async move {
            let met = device.link.0.at.borrow().met;
            match HarnessDevice::proof(device.ask(Ask::Released { within }).await) {
                Some(proof) => proof,
                None => device.proved_by_the_next(met).await,
            }
        })
    }

    /// A harness that goes away is no fault of the device: the next one is asked.
    fn at_fault(&self) -> LocalBoxFuture<'static, DeviceFault> {
        let device = self.clone();
        Box::pin(async move {
            loop {
                match device.ask(Ask::AtFault).await {
                    Some(Answer::AtFault(fault)) => return fault.into(),
                    Some(other) => return DeviceFault::from(FaultSaid::Other(not_understood(&other))),
                    None => {
                        // It may have gone this very moment, and be said to be here for as long as this task runs.
                        tokio::task::yield_now().await;
                        device.link.came().await;
                    }
                }
            }
        })
    }
}

/// Keeps the way open in the background; `told` hears where the harness came back as another.
pub fn keep(link: &HarnessLink, told: impl FnOnce(OtherDevices) + 'static) {
    let link = link.clone();
    spawn_local(async move { told(link.keep().await) });
}
