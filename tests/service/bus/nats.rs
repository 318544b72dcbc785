//! A nats-server of a test's own: Debian's program on a free port of 127.0.0.1, with TLS and rights by JWT.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use async_nats::{Auth, AuthError, Client, ConnectErrorKind, ConnectOptions};
use nkeys::KeyPair;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair as TlsKey, KeyUsagePurpose};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use thermite_svc::control::authority::{Account, Operator, Rights, Second, UserKey};
use thermite_svc::control::bus_config::{BusPlace, bus_config};

use crate::binary::PATIENCE;

/// The rig whose account a server knows from its start.
pub(crate) const RIG: &str = "lab";

/// A server, and the operator whose word it takes. It is killed when it is let go of, whatever state it is in; where
/// the test's own process dies, the kernel kills it. The thread that starts it must outlive it.
pub(crate) struct Nats {
    folder: tempfile::TempDir,
    server: Option<Child>,
    port: u16,
    /// Where it tells of itself.
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
        let mut nats = Nats { folder, server: None, port: 0, monitor: 0, operator, account };
        nats.configure(known);
        nats.run();
        (nats.port, nats.monitor) = nats.ports_it_took();
        // It comes back where it was.
        nats.configure(known);
        nats
    }

    /// Its address.
    pub(crate) fn url(&self) -> String {
        format!("tls://127.0.0.1:{}", self.port)
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

    /// Kills it as `kill -9` does.
    pub(crate) fn kill(&mut self) {
        let mut server = self.server.take().expect("it runs");
        // It was not waited for, so the pid is still its own.
        server.kill().unwrap();
        server.wait().unwrap();
    }

    /// Starts it again where it was, after [`Nats::kill`]. Whoever took its port meanwhile is waited for.
    pub(crate) fn start_again(&mut self) {
        let began = Instant::now();
        loop {
            self.run();
            while self.server.as_mut().is_some_and(|server| server.try_wait().unwrap().is_none()) {
                if std::net::TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
                    return;
                }
                assert!(began.elapsed() < PATIENCE, "it does not come up again: {}", self.log());
                std::thread::sleep(Duration::from_millis(10));
            }
            assert!(began.elapsed() < PATIENCE, "it ends at its start: {}", self.log());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Has it lose the accounts that it was sent; it must not run.
    pub(crate) fn forget_accounts(&self) {
        fs::remove_dir_all(self.path("accounts")).unwrap();
    }

    /// Has it stand still, as SIGSTOP does, its connections open.
    pub(crate) fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// Has it go on after [`Nats::pause`].
    pub(crate) fn go_on(&self) {
        self.signal(Signal::CONT);
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

    /// What it logged.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    fn signal(&self, signal: Signal) {
        let server = self.server.as_ref().expect("it runs");
        kill_process(Pid::from_child(server), signal).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn configure(&self, known: bool) {
        let [port, monitor] = [self.port, self.monitor].map(|port| if port == 0 { -1 } else { i32::from(port) });
        let place = BusPlace {
            listen: format!("127.0.0.1:{port}"),
            accounts: self.path("accounts"),
            certificate: self.path("server.pem"),
            key: self.path("server.key"),
        };
        let known: &[&Account] = if known { &[&self.account] } else { &[] };
        // Of an earlier second: at its start a server takes what it is configured with for what is newest, where that is
        // as young as what it was sent.
        let mut config = bus_config(&self.operator, &place, known, Second(now().0 - 60)).unwrap();
        config.push_str(&format!("ports_file_dir: {:?}\nhttp: \"127.0.0.1:{monitor}\"\n", self.folder.path()));
        fs::write(self.path("nats.conf"), config).unwrap();
    }

    fn run(&mut self) {
        let log = File::options().create(true).append(true).open(self.path("log")).unwrap();
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--", "nats-server", "--config"]).arg(self.path("nats.conf"));
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let started = command.spawn();
        self.server = Some(started.expect("setpriv (util-linux) is there; tests/run.sh installs what the tests need"));
    }

    /// The ports that it took by itself, once it listens: its own, and the one where it tells of itself.
    fn ports_it_took(&mut self) -> (u16, u16) {
        let server = self.server.as_mut().expect("it runs");
        let file = self.folder.path().join(format!("nats-server_{}.ports", server.id()));
        let began = Instant::now();
        loop {
            let told: Option<Value> = fs::read(&file).ok().and_then(|json| serde_json::from_slice(&json).ok());
            let port = |what: &str| told.as_ref()?[what][0].as_str()?.rsplit(':').next()?.parse().ok();
            if let (Some(port), Some(monitor)) = (port("nats"), port("monitoring")) {
                return (port, monitor);
            }
            let ended = server.try_wait().unwrap();
            assert!(ended.is_none(), "nats-server (Debian's package) does not start: {ended:?} {}", self.log());
            assert!(began.elapsed() < PATIENCE, "nats-server does not listen: {}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Nats {
    fn drop(&mut self) {
        if let Some(mut server) = self.server.take() {
            // SIGKILL ends one that stands still, too.
            let _gone_meanwhile = server.kill();
            let _gone_meanwhile = server.wait();
        }
        if std::thread::panicking() {
            println!("nats-server said:\n{}", self.log());
        }
    }
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
