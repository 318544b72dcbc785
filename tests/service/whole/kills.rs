//! `kill -9` of the rig at any moment, pruning and backups under way among them: nothing that was acknowledged is lost,
//! nothing is judged twice, and asking again with the same key is asking once (rules A1, A13, D7).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use thermite_core::ids::{Arrival, DevRunId, HoldId, JobId};
use thermite_core::job::{JobOutcome, StageKind};
use thermite_core::log::LogEntry;

use super::house::{House, LANES, Load, Who, everyone};
use super::is_long;
use crate::binary::until;
use crate::support::Luck;

#[test]
fn no_kill_loses_a_job_or_gives_a_verdict_twice() {
    let kills = if is_long() { 50 } else { 10 };
    let mut luck = Luck::seeded(0x0c0f_fee0);
    for who in if is_long() { everyone() } else { vec![Who::Me] } {
        kill_often(who, kills, &mut luck);
    }
}

/// Says to the lanes that it is over, also where the test stops half way.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn kill_often(who: Who, kills: u32, luck: &mut Luck) {
    let house = House::build(who, Load::Quiet, "10 min");
    // Over its budget all the time, so that it prunes through all of its lives.
    house.set("THERMITE_KEEP", "1MiB");
    house.set("THERMITE_KEEP_EVERY", "1");
    if !house.start() {
        return;
    }
    house.begin_run("kit.toml");
    // The device's noise is measured once, by the first job: a kill every second would let no measure come to its end.
    let mut changes = vec![house.faster("j0")];
    let mut asked = vec![(Kind::Faster, ask_once(&house, 0, &changes[0]))];
    house.judged(&asked[0].1);
    let over = AtomicBool::new(false);
    let mut moments: BTreeMap<&str, u32> = BTreeMap::new();
    let (lanes, backups) = std::thread::scope(|scope| {
        let is_over = Over(&over);
        let run = house.run();
        let lanes: Vec<_> = (1..=LANES)
            .map(|lane| {
                let (house, over, path) = (&house, &over, format!("{run}/lanes/{lane}/dev-runs"));
                scope.spawn(move || lane_goes_on(house, &path, over))
            })
            .collect();
        let backups = scope.spawn({
            let (house, over) = (&house, &over);
            move || back_up_again_and_again(house, over)
        });
        for kill in 0..kills {
            // The first half falls into a long queue. In the second the lanes have the device, or a job comes up to them.
            let in_queue = kill < kills / 2;
            if !in_queue && luck.below(3) > 0 {
                for (_, job) in &asked {
                    house.judged(job);
                }
            }
            let new = match kill {
                0 => 6,
                _ if in_queue => luck.below(2),
                _ => u64::from(luck.below(4) == 0),
            };
            for _ in 0..new {
                let number = asked.len();
                let (kind, change) = change(&house, number, luck);
                asked.push((kind, ask_once(&house, number, &change)));
                changes.push(change);
            }
            if luck.below(2) == 0 {
                // Into what comes next, whatever it is.
                wait_for_facts(&house, 1 + luck.below(8) as usize);
            }
            std::thread::sleep(Duration::from_millis(luck.below(120)));
            *moments.entry(moment(&house)).or_default() += 1;
            house.kill();
            let left = house.tagged();
            if luck.below(3) == 0 {
                house.kill_in_start(Duration::from_millis(luck.below(150)));
                *moments.entry("a start").or_default() += 1;
            }
            house.restart();
            house.swept();
            let alive: Vec<_> = left.into_iter().filter(|process| process.is_alive()).collect();
            assert_eq!(alive, [], "the killed rig's processes live on");
            let again = luck.below(asked.len() as u64) as usize;
            assert_eq!(ask_once(&house, again, &changes[again]), asked[again].1, "asked again with the same key");
        }
        for (_, job) in &asked {
            house.judged(job);
        }
        drop(is_over);
        (lanes.into_iter().map(|lane| lane.join().unwrap()).collect::<Vec<_>>(), backups.join().unwrap())
    });
    println!("{backups} backups were taken meanwhile, through the kills");
    assert!(backups > 0, "no backup was taken");
    let restored = house.say(&["restore", &house.at("kills.backup"), "--data", &house.at("restored")]);
    assert_eq!(restored.code, Some(0), "{restored:?}");
    println!("as {who:?}: {kills} kills, during {moments:?}; {} jobs; the lanes' runs: {lanes:?}", asked.len());
    assert!(lanes.iter().any(|ends| ends.contains_key("rig_ended")), "no lane was told to run again: {lanes:?}");
    check_facts(&house, &asked);
    assert_eq!(house.terminate(), Some(0));
    house.assert_traceless();
}

/// Submits with a key of the job's own, and gives the job's path.
fn ask_once(house: &House, number: usize, change: &str) -> String {
    let body = json!({ "change": change, "champion": "main" });
    let answer = house.send("POST", &format!("{}/jobs", house.run()), Some(&format!("job-{number}")), Some(&body));
    let answer = answer.unwrap_or_else(|| panic!("no answer: {}", house.log_text())).ok();
    format!("/v1/jobs/{}", answer["job"].as_str().unwrap())
}

/// Takes backups, the last of which stays; gives how many.
fn back_up_again_and_again(house: &House, over: &AtomicBool) -> u32 {
    let mut taken = 0;
    while !over.load(Ordering::SeqCst) {
        let said = house.say(&["backup", &house.at("next.backup"), "--data", &house.at("data")]);
        // A rig that was killed leaves its records whole: a backup of them is one whoever is alive.
        assert_eq!(said.code, Some(0), "{said:?}");
        std::fs::rename(house.path("next.backup"), house.path("kills.backup")).unwrap();
        taken += 1;
        std::thread::sleep(Duration::from_millis(300));
    }
    taken
}

/// What a change should turn out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Faster,
    Slower,
    Broken,
}

fn change(house: &House, number: usize, luck: &mut Luck) -> (Kind, String) {
    let name = format!("j{number}");
    match luck.below(4) {
        0 => (Kind::Slower, house.slower(&name)),
        1 => (Kind::Broken, house.change("many", &name)),
        _ => (Kind::Faster, house.faster(&name)),
    }
}

/// Waits until that many facts were recorded; not for ever, since a rig may have nothing left to do.
fn wait_for_facts(house: &House, more: usize) {
    let (wanted, began) = (house.facts().len() + more, Instant::now());
    while house.facts().len() < wanted && began.elapsed() < Duration::from_secs(2) {
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// What the rig is at, for the reader of a failure.
fn moment(house: &House) -> &'static str {
    let device = &house.get("/v1/rig")["devices"][0]["state"];
    match (device["state"].as_str(), device["by"].as_str()) {
        (Some("held"), Some("judge")) => "a stage",
        (Some("held"), _) => "a development run",
        (Some("stopping"), _) => "a stop",
        _ => "nothing",
    }
}

/// One lane: asks, waits, asks again, through all of the rig's lives. Gives how its runs ended.
fn lane_goes_on(house: &House, path: &str, over: &AtomicBool) -> BTreeMap<String, u32> {
    let (busy, probe) = (house.shared("busy"), house.at("probe"));
    let body = json!({ "argv": [busy, "hold", probe, "80", house.tag] });
    let mut ends = BTreeMap::new();
    let is_over = || over.load(Ordering::SeqCst);
    while !is_over() {
        // The same key until it is answered: whether a killed rig heard it cannot be known.
        let key = uuid::Uuid::now_v7().to_string();
        let dev_run = loop {
            match house.send("POST", path, Some(&key), Some(&body)) {
                Some(answer) if answer.status == 202 => break answer.body["dev_run"].as_str().unwrap().to_owned(),
                Some(answer) => panic!("{answer:?}"),
                None if is_over() => return ends,
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        let dev_run = format!("/v1/dev-runs/{dev_run}");
        let end = loop {
            match house.send("GET", &format!("{dev_run}?wait_ms=500"), None, None) {
                Some(answer) => {
                    let status = answer.ok()["status"].clone();
                    if status["status"] == "ended" {
                        break status["end"].clone();
                    }
                }
                None if is_over() => return ends,
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        if end["end"] == "exited" {
            assert_eq!(end["exit"]["code"], 0, "{end}: {}", house.output(&dev_run));
        }
        *ends.entry(end["end"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    ends
}

/// What the log must say after any number of kills.
fn check_facts(house: &House, asked: &[(Kind, String)]) {
    let facts = house.facts();
    let mut order = Vec::new();
    let mut ends: BTreeMap<JobId, Vec<(JobOutcome, Option<String>)>> = BTreeMap::new();
    let mut won: BTreeMap<JobId, String> = BTreeMap::new();
    let mut first_starts: Vec<JobId> = Vec::new();
    let mut last_hold: Option<HoldId> = None;
    let mut asked_runs: Vec<(DevRunId, Arrival)> = Vec::new();
    let mut started_runs: Vec<DevRunId> = Vec::new();
    let mut ended_runs: Vec<DevRunId> = Vec::new();
    for fact in &facts {
        match fact {
            LogEntry::JobSubmitted { spec, .. } => order.push(spec.job),
            LogEntry::StageStarted { job, stage, hold, .. } => {
                assert!(last_hold < Some(*hold), "{hold} after {last_hold:?}");
                last_hold = Some(*hold);
                assert!(!ends.contains_key(job), "job {job} is started after its end");
                assert!(*stage == StageKind::Confirmation || !won.contains_key(job), "job {job} is screened again");
                if !first_starts.contains(job) {
                    first_starts.push(*job);
                }
            }
            LogEntry::ScreeningWon { job, record, .. } => {
                assert_eq!(won.insert(*job, record.clone()), None, "job {job} won twice");
            }
            LogEntry::AttemptFailed { job, why, .. } => {
                assert!(!why.to_string().contains("OVERLAP"), "job {job}: {why}");
                println!("an attempt of job {job} failed: {why}");
            }
            LogEntry::JobEnded { job, outcome, record } => {
                ends.entry(*job).or_default().push((outcome.clone(), record.clone()));
            }
            LogEntry::DevRunAsked { spec, arrival, .. } => asked_runs.push((spec.dev_run, *arrival)),
            LogEntry::DevRunStarted { dev_run, hold } => {
                assert!(last_hold < Some(*hold), "{hold} after {last_hold:?}");
                last_hold = Some(*hold);
                started_runs.push(*dev_run);
            }
            LogEntry::DevRunEnded { dev_run, .. } => ended_runs.push(*dev_run),
            LogEntry::RigStarted
            | LogEntry::BlocksDisturbed { .. }
            | LogEntry::BuildStarted { .. }
            | LogEntry::SplitSet { .. }
            | LogEntry::RunnersSet { .. }
            | LogEntry::RunnerMet { .. }
            | LogEntry::DeviceDrained { .. }
            | LogEntry::DeviceUndrained { .. }
            | LogEntry::RigRestored { .. }
            | LogEntry::RunStarted { .. }
            | LogEntry::RunChanged { .. }
            | LogEntry::SentBack { .. }
            | LogEntry::ChampionMoved { .. }
            | LogEntry::SettingsChanged { .. }
            | LogEntry::VerdictSettled { .. }
            | LogEntry::VerdictReused { .. }
            | LogEntry::NoiseMeasured { .. }
            | LogEntry::NoiseDoubted { .. }
            | LogEntry::ChampionTwice { .. }
            | LogEntry::DeviceQuarantined { .. }
            | LogEntry::QuarantineCleared { .. } => {}
        }
    }
    let acknowledged: Vec<String> = asked.iter().map(|(_, job)| job.clone()).collect();
    assert_eq!(order.iter().map(|job| format!("/v1/jobs/{job}")).collect::<Vec<_>>(), acknowledged, "jobs in order");
    assert_eq!(first_starts, order, "the order of starts is the order of asking");
    // Two that are asked for at once may become durable in the other order than they came in. One that both came and
    // was in the line earlier is passed by nobody.
    let asked_at = |run: &DevRunId| asked_runs.iter().position(|(asked, _)| asked == run);
    let places = started_runs.iter().map(|run| asked_at(run).map(|at| (at, asked_runs[at].1)));
    let places: Vec<(usize, Arrival)> = places.collect::<Option<_>>().expect("what started was asked for");
    for (nth, (later, arrival)) in places.iter().enumerate() {
        let passed = places[..nth].iter().find(|first| later < &first.0 && arrival < &first.1);
        assert_eq!(passed, None, "a development run that was asked for {arrival:?} was started after that one");
    }
    let unique: BTreeSet<_> = ended_runs.iter().collect();
    assert_eq!(unique.len(), ended_runs.len(), "a development run ended twice");
    assert_eq!(
        unique,
        asked_runs.iter().map(|(run, _)| run).collect(),
        "each development run that was asked for ended"
    );
    for (job, (kind, _)) in order.iter().zip(asked) {
        let [(outcome, record)] = ends[job].as_slice() else { panic!("job {job} ended {:?}", ends[job]) };
        let fits = match (kind, outcome) {
            // A busy machine's noise may leave it undecided; the other way round is never so.
            (Kind::Faster, JobOutcome::Win { .. } | JobOutcome::Undecided)
            | (Kind::Slower, JobOutcome::NoGain { .. } | JobOutcome::Undecided) => record.is_some(),
            (Kind::Broken, JobOutcome::ChangeFailed { .. }) => record.is_none(),
            _ => false,
        };
        assert!(fits, "job {job}, which is {kind:?}, ended as {outcome:?} with record {record:?}");
        for record in record.iter().chain(won.get(job)) {
            let said = house.say(&["verify", record]);
            assert_eq!(said.code, Some(0), "{said:?}");
        }
    }
}

/// The test above would see a second holder: the lock that tells it works on this machine, through containment.
#[test]
fn a_second_holder_would_be_seen() {
    let Some(house) = House::served(Who::Me, Load::Quiet, "10 min") else { return };
    let lock = std::fs::File::open(house.path("probe")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();

    let dev_run = house.ask(1, &[&house.shared("busy"), "hold", &house.at("probe"), "1", &house.tag]);

    let end = house.ended(&dev_run);
    assert_eq!(end["exit"]["code"], 97, "{end}");
    assert!(house.output(&dev_run).contains("OVERLAP"));
    until("the run is gone", || house.tagged().is_empty());
}
