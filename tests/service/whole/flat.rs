//! A service stays flat: memory, descriptors, processes and disk after much work are what they were after some.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use std::os::unix::fs::MetadataExt;

use rusqlite::{Connection, OpenFlags};
use serde_json::json;
use thermite_actors::host::git::STORES;

use super::house::{House, LANES, Load, Who};
use super::is_long;
use crate::support::Luck;

/// What is counted at one moment.
#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Duration,
    rss_kib: u64,
    descriptors: u64,
    threads: u64,
    processes: u64,
    /// The data folder, less what is kept.
    disk_kib: u64,
    /// What a rig keeps for longer than this lasts: verdict records and ended jobs for ever, idempotency keys for a day
    /// (`IDEMPOTENCY_KEPT`), commits for an hour (`STORE_KEPT_MIN`; docs/decisions/0020).
    kept_kib: u64,
    jobs: u64,
}

/// What the records keep for ever, or for a day, in bytes.
const KEPT: [&str; 3] = [
    "SELECT sum(length(body) + length(hash)) FROM verdicts",
    "SELECT sum(length(body)) FROM ended WHERE kind = 'job'",
    "SELECT sum(pgsize) FROM dbstat WHERE name LIKE '%idempotency%'",
];

#[test]
fn mixed_work_leaves_memory_descriptors_processes_and_disk_flat() {
    let lasts = Duration::from_secs(if is_long() { 20 * 60 } else { 75 });
    let house = House::build(Who::Me, Load::Quiet, "10 min");
    // Small budgets, so that pruning is a part of the work.
    house.set("THERMITE_KEEP", "6MiB");
    house.set("THERMITE_KEEP_EVERY", "1");
    if !house.start() {
        return;
    }
    house.begin_run("kit.toml");
    house.judged(&house.submit(&house.slower("first")));
    let over = AtomicBool::new(false);
    let done = [const { AtomicU32::new(0) }; 6];
    let count = |what: usize| {
        done[what].fetch_add(1, Ordering::Relaxed);
    };
    let samples = std::thread::scope(|scope| {
        for lane in 1..=LANES {
            scope.spawn({
                let (house, over, count) = (&house, &over, &count);
                move || work_in_lane(house, lane, over, count)
            });
        }
        scope.spawn(|| submit_and_pause(&house, &over, &count));
        scope.spawn(|| follow_events(&house, &over, &count));
        let began = Instant::now();
        let mut samples = Vec::new();
        while began.elapsed() < lasts {
            std::thread::sleep(lasts / 80);
            samples.push(sample(&house, began.elapsed()));
        }
        over.store(true, Ordering::SeqCst);
        samples
    });
    let done: Vec<u32> = done.iter().map(|count| count.load(Ordering::Relaxed)).collect();
    println!(
        "{lasts:?} of mixed work: {} development runs, {} cancelled, {} outputs read, {} jobs judged, {} pauses, {} events",
        done[0], done[1], done[2], done[3], done[4], done[5]
    );
    assert!(done.iter().all(|count| *count >= 2), "not all kinds of work were done: {done:?}");

    let quarter = samples.len() / 4;
    let second = median(&samples[quarter..2 * quarter]);
    let last = median(&samples[3 * quarter..]);
    println!(
        "{:>9} {:>9} {:>11} {:>8} {:>10} {:>9} {:>9} {:>6}",
        "at", "RSS KiB", "descriptors", "threads", "processes", "disk KiB", "kept KiB", "jobs"
    );
    for sample in samples.iter().step_by(samples.len() / 16).chain([&second, &last]) {
        let Sample { at, rss_kib, descriptors, threads, processes, disk_kib, kept_kib, jobs } = sample;
        let at = at.as_secs();
        println!(
            "{at:>8}s {rss_kib:>9} {descriptors:>11} {threads:>8} {processes:>10} {disk_kib:>9} {kept_kib:>9} {jobs:>6}"
        );
    }
    println!("the last two lines are the medians of the second and the last quarter");
    // A twentieth and some pages of noise for memory; a handful of connections and runs for the others.
    assert!(last.rss_kib <= second.rss_kib + second.rss_kib / 10 + 4_096, "memory grows: {second:?} {last:?}");
    assert!(last.descriptors <= second.descriptors + 12, "descriptors grow: {second:?} {last:?}");
    assert!(last.threads <= second.threads + 6, "threads grow: {second:?} {last:?}");
    assert!(last.processes <= second.processes + 6, "processes grow: {second:?} {last:?}");
    assert!(last.disk_kib <= second.disk_kib + second.disk_kib / 5 + 4_096, "the disk fills: {second:?} {last:?}");
    // What is kept for ever is what it is by its jobs: two records of some kilobytes each, and the keys of a day.
    let each = (last.kept_kib - second.kept_kib) / (last.jobs - second.jobs).max(1);
    println!(
        "a judged job leaves {each} KiB that are kept for ever, its keys and those of the development runs beside it"
    );
    assert!(each <= 96, "what is kept for ever grows by {each} KiB a job: {second:?} {last:?}");
    assert_eq!(house.terminate(), Some(0));
    house.assert_traceless();
}

/// What a quarter's samples are in the middle, each figure for itself.
fn median(samples: &[Sample]) -> Sample {
    let of = |figure: fn(&Sample) -> u64| {
        let mut figures: Vec<u64> = samples.iter().map(figure).collect();
        figures.sort_unstable();
        figures[figures.len() / 2]
    };
    Sample {
        at: samples[samples.len() / 2].at,
        rss_kib: of(|sample| sample.rss_kib),
        descriptors: of(|sample| sample.descriptors),
        threads: of(|sample| sample.threads),
        processes: of(|sample| sample.processes),
        disk_kib: of(|sample| sample.disk_kib),
        kept_kib: of(|sample| sample.kept_kib),
        jobs: of(|sample| sample.jobs),
    }
}

fn sample(house: &House, at: Duration) -> Sample {
    let process = format!("/proc/{}", house.pid());
    let status = fs::read_to_string(format!("{process}/status")).unwrap();
    let figures: BTreeMap<&str, u64> = status
        .lines()
        .filter_map(|line| {
            let (name, value) = line.split_once(':')?;
            Some((name, value.split_whitespace().next()?.parse().ok()?))
        })
        .collect();
    let records =
        Connection::open_with_flags(house.data().join(thermite_svc::records::FILE), OpenFlags::SQLITE_OPEN_READ_ONLY)
            .unwrap();
    let number = |sql: &str| {
        records.query_row(sql, (), |row| row.get::<_, Option<i64>>(0)).unwrap().map_or(0, i64::cast_unsigned)
    };
    let kept = KEPT.iter().map(|sql| number(sql)).sum::<u64>() + size(&house.data().join(STORES));
    let jobs = number("SELECT count(*) FROM ended WHERE kind = 'job'");
    let listed = |folder: &str| fs::read_dir(folder).map_or(0, |entries| entries.count() as u64);
    Sample {
        at,
        rss_kib: figures["VmRSS"],
        descriptors: listed(&format!("{process}/fd")),
        threads: figures["Threads"],
        processes: house.tagged().len() as u64,
        disk_kib: (size(&house.data()) - kept) / 1_024,
        kept_kib: kept / 1_024,
        jobs,
    }
}

fn size(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.file_type() {
            Ok(kind) if kind.is_dir() => size(&entry.path()),
            _ => entry.metadata().map_or(0, |about| about.blocks() * 512),
        })
        .sum()
}

fn work_in_lane(house: &House, lane: u32, over: &AtomicBool, count: &dyn Fn(usize)) {
    let mut luck = Luck::seeded(0xf1a7 + u64::from(lane));
    let talk = format!(
        ": {}; i=0; while [ $i -lt 700 ]; do echo a line of an output that is kept; i=$((i+1)); done",
        house.tag
    );
    let path = format!("{}/lanes/{lane}/dev-runs", house.run());
    while !over.load(Ordering::SeqCst) {
        let body = json!({ "argv": ["sh", "-c", talk] });
        let key = uuid::Uuid::now_v7().to_string();
        let answer = house.send("POST", &path, Some(&key), Some(&body)).unwrap();
        if answer.status == 409 {
            // Its run is paused for the moment.
            std::thread::sleep(Duration::from_millis(20));
            continue;
        }
        let dev_run = format!("/v1/dev-runs/{}", answer.ok()["dev_run"].as_str().unwrap());
        if luck.below(5) == 0 {
            house.send("DELETE", &dev_run, None, None).unwrap().ok();
            count(1);
        }
        loop {
            let row = house.get(&format!("{dev_run}?wait_ms=2000"));
            if row["status"]["status"] == "ended" {
                break;
            }
        }
        count(0);
        if luck.below(2) == 0 {
            let output = house.send("GET", &format!("{dev_run}/output"), None, None).unwrap();
            assert!(output.status == 200 || output.status == 410, "{output:?}");
            count(2);
        }
    }
}

fn submit_and_pause(house: &House, over: &AtomicBool, count: &dyn Fn(usize)) {
    let mut number = 0;
    while !over.load(Ordering::SeqCst) {
        number += 1;
        let job = house.submit(&house.slower(&format!("flat-{number}")));
        if number % 3 > 0 {
            house.post(&format!("{}/pause", house.run()), &json!({}));
            std::thread::sleep(Duration::from_millis(50));
            house.post(&format!("{}/resume", house.run()), &json!({}));
            count(4);
        }
        house.judged(&job);
        count(3);
        // The lanes' turn: the judge goes first while it has work.
        std::thread::sleep(Duration::from_millis(500));
    }
}

/// Follows the events over many connections, as pages that come and go do.
fn follow_events(house: &House, over: &AtomicBool, count: &dyn Fn(usize)) {
    while !over.load(Ordering::SeqCst) {
        let until = Instant::now() + Duration::from_secs(2);
        house.follow_events(&mut |_| {
            count(5);
            Instant::now() < until && !over.load(Ordering::SeqCst)
        });
    }
}
