//! Control on a real bus: who may register, how rights end, what outlives kills and restarts (rules E7, F1).

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use async_nats::{Client, Event};
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use thermite_svc::control::server::openapi::document;
use tokio::sync::mpsc;

use super::desk::{Desk, Process};
use super::is_long;
use super::nats::{Credentials, RIG};
use crate::binary::{PATIENCE, until};
use crate::support::{Luck, block_on};

fn runners(names: &[&str]) -> Value {
    let list: Vec<Value> = names.iter().map(|name| json!({"name": name, "pools": ["judge"]})).collect();
    json!({"runners": list})
}

fn settings_path() -> String {
    format!("/v1/rigs/{RIG}/settings")
}

/// Connected, and told when it is cut.
async fn cut_of(desk: &Desk, by: &Credentials) -> (Client, mpsc::UnboundedReceiver<Instant>) {
    let (cut, cuts) = mpsc::unbounded_channel();
    let tell = move |event| {
        if matches!(event, Event::Disconnected) {
            let _nobody_listens = cut.send(Instant::now());
        }
        std::future::ready(())
    };
    let client = desk.nats.options(by).event_callback(tell).max_reconnects(1).connect(desk.nats.url()).await.unwrap();
    (client, cuts)
}

/// Whether the bus comes to let it in or no longer does, as it should.
async fn comes_to(desk: &Desk, by: &Credentials, let_in: bool) {
    let began = Instant::now();
    while desk.nats.let_in(by).await.is_some() != let_in {
        assert!(began.elapsed() < PATIENCE, "let in: {}, for {PATIENCE:?}", !let_in);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[test]
fn a_runner_that_is_removed_is_cut_and_stays_out_through_restarts_until_it_is_listed_again() {
    let mut desk = Desk::start();
    let rig = desk.make_rig();
    desk.ask("PUT", &settings_path(), &runners(&["box-2", "box-3"])).good(200);
    let (box_2, box_3) = (Process::runner("box-2"), Process::runner("box-3"));
    let (by, other) = (desk.admitted(&rig, &box_2), desk.admitted(&rig, &box_3));
    block_on(async {
        comes_to(&desk, &by, true).await;
        let (_runner, mut cuts) = cut_of(&desk, &by).await;
        let (_other, mut others) = cut_of(&desk, &other).await;

        let since = Instant::now();
        let removed = desk.ask("DELETE", &format!("/v1/rigs/{RIG}/runners/box-2"), &Value::Null).good(200);
        let cut = tokio::time::timeout(PATIENCE, cuts.recv()).await.unwrap().unwrap();

        println!("cut {:?} after the removal was asked", cut - since);
        assert_eq!(removed["rights_ended"], true, "{removed}");
        assert!(others.try_recv().is_err(), "another runner is cut, too");
        comes_to(&desk, &by, false).await;
    });
    assert!(desk.register(&rig, &box_2).problem(410, "removed").contains("list it again"));
    // Neither under its name with another key, nor under another name.
    desk.register(&rig, &Process::runner("box-2")).problem(410, "removed");
    let renamed = Process { name: Some("box-9"), ..box_2.again() };
    desk.register(&rig, &renamed).problem(410, "removed");
    let settings = desk.get(&settings_path());
    assert_eq!((settings["revision"].as_u64(), &settings["runners"][0]["name"]), (Some(2), &json!("box-3")));

    desk.nats.kill();
    desk.nats.start_again();
    desk.kill();
    desk.start_again();
    block_on(comes_to(&desk, &by, false));
    block_on(comes_to(&desk, &other, true));
    desk.register(&rig, &box_2).problem(410, "removed");
    // Done again it is the same.
    desk.ask("DELETE", &format!("/v1/rigs/{RIG}/runners/box-2"), &Value::Null).good(200);

    desk.ask("PUT", &settings_path(), &runners(&["box-2", "box-3"])).good(200);
    let again = desk.admitted(&rig, &box_2);
    block_on(comes_to(&desk, &again, true));
    block_on(comes_to(&desk, &by, false));
}

#[test]
fn a_newer_start_replaces_an_older_one_and_another_key_does_not() {
    let desk = Desk::start();
    let rig = desk.make_rig();
    let first = Process::runner("box-2");
    let by = desk.admitted(&rig, &first);
    block_on(async {
        comes_to(&desk, &by, true).await;
        let (_first, mut cuts) = cut_of(&desk, &by).await;

        let second = first.again();
        let newer = desk.admitted(&rig, &second);

        tokio::time::timeout(PATIENCE, cuts.recv()).await.expect("the older start is not cut").unwrap();
        comes_to(&desk, &newer, true).await;
        // The older one asks for its rights again, as it does once it is cut.
        assert!(desk.register(&rig, &first).problem(409, "replaced").contains("a newer start of runner box-2"));
        desk.register(&rig, &second).good(200);
        comes_to(&desk, &newer, true).await;
    });
    let taken = desk.register(&rig, &Process::runner("box-2")).problem(409, "name-taken");
    assert!(taken.contains("runner box-2") && taken.contains("runner remove"), "{taken}");
    let renamed = Process { name: Some("box-3"), ..first.again() };
    assert!(desk.register(&rig, &renamed).problem(409, "key-taken").contains("runner box-2"));
}

#[test]
fn a_core_that_is_removed_while_it_lives_stays_out_and_another_takes_its_place() {
    let mut desk = Desk::start();
    let rig = desk.make_rig();
    let (core, other) = (Process::core(), Process::core());
    let by = desk.admitted(&rig, &core);
    let taken = desk.register(&rig, &other).problem(409, "name-taken");
    let registered = format!("whose key {} was registered at 20", core.key.public_key());
    for says in [registered.as_str(), " UTC", &format!("`thermite control rig remove-core {RIG}`")] {
        assert!(taken.contains(says), "{says}: {taken}");
    }

    desk.ask("DELETE", &format!("/v1/rigs/{RIG}/core"), &Value::Null).good(200);

    block_on(comes_to(&desk, &by, false));
    // It asks at once when it is cut, and when it is started again: neither gives it its place back.
    let barred = desk.register(&rig, &core).problem(410, "removed");
    assert!(barred.contains("bus-seed"), "{barred}");
    desk.register(&rig, &core.again()).problem(410, "removed");
    desk.register(&rig, &Process { name: Some("box-2"), ..core.again() }).problem(410, "removed");
    let by = desk.admitted(&rig, &other);
    block_on(comes_to(&desk, &by, true));
    desk.kill();
    desk.start_again();
    desk.register(&rig, &core.again()).problem(410, "removed");
    desk.register(&rig, &other).good(200);
}

#[test]
fn a_token_that_opens_nothing_is_told_what_it_was_and_who_makes_another() {
    let desk = Desk::start();
    let rig = desk.make_rig();
    let new = json!({"kind": "runner", "rig": RIG, "runner": "box-2"});
    let made = desk.ask("POST", "/v1/tokens", &new).good(201);
    let (runner, id) = (made["secret"].as_str().unwrap(), made["token"].as_str().unwrap());
    let box_2 = Process::runner("box-2");
    desk.register(runner, &box_2).good(200);

    assert_eq!(desk.say(&["token", "revoke", id]).code, Some(0));
    let revoked = desk.register(runner, &box_2).problem(401, "wrong-token");
    desk.ask("DELETE", &format!("/v1/rigs/{RIG}"), &Value::Null).good(200);
    let removed = desk.register(&rig, &box_2).problem(401, "wrong-token");
    let nobodys = format!("th_own_{}", "0".repeat(64));
    let owners = desk.ask_as(&nobodys, "GET", "/v1/rigs", &Value::Null).problem(401, "wrong-token");
    let lanes = format!("th_lane_{}", "0".repeat(64));
    let lanes = desk.ask_as(&lanes, "GET", "/v1/rigs", &Value::Null).problem(401, "wrong-token");
    let misspelt = desk.say(&["token", "revoke", "nope"]);

    assert!(revoked.contains("runner's token") && revoked.contains("token new --rig RIG --runner RUNNER"), "{revoked}");
    assert!(removed.contains("rig's token") && removed.contains("`thermite control token new --rig RIG`"), "{removed}");
    assert!(owners.contains("owner's token") && owners.contains("owner-token"), "{owners}");
    assert!(lanes.contains("no token of control's"), "{lanes}");
    for told in [revoked, removed] {
        assert!(!told.contains("owner-token"), "{told}");
    }
    assert_eq!(misspelt.code, Some(64));
    assert!(misspelt.err.contains("`thermite control token list`"), "{misspelt:?}");
}

#[test]
fn a_token_opens_what_it_is_for_until_it_ends() {
    let desk = Desk::start();
    let rig = desk.make_rig();
    desk.ask("POST", "/v1/rigs", &json!({"name": "other"})).good(201);
    let made = |body: Value| desk.ask("POST", "/v1/tokens", &body).good(201);
    let secret = |made: &Value| made["secret"].as_str().unwrap().to_owned();
    let foreign = secret(&made(json!({"kind": "rig", "rig": "other"})));
    let own = made(json!({"kind": "runner", "rig": RIG, "runner": "box-2", "note": "from the cluster"}));
    let short = secret(&made(json!({"kind": "rig", "rig": RIG, "valid_s": 1})));
    let runners_own = secret(&own);
    let box_2 = Process::runner("box-2");

    desk.register(&runners_own, &box_2).good(200);
    for process in [Process::runner("box-3"), Process::core()] {
        desk.register(&runners_own, &process).problem(403, "not-for-this-token");
    }
    assert!(desk.register(&foreign, &box_2).problem(403, "not-for-this-token").contains("rig other's"));
    for (token, method, path) in [
        (&rig, "GET", "/v1/rigs".to_owned()),
        (&rig, "POST", "/v1/rigs".to_owned()),
        (&rig, "PUT", settings_path()),
        (&rig, "DELETE", format!("/v1/rigs/{RIG}/runners/box-2")),
        (&rig, "GET", "/v1/tokens".to_owned()),
        (&foreign, "GET", format!("/v1/rigs/{RIG}")),
        (&runners_own, "GET", format!("/v1/rigs/{RIG}")),
    ] {
        desk.ask_as(token, method, &path, &Value::Null).problem(403, "not-for-this-token");
    }
    desk.ask_as(&rig, "GET", &format!("/v1/rigs/{RIG}/runners"), &Value::Null).good(200);
    let nobodys = format!("th_rig_{}", "0".repeat(64));
    for wrong in ["", "x", &nobodys, &nobodys[..20]] {
        desk.register(wrong, &box_2).problem(401, "wrong-token");
    }
    until("the token expires", || desk.register(&short, &box_2.again()).status == 401);
    desk.register(&short, &box_2).problem(401, "expired-token");
    let id = own["token"].as_str().unwrap();
    assert_eq!(desk.ask("DELETE", &format!("/v1/tokens/{id}"), &Value::Null).status, 204);
    desk.register(&runners_own, &box_2).problem(401, "wrong-token");
    desk.ask("DELETE", &format!("/v1/tokens/{id}"), &Value::Null).problem(404, "unknown-token");
    let files = desk.get("/v1/tokens").as_array().unwrap().iter().find(|row| row["from_file"] == true).cloned();
    let files = files.unwrap()["token"].as_str().unwrap().to_owned();
    desk.ask("DELETE", &format!("/v1/tokens/{files}"), &Value::Null).problem(409, "token-of-the-file");
    // Nothing that control keeps or logs has a token in it, but for the owner's own file.
    let tokens = [rig, foreign, runners_own, short, desk.owner()];
    for entry in
        std::fs::read_dir(desk.path("data")).unwrap().flatten().filter(|entry| entry.file_name() != "owner-token")
    {
        let bytes = std::fs::read(entry.path()).unwrap();
        for token in &tokens {
            let found = bytes.windows(token.len()).any(|part| part == token.as_bytes());
            assert!(!found, "{} has a token in it", entry.path().display());
        }
    }
    assert!(tokens.iter().all(|token| !desk.log().contains(token)));
}

#[test]
fn what_cannot_be_is_refused_with_the_reason() {
    let desk = Desk::start();
    desk.make_rig();
    let path = settings_path();
    for (name, status) in [("x", 400), ("Lab", 400), ("a.b", 400), ("a b", 400), (">", 400), (RIG, 409)] {
        assert_eq!(desk.ask("POST", "/v1/rigs", &json!({"name": name})).status, status, "{name}");
    }
    for (settings, says) in [
        (json!({"runners": [{"name": "b", "pools": ["judge"]}]}), "no runner's name"),
        (json!({"runners": [{"name": "box-2", "pools": []}]}), "has no pool"),
        (json!({"runners": [{"name": "box-2", "pools": ["lane-17"]}]}), "no pool \"lane-17\""),
        (runners(&["box-2", "box-2"]), "named twice"),
        (json!({"workers": 17}), "it must be 1 to 16"),
        (json!({"workers": 0}), "it must be 1 to 16"),
    ] {
        let told = desk.ask("PUT", &path, &settings);
        assert_eq!(told.status, 422, "{told:?}");
        assert!(told.body["detail"].as_str().unwrap().contains(says), "{told:?}");
    }
    desk.ask("PUT", &path, &json!({"runner": []})).problem(400, "bad-request");
    let first = desk.ask("POST", &path, &runners(&["box-2"]));
    assert_eq!((first.status, first.etag.as_deref()), (200, Some("\"1\"")), "{first:?}");
    let moved = desk.try_ask(&desk.owner(), "PUT", &path, &[("if-match", "\"0\"")], &runners(&[])).unwrap();
    assert!(moved.problem(412, "settings-moved").contains("revision 1, not 0"));
    let known = desk.try_ask(&desk.owner(), "GET", &path, &[("if-none-match", "\"1\"")], &Value::Null).unwrap();
    assert_eq!(known.status, 304);

    let new = json!({"name": "box-3", "pools": ["judge"]});
    let no_cluster = desk.ask("POST", &format!("/v1/rigs/{RIG}/runners"), &new).problem(409, "no-cluster");
    assert!(no_cluster.contains("list it in the rig's settings"), "{no_cluster}");
    desk.ask("DELETE", &format!("/v1/rigs/{RIG}/runners/box-7"), &Value::Null).problem(404, "unknown-runner");
    desk.ask("DELETE", &format!("/v1/rigs/{RIG}/runners/Box"), &Value::Null).problem(400, "bad-request");
    desk.ask("GET", "/v1/rigs/nobody", &Value::Null).problem(404, "unknown-rig");
    desk.ask("GET", "/v1/rigs/nobody/history", &Value::Null).problem(404, "unknown-rig");
    desk.ask("POST", "/v1/tokens", &json!({"kind": "rig", "rig": "nobody"})).problem(404, "unknown-rig");
    desk.ask("GET", "/v1/nothing", &Value::Null).problem(404, "not-found");
    for key in ["", "UABC", "../../etc/passwd", &nkeys::KeyPair::new_account().public_key()] {
        let body = json!({"runner": "box-2", "public_key": key, "boot": uuid::Uuid::now_v7()});
        desk.ask("POST", &format!("/v1/rigs/{RIG}/bus/register"), &body).problem(400, "bad-request");
    }
}

#[test]
fn a_rig_that_is_removed_takes_its_runners_along_and_its_name_may_be_given_again() {
    let desk = Desk::start();
    let rig = desk.make_rig();
    let by = desk.admitted(&rig, &Process::runner("box-2"));
    block_on(comes_to(&desk, &by, true));

    let removed = desk.ask("DELETE", &format!("/v1/rigs/{RIG}"), &Value::Null).good(200);

    assert_eq!((removed["rights_ended"].as_bool(), removed["tokens_ended"].as_u64()), (Some(true), Some(1)));
    block_on(comes_to(&desk, &by, false));
    desk.register(&rig, &Process::runner("box-2")).problem(401, "wrong-token");
    desk.ask("GET", &format!("/v1/rigs/{RIG}"), &Value::Null).problem(404, "unknown-rig");
    let steps = desk.get(&format!("/v1/rigs/{RIG}/history"));
    assert_eq!(steps.as_array().unwrap().last().unwrap()["step"], "rig_removed", "{steps}");
    let rig = desk.make_rig();
    let fresh = desk.admitted(&rig, &Process::runner("box-2"));
    block_on(comes_to(&desk, &fresh, true));
    block_on(comes_to(&desk, &by, false));
}

#[test]
fn a_bus_that_was_away_or_lost_its_accounts_is_told_as_soon_as_it_is_back() {
    let mut desk = Desk::start();
    let rig = desk.make_rig();
    let (by, other) = (desk.admitted(&rig, &Process::runner("box-2")), desk.admitted(&rig, &Process::core()));
    block_on(comes_to(&desk, &by, true));
    desk.nats.kill();

    let removed = desk.ask("DELETE", &format!("/v1/rigs/{RIG}/runners/box-2"), &Value::Null).good(200);

    assert_eq!(removed["rights_ended"], false, "{removed}");
    desk.nats.forget_accounts();
    desk.nats.start_again();
    block_on(comes_to(&desk, &other, true));
    block_on(comes_to(&desk, &by, false));
}

#[test]
fn settings_reach_a_core_that_is_there_at_once_and_one_that_comes_later_through_a_kill_of_control() {
    let mut desk = Desk::start();
    let rig = desk.make_rig();
    let by = desk.admitted(&rig, &Process::core());
    let report =
        |taken: u64| serde_json::to_vec(&json!({"version": 1, "taken": taken, "rig": {"jobs_live": 3}})).unwrap();
    block_on(async {
        comes_to(&desk, &by, true).await;
        let core = desk.nats.connect(&by).await;
        let mut given = core.subscribe(format!("rig.{RIG}.settings")).await.unwrap();
        reported(&core, report(0), "is heard", || desk.get(&format!("/v1/rigs/{RIG}"))["report"]["jobs_live"] == 3)
            .await;

        desk.ask("PUT", &settings_path(), &runners(&["box-2"])).good(200);
        let first = next(&mut given).await;
        assert_eq!((first["revision"].as_u64(), &first["settings"]["runners"][0]["name"]), (Some(1), &json!("box-2")));
        reported(&core, report(1), "is taken", || desk.get(&settings_path())["taken"] == 1).await;
        // What is no report, or of another version, is passed over.
        for bytes in ["", "null", "{\"version\": 9}", "\u{0}\u{1}"] {
            core.publish(format!("rig.{RIG}.report"), bytes.into()).await.unwrap();
        }
        core.publish(format!("rig.{RIG}.report"), vec![b'x'; 600 * 1024].into()).await.unwrap();
        core.flush().await.unwrap();
    });
    // The core is gone; what is set now waits for it.
    desk.ask("PUT", &settings_path(), &runners(&["box-2", "box-3"])).good(200);
    desk.kill();
    desk.start_again();
    block_on(async {
        let core = desk.nats.connect(&by).await;
        let mut given = core.subscribe(format!("rig.{RIG}.settings")).await.unwrap();
        let since = Instant::now();
        let later = loop {
            // As a core does: it reports every few seconds.
            core.publish(format!("rig.{RIG}.report"), report(1).into()).await.unwrap();
            if let Ok(given) = tokio::time::timeout(Duration::from_secs(1), next(&mut given)).await {
                break given;
            }
            assert!(since.elapsed() < PATIENCE, "the settings do not come");
        };
        println!("given {:?} after the first report", since.elapsed());
        assert_eq!((later["revision"].as_u64(), later["settings"]["runners"].as_array().unwrap().len()), (Some(2), 2));
        let refused = json!({"version": 1, "taken": 1, "refused": [2, "box-3 is too many"], "rig": {}});
        let kept = || desk.get(&format!("/v1/rigs/{RIG}/history")).to_string().contains("too many");
        reported(&core, serde_json::to_vec(&refused).unwrap(), "is kept as refused", kept).await;
    });
}

#[test]
fn a_rig_that_has_what_control_set_last_and_says_otherwise_was_set_itself() {
    let desk = Desk::start();
    let rig = desk.make_rig();
    let by = desk.admitted(&rig, &Process::core());
    desk.ask("PUT", &settings_path(), &json!({"runners": [{"name": "box-2", "pools": ["judge"]}], "workers": 3}))
        .good(200);
    let report = |taken: u64, names: &[&str]| {
        let has = runners(names);
        serde_json::to_vec(&json!({"version": 1, "taken": taken, "has": has, "rig": {}})).unwrap()
    };
    let settings = || desk.get(&settings_path());
    block_on(async {
        comes_to(&desk, &by, true).await;
        let core = desk.nats.connect(&by).await;
        let mut given = core.subscribe(format!("rig.{RIG}.settings")).await.unwrap();

        // One that has not taken them yet says nothing against them.
        reported(&core, report(0, &["box-9"]), "is answered with them", || {
            desk.get(&format!("/v1/rigs/{RIG}"))["reported_ago_ms"].is_u64()
        })
        .await;
        let first = next(&mut given).await;
        let before = settings();
        reported(&core, report(1, &["box-2"]), "of the same", || settings()["taken"] == 1).await;
        let same = settings();
        reported(&core, report(1, &["box-3", "box-2"]), "is taken over", || settings()["revision"] == 2).await;
        let after = settings();
        let second = loop {
            let given = next(&mut given).await;
            if given["revision"] == 2 {
                break given;
            }
        };
        // A runner that was removed stays so, whatever the rig lists.
        desk.ask("DELETE", &format!("/v1/rigs/{RIG}/runners/box-3"), &Value::Null).good(200);
        reported(&core, report(3, &["box-3"]), "is taken over", || settings()["revision"] == 4).await;

        assert_eq!((&first["from_rig"], &before["runners"][0]["name"]), (&json!(false), &json!("box-2")));
        assert_eq!((&same["revision"], &same["from_rig"]), (&json!(1), &json!(false)));
        assert_eq!((&after["runners"], &after["workers"]), (&runners(&["box-3", "box-2"])["runners"], &json!(3)));
        assert_eq!((&after["from_rig"], &second["from_rig"]), (&json!(true), &json!(true)));
    });
    let box_3 = Process::runner("box-3");
    desk.register(&rig, &box_3).problem(410, "removed");
}

#[test]
fn a_kill_of_control_at_any_moment_loses_nothing_that_it_answered() {
    let mut luck = Luck::seeded(5_007);
    let mut desk = Desk::start();
    let rig = desk.make_rig();
    let times = if is_long() { 20 } else { 2 };
    let mut answered: BTreeSet<u64> = BTreeSet::new();
    let mut barred: BTreeSet<String> = BTreeSet::new();
    for round in 0..times {
        let wait = Duration::from_millis(luck.below(400));
        let count = AtomicUsize::new(0);
        let (told, asked) = std::thread::scope(|scope| {
            let (desk, rig, count) = (&desk, &rig, &count);
            let asking = scope.spawn(move || {
                let (mut told, mut asked) = (Vec::new(), Vec::new());
                for number in 0.. {
                    let name = format!("box-{round}-{number}");
                    let owner = desk.owner();
                    let Ok(set) = desk.try_ask(&owner, "PUT", &settings_path(), &[], &runners(&[&name])) else { break };
                    told.push(set.good(200)["revision"].as_u64().unwrap());
                    count.fetch_add(1, Ordering::Relaxed);
                    let key = nkeys::KeyPair::new_user().public_key();
                    let body = json!({"runner": name, "public_key": key, "boot": uuid::Uuid::now_v7()});
                    let path = format!("/v1/rigs/{RIG}/bus/register");
                    let Ok(registered) = desk.try_ask(rig, "POST", &path, &[], &body) else { break };
                    registered.good(200);
                    let path = format!("/v1/rigs/{RIG}/runners/{name}");
                    let Ok(removed) = desk.try_ask(&owner, "DELETE", &path, &[], &Value::Null) else { break };
                    removed.good(200);
                    asked.push(name);
                }
                (told, asked)
            });
            until("control answers", || count.load(Ordering::Relaxed) > 0);
            std::thread::sleep(wait);
            desk.kill_from_elsewhere();
            asking.join().unwrap()
        });
        answered.extend(told);
        barred.extend(asked);
        desk.kill();
        desk.start_again();
    }
    println!("{times} kills, {} settings answered, {} runners removed", answered.len(), barred.len());
    let mut revisions = BTreeSet::new();
    let mut after = 0;
    loop {
        let page = desk.get(&format!("/v1/rigs/{RIG}/history?after={after}"));
        let Some(last) = page.as_array().unwrap().last() else { break };
        after = last["seq"].as_u64().unwrap();
        let steps = page.as_array().unwrap().iter();
        revisions
            .extend(steps.filter(|step| step["step"] == "settings_set").map(|step| step["revision"].as_u64().unwrap()));
    }
    assert!(!answered.is_empty(), "nothing was answered before a kill");
    assert!(answered.is_subset(&revisions), "{answered:?} {revisions:?}");
    let newest = desk.get(&settings_path())["revision"].as_u64().unwrap();
    assert_eq!(revisions, (1..=newest).collect(), "revisions without a gap");
    let known = desk.get(&format!("/v1/rigs/{RIG}/runners"));
    for name in barred {
        let row = known.as_array().unwrap().iter().find(|row| row["runner"] == *name);
        assert!(row.is_some_and(|row| row["barred"] == true), "{name} is not barred: {row:?}");
    }
    desk.register(&rig, &Process::runner("box-1")).good(200);
}

#[test]
fn people_keep_rigs_from_the_command_line() {
    let desk = Desk::start();
    let added = desk.say(&["rig", "add", RIG]);
    assert_eq!(added.code, Some(0), "{added:?}");
    let rig = added.out.trim().to_owned();
    assert!(rig.starts_with("th_rig_") && added.err.contains("only time it is shown"), "{added:?}");
    assert!(desk.say(&["rig", "add", RIG]).refused_with(69).contains("exists already"));
    desk.register(&rig, &Process::runner("box-2")).good(200);

    let set =
        desk.say(&["settings", RIG, "--runner", "box-1=judge", "--runner", "box-2=lane-1,lane-2", "--workers", "3"]);
    assert_eq!((set.code, set.err.as_str()), (Some(0), ""), "{set:?}");
    assert_eq!(
        set.out,
        "revision 1; the rig has revision 0\nbox-1: judge\nbox-2: lane-1, lane-2\nworkers at a time: 3\n"
    );
    let listed = desk.say(&["runners", RIG]);
    let lines: Vec<&str> = listed.out.lines().collect();
    assert_eq!(lines[0], "box-1: judge; has not registered");
    assert!(lines[1].starts_with("box-2: lane-1, lane-2; registered "), "{listed:?}");
    assert_eq!(desk.say(&["runner", "remove", RIG, "box-2"]).out, format!("runner box-2 of rig {RIG} is removed\n"));
    let rigs = desk.say(&["rig", "list", "--json"]);
    assert_eq!(serde_json::from_str::<Value>(&rigs.out).unwrap()["rigs"][0]["revision"], 2, "{rigs:?}");
    let history = desk.say(&["history", RIG]);
    for step in ["the rig was made", "runner box-2 registered", "revision 1, with 2 runner", "runner box-2 was removed"]
    {
        assert!(history.out.contains(step), "{step}: {history:?}");
    }
    let key = desk.path("bus.key").display().to_string();
    let config = desk.say(&["bus-config", "--accounts", "/var/lib/nats", "--cert", "/etc/bus.pem", "--key", &key]);
    assert!(config.out.contains("operator: ey") && config.out.contains("type: full"), "{config:?}");
    let seeds = std::fs::read_to_string(desk.path("data/operator-seeds")).unwrap();
    assert!(seeds.lines().all(|seed| !config.out.contains(seed)), "a seed is in the bus's configuration");
    assert!(desk.say(&["settings", "nobody"]).refused_with(69).contains("rig nobody does not exist"));
    assert_eq!(desk.say(&["settings", RIG, "--runner", "box-2"]).code, Some(64));
}

#[test]
fn the_committed_description_of_control_is_the_one_that_is_served() {
    let committed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi-control.json");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&committed, document()).unwrap();
    }
    let text = std::fs::read_to_string(&committed).unwrap_or_default();
    assert!(
        text == document(),
        "docs/openapi-control.json is not what control serves; UPDATE_DOCS=1 cargo test -p thermite-tests-service description_of_control"
    );
    let described: Value = serde_json::from_str(&text).unwrap();
    let desk = Desk::start();
    assert_eq!(desk.ask("GET", "/openapi.json", &Value::Null).good(200), described);
    for (path, methods) in described["paths"].as_object().unwrap() {
        let real = path.replace("{rig}", "nobody").replace("{runner}", "box-2").replace("{token}", "own-00000000");
        let methods: BTreeSet<String> = methods.as_object().unwrap().keys().map(|name| name.to_uppercase()).collect();
        for method in ["GET", "PUT", "POST", "DELETE"] {
            let told = desk.ask(method, &real, &Value::Null);
            assert_eq!(told.status != 405, methods.contains(method), "{method} {path}: {told:?}");
        }
    }
}

/// Reports as a core does, again and again, until something is so.
async fn reported(core: &Client, report: Vec<u8>, what: &str, so: impl Fn() -> bool) {
    let began = Instant::now();
    while !so() {
        assert!(began.elapsed() < PATIENCE, "not within {PATIENCE:?}: a report {what}");
        core.publish(format!("rig.{RIG}.report"), report.clone().into()).await.unwrap();
        core.flush().await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn next(given: &mut async_nats::Subscriber) -> Value {
    let message = tokio::time::timeout(PATIENCE, given.next()).await.unwrap().unwrap();
    serde_json::from_slice(&message.payload).unwrap()
}
