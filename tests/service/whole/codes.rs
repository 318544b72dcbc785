//! Every exit code of `run` and `judge` that needs a real rig, and what is said beside it.

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

use rustix::process::Signal;

use super::house::{House, Load, Who};
use crate::binary::{Own, until};

#[test]
fn judge_says_by_its_code_how_it_ended() {
    let Some(house) = House::served(Who::Me, Load::Quiet, "10 min") else { return };
    let judge = |name: &str| house.say(&["judge", "--change", name, "--champion", "main"]);
    house.faster("quick");
    house.slower("slow");
    house.change("no number", "broken");

    let win = judge("quick");
    let no_gain = judge("slow");
    let failed = judge("broken");
    let none = house.say(&["judge", "--change", "nonsense"]);

    assert_eq!(win.code, Some(0), "{win:?}");
    assert!(win.out.starts_with("win: change ") && win.out.contains("lower bound +"), "{win:?}");
    assert_eq!(no_gain.code, Some(1), "{no_gain:?}");
    assert!(no_gain.out.starts_with("no gain"), "{no_gain:?}");
    assert_eq!(failed.code, Some(3), "{failed:?}");
    assert_eq!(none.code, Some(69), "{none:?}");
    house.begin_run("one-block.toml");
    let undecided = judge("quick");
    assert_eq!(undecided.code, Some(2), "{undecided:?}");
    assert!(undecided.out.starts_with("undecided: change "), "{undecided:?}");
    assert_eq!(house.terminate(), Some(0));
    assert_eq!(judge("slow").code, Some(4), "no rig, no verdict");
}

#[test]
fn a_verdict_is_shown_by_its_job_as_lines_as_json_and_as_a_page_with_a_rig_and_without() {
    let Some(house) = House::served(Who::Me, Load::Quiet, "10 min") else { return };
    house.faster("quick");
    let job = house.say(&["judge", "--change", "quick", "--no-follow"]).out.trim().to_owned();
    let early = house.say(&["verdict", &job]);
    house.judged(&format!("/v1/jobs/{job}"));
    let page = house.at("verdict.html");

    let lines = house.say(&["verdict", &job]);
    let with_rig = house.say(&["verdict", &job, "--json", "--html", &page]);
    assert_eq!(house.terminate(), Some(0));
    let without = house.say(&["verdict", &job]);

    assert!(early.code == Some(69) && early.err.contains("verdict"), "{early:?}");
    assert_eq!(lines.code, Some(0), "{lines:?}");
    assert!(lines.out.contains("is at least ") && lines.out.contains("confirmation: win; lower bound +"), "{lines:?}");
    assert!(lines.out.contains("screening: win"), "both stages are told: {lines:?}");
    let json: serde_json::Value = serde_json::from_str(&with_rig.out).unwrap();
    let stages = json["comparisons"][0]["stages"].as_array().unwrap();
    assert_eq!(stages.len(), 2, "{json}");
    assert!(stages.iter().all(|stage| stage["holds"] == true), "{json}");
    assert!(std::fs::read_to_string(&page).unwrap().starts_with("<!DOCTYPE html>"));
    assert_eq!(without.out, lines.out, "the records say the same without a rig");
}

#[test]
fn one_whose_run_is_paused_gives_up_with_75() {
    let Some(house) = House::served(Who::Me, Load::Quiet, "10 min") else { return };
    let (busy, probe) = (house.shared("busy"), house.at("probe"));
    let holds = house.ask(1, &[&busy, "hold", &probe, "200000", &house.tag]);
    house.running(&holds);
    let waits = Own(house.command(&["run", "--lane", "2", "--", "true"]).spawn().unwrap());
    until("lane 2 waits", || {
        let rig = house.get("/v1/rig");
        rig["dev_runs"].as_array().unwrap().iter().any(|run| run["status"]["status"] == "waiting")
    });

    let paused = house.say(&["pause"]);
    let said = waits.end();

    assert_eq!(paused.code, Some(0), "{paused:?}");
    assert_eq!(said.code, Some(75), "{said:?}");
    assert!(said.err.contains("waits for lane 1, which holds device 0"), "the wait has its sentence: {said:?}");
    assert!(said.err.contains("the run was paused; resume it and try again"), "{said:?}");
    let cancelled = house.say(&["cancel", holds.rsplit('/').next().unwrap()]);
    assert_eq!(cancelled.code, Some(0), "{cancelled:?}");
}

#[test]
fn a_second_ctrl_c_leaves_at_once_and_says_what_goes_on() {
    let Some(house) = House::served(Who::Me, Load::Quiet, "10 min") else { return };
    let script = "trap '' TERM INT; echo begun; while :; do sleep 1; done";
    let mut run = Own(house.command(&["run", "--lane", "1", "--", "sh", "-c", script]).spawn().unwrap());
    let mut out = BufReader::new(run.0.stdout.take().unwrap());
    out.read_line(&mut String::new()).unwrap();
    let mut err = BufReader::new(run.0.stderr.take().unwrap());

    run.signal(Signal::INT);
    let mut first = String::new();
    while !first.contains("Ctrl-C again leaves at once") {
        assert!(err.read_line(&mut first).unwrap() > 0, "it ended without a word: {first}");
    }
    run.signal(Signal::INT);
    let mut second = String::new();
    err.read_to_string(&mut second).unwrap();
    let said = run.end();

    assert_eq!(said.code, Some(130), "{second}");
    assert!(second.contains("left at once; development run ") && second.contains("is ended by the rig"), "{second}");
    until("the rig ended it", || house.get("/v1/rig")["dev_runs"].as_array().unwrap().is_empty());
}

#[test]
fn leaving_judge_says_that_the_job_goes_on() {
    let Some(house) = House::served(Who::Me, Load::Quiet, "10 min") else { return };
    let (busy, probe) = (house.shared("busy"), house.at("probe"));
    let holds = house.ask(1, &[&busy, "hold", &probe, "200000", &house.tag]);
    house.running(&holds);
    house.slower("slow");
    let mut judge = Own(house.command(&["judge", "--change", "slow"]).spawn().unwrap());
    let mut err = BufReader::new(judge.0.stderr.take().unwrap());
    let mut first = String::new();
    err.read_line(&mut first).unwrap();
    let mut sentence = String::new();
    err.read_line(&mut sentence).unwrap();

    judge.signal(Signal::INT);
    let mut rest = String::new();
    err.read_to_string(&mut rest).unwrap();
    let said = judge.end();

    assert_eq!(said.code, Some(130), "{rest}");
    assert!(first.contains("is accepted"), "{first}");
    assert!(sentence.contains("waits for lane 1, which holds device 0"), "{sentence}");
    assert!(rest.contains("left before the verdict; job ") && rest.contains(" goes on"), "{rest}");
    assert_eq!(said.out, "", "nothing but a verdict stands on standard output");
}

#[test]
fn what_is_no_text_passes_byte_for_byte_and_in_json_as_hex() {
    let Some(house) = House::served(Who::Me, Load::Quiet, "10 min") else { return };
    let argv = ["--", "sh", "-c", "printf 'a\\377\\300\\000b\\n\\033[31m\\303'; printf '\\274\\n'"];

    let plain = house.command(&[&["run", "--lane", "1"][..], &argv].concat()).output().unwrap();
    let json = house.say(&[&["run", "--lane", "1", "--json"][..], &argv].concat());

    assert_eq!(plain.stdout, b"a\xff\xc0\0b\n\x1b[31m\xc3\xbc\n");
    let mut bytes = Vec::new();
    for line in json.out.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        match (&line["hex"], &line["text"]) {
            (serde_json::Value::String(hex), _) => {
                let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
                bytes.extend((0..hex.len()).step_by(2).map(byte));
            }
            (_, serde_json::Value::String(text)) => bytes.extend_from_slice(text.as_bytes()),
            _ => {}
        }
    }
    assert_eq!(bytes, plain.stdout, "{json:?}");
}

#[test]
fn a_reader_that_goes_away_ends_a_command_quietly() {
    let Some(house) = House::served(Who::Me, Load::Quiet, "10 min") else { return };
    let gone = || Stdio::from(std::os::fd::OwnedFd::from(std::io::pipe().unwrap().1));

    for args in
        [&["status"][..], &["status", "--json"], &["exit-codes"], &["completions", "bash"], &["man"], &["--help"]]
    {
        let end = house.command(args).stdout(gone()).output().unwrap();
        assert_eq!((end.status.code(), String::from_utf8_lossy(&end.stderr).as_ref()), (Some(0), ""), "{args:?}");
    }
    let run = house.command(&["run", "--lane", "1", "--", "yes"]).stdout(gone()).output().unwrap();

    let err = String::from_utf8_lossy(&run.stderr);
    assert_eq!(run.status.code(), Some(130), "{err}");
    assert!(err.lines().all(|line| line.starts_with("thermite: cancelled")), "{err}");
    until("nothing runs any more", || house.get("/v1/rig")["dev_runs"].as_array().unwrap().is_empty());
}

#[test]
fn runs_that_have_ended_do_not_crowd_out_what_is_live() {
    let Some(house) = House::served(Who::Me, Load::Quiet, "10 min") else { return };
    for _ in 0..5 {
        house.begin_run("kit.toml");
    }

    let status = house.say(&["status"]);
    let all = house.say(&["status", "--all"]);

    let lines: Vec<&str> = status.out.lines().collect();
    let place =
        |word: &str| lines.iter().position(|line| line.contains(word)).unwrap_or_else(|| panic!("{word}: {status:?}"));
    assert!(lines[0].starts_with("device 0 ") && place(": running, ") < place("more agents at once"), "{status:?}");
    assert!(place("more agents at once mean more load") < place(": ended, "), "{status:?}");
    assert_eq!(lines.iter().filter(|line| line.contains(": ended, ")).count(), 3, "{status:?}");
    assert_eq!(lines.last(), Some(&"and 2 runs more that have ended; --all lists them"), "{status:?}");
    assert_eq!(all.out.matches(": ended, ").count(), 5, "{all:?}");
}
