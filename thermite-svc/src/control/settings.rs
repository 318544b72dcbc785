//! What control is told from outside, read once: flags first, then the environment, then the defaults.
//!
//! | setting | environment | default |
//! |---|---|---|
//! | data folder | `THERMITE_CONTROL_DATA` | `$XDG_DATA_HOME/thermite-control`, else `$HOME/.local/share/thermite-control` |
//! | listen address | `THERMITE_CONTROL_LISTEN` | `127.0.0.1:7078` |
//! | listening beyond loopback | `THERMITE_CONTROL_LISTEN_OPEN` | `no` |
//! | the bus's address, as control and runners reach it | `THERMITE_NATS_URL` | none: it must be set |
//! | the certificates that the bus's is checked against | `THERMITE_NATS_CA_FILE` | none: it must be set |
//! | what is logged | `THERMITE_LOG` | `info` |

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::settings::SettingFault;

/// How control is set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlSettings {
    /// The data folder.
    pub folder: PathBuf,
    /// Where it listens.
    pub listen: SocketAddr,
    /// The bus's address.
    pub nats_url: String,
    /// The file with the certificates that the bus's is checked against.
    pub ca_file: PathBuf,
    /// The same, as they are given to runners.
    pub ca: String,
    /// What is logged.
    pub log: String,
}

/// What flags gave, as text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ControlGiven {
    /// The data folder.
    pub folder: Option<PathBuf>,
    /// Where it listens.
    pub listen: Option<String>,
    /// Whether others than this machine may be listened to.
    pub listen_open: bool,
    /// The bus's address.
    pub nats_url: Option<String>,
    /// The file with the bus's certificates.
    pub ca_file: Option<PathBuf>,
}

const FOLDER: &str = "THERMITE_CONTROL_DATA (--data)";
const LISTEN: &str = "THERMITE_CONTROL_LISTEN (--listen)";
const LISTEN_OPEN: &str = "THERMITE_CONTROL_LISTEN_OPEN (--listen-open)";
const NATS: &str = "THERMITE_NATS_URL (--nats-url)";
const CA_FILE: &str = "THERMITE_NATS_CA_FILE (--nats-ca-file)";
const DEFAULT_LISTEN: &str = "127.0.0.1:7078";

impl ControlSettings {
    /// Reads all settings; `environment` gives a variable's value.
    ///
    /// # Errors
    /// Names the first setting that cannot be, what it is and what it must be.
    pub fn read(
        given: ControlGiven,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<ControlSettings, SettingFault> {
        let environment = |name: &str| environment(name).filter(|value| !value.is_empty());
        let nats_url = given.nats_url.or_else(|| environment("THERMITE_NATS_URL"));
        let ca_file = given.ca_file.or_else(|| environment("THERMITE_NATS_CA_FILE").map(PathBuf::from));
        let (ca_file, ca) = certificates(ca_file)?;
        Ok(ControlSettings {
            folder: control_folder(given.folder, &environment)?,
            listen: listen(given.listen, given.listen_open, &environment)?,
            nats_url: bus_url(nats_url)?,
            ca_file,
            ca,
            log: crate::settings::log(&environment)?,
        })
    }
}

/// Control's data folder alone.
///
/// # Errors
/// Where none is given and there is no home to have one in.
pub fn control_folder(
    given: Option<PathBuf>,
    environment: &impl Fn(&str) -> Option<String>,
) -> Result<PathBuf, SettingFault> {
    let fault = |value: String| SettingFault {
        setting: FOLDER,
        value,
        expected: "a folder, such as /var/lib/thermite-control".to_owned(),
    };
    if let Some(folder) = given.or_else(|| environment("THERMITE_CONTROL_DATA").map(PathBuf::from)) {
        return std::path::absolute(&folder).map_err(|_| fault(folder.display().to_string()));
    }
    let absolute = |value: Option<String>| value.map(PathBuf::from).filter(|path| path.is_absolute());
    if let Some(folder) = absolute(environment("XDG_DATA_HOME")) {
        return Ok(folder.join("thermite-control"));
    }
    match absolute(environment("HOME")) {
        Some(home) => Ok(home.join(".local/share/thermite-control")),
        None => Err(fault("not set, nor is HOME".to_owned())),
    }
}

fn bus_url(url: Option<String>) -> Result<String, SettingFault> {
    let fault = |value: &str| SettingFault {
        setting: NATS,
        value: value.to_owned(),
        expected: "the bus's address as runners reach it, such as tls://bus.example:4222".to_owned(),
    };
    let url = url.ok_or_else(|| fault("not set"))?;
    let uri: http::Uri = url.parse().map_err(|_| fault(&url))?;
    // A password in an address ends in logs.
    if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        return Err(fault("an address with a name or password"));
    }
    let is_tls = uri.scheme_str() == Some("tls") && uri.host().is_some_and(|host| !host.is_empty());
    if is_tls { Ok(url) } else { Err(fault(&url)) }
}

fn certificates(file: Option<PathBuf>) -> Result<(PathBuf, String), SettingFault> {
    let fault = |value: String| SettingFault {
        setting: CA_FILE,
        value,
        expected: "a file with the certificates (PEM) that the bus's is checked against".to_owned(),
    };
    let file = file.ok_or_else(|| fault("not set".to_owned()))?;
    let shown = file.display();
    let text =
        std::fs::read_to_string(&file).map_err(|error| fault(format!("{shown}, which cannot be read ({error})")))?;
    if !text.contains("-----BEGIN CERTIFICATE-----") || text.contains("PRIVATE KEY") {
        return Err(fault(format!("{shown}, which does not hold certificates alone")));
    }
    Ok((file, text))
}

fn listen(
    given: Option<String>,
    open: bool,
    environment: &impl Fn(&str) -> Option<String>,
) -> Result<SocketAddr, SettingFault> {
    let text = given.or_else(|| environment("THERMITE_CONTROL_LISTEN")).unwrap_or_else(|| DEFAULT_LISTEN.to_owned());
    let address: SocketAddr = text.parse().map_err(|_| SettingFault {
        setting: LISTEN,
        value: text.clone(),
        expected: format!("an address and a port, such as {DEFAULT_LISTEN}"),
    })?;
    let open = match environment("THERMITE_CONTROL_LISTEN_OPEN").as_deref() {
        _ if open => true,
        None | Some("no") => false,
        Some("yes") => true,
        Some(other) => {
            let expected = "yes or no".to_owned();
            return Err(SettingFault { setting: LISTEN_OPEN, value: other.to_owned(), expected });
        }
    };
    if !address.ip().is_loopback() && !open {
        return Err(SettingFault {
            setting: LISTEN,
            value: text,
            expected: format!(
                "a loopback address, such as {DEFAULT_LISTEN}, unless {LISTEN_OPEN} says yes to others: control has \
                 tokens and no TLS of its own; put a proxy with TLS before it"
            ),
        });
    }
    Ok(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(set: &[(&str, &str)]) -> Result<ControlSettings, SettingFault> {
        let set: Vec<(String, String)> = set.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        ControlSettings::read(ControlGiven::default(), move |name| {
            set.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
        })
    }

    #[test]
    fn each_setting_that_cannot_be_is_one_line_that_names_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let file = folder.path().join(name);
            std::fs::write(&file, text).unwrap();
            file.display().to_string()
        };
        let ca = file("ca.pem", "-----BEGIN CERTIFICATE-----\n");
        let (empty, key) = (file("empty", ""), file("key", "-----BEGIN CERTIFICATE-----\n-----BEGIN PRIVATE KEY-----"));
        let good =
            [("HOME", "/home/x"), ("THERMITE_NATS_URL", "tls://bus:4222"), ("THERMITE_NATS_CA_FILE", ca.as_str())];
        let settings = read(&good).unwrap();
        assert_eq!(settings.folder, PathBuf::from("/home/x/.local/share/thermite-control"));
        assert_eq!(
            (settings.listen.to_string().as_str(), settings.nats_url.as_str()),
            (DEFAULT_LISTEN, "tls://bus:4222")
        );

        for (name, value, says) in [
            ("THERMITE_NATS_URL", "", "THERMITE_NATS_URL (--nats-url) is not set"),
            ("THERMITE_NATS_URL", "nats://bus:4222", "must be the bus's address"),
            ("THERMITE_NATS_URL", "tls://me:secret@bus:4222", "is an address with a name or password"),
            ("THERMITE_NATS_CA_FILE", "", "THERMITE_NATS_CA_FILE (--nats-ca-file) is not set"),
            ("THERMITE_NATS_CA_FILE", "/nowhere", "cannot be read"),
            ("THERMITE_NATS_CA_FILE", &empty, "does not hold certificates"),
            ("THERMITE_NATS_CA_FILE", &key, "does not hold certificates alone"),
            ("THERMITE_CONTROL_LISTEN", "7078", "an address and a port"),
            ("THERMITE_CONTROL_LISTEN", "0.0.0.0:7078", "a loopback address"),
            ("THERMITE_CONTROL_LISTEN_OPEN", "perhaps", "yes or no"),
            ("HOME", "", "THERMITE_CONTROL_DATA (--data) is not set"),
        ] {
            let mut set: Vec<_> = good.into_iter().filter(|(known, _)| *known != name).collect();
            set.push((name, value));
            let fault = read(&set).unwrap_err().to_string();
            assert!(
                fault.contains(says) && !fault.contains('\n') && !fault.contains("secret"),
                "{name}={value}: {fault}"
            );
        }
    }
}
