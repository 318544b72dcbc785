//! Clocks that stand elsewhere after a restart: a machine that slept for a month, and one that was just started
//! (rule A11). A time namespace shifts them for one rig; this machine's own clocks are never set.

use std::process::Command;
use std::time::Instant;

use thermite_core::limits;
use thermite_core::log::LogEntry;

use super::house::{House, Load, Who, is_root};
use crate::binary::until;

/// 30 days.
const MONTH_S: i64 = 2_592_000;

#[test]
fn a_rig_goes_on_where_its_clock_has_leapt_a_month_or_begun_anew() {
    if let Err(why) = can_shift() {
        println!("skipped, no time namespace can be had here: {why}");
        return;
    }
    let Some(house) = House::served(Who::Me, Load::Quiet, "10 min") else { return };
    let first = house.submit(&house.slower("before"));
    assert_eq!(house.judged(&first)["outcome"]["outcome"], "no_gain");

    let mut jobs = vec![first];
    for (name, shift_s) in [("month", MONTH_S), ("reboot", 60 - uptime_s())] {
        let job = house.submit(&house.slower(name));
        house.kill();
        assert!(house.start_as(|serve| shifted(&house, &serve, shift_s)), "the isolation that was there is gone");

        assert_eq!(house.judged(&job)["outcome"]["outcome"], "no_gain", "{name}");
        let record = house.get(&format!("{job}/verdict"));
        let blocks = record["blocks"].as_array().unwrap();
        let at = blocks[0]["times"]["before"]["clocks"]["boot_ms"].as_i64().unwrap() / 1_000;
        println!("{name}: {} blocks, the rig's clock says {at} s", blocks.len());
        assert!((at - uptime_s() - shift_s).abs() < 600, "{name}: the rig's clock is not shifted: {at} s");
        for thrown in blocks.iter().filter(|block| block["block"] == "thrown") {
            let causes = thrown["causes"].to_string();
            assert!(!causes.contains("slept") && !causes.contains("clock_stepped"), "{name}: {causes}");
        }
        jobs.push(job);
    }
    // A limit by that clock: a development run of the kit whose limit is 5 s.
    house.begin_run("short.toml");
    let began = Instant::now();
    let hangs = house.ask(1, &["sleep", "1000"]);
    let end = house.ended(&hangs);

    assert_eq!(end["end"], "limit_reached", "{end}");
    let most = limits::STOP_GRACE.to_std() * 2 + std::time::Duration::from_secs(60);
    assert!(began.elapsed().as_secs() >= 5 && began.elapsed() < most, "{:?}", began.elapsed());
    let ends = house.facts().iter().filter(|fact| matches!(fact, LogEntry::JobEnded { .. })).count();
    assert_eq!(ends, jobs.len(), "one verdict each");
    until("nothing is left of it", || house.tagged().is_empty());
}

/// The command with a shifted CLOCK_BOOTTIME; unshare becomes it.
fn shifted(house: &House, command: &Command, by_s: i64) -> Command {
    let mut inside = Command::new("unshare");
    inside.args(["--time", "--boottime", &by_s.to_string()]);
    inside.arg(command.get_program()).args(command.get_args());
    inside.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    house.log_of(&mut inside);
    inside
}

fn can_shift() -> Result<(), String> {
    if !is_root() {
        return Err("not root".to_owned());
    }
    let tried = Command::new("unshare").args(["--time", "--boottime", "1", "true"]).output();
    match tried {
        Ok(said) if said.status.success() => Ok(()),
        Ok(said) => Err(String::from_utf8_lossy(&said.stderr).trim().to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn uptime_s() -> i64 {
    rustix::time::clock_gettime(rustix::time::ClockId::Boottime).tv_sec
}
