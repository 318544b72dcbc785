//! Control's life: data folder, operator's key, store, bus and REST come up in order, and go down in order.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use actix_web::dev::ServerHandle;
use tracing::info;

use super::authority::{KeyFault, Operator};
use super::bus::{self, BusPlace, NatsAuthority};
use super::no::ControlNo;
use super::rigs::{BusTold, Control};
use super::server;
use super::settings::ControlSettings;
use super::store::{Store, StoreFault};
use crate::bus::connection::BusThread;
use crate::folder::{DataFolder, Endpoint, FolderFault, OWNER_TOKEN};
use crate::serve::{ServeFault, Signals, listen};
use crate::tokens::{OWNER_PREFIX, fresh, has_shape};

/// The file with the operator's seed and the system account's, one a line: mode 0600, never shown.
pub const OPERATOR: &str = "operator-seeds";
/// Threads that answer REST.
const WORKERS: usize = 2;

/// Control could not be brought up.
#[derive(Debug, thiserror::Error)]
pub enum ControlFault {
    /// As a rig's own service has it.
    #[error(transparent)]
    Serve(#[from] ServeFault),
    /// The data folder cannot be had.
    #[error(transparent)]
    Folder(#[from] FolderFault),
    /// The store cannot be opened.
    #[error(transparent)]
    Store(#[from] StoreFault),
    /// The store cannot be read.
    #[error(transparent)]
    Control(#[from] ControlNo),
    /// A file in the folder is not what it must be.
    #[error("{file}: {why}")]
    File {
        /// The file.
        file: String,
        /// What is wrong, and the way out.
        why: String,
    },
    /// The threads cannot be had.
    #[error("{what} cannot be had: {source}")]
    System {
        /// What.
        what: &'static str,
        /// The cause.
        source: io::Error,
    },
}

impl ControlFault {
    /// The process's exit code, as sysexits(3) has it.
    pub fn exit_code(&self) -> u8 {
        match self {
            ControlFault::Serve(fault) => fault.exit_code(),
            ControlFault::Folder(FolderFault::InUse { .. }) => 75,
            ControlFault::Folder(FolderFault::Foreign { .. })
            | ControlFault::Store(StoreFault::Newer { .. } | StoreFault::Foreign { .. } | StoreFault::Damaged { .. })
            | ControlFault::File { .. } => 78,
            ControlFault::Folder(FolderFault::File { .. })
            | ControlFault::Store(StoreFault::Disk { .. })
            | ControlFault::Control(_) => 74,
            ControlFault::System { .. } => 71,
        }
    }
}

/// Control that serves.
pub struct ControlService {
    folder: DataFolder,
    endpoint: Endpoint,
    server: ServerHandle,
    token_made: bool,
    /// Ends with its connections when this is let go of.
    _bus: BusThread,
}

impl ControlService {
    /// Brings control up. Must be called inside an actix system.
    ///
    /// # Errors
    /// Names what cannot be had and the way out.
    pub fn start(settings: &ControlSettings) -> Result<ControlService, ControlFault> {
        let folder = DataFolder::take(&settings.folder)?;
        let listener = listen(settings.listen)?;
        let operator = operator_in(&folder)?;
        let store = Store::open(folder.path())?;
        let authority = Arc::new(NatsAuthority::new(operator));
        let told = BusTold { url: settings.nats_url.clone(), ca: Some(settings.ca.clone()) };
        let control = Arc::new(Control::new(store, Arc::clone(&authority) as Arc<_>, told)?);
        let (secret, token_made) = owner_in(&folder)?;
        let token = control.keep_owner(&secret)?;
        info!(%token, "the owner's token opens the door");
        let thread = BusThread::start().map_err(|source| ControlFault::System { what: "the bus's thread", source })?;
        let place = BusPlace { url: settings.nats_url.clone(), ca: settings.ca_file.clone() };
        thread.keep_running(bus::keep(Arc::clone(&control), authority, place));
        let address =
            listener.local_addr().map_err(|source| ControlFault::System { what: "the listening address", source })?;
        let server = server::start(control, listener, WORKERS)
            .map_err(|source| ControlFault::System { what: "the HTTP server", source })?;
        let handle = server.handle();
        actix_web::rt::spawn(server);
        let endpoint = folder.tell_endpoint(address)?;
        info!(%address, "listening");
        Ok(ControlService { folder, endpoint, server: handle, token_made, _bus: thread })
    }

    /// Where it listens.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Its data folder.
    pub fn folder(&self) -> &DataFolder {
        &self.folder
    }

    /// Whether this start made the owner's token.
    pub fn token_made(&self) -> bool {
        self.token_made
    }

    /// Ends it: the last answers go out. What it has told is on the disk.
    pub async fn end(self) {
        self.folder.forget_endpoint();
        self.server.stop(true).await;
    }
}

/// Serves until SIGTERM or SIGINT. `listening` is told once the door is open.
///
/// # Errors
/// Where control cannot be brought up.
pub async fn serve(settings: ControlSettings, listening: impl FnOnce(&ControlService)) -> Result<(), ControlFault> {
    let mut signals = Signals::listen().map_err(|source| ControlFault::System { what: "signals", source })?;
    let service = ControlService::start(&settings)?;
    listening(&service);
    let name = signals.next().await;
    info!(signal = name, "ending");
    service.end().await;
    Ok(())
}

/// The operator of the folder, made where there is none.
///
/// # Errors
/// Where its file cannot be read or written, is open to others or holds something else.
pub fn operator_in(folder: &DataFolder) -> Result<Operator, ControlFault> {
    if let Some(operator) = known_operator(folder.path())? {
        return Ok(operator);
    }
    let operator = Operator::new();
    let (own, system) = operator.seeds().map_err(|fault| broken(folder.path(), &fault))?;
    folder.write_private(OPERATOR, format!("{own}\n{system}\n").as_bytes())?;
    Ok(operator)
}

/// The operator of the folder at `path`, where one was made there.
///
/// # Errors
/// Where its file cannot be read, is open to others or holds something else.
pub fn known_operator(path: &Path) -> Result<Option<Operator>, ControlFault> {
    let file = path.join(OPERATOR);
    let fault = |why: String| ControlFault::File { file: file.display().to_string(), why };
    let text = match fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(fault(error.to_string())),
    };
    let mode = fs::metadata(&file).map_err(|error| fault(error.to_string()))?.permissions().mode();
    if mode & 0o077 != 0 {
        return Err(fault(format!("it is open to others (mode {:o}); close it with chmod 600", mode & 0o777)));
    }
    let (own, system) = text.trim().split_once('\n').unwrap_or_default();
    Operator::of_seeds(own.trim(), system.trim()).map(Some).map_err(|fault| broken(path, &fault))
}

fn broken(path: &Path, fault: &KeyFault) -> ControlFault {
    let why = format!("{fault}; put a copy of it in its place: a new operator needs a new bus and new rigs");
    ControlFault::File { file: path.join(OPERATOR).display().to_string(), why }
}

/// The owner's token of the folder's file, and whether it was made here.
fn owner_in(folder: &DataFolder) -> Result<(String, bool), ControlFault> {
    let file = folder.path().join(OWNER_TOKEN);
    let fault = |why: String| ControlFault::File { file: file.display().to_string(), why };
    match fs::read_to_string(&file) {
        Ok(text) if has_shape(text.trim(), OWNER_PREFIX) => Ok((text.trim().to_owned(), false)),
        Ok(_) => {
            Err(fault("it does not hold an owner's token; remove it, and the next start makes a new one".to_owned()))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let secret = fresh(OWNER_PREFIX).map_err(|cause| fault(format!("no random bytes: {cause}")))?;
            folder.write_private(OWNER_TOKEN, format!("{secret}\n").as_bytes())?;
            Ok((secret, true))
        }
        Err(error) => Err(fault(error.to_string())),
    }
}
