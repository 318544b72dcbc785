//! A rig's life as a process: it ends by the rules at a signal, at once at the second, and kill -9 loses nothing that
//! was answered.

use std::path::Path;

use rustix::process::Signal;
use serde_json::json;
use thermite_svc::folder::{DataFolder, ENDPOINT, Endpoint};
use thermite_svc::records::RecordsReader;
use thermite_svc::serve::serve;

use crate::scripted::{Served, Serving, assemble, settings_of};
use crate::support::{Again, Luck};

#[test]
fn a_signal_ends_the_rig_by_the_rules_with_exit_code_0() {
    const CHILD: &str = "THERMITE_TEST_SERVES_TO_THE_END";
    if let Some(folder) = std::env::var_os(CHILD) {
        return serve_until_told(Path::new(&folder));
    }
    for signal in [Signal::TERM, Signal::INT] {
        let place = tempfile::tempdir().unwrap();
        let (mut child, rig) = served("life::a_signal_ends_the_rig_by_the_rules_with_exit_code_0", CHILD, place.path());
        let run = rig.run();
        let (dev_run, _) = rig.ask(&run, 1, false);
        // A reader that stays and a connection that idles do not hold up the end.
        let _events = rig.open("GET", "/v1/events", &[("authorization", &format!("Bearer {}", rig.token))], b"");
        let _idle = std::net::TcpStream::connect(rig.address).unwrap();

        child.signal(signal);

        assert_eq!(child.exit_code(), Some(0));
        assert_eq!(Endpoint::read(place.path()).unwrap(), None);
        let told = RecordsReader::open(place.path()).unwrap().about(&dev_run.0).unwrap();
        let last = serde_json::to_value(&told.last().unwrap().entry).unwrap();
        assert_eq!(last["entry"], "dev_run_ended", "{last}");
        DataFolder::take(place.path()).unwrap();
    }
}

#[test]
fn a_second_signal_ends_the_process_at_once() {
    const CHILD: &str = "THERMITE_TEST_SERVES_STUBBORNLY";
    if let Some(folder) = std::env::var_os(CHILD) {
        return serve_until_told(Path::new(&folder));
    }
    let place = tempfile::tempdir().unwrap();
    let (mut child, rig) = served("life::a_second_signal_ends_the_process_at_once", CHILD, place.path());
    let run = rig.run();
    let body = json!({"argv": ["cannot-be-stopped"]});
    let dev_run = rig.post(&format!("{run}/lanes/1/dev-runs"), &body).headers["location"].clone();
    while rig.get(&dev_run).json()["status"]["status"] != "running" {}

    child.signal(Signal::TERM);
    while place.path().join(ENDPOINT).exists() {
        std::thread::yield_now();
    }
    child.signal(Signal::TERM);

    assert_eq!(child.exit_code(), Some(130));
}

#[test]
fn every_job_that_was_answered_is_there_in_place_after_kill_nine() {
    const CHILD: &str = "THERMITE_TEST_SERVES_TILL_KILLED";
    if let Some(folder) = std::env::var_os(CHILD) {
        return serve_until_told(Path::new(&folder));
    }
    let mut luck = Luck::seeded(0x10b5);
    for _ in 0..4 {
        let place = tempfile::tempdir().unwrap();
        let (child, rig) =
            served("life::every_job_that_was_answered_is_there_in_place_after_kill_nine", CHILD, place.path());
        let run = rig.run();
        rig.post(&format!("{run}/pause"), &json!({}));
        let answered: Vec<_> = (0..1 + luck.below(60))
            .map(|n| rig.post(&format!("{run}/jobs"), &json!({"change": format!("same-{n}")})).json()["job"].clone())
            .collect();

        child.kill();
        let rig = Served::start(place.path());

        let jobs = rig.get(&format!("{run}/jobs")).json();
        let found: Vec<_> = jobs.as_array().unwrap().iter().map(|job| job["job"].clone()).collect();
        assert_eq!(found, answered);
        assert_eq!(rig.get(&run).json()["state"], "paused");
    }
}

fn served(test: &str, variable: &str, folder: &Path) -> (Again, Serving) {
    let mut child = Again::start(test, variable, folder.as_os_str());
    child.next("listening ").expect("the child serves");
    (child, Serving::of(folder))
}

fn serve_until_told(folder: &Path) {
    let assemble = |ground| std::future::ready(Ok(assemble(ground)));
    actix_web::rt::System::new()
        .block_on(serve(settings_of(folder), assemble, |service| println!("listening {}", service.endpoint().url)))
        .unwrap();
}
