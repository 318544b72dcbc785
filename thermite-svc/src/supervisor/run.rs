//! A supervisor's life: key, rights, harness, runners, and what is asked of them, until it is told to end.

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use actix::{Actor as _, Addr};
use futures_util::future::LocalBoxFuture;
use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_local;
use tracing::{error, info};
use uuid::Uuid;

use thermite_actors::host::bulk::BulkServer;
use thermite_actors::host::clock::BootClock;
use thermite_actors::host::executor::OUTPUTS;
use thermite_actors::host::launch::CaptureDir;
use thermite_actors::ports::{Executor, FreshCopies, Outputs, RecordsFault, TargetDriver};
use thermite_actors::slot::{HarnessIs, SlotActor, SlotPorts, Slots};
use thermite_core::wire::bulk::{BulkAnswer, BulkAsk};
use thermite_core::wire::{Answer, Ask, SlotAnswer, SlotNo};

use super::control::Registration;
use super::journal::FileJournal;
use super::key::key_in;
use super::rights::{Asker, NoRights};
use crate::bus::connection::BusThread;
use crate::bus::runner_side::{Question, RunnerSide};
use crate::folder::{DataFolder, FolderFault};
use crate::harness::door::SOCKET;
use crate::harness::link::{HarnessLink, OtherDevices, keep};
use crate::settings::bus::{HARNESS, SupervisorSettings};

/// Where control's word on the bus's certificates is kept, in the supervisor's folder.
const CA: &str = "bus-ca.pem";

/// A supervisor ended other than by being told to.
#[derive(Debug, thiserror::Error)]
pub enum SupervisorFault {
    /// Its folder cannot be had.
    #[error(transparent)]
    Folder(#[from] FolderFault),
    /// Its key cannot be had.
    #[error("{0}")]
    Key(String),
    /// A journal, or the folder of commits, cannot be read.
    #[error("{what}: {source}")]
    Kept {
        /// Which.
        what: String,
        /// The cause.
        source: io::Error,
    },
    /// A journal cannot be read.
    #[error(transparent)]
    Journal(#[from] RecordsFault),
    /// It has no rights on the bus, or no longer.
    #[error(transparent)]
    Rights(#[from] NoRights),
    /// The bus's address or certificates cannot be used.
    #[error("the bus cannot be used: {0}")]
    Bus(String),
    /// The system gives no thread.
    #[error("the bus's thread cannot be had: {0}")]
    Thread(io::Error),
    /// Its harness came back as another.
    #[error(transparent)]
    Harness(#[from] OtherDevices),
}

impl SupervisorFault {
    /// The process's exit code, as sysexits(3) has it.
    pub const fn exit_code(&self) -> u8 {
        match self {
            SupervisorFault::Folder(FolderFault::InUse { .. }) => 75,
            SupervisorFault::Folder(FolderFault::Foreign { .. }) | SupervisorFault::Key(_) => 78,
            SupervisorFault::Folder(FolderFault::File { .. })
            | SupervisorFault::Kept { .. }
            | SupervisorFault::Journal(_) => 74,
            // EX_NOPERM would be 77; what all commands say where they are refused is 69.
            SupervisorFault::Rights(_) => 69,
            SupervisorFault::Bus(_) => 78,
            SupervisorFault::Thread(_) => 71,
            // It begins anew: whoever started it starts it again.
            SupervisorFault::Harness(_) => 70,
        }
    }
}

/// Lives as a supervisor until `told_to_end`. `copies` lays development runs' commits out, in the harness's part of the
/// data folder.
///
/// Must be called where tasks of one thread may be spawned.
///
/// # Errors
/// Says why it cannot, or can no longer.
pub async fn run(
    settings: SupervisorSettings,
    copies: impl FnOnce(&Path) -> io::Result<Rc<dyn FreshCopies>>,
    told_to_end: impl Future<Output = ()>,
) -> Result<(), SupervisorFault> {
    let folder = DataFolder::take(&settings.own())?;
    let key = key_in(&folder).map_err(SupervisorFault::Key)?;
    let seed = key.seed().map_err(|error| SupervisorFault::Key(error.to_string()))?;
    let boot = Uuid::now_v7();
    info!(rig = %settings.rig, runner = %settings.process, %boot, key = key.public_key(), "a supervisor");
    let (ended, mut ends) = mpsc::unbounded_channel::<SupervisorFault>();
    let lives = live(&settings, &folder, boot, seed, key.public_key(), copies, &ended);
    let mut told_to_end = std::pin::pin!(told_to_end);
    tokio::select! {
        lives = lives => lives?,
        // Its harness may never come: what ends it is heard all the same.
        why = ends.recv() => return why.map_or(Ok(()), Err),
        () = &mut told_to_end => return Ok(()),
    }
    tokio::select! {
        why = ends.recv() => why.map_or(Ok(()), Err),
        // What runs ends with this process: its harness sees to it.
        () = told_to_end => Ok(()),
    }
}

async fn live(
    settings: &SupervisorSettings,
    folder: &DataFolder,
    boot: Uuid,
    seed: String,
    public_key: String,
    copies: impl FnOnce(&Path) -> io::Result<Rc<dyn FreshCopies>>,
    ended: &mpsc::UnboundedSender<SupervisorFault>,
) -> Result<(), SupervisorFault> {
    let of_harness = settings.data.join(HARNESS);
    let harness = HarnessLink::new(&settings.harness.join(SOCKET), settings.rig.as_str());
    let tell = ended.clone();
    keep(&harness, move |other| drop(tell.send(other.into())));
    let asker = Asker {
        rig: settings.rig.clone(),
        registration: Registration { runner: Some(settings.process.clone()), public_key, boot },
        way: settings.way.clone(),
        seed,
        ca_file: folder.path().join(CA),
        name: format!("runner {}", settings.process),
    };
    let (access, held) = asker.first().await?;
    let thread = Rc::new(BusThread::start().map_err(SupervisorFault::Thread)?);
    let (told, happenings) = mpsc::unbounded_channel();
    let opened = RunnerSide::open(thread, settings.rig.clone(), settings.process.clone(), access, told).await;
    let side = Rc::new(opened.map_err(SupervisorFault::Bus)?);
    let tell = ended.clone();
    spawn_local(async move { drop(tell.send(held.keep(happenings).await.into())) });

    let slots: Rc<RefCell<Option<Slots>>> = Rc::default();
    spawn_local(answer_asks(side.asks(), boot, Rc::clone(&slots)));
    let serves = harness.came().await;
    info!(serves, "its harness is here");
    let kept = |what: PathBuf| move |source| SupervisorFault::Kept { what: what.display().to_string(), source };
    let copies = copies(&of_harness).map_err(kept(of_harness.clone()))?;
    let bulk = BulkServer::open(&of_harness).map_err(kept(of_harness.clone()))?;
    spawn_local(answer_bulk(side.bulk_asks(), bulk));
    let outputs = of_harness.join(OUTPUTS);
    let count = u16::try_from(serves).unwrap_or(u16::MAX);
    let mut actors = Vec::new();
    for number in 1..=count {
        let path = folder.path().join(format!("journal-{number}"));
        let device = Rc::new(harness.device(number - 1));
        let hints = Rc::clone(&side);
        let outputs = CaptureDir::open(&outputs).map_err(kept(outputs.clone()))?;
        let ports = SlotPorts {
            number,
            serves: count,
            boot,
            clock: Rc::new(BootClock),
            driver: Rc::clone(&device) as Rc<dyn TargetDriver>,
            executor: device as Rc<dyn Executor>,
            outputs: Rc::new(outputs) as Rc<dyn Outputs>,
            journal: Rc::new(FileJournal::open(&path).map_err(kept(path))?),
            copies: Rc::clone(&copies),
            hint: Rc::new(move || hints.hint()),
        };
        let actor = SlotActor::load(ports).await?.start();
        spawn_local(tell_harness(harness.clone(), actor.clone()));
        actors.push(actor);
    }
    *slots.borrow_mut() = Some(Slots::new(boot, actors));
    Ok(())
}

/// Hands each ask to its runner.
async fn answer_asks(
    mut asks: mpsc::UnboundedReceiver<Question<Ask, Answer>>,
    boot: Uuid,
    slots: Rc<RefCell<Option<Slots>>>,
) {
    while let Some(Question { what, answer }) = asks.recv().await {
        let answer: oneshot::Sender<Answer> = answer;
        let slots = slots.borrow().clone();
        spawn_local(async move {
            let said = match slots {
                Some(slots) => slots.answer(what).await,
                None => {
                    let why = "its harness has not come up yet".to_owned();
                    Answer { boot, what: SlotAnswer::No(SlotNo::NotAble { why }) }
                }
            };
            drop(answer.send(said));
        });
    }
}

async fn answer_bulk(mut asks: mpsc::UnboundedReceiver<Question<BulkAsk, BulkAnswer>>, bulk: BulkServer) {
    while let Some(Question { what, answer }) = asks.recv().await {
        let said: LocalBoxFuture<'static, BulkAnswer> = bulk.answer(what);
        let answer: oneshot::Sender<BulkAnswer> = answer;
        spawn_local(async move { drop(answer.send(said.await)) });
    }
}

/// Tells a runner when its harness comes and goes.
async fn tell_harness(harness: HarnessLink, runner: Addr<SlotActor>) {
    let mut seen = 0;
    loop {
        let (now, there) = harness.changed(seen).await;
        if now == seen {
            return error!("nobody tells of the harness any more");
        }
        seen = now;
        runner.do_send(HarnessIs { there });
    }
}
