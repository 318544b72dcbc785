//! A nats-server of a test's own: Debian's program on a free port of 127.0.0.1, with TLS and rights by JWT.

use std::fs;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use async_nats::{Auth, AuthError, Client, ConnectErrorKind, ConnectOptions};
use nkeys::KeyPair;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair as TlsKey, KeyUsagePurpose};
use serde_json::Value;
use thermite_svc::control::authority::{Account, Operator, Rights, Second, UserKey};
use thermite_svc::control::bus_config::{BusPlace, bus_config};

use super::nats_process::NatsProcess;
use crate::binary::PATIENCE;

/// The rig whose account a server knows from its start.
pub(crate) const RIG: &str = "lab";

/// A server, and the operator whose word it takes.
pub(crate) struct Nats {
    process: NatsProcess,
    /// The port where it tells of itself.
    monitor: u16,
    operator: Operator,
    account: Account,
}

/// By what right somebody connects: a key and its JWT.
pub(crate) struct Credentials {
    pub(crate) key: KeyPair,
    pub(crate) jwt: String,
}

impl Credentials {
    /// The key's public half.
    pub(crate) fn user(&self) -> UserKey {
        self.key.public_key().parse().unwrap()
    }
}

impl Nats {
    /// A server that knows the account of [`RIG`], under an operator of its own.
    pub(crate) fn start() -> Nats {
        let account = Account::new(RIG.parse().unwrap());
        Nats::of(Operator::new(), account, true)
    }

    /// A server under that operator which knows no rig's account: control is to send it.
    pub(crate) fn under(operator: Operator) -> Nats {
        Nats::of(operator, Account::new(RIG.parse().unwrap()), false)
    }

    /// A server under that operator which knows the account, or is yet to be sent it.
    fn of(operator: Operator, account: Account, known: bool) -> Nats {
        // One provider of TLS in a process; another test may have said so already.
        let _said_already = rustls::crypto::ring::default_provider().install_default();
        let folder = tempfile::tempdir().unwrap();
        certificates(folder.path());
        let known = if known { Some(&account) } else { None };
        configure(folder.path(), (-1, -1), &operator, known);
        let mut process =
            NatsProcess::start(folder, |_, folder| vec!["--config".into(), folder.join("nats.conf").into()]);
        // It comes back where it was.
        let monitor = process.port_of("monitoring");
        configure(process.folder(), (process.port().into(), monitor.into()), &operator, known);
        Nats { process, monitor, operator, account }
    }

    /// Its address.
    pub(crate) fn url(&self) -> String {
        format!("tls://127.0.0.1:{}", self.port())
    }

    /// The file with the certificate that its own is checked against.
    pub(crate) fn ca(&self) -> PathBuf {
        self.path("ca.pem")
    }

    /// The account of [`RIG`].
    pub(crate) fn account(&mut self) -> &mut Account {
        &mut self.account
    }

    /// Fresh rights in the account of [`RIG`], from a second that nothing was taken back in.
    pub(crate) fn admit(&self, rights: &Rights) -> Credentials {
        self.admit_again(KeyPair::new_user(), rights)
    }

    /// Fresh rights for a key that may have had some.
    pub(crate) fn admit_again(&self, key: KeyPair, rights: &Rights) -> Credentials {
        let user: UserKey = key.public_key().parse().unwrap();
        let at = self.account.revocations.of(&user).map_or(now(), |revoked| revoked.next().max(now()));
        let jwt = self.account.user(&user, rights, at, now()).unwrap();
        Credentials { key, jwt }
    }

    /// Rights of a supervisor for that key, given at another second: they end a day later.
    pub(crate) fn account_user(&self, by: &Credentials, given: Second) -> String {
        let rights = Rights::Supervisor("box-2".parse().unwrap());
        self.account.user(&by.user(), &rights, given, given).unwrap()
    }

    /// Somebody with those rights, connected, who is not connected again once cut.
    pub(crate) async fn connect(&self, by: &Credentials) -> Client {
        self.let_in(by).await.expect("the server refuses these rights")
    }

    /// As [`Nats::connect`]; none where the server refuses the rights. Whatever else hinders is tried again.
    pub(crate) async fn let_in(&self, by: &Credentials) -> Option<Client> {
        let began = Instant::now();
        loop {
            match self.options(by).max_reconnects(1).connect(self.url()).await {
                Ok(client) => return Some(client),
                Err(error) if error.kind() == ConnectErrorKind::AuthorizationViolation => return None,
                Err(error) => assert!(began.elapsed() < PATIENCE, "{error}: {}", self.log()),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// How somebody with those rights connects.
    pub(crate) fn options(&self, by: &Credentials) -> ConnectOptions {
        let (seed, jwt) = (by.key.seed().unwrap(), by.jwt.clone());
        ConnectOptions::with_auth_callback(move |nonce| {
            let (key, jwt) = (KeyPair::from_seed(&seed).unwrap(), jwt.clone());
            async move {
                let mut auth = Auth::new();
                auth.jwt = Some(jwt);
                auth.signature = Some(key.sign(&nonce).map_err(AuthError::new)?);
                Ok(auth)
            }
        })
        .add_root_certificates(self.ca())
        .require_tls(true)
        .request_timeout(Some(PATIENCE))
    }

    /// The rights of the operator to send accounts.
    pub(crate) fn system(&self) -> Credentials {
        let key = KeyPair::new_user();
        let jwt = self.operator.system_user(&key.public_key().parse().unwrap(), now()).unwrap();
        Credentials { key, jwt }
    }

    /// Sends the account of [`RIG`] as it is, with what it takes back, and waits for the server's word.
    pub(crate) async fn send_account(&self, by: &Client) {
        let subject = format!("$SYS.REQ.ACCOUNT.{}.CLAIMS.UPDATE", self.account.key.public_key());
        let jwt = self.operator.account(&self.account, now()).unwrap();
        let answer: Value = serde_json::from_slice(&by.request(subject, jwt.into()).await.unwrap().payload).unwrap();
        assert_eq!(answer["data"]["code"], 200, "{answer}");
    }

    /// Has it lose the accounts that it was sent; it must not run.
    pub(crate) fn forget_accounts(&self) {
        fs::remove_dir_all(self.path("accounts")).unwrap();
    }

    /// The names of those that are connected.
    pub(crate) fn connections(&self) -> Vec<String> {
        let told = self.monitored("connz?limit=1000");
        let names = told["connections"].as_array().unwrap().iter();
        names.filter_map(|row| Some(row["name"].as_str()?.to_owned())).collect()
    }

    /// How many connections there were since it started, those that it did not let in too.
    pub(crate) fn connections_so_far(&self) -> u64 {
        self.monitored("varz")["total_connections"].as_u64().unwrap()
    }

    fn monitored(&self, page: &str) -> Value {
        let url = format!("http://127.0.0.1:{}/{page}", self.monitor);
        ureq::get(&url).call().unwrap().body_mut().read_json().unwrap()
    }
}

impl Deref for Nats {
    type Target = NatsProcess;

    fn deref(&self) -> &NatsProcess {
        &self.process
    }
}

impl DerefMut for Nats {
    fn deref_mut(&mut self) -> &mut NatsProcess {
        &mut self.process
    }
}

/// Writes what a server in that folder is told: where it listens and where it tells of itself (-1: at a free port).
fn configure(folder: &Path, (port, monitor): (i32, i32), operator: &Operator, known: Option<&Account>) {
    let place = BusPlace {
        listen: format!("127.0.0.1:{port}"),
        accounts: folder.join("accounts"),
        certificate: folder.join("server.pem"),
        key: folder.join("server.key"),
    };
    let known: Vec<&Account> = known.into_iter().collect();
    // Of an earlier second: at its start a server takes what it is configured with for what is newest, where that is
    // as young as what it was sent.
    let mut config = bus_config(operator, &place, &known, Second(now().0 - 60)).unwrap();
    config.push_str(&format!("ports_file_dir: {folder:?}\nhttp: \"127.0.0.1:{monitor}\"\n"));
    fs::write(folder.join("nats.conf"), config).unwrap();
}

/// The second that it is.
pub(crate) fn now() -> Second {
    Second(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs())
}

/// A CA, and a certificate of 127.0.0.1 and localhost under it.
fn certificates(folder: &Path) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let key = TlsKey::generate().unwrap();
    let ca = params.self_signed(&key).unwrap();
    let issuer = Issuer::new(params, key);
    let key = TlsKey::generate().unwrap();
    let names = ["127.0.0.1", "localhost"].map(str::to_owned);
    let server = CertificateParams::new(names).unwrap().signed_by(&key, &issuer).unwrap();
    fs::write(folder.join("ca.pem"), ca.pem()).unwrap();
    fs::write(folder.join("server.pem"), server.pem()).unwrap();
    fs::write(folder.join("server.key"), key.serialize_pem()).unwrap();
}
