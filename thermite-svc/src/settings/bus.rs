//! The settings of a rig's processes on a bus (rule E6): who a process is, and how it reaches control and the bus.
//!
//! | setting | environment | of whom |
//! |---|---|---|
//! | what the process is part of | `THERMITE_ROLE`: `core` or `runner` | all |
//! | the rig's name on the bus | `THERMITE_RIG_ID` | all |
//! | the runner's name | `THERMITE_RUNNER` | supervisor |
//! | control's address | `CONTROL_URL` | core, supervisor |
//! | the file with the token for control | `THERMITE_CONTROL_TOKEN_FILE` | core, supervisor |
//! | the certificates that control's own is checked against, beside the platform's | `THERMITE_CONTROL_CA_FILE` | core, supervisor |
//! | the bus's address, where control's word for it is not to be used | `THERMITE_NATS_URL` | core, supervisor |
//! | the certificates that the bus's is checked against | `THERMITE_NATS_CA_FILE` | core, supervisor |
//! | the folder of the harness's socket | `THERMITE_HARNESS_DIR` | supervisor, harness |
//! | the harness's devices | `THERMITE_TARGET`, `THERMITE_GPUS` ([`super::gpus`]) | harness |
//!
//! Without control a bus is used without rights and without TLS, and only on this machine: for tests and small set-ups.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use thermite_core::runners::LocalJudge;
use thermite_core::wire::ProcessName;
use ureq::tls::TlsConfig;

use super::{Given, SettingFault, Settings, data_folder};
use crate::bus::subjects::RigName;
use crate::control::trust;

/// What a process is part of.
pub const ROLE: &str = "THERMITE_ROLE";
/// The rig's name.
pub const RIG: &str = "THERMITE_RIG_ID";
/// The runner's name.
pub const RUNNER: &str = "THERMITE_RUNNER";
/// Control's address.
pub const CONTROL: &str = "CONTROL_URL";
/// The file with the token for control.
pub const TOKEN_FILE: &str = "THERMITE_CONTROL_TOKEN_FILE";
/// The certificates that control's own is checked against, beside the platform's.
pub const CONTROL_CA_FILE: &str = "THERMITE_CONTROL_CA_FILE";
/// The bus's address.
pub const NATS: &str = "THERMITE_NATS_URL";
/// The certificates.
pub const CA_FILE: &str = "THERMITE_NATS_CA_FILE";
/// The folder of the harness's socket.
pub const HARNESS_DIR: &str = "THERMITE_HARNESS_DIR";
const LOCAL_JUDGE: &str = "THERMITE_LOCAL_JUDGE";

/// The part of the data folder that is a supervisor's.
pub const SUPERVISOR: &str = "supervisor";
/// The part of the data folder that is a harness's.
pub const HARNESS: &str = "harness";
const DOOR: &str = "door";

/// How a process comes to the bus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BusWay {
    /// By rights that control gives.
    Control {
        /// Control's address.
        control: String,
        /// The file with the token for it.
        token_file: PathBuf,
        /// The file with the certificates that its own is checked against, beside the platform's.
        control_ca: Option<PathBuf>,
        /// The bus's address, where control's word for it is not used.
        nats: Option<String>,
        /// The certificates that the bus's is checked against, where control's are not used.
        ca: Option<PathBuf>,
    },
    /// Without rights, to a bus on this machine.
    Open {
        /// Its address.
        nats: String,
    },
}

/// How a supervisor is set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SupervisorSettings {
    /// The rig.
    pub rig: RigName,
    /// Its runner's name.
    pub process: ProcessName,
    /// The data folder of the runner; the supervisor has a part of it.
    pub data: PathBuf,
    /// The folder of its harness's socket.
    pub harness: PathBuf,
    /// How it comes to the bus.
    pub way: BusWay,
    /// As the harness's: whose account works in what is laid out.
    pub lane_uid_base: u32,
    /// What is logged.
    pub log: String,
}

/// How a harness is set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HarnessSettings {
    /// The rig.
    pub rig: RigName,
    /// The data folder of the runner: no run sees it; the harness has a part of it.
    pub data: PathBuf,
    /// The folder of its socket.
    pub socket: PathBuf,
    /// The machine.
    pub machine: Settings,
}

/// How a core comes to its bus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoreBus {
    /// The rig.
    pub rig: RigName,
    /// How it comes to the bus.
    pub way: BusWay,
    /// Whether its own devices judge beside its runners (rule E13).
    pub local_judge: LocalJudge,
}

impl SupervisorSettings {
    /// Reads a supervisor's settings.
    ///
    /// # Errors
    /// Names the first setting that cannot be, what it is and what it must be.
    pub fn read(
        data: Option<PathBuf>,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<SupervisorSettings, SettingFault> {
        let environment = |name: &str| environment(name).filter(|value| !value.is_empty());
        is_runners(&environment)?;
        let rig = rig(&environment)?;
        let process = needed(&environment, RUNNER, "the runner's name: 2 to 40 of a-z, 0-9 and -, such as box-2")?;
        let process = process
            .parse()
            .map_err(|_| fault(RUNNER, &process, "the runner's name: 2 to 40 of a-z, 0-9 and -, such as box-2"))?;
        let way = way(&environment)?;
        let data = data_folder(data, &environment)?;
        let harness = harness_dir(&environment, &data)?;
        let lane_uid_base = super::uid_base(&environment)?;
        Ok(SupervisorSettings { rig, process, harness, data, way, lane_uid_base, log: super::log(&environment)? })
    }

    /// The supervisor's part of the data folder.
    pub fn own(&self) -> PathBuf {
        self.data.join(SUPERVISOR)
    }
}

impl HarnessSettings {
    /// Reads a harness's settings.
    ///
    /// # Errors
    /// Names the first setting that cannot be, what it is and what it must be.
    pub fn read(
        data: Option<PathBuf>,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<HarnessSettings, SettingFault> {
        let environment = |name: &str| environment(name).filter(|value| !value.is_empty());
        is_runners(&environment)?;
        let rig = rig(&environment)?;
        needed(&environment, super::gpus::TARGET, "cpu or cuda-gpu")?;
        if let Some(value) = environment(LOCAL_JUDGE) {
            return Err(fault(LOCAL_JUDGE, &value, "left out: it is a core's setting, and this is a runner's process"));
        }
        let data = data_folder(data, &environment)?;
        let socket = harness_dir(&environment, &data)?;
        let given = Given { folder: Some(data.join(HARNESS)), ..Given::default() };
        // A harness does not listen where a rig does: what is set for a core of the same machine says nothing here.
        let machine = Settings::read(given, |name| environment(name).filter(|_| !name.starts_with("THERMITE_LISTEN")))?;
        Ok(HarnessSettings { rig, data, socket, machine })
    }
}

impl CoreBus {
    /// Reads how a core comes to its bus; none where no bus is set.
    ///
    /// # Errors
    /// Names the first setting that cannot be, what it is and what it must be.
    pub fn read(environment: impl Fn(&str) -> Option<String>) -> Result<Option<CoreBus>, SettingFault> {
        let environment = |name: &str| environment(name).filter(|value| !value.is_empty());
        match environment(ROLE).as_deref() {
            None | Some("core") => {}
            Some(other) => {
                let expected = "core: a runner's processes are `thermite supervisor` and `thermite harness`";
                return Err(fault(ROLE, other, expected));
            }
        }
        let is_set =
            [CONTROL, TOKEN_FILE, CONTROL_CA_FILE, NATS, CA_FILE].into_iter().any(|name| environment(name).is_some());
        if !is_set {
            return Ok(None);
        }
        let local_judge = match environment(LOCAL_JUDGE).as_deref() {
            None | Some("1") => LocalJudge::On,
            Some("0") => LocalJudge::Off,
            Some(other) => {
                return Err(fault(LOCAL_JUDGE, other, "0 where only its runners judge, or 1"));
            }
        };
        Ok(Some(CoreBus { rig: rig(&environment)?, way: way(&environment)?, local_judge }))
    }
}

fn is_runners(environment: &impl Fn(&str) -> Option<String>) -> Result<(), SettingFault> {
    let expected = "runner: a core's process is `thermite serve`";
    match needed(environment, ROLE, expected)?.as_str() {
        "runner" => Ok(()),
        other => Err(fault(ROLE, other, expected)),
    }
}

fn rig(environment: &impl Fn(&str) -> Option<String>) -> Result<RigName, SettingFault> {
    let expected = "the rig's name: 2 to 64 of a-z, 0-9 and -";
    let text = needed(environment, RIG, expected)?;
    text.parse().map_err(|_| fault(RIG, &text, expected))
}

fn harness_dir(environment: &impl Fn(&str) -> Option<String>, data: &Path) -> Result<PathBuf, SettingFault> {
    // The kernel's own limit on a socket's name, its end and the socket's own name in the folder.
    const LONGEST: usize = 107 - "/harness.sock".len();
    let given = environment(HARNESS_DIR);
    let folder = given.map(PathBuf::from).unwrap_or_else(|| data.join(HARNESS).join(DOOR));
    let shown = folder.display().to_string();
    if !folder.is_absolute() || folder.as_os_str().len() > LONGEST {
        let expected =
            format!("an absolute path of at most {LONGEST} bytes, such as /run/thermite, for the harness's socket");
        return Err(fault(HARNESS_DIR, &shown, &expected));
    }
    Ok(folder)
}

fn way(environment: &impl Fn(&str) -> Option<String>) -> Result<BusWay, SettingFault> {
    let nats = environment(NATS).map(|url| nats_url(&url).map(|local| (url.clone(), local))).transpose()?;
    let ca = environment(CA_FILE).map(|file| certificates(&file)).transpose()?;
    let control_ca = environment(CONTROL_CA_FILE);
    let Some(control) = environment(CONTROL) else {
        let Some((nats, is_local)) = nats else {
            return Err(fault(CONTROL, "not set", "control's address, such as https://control.example:7078"));
        };
        // Said rather than passed over: whoever sets these means to have rights.
        if environment(TOKEN_FILE).is_some() || control_ca.is_some() || ca.is_some() || !is_local {
            let expected = format!(
                "control's address, such as https://control.example:7078; without it only a bus on this machine is \
                 used ({NATS} such as nats://127.0.0.1:4222), without token and certificates"
            );
            return Err(fault(CONTROL, "not set", &expected));
        }
        return Ok(BusWay::Open { nats });
    };
    control_url(&control)?;
    let token_file = needed(environment, TOKEN_FILE, "the file with the token for control")?;
    token_in(&token_file)?;
    let control_ca = control_ca.map(PathBuf::from);
    control_tls(control_ca.as_deref())?;
    let token_file = PathBuf::from(token_file);
    Ok(BusWay::Control { control, token_file, control_ca, nats: nats.map(|nats| nats.0), ca })
}

/// Whether it is an address on this machine.
fn nats_url(text: &str) -> Result<bool, SettingFault> {
    let expected = "the bus's address, such as tls://bus.example:4222";
    let uri: http::Uri = text.parse().map_err(|_| fault(NATS, text, expected))?;
    let (Some("nats" | "tls"), Some(host)) = (uri.scheme_str(), uri.host().filter(|host| !host.is_empty())) else {
        return Err(fault(NATS, text, expected));
    };
    // A password in an address ends in logs.
    if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        return Err(fault(NATS, "an address with a name or password", expected));
    }
    Ok(is_this_machine(host))
}

fn control_url(text: &str) -> Result<(), SettingFault> {
    let expected = "control's address, such as https://control.example:7078 (http only on this machine: a token goes \
                    there)";
    let uri: http::Uri = text.parse().map_err(|_| fault(CONTROL, text, expected))?;
    match (uri.scheme_str(), uri.host()) {
        (Some("https"), Some(host)) if !host.is_empty() => Ok(()),
        (Some("http"), Some(host)) if is_this_machine(host) => Ok(()),
        (Some(_) | None, Some(_) | None) => Err(fault(CONTROL, text, expected)),
    }
}

fn is_this_machine(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare == "localhost" || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn certificates(file: &str) -> Result<PathBuf, SettingFault> {
    let expected = "a file with certificates (PEM)";
    let text = std::fs::read_to_string(file)
        .map_err(|error| fault(CA_FILE, &format!("{file}, which cannot be read ({error})"), expected))?;
    if !text.contains("-----BEGIN CERTIFICATE-----") {
        return Err(fault(CA_FILE, &format!("{file}, which holds no certificate"), expected));
    }
    Ok(PathBuf::from(file))
}

/// How control's own certificate is checked.
///
/// # Errors
/// Where the file holds what is no certificate.
pub fn control_tls(file: Option<&Path>) -> Result<TlsConfig, SettingFault> {
    let shown = file.map(|file| file.display().to_string()).unwrap_or_default();
    let expected = "a file with the certificates (PEM) that control's own is checked against";
    trust::tls(file).map_err(|why| fault(CONTROL_CA_FILE, &format!("{shown}, {why}"), expected))
}

/// The token in a file: one word. It is never shown.
///
/// # Errors
/// Where there is none.
pub fn token_in(file: &str) -> Result<String, SettingFault> {
    let expected = "a file with the token for control on its one line";
    let text = std::fs::read_to_string(file)
        .map_err(|error| fault(TOKEN_FILE, &format!("{file}, which cannot be read ({error})"), expected))?;
    let token = text.trim();
    if token.is_empty() || token.len() > 512 || token.chars().any(|letter| !letter.is_ascii_graphic()) {
        return Err(fault(TOKEN_FILE, &format!("{file}, which holds no token"), expected));
    }
    Ok(token.to_owned())
}

fn needed(
    environment: &impl Fn(&str) -> Option<String>,
    setting: &'static str,
    expected: &str,
) -> Result<String, SettingFault> {
    environment(setting).ok_or_else(|| fault(setting, "not set", expected))
}

fn fault(setting: &'static str, value: &str, expected: &str) -> SettingFault {
    SettingFault { setting, value: value.to_owned(), expected: expected.to_owned() }
}
