//! Serving: data folder, records, rig and REST door come up in order and go down in order.

use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::Arc;

use actix_web::dev::ServerHandle;
use thermite_actors::ports::{InputLog, Outputs, Records};
use thermite_actors::rig::{Rig, RigSetup};
use thermite_actors::view::SplitView;
use thermite_core::refusal::InfrastructureFailure;
use thermite_core::split::SplitAsk;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinHandle;
use tracing::{info, warn};

use crate::budget::{Budget, Stores};
use crate::core_bus::{OnBus, Reporting};
use crate::device_lock::{DeviceLock, DeviceLockFault};
use crate::folder::{DataFolder, Endpoint, FolderFault};
use crate::input_log::{FileInputLog, Sizes};
use crate::metrics::{Counted, Metrics};
use crate::records::{OpenFault, SqliteRecords};
use crate::server::{self, Door, DoorClosing};
use crate::settings::{Devices, GpuSettings, Settings, Sharing};
use crate::tokens::{TokenFault, Tokens};

/// What a rig is assembled on.
pub struct Ground {
    /// The data folder, taken.
    pub folder: Rc<DataFolder>,
    /// The settings.
    pub settings: Settings,
    /// The records, open.
    pub records: Rc<dyn Records>,
    /// The input log, open.
    pub inputs: Rc<dyn InputLog>,
    /// The rig's bus, where it has one, for [`OnBus::runners`].
    pub bus: Option<OnBus>,
}

/// What a rig is assembled from.
pub struct Parts {
    /// The rig's ports and settings.
    pub setup: RigSetup,
    /// Where development runs' output is read.
    pub outputs: Arc<dyn Outputs>,
    /// Stores of commits that may be pruned, where there are any.
    pub stores: Option<Arc<dyn Stores>>,
    /// The bus that was given, with the rig's runners set up over it.
    pub bus: Option<OnBus>,
}

/// The rig could not be brought up.
#[derive(Debug, thiserror::Error)]
pub enum ServeFault {
    /// The data folder cannot be had.
    #[error(transparent)]
    Folder(#[from] FolderFault),
    /// The records cannot be opened.
    #[error(transparent)]
    Records(#[from] OpenFault),
    /// A device is another rig's.
    #[error(transparent)]
    Device(#[from] DeviceLockFault),
    /// The token cannot be read or made.
    #[error(transparent)]
    Token(#[from] TokenFault),
    /// Somebody listens there already.
    #[error(
        "{address} is in use by another program; end it, or give another address with --listen (127.0.0.1:0 takes any \
         free port)"
    )]
    AddressInUse {
        /// The address.
        address: SocketAddr,
    },
    /// The address cannot be listened on.
    #[error("{address} cannot be listened on: {source}; give another address with --listen")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The cause.
        source: io::Error,
    },
    /// This machine cannot be a rig; the sentence says what is missing.
    #[error("{0}")]
    Assemble(String),
    /// The rig did not start.
    #[error(transparent)]
    Rig(#[from] InfrastructureFailure),
    /// The threads or signals cannot be had.
    #[error("{what} cannot be had: {source}")]
    System {
        /// What.
        what: &'static str,
        /// The cause.
        source: io::Error,
    },
}

impl ServeFault {
    /// The process's exit code, as sysexits(3) has it.
    pub const fn exit_code(&self) -> u8 {
        match self {
            // EX_TEMPFAIL: it passes when the other program ends.
            ServeFault::Folder(FolderFault::InUse { .. })
            | ServeFault::AddressInUse { .. }
            | ServeFault::Device(DeviceLockFault::InUse { .. }) => 75,
            // EX_CONFIG: the setting names something that cannot be used.
            ServeFault::Folder(FolderFault::Foreign { .. })
            | ServeFault::Records(_)
            | ServeFault::Token(TokenFault::Malformed { .. })
            | ServeFault::Device(DeviceLockFault::File { .. })
            | ServeFault::Listen { .. } => 78,
            // EX_IOERR.
            ServeFault::Folder(FolderFault::File { .. }) | ServeFault::Token(_) => 74,
            // What all commands say where infrastructure fails.
            ServeFault::Assemble(_) | ServeFault::Rig(_) => 70,
            // EX_OSERR.
            ServeFault::System { .. } => 71,
        }
    }
}

/// A rig that serves.
pub struct Service {
    rig: Rig,
    folder: Rc<DataFolder>,
    records: Rc<SqliteRecords>,
    inputs: Rc<FileInputLog>,
    _devices: Vec<DeviceLock>,
    endpoint: Endpoint,
    token_made: bool,
    server: ServerHandle,
    closing: DoorClosing,
    budget: JoinHandle<()>,
    /// Control hears of the rig for as long as this is here.
    reporting: Option<Reporting>,
}

impl Service {
    /// Brings a rig up and opens its door. Must be called inside an actix system; the policy lives on that thread.
    ///
    /// `assemble` gives the rig its ports; it is called once the folder is taken and the records are open.
    ///
    /// # Errors
    /// Names what cannot be had and the way out; what was taken is given back.
    pub async fn start<A, F>(settings: Settings, assemble: A) -> Result<Service, ServeFault>
    where
        A: FnOnce(Ground) -> F,
        F: Future<Output = Result<Parts, String>>,
    {
        let folder = Rc::new(DataFolder::take(&settings.folder)?);
        // Before anything is started: a port that is taken leaves no trace.
        let listener = listen(settings.listen)?;
        let records = Rc::new(SqliteRecords::open(folder.path())?);
        let tokens = Tokens::open(&folder)?;
        let token_made = tokens.made();
        let workers = settings.http_workers;
        let locks = settings.device_locks.clone();
        let inputs = FileInputLog::open(folder.path(), Sizes::default())
            .map_err(|source| ServeFault::System { what: "the input log's thread", source })?;
        let inputs = Rc::new(inputs);
        let metrics = Metrics::new();
        let counted = Counted::new(Rc::clone(&records) as Rc<dyn Records>, Arc::clone(&metrics));
        let within = settings.clone();
        let bus = match settings.bus.clone() {
            Some(bus) => Some(OnBus::open(bus, &folder).await.map_err(ServeFault::Assemble)?),
            None => None,
        };
        let ground = Ground {
            folder: Rc::clone(&folder),
            settings,
            records: Rc::new(counted),
            inputs: Rc::clone(&inputs) as Rc<dyn InputLog>,
            bus,
        };
        let Parts { setup, outputs, stores, bus } = assemble(ground).await.map_err(ServeFault::Assemble)?;
        // Before the rig starts, which ends what it takes for leftovers on its devices.
        let facts = setup.members.iter().map(|member| member.driver.facts());
        let devices = facts.map(|facts| DeviceLock::take(&locks, &facts, folder.path())).collect::<Result<_, _>>()?;
        let rig = Rig::start(setup).await?;
        share_at_first(&rig, &within.devices).await;
        let reporting = bus.map(|bus| bus.keep(&rig, &folder));
        info!(token = %tokens.owner(), "the owner's token opens the door");
        let (door, closing) = Door::new(rig.clone(), outputs, records.verdicts(), records.keys(), tokens, metrics);
        let local = |source| ServeFault::System { what: "the listening address", source };
        let address = listener.local_addr().map_err(local)?;
        let server = server::start(door, listener, workers)
            .map_err(|source| ServeFault::System { what: "the HTTP server", source })?;
        let handle = server.handle();
        actix_web::rt::spawn(server);
        let endpoint = match folder.tell_endpoint(address) {
            Ok(endpoint) => endpoint,
            Err(fault) => {
                // A rig that nobody can find does not stay.
                handle.stop(false).await;
                rig.end().await;
                return Err(fault.into());
            }
        };
        info!(%address, "listening");
        let budget = Budget::new(folder.path(), &within, rig.clone(), records.verdicts(), records.pruner(), stores);
        let budget = actix_web::rt::spawn(budget.hold());
        Ok(Service {
            rig,
            folder,
            records,
            inputs,
            _devices: devices,
            endpoint,
            token_made,
            server: handle,
            closing,
            budget,
            reporting,
        })
    }

    /// Where it listens.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Its rig, for shells in the same process.
    pub fn rig(&self) -> &Rig {
        &self.rig
    }

    /// Its data folder.
    pub fn folder(&self) -> &DataFolder {
        &self.folder
    }

    /// Whether this start made the owner's token.
    pub fn token_made(&self) -> bool {
        self.token_made
    }

    /// Ends it by the rules: nobody new comes in, the rig stops what runs and records it, the last answers go out, the
    /// records come to rest.
    pub async fn end(self) {
        self.folder.forget_endpoint();
        self.budget.abort();
        drop(self.reporting);
        let server = actix_web::rt::spawn(self.server.stop(true));
        self.rig.end().await;
        self.closing.over();
        if let Err(error) = server.await {
            warn!(%error, "the HTTP server did not stop in order");
        }
        self.inputs.close();
        if let Err(fault) = self.records.close().await {
            warn!(%fault, "the records did not come to rest");
        }
    }
}

/// The owner's choice for a rig whose split nobody has set yet (rule B1); what was set since outlives it.
async fn share_at_first(rig: &Rig, devices: &Devices) {
    let Devices::Gpus(GpuSettings { sharing: Sharing::Shared, .. }) = devices else { return };
    let is_set = match rig.split().await {
        Ok(SplitView { revision: 0, .. }) => rig.set_split(SplitAsk::Shared, Some(0)).await.map(drop),
        Ok(_) => Ok(()),
        Err(no) => Err(no),
    };
    if let Err(no) = is_set {
        warn!(%no, "the cards are not shared as THERMITE_SPLIT asks");
    }
}

/// Serves until SIGTERM or SIGINT, then ends by the rules; a second signal ends the process at once, and what it had
/// started is ended by the lifelines of its launchers.
///
/// `listening` is told once the door is open.
///
/// # Errors
/// Where the rig cannot be brought up.
pub async fn serve<A, F>(settings: Settings, assemble: A, listening: impl FnOnce(&Service)) -> Result<(), ServeFault>
where
    A: FnOnce(Ground) -> F,
    F: Future<Output = Result<Parts, String>>,
{
    // Before anything is brought up: a signal during the start is not lost.
    let mut signals = Signals::listen().map_err(|source| ServeFault::System { what: "signals", source })?;
    let service = Service::start(settings, assemble).await?;
    listening(&service);
    let name = signals.next().await;
    info!(signal = name, "ending by the rules; a second signal ends at once");
    tokio::select! {
        () = service.end() => Ok(()),
        name = signals.next() => {
            warn!(signal = name, "ending at once");
            std::process::exit(130);
        }
    }
}

/// SIGTERM and SIGINT, which end a process by its rules.
pub struct Signals {
    term: Signal,
    int: Signal,
}

impl Signals {
    /// Listens for them from here on.
    ///
    /// # Errors
    /// Where the system does not allow it.
    pub fn listen() -> io::Result<Signals> {
        Ok(Signals { term: signal(SignalKind::terminate())?, int: signal(SignalKind::interrupt())? })
    }

    /// The name of the next one.
    pub async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.term.recv() => "SIGTERM",
            _ = self.int.recv() => "SIGINT",
        }
    }
}

pub(crate) fn listen(address: SocketAddr) -> Result<TcpListener, ServeFault> {
    TcpListener::bind(address).map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => ServeFault::AddressInUse { address },
        _ => ServeFault::Listen { address, source },
    })
}
