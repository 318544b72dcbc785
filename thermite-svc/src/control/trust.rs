//! By which certificates control's own is believed, where it is asked over HTTPS: the platform's, and those of a file that
//! the asker names. All of a file count: a private CA that is being changed for another is two.

use std::path::Path;

use rustls::RootCertStore;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};

/// What is said where control's certificate is not believed.
pub const CHECKED_AGAINST: &str =
    "it was checked against the platform's roots and those of the file that THERMITE_CONTROL_CA_FILE names";

/// Whether the other side was there, and its certificate is not believed.
pub fn is_disbelief(error: &ureq::Error) -> bool {
    let cause = match error {
        ureq::Error::Rustls(cause) => Some(cause),
        ureq::Error::Io(cause) => cause.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>()),
        _ => None,
    };
    matches!(cause, Some(rustls::Error::InvalidCertificate(_)))
}

/// The certificates of a file (PEM), all of which must be ones.
///
/// # Errors
/// Says what is wrong with the file, fit to follow its name.
pub fn certificates_in(file: &Path) -> Result<Vec<Certificate<'static>>, String> {
    let pem = std::fs::read(file).map_err(|error| format!("which cannot be read ({error})"))?;
    let mut found = Vec::new();
    for item in parse_pem(&pem) {
        match item {
            Ok(PemItem::Certificate(certificate)) => found.push(certificate),
            Ok(_) => return Err("which does not hold certificates alone".to_owned()),
            Err(error) => return Err(format!("which is no PEM ({error})")),
        }
        // A root that nothing can be checked against would be passed over in silence.
        let newest = found.last().map(|certificate| certificate.der().to_vec()).unwrap_or_default();
        let checked = RootCertStore::empty().add(newest.into());
        checked.map_err(|error| format!("whose certificate number {} cannot be used ({error})", found.len()))?;
    }
    if found.is_empty() { Err("which holds no certificate".to_owned()) } else { Ok(found) }
}

/// How control's own certificate is checked: against the platform's roots and those of `file`; where there are neither,
/// against Mozilla's, as they were built in.
///
/// # Errors
/// Says what is wrong with the file, fit to follow its name.
pub fn tls(file: Option<&Path>) -> Result<TlsConfig, String> {
    let own = file.map(certificates_in).transpose()?.unwrap_or_default();
    let platforms = rustls_native_certs::load_native_certs().certs;
    let platforms = platforms.iter().map(|root| Certificate::from_der(root).to_owned());
    let all: Vec<Certificate<'static>> = own.into_iter().chain(platforms).collect();
    let roots = if all.is_empty() { RootCerts::WebPki } else { RootCerts::new_with_certs(&all) };
    Ok(TlsConfig::builder().root_certs(roots).build())
}
