//! The data folder, the settings and the start: one folder, one rig; nobody else reads it; faults name the way out.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use thermite_svc::folder::{DataFolder, ENDPOINT, Endpoint, FolderFault, LOCK, OWNER_TOKEN};
use thermite_svc::records::{FILE, SqliteRecords};
use thermite_svc::serve::{ServeFault, Service};
use thermite_svc::settings::{Given, Settings, rig_url};
use thermite_svc::tokens::Tokens;

use crate::scripted::{Served, settings_of};
use crate::support::Again;

#[test]
fn a_folder_has_one_rig_and_the_second_is_told_whose_it_is() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("data");
    let first = DataFolder::take(&path).unwrap();

    let fault = DataFolder::take(&path).unwrap_err();

    let shown = first.path().display();
    assert_eq!(
        fault.to_string(),
        format!(
            "data folder {shown} is in use by process {} (lock {shown}/lock); end that rig, or name another folder",
            std::process::id()
        )
    );
    drop(first);
    DataFolder::take(&path).unwrap();
}

#[test]
fn a_rig_that_was_killed_leaves_its_folder_free() {
    const CHILD: &str = "THERMITE_TEST_TAKES";
    if let Some(path) = std::env::var_os(CHILD) {
        let folder = DataFolder::take(Path::new(&path)).unwrap();
        folder.tell_endpoint("127.0.0.1:1".parse().unwrap()).unwrap();
        println!("taken ");
        std::thread::park();
        unreachable!("killed while it has the folder");
    }
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("data");
    let mut child = Again::start("folder::a_rig_that_was_killed_leaves_its_folder_free", CHILD, path.as_os_str());
    child.next("taken ").expect("the child takes the folder");
    assert!(matches!(DataFolder::take(&path), Err(FolderFault::InUse { .. })));
    assert!(Endpoint::read(&path).unwrap().is_some());
    child.kill();

    DataFolder::take(&path).unwrap();

    assert_eq!(Endpoint::read(&path).unwrap(), None, "the killed rig's address is still told");
}

#[test]
fn everything_in_the_folder_is_the_owners_alone() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("data");
    let rig = Served::start(&path);

    let mode = |path: PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;

    assert_eq!(mode(path.clone()), 0o700);
    for name in [LOCK, ENDPOINT, OWNER_TOKEN, FILE] {
        assert_eq!(mode(path.join(name)), 0o600, "{name}");
    }
    let endpoint = Endpoint::read(&path).unwrap().unwrap();
    assert_eq!((endpoint.address, endpoint.pid), (rig.address, std::process::id()));
    rig.end();
    assert_eq!(Endpoint::read(&path).unwrap(), None);
}

#[test]
fn a_folder_with_other_things_in_it_is_left_alone() {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("thesis.tex"), "").unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();

    let fault = DataFolder::take(place.path()).unwrap_err();

    assert!(fault.to_string().ends_with("is not empty and holds no rig; name a new or empty folder"), "{fault}");
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
    assert_eq!(fs::metadata(place.path()).unwrap().permissions().mode() & 0o777, 0o755);
}

#[test]
fn the_owners_token_is_made_once_and_only_its_hash_is_in_the_database() {
    let place = tempfile::tempdir().unwrap();
    let folder = DataFolder::take(&place.path().join("data")).unwrap();
    drop(SqliteRecords::open(folder.path()).unwrap());

    let first = Tokens::open(&folder).unwrap();
    let second = Tokens::open(&folder).unwrap();

    let token = fs::read_to_string(folder.path().join(OWNER_TOKEN)).unwrap();
    let token = token.trim();
    // A use of a token is noted by a task.
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let _inside = runtime.enter();
    assert!(first.made() && !second.made());
    assert_eq!(first.owner(), second.owner());
    assert_eq!(second.check(token).map(|access| access.token).as_ref(), Ok(second.owner()));
    assert!(second.check(&token[..token.len() - 1]).is_err());
    assert!(second.check("").is_err());
    assert!(token.starts_with("th_own_") && token.len() == 71, "{}", token.len());
    assert!(!second.owner().to_string().contains(&token[7..]));
    let database = fs::read(folder.path().join(FILE)).unwrap();
    assert!(!database.windows(64).any(|part| part == &token.as_bytes()[7..]), "the token is in the database");
}

#[test]
fn a_token_that_was_removed_opens_nothing_after_the_next_start() {
    let place = tempfile::tempdir().unwrap();
    let rig = Served::start(place.path());
    let old = rig.token.clone();
    rig.end();
    fs::remove_file(place.path().join(OWNER_TOKEN)).unwrap();

    let rig = Served::start(place.path());

    let bearer = format!("Bearer {old}");
    rig.send_bare("GET", "/v1/rig", &[("authorization", &bearer)], b"").problem(401, "wrong-token");
    assert_eq!(rig.get("/v1/rig").status, 200);
}

#[test]
fn a_token_file_with_something_else_in_it_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let folder = DataFolder::take(&place.path().join("data")).unwrap();
    drop(SqliteRecords::open(folder.path()).unwrap());
    fs::write(folder.path().join(OWNER_TOKEN), "secret\n").unwrap();

    let fault = Tokens::open(&folder).err().unwrap().to_string();

    assert!(fault.contains("does not hold an owner's token") && !fault.contains("secret"), "{fault}");
}

#[test]
fn a_port_in_use_is_said_with_the_way_out_and_the_folder_is_given_back() {
    let place = tempfile::tempdir().unwrap();
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap();
    let mut settings = settings_of(place.path());
    settings.listen = address;

    let fault = actix_web::rt::System::new()
        .block_on(Service::start(settings, |_| std::future::ready(Err("not reached".to_owned()))))
        .err()
        .unwrap();

    assert!(matches!(fault, ServeFault::AddressInUse { .. }));
    assert_eq!(
        fault.to_string(),
        format!(
            "{address} is in use by another program; end it, or give another address with --listen (127.0.0.1:0 takes \
             any free port)"
        )
    );
    assert_eq!(fault.exit_code(), 75);
    DataFolder::take(place.path()).unwrap();
}

#[test]
fn settings_come_from_flags_then_the_environment_then_defaults() {
    let given = Given { folder: Some("/flag".into()), ..Given::default() };
    let environment = |name: &str| match name {
        "THERMITE_DATA" => Some("/environment".to_owned()),
        "THERMITE_LISTEN" => Some("127.0.0.1:9".to_owned()),
        "THERMITE_DEV_RUN_WAIT" => Some("30".to_owned()),
        "THERMITE_LANES" => Some(String::new()),
        _ => None,
    };

    let settings = Settings::read(given, environment).unwrap();

    assert_eq!(settings.folder, PathBuf::from("/flag"));
    assert_eq!(settings.listen.to_string(), "127.0.0.1:9");
    assert_eq!(settings.rig.dev_run_wait.as_millis(), 30_000);
    assert_eq!(settings.rig.lanes_most, 16);
    let home = |name: &str| (name == "HOME").then(|| "/home/ada".to_owned());
    let defaults = Settings::read(Given::default(), home).unwrap();
    assert_eq!(defaults.folder, PathBuf::from("/home/ada/.local/share/thermite"));
    assert_eq!(defaults.listen.to_string(), "127.0.0.1:7077");
    let xdg = |name: &str| (name == "XDG_DATA_HOME").then(|| "/data".to_owned());
    assert_eq!(Settings::read(Given::default(), xdg).unwrap().folder, PathBuf::from("/data/thermite"));
}

#[test]
fn a_setting_that_cannot_be_is_named_with_its_value_and_what_it_must_be() {
    let said = |name: &'static str, value: &'static str| {
        let environment = move |asked: &str| match asked {
            "HOME" => Some("/home/ada".to_owned()),
            asked if asked == name => Some(value.to_owned()),
            _ => None,
        };
        Settings::read(Given::default(), environment).unwrap_err().to_string()
    };

    assert_eq!(said("THERMITE_LANES", "17"), "THERMITE_LANES is 17; it must be a whole number from 1 to 16");
    assert_eq!(
        said("THERMITE_LISTEN", "localhost"),
        "THERMITE_LISTEN (--listen) is localhost; it must be an address and a port, such as 127.0.0.1:7077"
    );
    assert!(said("THERMITE_LISTEN", "0.0.0.0:7077").contains("a loopback address"));
    assert!(said("THERMITE_LISTEN_OPEN", "maybe").ends_with("it must be yes or no"));
    assert!(said("THERMITE_DEVICE_LOCKS", "locks").ends_with("an absolute path, such as /run/lock"));
    assert!(said("THERMITE_DEV_RUN_WAIT", "0").ends_with("a whole number from 1 to 86400"));
    assert_eq!(
        said("THERMITE_PROC_ROOT", "/no/such/place"),
        "THERMITE_PROC_ROOT is /no/such/place; it must be an absolute path of a folder with a folder `proc` in it"
    );
    assert_eq!(
        said("THERMITE_CONTAINMENT", "docker"),
        "THERMITE_CONTAINMENT is docker; it must be best, namespaces, uid or children, each also with ,no-cgroup"
    );
    for wrong in ["verbose", "info,", "=debug", "thermite_svc=loud", "thermite svc=info"] {
        let sentence = said("THERMITE_LOG", wrong);
        assert!(sentence.starts_with(&format!("THERMITE_LOG is {wrong}; it must be one of off, error")), "{sentence}");
    }
    for right in ["debug", "WARN", "warn,thermite_actors::pool=trace", "off, thermite_svc=info"] {
        let environment = |asked: &str| match asked {
            "HOME" => Some("/home/ada".to_owned()),
            "THERMITE_LOG" => Some(right.to_owned()),
            _ => None,
        };
        assert_eq!(Settings::read(Given::default(), environment).unwrap().log, right);
    }
    for wrong in ["127.0.0.1:7077", "ftp://a", "http://", "http:///v1"] {
        let sentence = rig_url(wrong.to_owned()).unwrap_err().to_string();
        let must = "it must be the rig's address, such as http://127.0.0.1:7077";
        assert_eq!(sentence, format!("THERMITE_URL (--url) is {wrong}; {must}"));
    }
    for right in ["http://127.0.0.1:7077", "http://[::1]:7077", "https://rig.example/"] {
        assert_eq!(rig_url(right.to_owned()).as_deref(), Ok(right));
    }
    let nowhere = Settings::read(Given::default(), |_| None).unwrap_err().to_string();
    assert!(nowhere.starts_with("THERMITE_DATA (--data) is not set, nor is HOME"), "{nowhere}");
}

#[test]
fn two_rigs_never_have_one_device_whatever_folders_they_have() {
    let place = tempfile::tempdir().unwrap();
    let mut first = settings_of(&place.path().join("one"));
    first.device_locks = place.path().join("locks");
    let mut second = settings_of(&place.path().join("two"));
    second.device_locks = place.path().join("locks");
    let rig = Served::start_with(first);

    let fault = Served::fails(second.clone());

    let said = fault.to_string();
    assert!(said.starts_with("device scripted (scripted) is another rig's"), "{said}");
    assert!(said.contains(&format!("process {}", std::process::id())), "{said}");
    assert_eq!(fault.exit_code(), 75);
    rig.end();
    Served::start_with(second).end();
}
