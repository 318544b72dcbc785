//! A connection to NATS as the bus needs it, and the thread that all of a process's connections live on.
//!
//! The policy lives on one arbiter that must never wait for a socket: connections have a thread and a runtime of their
//! own, and what is asked of them is awaited like any other port.

use std::fmt;
use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use async_nats::connection::State;
use async_nats::{Auth, AuthError, Client, ConnectOptions, Event, ServerError};
use futures_util::future::BoxFuture;
use nkeys::KeyPair;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tracing::{info, warn};

use thermite_core::limits;
use thermite_core::time::Span;

/// How the bus is reached, and by what right.
#[derive(Clone)]
pub struct Access {
    /// Its address, `tls://HOST:PORT` or `nats://HOST:PORT`.
    pub url: String,
    /// The file with the certificates that its server's is checked against; without one no TLS is asked for.
    pub ca: Option<PathBuf>,
    /// By what right.
    pub rights: Rights,
    /// Who connects, as the server lists it.
    pub name: String,
}

/// By what right the bus is used.
#[derive(Clone)]
pub enum Rights {
    /// The server asks for none.
    Open,
    /// By a JWT for a key of this process's own.
    Key(Arc<Pass>),
}

/// A key and the newest JWT for it: one that is renewed counts from the next connection on.
pub struct Pass {
    key: KeyPair,
    jwt: Mutex<String>,
}

impl Pass {
    /// A pass.
    pub fn new(key: KeyPair, jwt: String) -> Arc<Pass> {
        Arc::new(Pass { key, jwt: Mutex::new(jwt) })
    }

    /// Takes a newer JWT.
    pub fn renew(&self, jwt: String) {
        *self.jwt.lock().expect("no thread panics while it has the JWT") = jwt;
    }

    fn sign(&self, nonce: &[u8]) -> Result<Auth, AuthError> {
        let mut auth = Auth::new();
        auth.jwt = Some(self.jwt.lock().expect("no thread panics while it has the JWT").clone());
        auth.signature = Some(self.key.sign(nonce).map_err(AuthError::new)?);
        Ok(auth)
    }
}

impl fmt::Debug for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The key's seed and the JWT are secrets: neither is ever shown.
        write!(f, "Pass({})", self.key.public_key())
    }
}

/// What a connection went through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happening {
    /// It is up.
    Up,
    /// It is lost, and being tried again.
    Lost,
    /// The server does not let this process in, or no longer: its rights are revoked, expired or wrong.
    NotLetIn {
        /// The server's words.
        why: String,
    },
}

/// Opens a connection that comes up by itself and comes back by itself, without end. It is told of what it goes through.
///
/// Must be called on the bus's runtime.
///
/// # Errors
/// Where the address or the file with certificates cannot be used.
pub async fn open(access: &Access, told: mpsc::UnboundedSender<Happening>) -> Result<Client, String> {
    install_tls();
    let mut options = match &access.rights {
        Rights::Open => ConnectOptions::new(),
        Rights::Key(pass) => {
            let pass = Arc::clone(pass);
            ConnectOptions::with_auth_callback(move |nonce| {
                let auth = pass.sign(&nonce);
                async move { auth }
            })
        }
    };
    if let Some(ca) = &access.ca {
        // Read here: the client would say nothing of it but in its own log, again and again.
        std::fs::metadata(ca).map_err(|error| format!("{}: {error}", ca.display()))?;
        options = options.add_root_certificates(ca.clone()).require_tls(true);
    }
    options = options
        .name(&access.name)
        .ping_interval(duration(limits::BUS_PING_EVERY))
        .connection_timeout(duration(limits::BUS_CONNECT_MAX))
        .reconnect_delay_callback(|tries| reconnect_after(tries, luck()))
        .max_reconnects(None)
        .retry_on_initial_connect()
        // What a cluster tells of its members would be tried without being in anybody's settings.
        .ignore_discovered_servers()
        .event_callback(move |event| {
            let told = told.clone();
            async move {
                if let Some(happening) = happening(&event) {
                    // Nobody listens any more: the process is ending.
                    let _ = told.send(happening);
                }
            }
        });
    options.connect(&access.url).await.map_err(|error| error.to_string())
}

/// Whether asks may be published: what is published while it is not up would be kept and delivered late.
pub(super) fn is_up(client: &Client) -> bool {
    client.connection_state() == State::Connected
}

fn happening(event: &Event) -> Option<Happening> {
    match event {
        Event::Connected => Some(Happening::Up),
        Event::Disconnected | Event::Closed => Some(Happening::Lost),
        Event::ServerError(ServerError::AuthorizationViolation) => {
            Some(Happening::NotLetIn { why: "authorization violation".to_owned() })
        }
        Event::ServerError(ServerError::Other(why)) if why.to_ascii_lowercase().contains("authentication") => {
            Some(Happening::NotLetIn { why: why.clone() })
        }
        Event::ServerError(ServerError::Other(why)) => {
            warn!(%why, "the bus's server does not like something");
            None
        }
        Event::ClientError(error) => {
            warn!(%error, "the bus");
            None
        }
        Event::SlowConsumer(_) | Event::ServerError(ServerError::SlowConsumer(_)) => {
            warn!("the bus brings more than is read; what is dropped is asked again");
            None
        }
        Event::LameDuckMode | Event::Draining => None,
    }
}

/// How long to wait before try number `tries`; `luck` is from 0 to 255.
fn reconnect_after(tries: usize, luck: u8) -> Duration {
    let step = limits::BUS_RECONNECT_STEP.as_millis();
    let most = limits::BUS_RECONNECT_MOST.as_millis();
    let whole = step.saturating_mul(u64::try_from(tries.max(1)).unwrap_or(u64::MAX)).min(most);
    Duration::from_millis(whole - whole / 4 * u64::from(luck) / 255)
}

fn luck() -> u8 {
    let mut byte = [0];
    // Without luck all come back in one moment, which the server bears.
    let _ = getrandom::fill(&mut byte);
    byte[0]
}

/// A span as the standard library has it.
pub(super) const fn duration(span: Span) -> Duration {
    Duration::from_millis(span.as_millis())
}

/// One TLS for the whole process, set before anything asks for it.
pub fn install_tls() {
    // Somebody was here first: it is the same one.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// The thread of a process's connections; it ends when this is let go of.
pub struct BusThread {
    handle: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl BusThread {
    /// Starts it.
    ///
    /// # Errors
    /// Where the system gives no thread.
    pub fn start() -> io::Result<BusThread> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let thread = thread::Builder::new().name("bus".to_owned()).spawn(move || {
            // Told to stop, or let go of: both end it.
            let _ = runtime.block_on(stopped);
            runtime.shutdown_background();
            info!("the bus's thread has ended");
        })?;
        Ok(BusThread { handle, stop: Some(stop), thread: Some(thread) })
    }

    /// Carries out work on it; the answer is awaited anywhere, and is none where the thread has ended. Who no longer
    /// waits ends the work.
    pub fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> BoxFuture<'static, Option<T>> {
        let mut task = EndedWithItsAsker(self.handle.spawn(work));
        Box::pin(async move { (&mut task.0).await.ok() })
    }

    /// Has something go on there until the thread ends; whether it has ended by itself can be asked.
    pub fn keep_running(&self, work: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
        self.handle.spawn(work)
    }
}

impl Drop for BusThread {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ended_already = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }
}

struct EndedWithItsAsker<T>(JoinHandle<T>);

impl<T> Drop for EndedWithItsAsker<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_bus_is_tried_soon_then_every_two_seconds_and_never_in_step_with_others() {
        let waits: Vec<u64> = (1..=12).map(|tries| reconnect_after(tries, 0).as_millis() as u64).collect();

        assert_eq!(waits, [200, 400, 600, 800, 1_000, 1_200, 1_400, 1_600, 1_800, 2_000, 2_000, 2_000]);
        assert_eq!(reconnect_after(usize::MAX, 255), Duration::from_millis(1_500));
        assert_eq!(reconnect_after(0, 255), Duration::from_millis(150));
    }

    #[test]
    fn a_server_that_lets_nobody_in_is_told_from_one_that_is_lost() {
        let other = |text: &str| Event::ServerError(ServerError::Other(text.to_owned()));
        let not_let_in = |event| matches!(happening(&event), Some(Happening::NotLetIn { .. }));

        assert!(not_let_in(Event::ServerError(ServerError::AuthorizationViolation)));
        assert!(not_let_in(other("User Authentication Revoked")));
        assert!(not_let_in(other("user authentication expired")));
        assert_eq!(happening(&other("Permissions Violation for Publish to \"x\"")), None);
        assert_eq!(happening(&Event::Disconnected), Some(Happening::Lost));
        assert_eq!(happening(&Event::Connected), Some(Happening::Up));
    }
}
