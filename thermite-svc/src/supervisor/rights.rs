//! A process's rights on the bus: got from control, renewed at half their life, asked for again when the bus lets it in no
//! longer, and gone for good when control says so (rule E7).

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use nkeys::KeyPair;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{info, warn};

use thermite_core::limits;
use thermite_core::time::Span;

use super::control::{ControlFault, Registered, Registration, register};
use crate::bus::connection::{Access, Happening, Pass, Rights};
use crate::bus::subjects::RigName;
use crate::settings::SettingFault;
use crate::settings::bus::{BusWay, control_tls, token_in};

/// The file of the newest rights, beside the certificates': mode 0600.
const KEPT: &str = "bus-rights.json";

/// Why a process has no rights any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoRights {
    /// Its token is no longer good, or its runner was removed; or control refuses it.
    #[error(transparent)]
    Control(#[from] ControlFault),
    /// The file with the token holds none.
    #[error(transparent)]
    Setting(#[from] SettingFault),
    /// Its own folder does not take what it must keep.
    #[error("{0}")]
    Folder(String),
}

/// Who asks, and how.
pub struct Asker {
    /// The rig.
    pub rig: RigName,
    /// What is registered.
    pub registration: Registration,
    /// How it comes to the bus.
    pub way: BusWay,
    /// The seed of its key.
    pub seed: String,
    /// Where control's word on the bus's certificates is kept.
    pub ca_file: PathBuf,
    /// Who connects, as the bus lists it.
    pub name: String,
}

/// Rights that are to be kept.
pub struct Held {
    asker: Asker,
    pass: Option<(Arc<Pass>, u64)>,
}

impl Asker {
    /// How the bus is reached. Control is asked until it answers.
    ///
    /// # Errors
    /// Where there are no rights to be had.
    pub async fn first(self) -> Result<(Access, Held), NoRights> {
        let BusWay::Control { nats, ca, .. } = self.way.clone() else {
            let BusWay::Open { nats: url } = self.way.clone() else { unreachable!("there are two ways") };
            warn!(%url, "the bus is used without rights and without TLS: for tests and small set-ups on one machine");
            let access = Access { url, ca: None, rights: Rights::Open, name: self.name.clone() };
            return Ok((access, Held { asker: self, pass: None }));
        };
        let Registered { jwt, nats_url, ca: told, expires } = match self.ask_once().await {
            Err(NoRights::Control(ControlFault::Away(why))) => match self.kept() {
                Some(kept) => {
                    warn!(why, "control is away: the rights that it gave before are used");
                    kept
                }
                None => self.ask().await?,
            },
            answered => answered?,
        };
        let ca = match (ca, told) {
            (Some(file), _) => Some(file),
            (None, Some(pem)) => {
                let failed = |error| NoRights::Folder(format!("{}: {error}", self.ca_file.display()));
                std::fs::write(&self.ca_file, pem).map_err(failed)?;
                Some(self.ca_file.clone())
            }
            (None, None) => None,
        };
        let key = KeyPair::from_seed(&self.seed).map_err(|error| NoRights::Folder(format!("the key: {error}")))?;
        let pass = Pass::new(key, jwt);
        let access = Access {
            url: nats.unwrap_or(nats_url),
            ca,
            rights: Rights::Key(Arc::clone(&pass)),
            name: self.name.clone(),
        };
        info!(url = %access.url, expires, "control gives rights on the bus");
        Ok((access, Held { asker: self, pass: Some((pass, expires)) }))
    }

    /// Asks control until it answers, ever more seldom.
    async fn ask(&self) -> Result<Registered, NoRights> {
        let mut rest = limits::CONTROL_RETRY_LEAST;
        loop {
            match self.ask_once().await {
                Err(NoRights::Control(ControlFault::Away(why))) => warn!(why, "control is asked again in {rest}"),
                answered => return answered,
            }
            sleep(rest.to_std()).await;
            let longer = Span::millis(rest.as_millis().saturating_mul(2));
            rest = longer.min(limits::CONTROL_RETRY_MOST);
        }
    }

    async fn ask_once(&self) -> Result<Registered, NoRights> {
        let BusWay::Control { control, token_file, control_ca, .. } = self.way.clone() else {
            return Err(ControlFault::Refused("there is no control".to_owned()).into());
        };
        // Read each time: a token or a CA that is changed for another needs no new start.
        let token = token_in(&token_file.display().to_string())?;
        let tls = control_tls(control_ca.as_deref())?;
        let (rig, registration) = (self.rig.clone(), self.registration.clone());
        let asked = tokio::task::spawn_blocking(move || register(&control, tls, &token, &rig, &registration)).await;
        let registered = asked.map_err(|error| ControlFault::Away(error.to_string()))??;
        self.keep(&registered);
        Ok(registered)
    }

    /// Where the newest rights are kept, for a start while control is away.
    fn kept_in(&self) -> PathBuf {
        self.ca_file.with_file_name(KEPT)
    }

    /// Keeps rights for a later start. One that cannot keep them asks control then.
    fn keep(&self, registered: &Registered) {
        let kept = serde_json::to_vec(registered).expect("rights have JSON");
        let (new, path) = (self.ca_file.with_file_name(format!("{KEPT}.new")), self.kept_in());
        let mut options = std::fs::OpenOptions::new();
        let file = options.create(true).truncate(true).write(true).mode(0o600).open(&new);
        let written = file.and_then(|mut file| file.write_all(&kept).and_then(|()| file.sync_all()));
        if let Err(error) = written.and_then(|()| std::fs::rename(&new, &path)) {
            warn!(path = %path.display(), %error, "the rights are not kept for a start while control is away");
        }
    }

    /// The rights that are kept, where they still count: whether they were taken back since, the bus knows.
    fn kept(&self) -> Option<Registered> {
        let kept: Registered = serde_json::from_slice(&std::fs::read(self.kept_in()).ok()?).ok()?;
        (kept.expires > seconds()).then_some(kept)
    }
}

impl Held {
    /// Keeps the rights for as long as there are any; says why there are none any more.
    pub async fn keep(mut self, mut told: mpsc::UnboundedReceiver<Happening>) -> NoRights {
        let mut last_asked = Instant::now();
        loop {
            let half_life = self.pass.as_ref().map(|(_, expires)| expires.saturating_sub(seconds()) / 2);
            let renewal = async {
                match half_life {
                    Some(seconds) => sleep(Span::seconds(seconds.max(1)).to_std()).await,
                    None => std::future::pending().await,
                }
            };
            let not_let_in = tokio::select! {
                () = renewal => false,
                happening = told.recv() => match happening {
                    Some(Happening::Up) => {
                        info!("the bus is up");
                        continue;
                    }
                    Some(Happening::Lost) => {
                        warn!("the bus is lost; it is tried again");
                        continue;
                    }
                    Some(Happening::NotLetIn { why }) => {
                        warn!(why, "the bus does not let this process in");
                        true
                    }
                    // The connection is gone for good: the process is ending.
                    None => std::future::pending().await,
                },
            };
            let Some((pass, _)) = self.pass.clone() else { continue };
            if not_let_in {
                // The bus says it anew with each try.
                sleep_until(last_asked + limits::CONTROL_RETRY_LEAST.to_std()).await;
                while let Ok(Happening::NotLetIn { .. }) = told.try_recv() {}
            }
            last_asked = Instant::now();
            match self.asker.ask_once().await {
                Ok(Registered { jwt, expires, .. }) => {
                    pass.renew(jwt);
                    self.pass = Some((pass, expires));
                    info!(expires, "the rights on the bus are renewed");
                }
                Err(NoRights::Control(ControlFault::Away(why))) => {
                    // What there is holds until it ends; the next try is at half of what is left, or when it is refused.
                    warn!(why, "the rights on the bus are not renewed yet");
                    sleep(limits::CONTROL_RETRY_LEAST.to_std()).await;
                }
                Err(none) => return none,
            }
        }
    }
}

fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
