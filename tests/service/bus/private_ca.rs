//! Control behind a proxy with TLS whose certificate is a private CA's, as docs/control.md says: core, supervisor and command
//! line believe it by `THERMITE_CONTROL_CA_FILE`, and nobody believes it without (rules E6, F1).

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::Value;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::desk::Desk;
use super::nats::RIG;
use crate::binary::{NO_CONTAINMENT, Own, PATIENCE, Said, apart, command, until};

const CA_FILE: &str = "THERMITE_CONTROL_CA_FILE";

#[test]
fn core_runner_and_command_line_reach_control_behind_a_private_ca() {
    let desk = Desk::start();
    let place = Place::before(&desk);
    let rig = desk.make_rig();
    fs::write(place.path("token"), rig).unwrap();

    let listed = place.say(&["rig", "list"], Some("both.pem"));
    let disbelieved = place.say(&["rig", "list"], Some("other.pem"));
    let without = place.say(&["rig", "list"], None);
    let runner = Own(place.supervisor("both.pem").spawn().unwrap());
    until("the runner has registered", || {
        let rows = desk.get(&format!("/v1/rigs/{RIG}/runners"));
        rows.as_array().unwrap().iter().any(|row| row["runner"] == "box-2" && !row["public_key"].is_null())
    });
    let core = place.until_core_registered(&desk);

    assert_eq!(listed.code, Some(0), "{listed:?}");
    assert!(listed.out.starts_with(&format!("{RIG}: ")), "{listed:?}");
    for told in [&disbelieved, &without] {
        let sentence = told.refused_with(70);
        assert!(sentence.contains("is not believed to be control") && sentence.contains(CA_FILE), "{sentence}");
    }
    drop((runner, core));
}

#[test]
fn who_does_not_believe_control_asks_again_and_says_what_it_was_checked_against() {
    let desk = Desk::start();
    let place = Place::before(&desk);
    fs::write(place.path("token"), desk.make_rig()).unwrap();
    let log = fs::File::create(place.path("log")).unwrap();

    let mut runner = place.supervisor("other.pem");
    let mut runner = Own(runner.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap());

    let told = || fs::read_to_string(place.path("log")).unwrap();
    until("it says so", || {
        assert!(runner.0.try_wait().unwrap().is_none(), "{}", told());
        told().contains("control is asked again") && told().contains(CA_FILE)
    });
    // No token was shown to whoever answered there: nobody registered.
    assert_eq!(desk.get(&format!("/v1/rigs/{RIG}/runners")), Value::Array(Vec::new()));
}

/// A proxy with TLS before control, and the files of those who ask there.
struct Place {
    folder: tempfile::TempDir,
    url: String,
}

impl Place {
    fn before(desk: &Desk) -> Place {
        let folder = tempfile::tempdir().unwrap();
        let (other, _) = authority();
        let (ca, issuer) = authority();
        let key = KeyPair::generate().unwrap();
        let names = ["127.0.0.1", "localhost"].map(str::to_owned);
        let own = CertificateParams::new(names).unwrap().signed_by(&key, &issuer).unwrap();
        // The one that counts is not the first: a CA that is being changed for another.
        fs::write(folder.path().join("both.pem"), format!("{other}{ca}")).unwrap();
        fs::write(folder.path().join("other.pem"), &other).unwrap();
        fs::write(folder.path().join("owner"), desk.owner()).unwrap();
        let to = desk.url().strip_prefix("http://").unwrap().to_owned();
        let port = proxy(own.der().clone(), PrivatePkcs8KeyDer::from(key.serialize_der()).into(), to);
        Place { folder, url: format!("https://127.0.0.1:{port}") }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The owner's command.
    fn say(&self, args: &[&str], ca: Option<&str>) -> Said {
        let mut command = command(&["control", "--url", &self.url]);
        command.arg("--token-file").arg(self.path("owner")).args(args).env("HOME", self.folder.path());
        command.envs(ca.map(|ca| (CA_FILE, self.path(ca))));
        Said::by(command.output().unwrap())
    }

    fn supervisor(&self, ca: &str) -> Command {
        let mut supervisor = command(&["supervisor"]);
        supervisor.arg("--data").arg(self.path("runner")).env("THERMITE_RUNNER", "box-2");
        supervisor.envs([("THERMITE_ROLE", "runner"), ("THERMITE_RIG_ID", RIG), ("CONTROL_URL", &self.url)]);
        supervisor.env("THERMITE_CONTROL_TOKEN_FILE", self.path("token")).env(CA_FILE, self.path(ca));
        supervisor
    }

    /// A core that has registered; none where this machine gives no containment, which is said.
    fn until_core_registered(&self, desk: &Desk) -> Option<Own> {
        let log = fs::File::create(self.path("core-log")).unwrap();
        let mut core = command(&["serve", "--listen", "127.0.0.1:0"]);
        core.arg("--data").arg(self.path("core")).envs(apart(&self.path("locks")));
        core.envs([("THERMITE_ROLE", "core"), ("THERMITE_RIG_ID", RIG), ("CONTROL_URL", &self.url)]);
        core.env("THERMITE_CONTROL_TOKEN_FILE", self.path("token")).env(CA_FILE, self.path("both.pem"));
        let mut core = Own(core.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap());
        let told = || fs::read_to_string(self.path("core-log")).unwrap();
        let began = Instant::now();
        while desk.get(&format!("/v1/rigs/{RIG}"))["core"].is_null() {
            if let Some(status) = core.0.try_wait().unwrap() {
                assert!(told().contains(NO_CONTAINMENT), "the core ended with {status}: {}", told());
                println!("skipped: {}", told().trim());
                return None;
            }
            assert!(began.elapsed() < PATIENCE, "the core does not register: {}", told());
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        Some(core)
    }
}

/// A private CA: its certificate (PEM), and what it signs with.
fn authority() -> (String, Issuer<'static, KeyPair>) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let key = KeyPair::generate().unwrap();
    let own = params.self_signed(&key).unwrap();
    (own.pem(), Issuer::new(params, key))
}

/// A proxy with TLS on a port of its own, for as long as this process lives; what comes there goes to `to` as it is.
fn proxy(own: CertificateDer<'static>, key: PrivateKeyDer<'static>, to: String) -> u16 {
    let _said_already = rustls::crypto::ring::default_provider().install_default();
    let config = ServerConfig::builder().with_no_client_auth().with_single_cert(vec![own], key).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    listener.set_nonblocking(true).unwrap();
    std::thread::spawn(move || {
        crate::support::block_on(async move {
            let listener = TcpListener::from_std(listener).unwrap();
            while let Ok((near, _)) = listener.accept().await {
                let (acceptor, to) = (acceptor.clone(), to.clone());
                tokio::spawn(async move {
                    // Who does not believe it goes away in the handshake; control may be down.
                    let (near, far) = (acceptor.accept(near).await, TcpStream::connect(to).await);
                    let (Ok(mut near), Ok(mut far)) = (near, far) else { return };
                    let _one_side_is_gone = copy_bidirectional(&mut near, &mut far).await;
                });
            }
        });
    });
    port
}
