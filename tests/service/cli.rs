//! The commands as people type them: exit codes, output, and what each error says.

use std::io::{BufRead, BufReader, Read};

use rustix::process::Signal;

use crate::binary::{KIT, Own, Said, Served, command, until};

#[test]
fn without_a_rig_the_data_folder_is_named_with_the_way_out() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().to_str().unwrap();

    for args in [&["status"][..], &["run", "--lane", "1", "--", "true"], &["pause"]] {
        let said = Said::by(command(args).env("THERMITE_DATA", data).output().unwrap());

        let sentence = said.refused_with(70);
        assert_eq!(
            sentence,
            format!(
                "no rig runs on {data}: it has no endpoint.json; start one with `thermite serve`, or name one with --url"
            )
        );
    }
}

#[test]
fn judge_has_no_verdict_without_a_rig() {
    let folder = tempfile::tempdir().unwrap();

    let said = Said::by(command(&["judge", "--change", "x"]).env("THERMITE_DATA", folder.path()).output().unwrap());

    assert!(said.refused_with(4).starts_with("no rig runs on "), "{said:?}");
}

#[test]
fn wrong_usage_is_64_and_help_is_0() {
    assert_eq!(Said::by(command(&["run"]).output().unwrap()).code, Some(64));
    assert_eq!(Said::by(command(&["judge"]).output().unwrap()).code, Some(64));
    assert_eq!(Said::by(command(&["--help"]).output().unwrap()).code, Some(0));
    let version = Said::by(command(&["--version"]).output().unwrap());
    assert_eq!((version.code, version.out.starts_with("thermite 0.")), (Some(0), true), "{version:?}");
}

#[test]
fn an_empty_command_is_refused() {
    let said = Said::by(command(&["run", "--lane", "1"]).output().unwrap());

    let expected = "the command is empty: give a program and its arguments, such as `-- cargo test`";
    assert_eq!(said.refused_with(69), expected);
}

#[test]
fn a_wrong_token_opens_nothing_and_the_sentence_says_where_the_right_one_is() {
    let Some(rig) = Served::start() else { return };
    let wrong = rig.path("wrong");
    std::fs::write(&wrong, "th_own_0000000000000000000000000000000000000000000000000000000000000000\n").unwrap();

    let said = rig.say(&["status", "--token-file", wrong.to_str().unwrap()]);
    let missing = rig.say(&["status", "--token-file", "/no/such/file"]);

    assert!(said.refused_with(69).contains("owner-token"), "{said:?}");
    assert_eq!(
        missing.refused_with(69),
        "token file /no/such/file cannot be read: no such file or directory; name another with --token-file"
    );
}

#[test]
fn a_command_without_a_run_says_how_to_start_one() {
    let Some(rig) = Served::start() else { return };

    let said = rig.say(&["run", "--lane", "1", "--", "true"]);

    let expected = "no run is being worked on; start one with `thermite start`, or name one with --run";
    assert_eq!(said.refused_with(69), expected);
}

#[test]
fn what_cannot_be_started_is_refused_with_what_is_missing() {
    let Some(rig) = Served::start() else { return };
    rig.lay_out(&KIT.replace("\"cpu\"", "\"cpus\""));
    let repo = rig.path("repo").display().to_string();
    let lane = rig.path("lane-1").display().to_string();

    let kit = rig.say(&rig.start_args());
    let commit = rig.say(&["start", "--repo", &repo, "--champion", "nonsense", "--lane", &lane]);
    let no_repo = rig.say(&["start", "--repo", "/no/such/repo", "--lane", &lane]);
    let no_kit = rig.say(&["start", "--repo", &repo, "--kit", "other.toml", "--lane", &lane]);

    assert!(kit.refused_with(69).contains("kit.toml:2: target is \"cpus\"; expected \"cpu\" or"), "{kit:?}");
    assert!(commit.refused_with(69).contains("nonsense"), "{commit:?}");
    assert!(no_repo.refused_with(69).contains("/no/such/repo"), "{no_repo:?}");
    assert!(no_kit.refused_with(69).contains("other.toml"), "{no_kit:?}");
}

#[test]
fn a_lane_that_is_not_there_and_a_program_that_is_not_there_are_refused() {
    let Some(rig) = Served::with_run() else { return };

    let lane = rig.say(&["run", "--lane", "7", "--", "true"]);
    let program = rig.say(&["run", "--lane", "1", "--", "no-such-program-anywhere"]);

    assert!(lane.refused_with(69).contains("lane 7 does not exist"), "{lane:?}");
    assert!(program.refused_with(69).starts_with("program no-such-program-anywhere was not found"), "{program:?}");
}

#[test]
fn a_change_outside_the_editable_paths_is_refused_with_the_paths() {
    let Some(rig) = Served::with_run() else { return };
    let change = rig.change("build.sh", "true\n");

    let said = rig.say(&["judge", "--change", &change]);
    let same = rig.say(&["judge", "--change", "main"]);
    let none = rig.say(&["judge", "--change", "nonsense"]);

    let sentence = said.refused_with(69);
    assert!(sentence.contains("build.sh") && sentence.contains("src/**"), "{sentence}");
    assert!(same.refused_with(69).contains("does not differ from champion"), "{same:?}");
    assert!(none.refused_with(69).contains("nonsense"), "{none:?}");
}

#[test]
fn a_commands_output_and_exit_code_are_passed_on() {
    let Some(rig) = Served::with_run() else { return };

    let said = rig.say(&["run", "--lane", "1", "--", "sh", "-c", "echo one; echo two >&2; cat src/program; exit 7"]);

    assert_eq!(said.code, Some(7), "{said:?}");
    assert_eq!(said.out, "one\ntwo\n#!/bin/sh\necho 1\n");
    assert!(said.err.contains("ended with exit code 7 after"), "{said:?}");
    assert!(said.err.ends_with("; diagnostic only: this number never counts\n"), "{said:?}");
}

#[test]
fn a_signal_a_limit_and_a_failed_start_have_codes_of_their_own() {
    let Some(rig) = Served::with_run() else { return };
    let script = rig.path("lane-1/broken");
    std::fs::write(&script, "#!/no/such/interpreter\n").unwrap();
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();

    let signal = rig.say(&["run", "--lane", "1", "--", "sh", "-c", "kill -TERM $$"]);
    let limit = rig.say(&["run", "--lane", "1", "--", "sh", "-c", "echo begun; sleep 600"]);
    let start = rig.say(&["run", "--lane", "1", "--", "./broken"]);

    assert_eq!(signal.code, Some(143), "{signal:?}");
    assert_eq!((limit.code, limit.out.as_str()), (Some(124), "begun\n"), "{limit:?}");
    assert!(limit.err.contains("ended at its limit of 2.0 s"), "{limit:?}");
    assert_eq!(start.code, Some(70), "{start:?}");
}

#[test]
fn ctrl_c_cancels_and_waits_for_the_end() {
    let Some(rig) = Served::start() else { return };
    rig.lay_out(&KIT.replace("\"2 s\"", "\"10 min\""));
    assert_eq!(rig.say(&rig.start_args()).code, Some(0));
    let mut run = Own(rig.command(&["run", "--lane", "1", "--", "sh", "-c", "echo begun; sleep 600"]).spawn().unwrap());
    let mut line = String::new();
    let mut out = BufReader::new(run.0.stdout.take().unwrap());
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "begun\n");

    run.signal(Signal::INT);
    let said = run.end();

    assert_eq!(said.code, Some(130), "{said:?}");
    assert!(said.err.contains("cancelled"), "{said:?}");
    let free = rig.say(&["run", "--lane", "1", "--", "true"]);
    assert_eq!(free.code, Some(0), "the device is free again: {free:?}");
}

#[test]
fn output_comes_while_the_command_runs() {
    let Some(rig) = Served::start() else { return };
    rig.lay_out(&KIT.replace("\"2 s\"", "\"10 min\""));
    assert_eq!(rig.say(&rig.start_args()).code, Some(0));
    let go = rig.path("lane-1/go");
    let script = "echo begun; until [ -e go ]; do sleep 0.02; done; echo over";
    let mut run = Own(rig.command(&["run", "--lane", "1", "--", "sh", "-c", script]).spawn().unwrap());
    let mut out = BufReader::new(run.0.stdout.take().unwrap());
    let mut begun = String::new();
    out.read_line(&mut begun).unwrap();

    // Only after the first line was read is the command let go on.
    std::fs::write(go, "").unwrap();
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    let said = run.end();

    assert_eq!((begun.as_str(), rest.as_str(), said.code), ("begun\n", "over\n", Some(0)), "{said:?}");
}

#[test]
fn a_detached_run_is_cancelled_by_its_id() {
    let Some(rig) = Served::start() else { return };
    rig.lay_out(&KIT.replace("\"2 s\"", "\"10 min\""));
    assert_eq!(rig.say(&rig.start_args()).code, Some(0));

    let detached = rig.say(&["run", "--lane", "2", "--detach", "--", "sleep", "600"]);
    let id = detached.out.trim();
    let second = rig.say(&["run", "--lane", "2", "--", "true"]);
    let cancelled = rig.say(&["cancel", id]);
    let again = rig.say(&["cancel", id]);
    let unknown = rig.say(&["cancel", "01890a5d-ac96-774b-bcce-b302099a8057"]);

    assert_eq!((detached.code, detached.err.as_str()), (Some(0), ""), "{detached:?}");
    assert!(second.refused_with(69).contains(id), "a lane has one at a time: {second:?}");
    assert_eq!(cancelled.out, format!("development run {id}: cancelled\n"), "{cancelled:?}");
    assert_eq!(again.out, cancelled.out, "a second cancel joins the first: {again:?}");
    assert!(unknown.refused_with(69).contains("does not exist"), "{unknown:?}");
}

#[test]
fn asking_twice_with_one_key_is_asking_once() {
    let Some(rig) = Served::with_run() else { return };

    let ask = || rig.say(&["run", "--lane", "1", "--detach", "--key", "k-1", "--", "true"]);
    let (first, second) = (ask(), ask());

    assert_eq!(first.code, Some(0), "{first:?}");
    assert_eq!(first.out, second.out);
}

#[test]
fn a_change_that_does_not_build_is_its_own_failure() {
    let Some(rig) = Served::with_run() else { return };
    let change = rig.change("src/program", "#!/bin/sh\nif then\n");

    let said = rig.say(&["judge", "--change", &change]);

    assert_eq!(said.code, Some(3), "{said:?}");
    assert!(said.out.starts_with("the change failed to build: "), "{said:?}");
}

#[test]
fn a_paused_run_refuses_development_runs_until_it_is_resumed() {
    let Some(rig) = Served::with_run() else { return };

    let paused = rig.say(&["pause"]);
    let refused = rig.say(&["run", "--lane", "1", "--", "true"]);
    let resumed = rig.say(&["resume"]);
    let runs = rig.say(&["run", "--lane", "1", "--", "true"]);
    let ended = rig.say(&["end"]);
    let over = rig.say(&["pause"]);

    assert!(paused.code == Some(0) && paused.out.ends_with(": paused\n"), "{paused:?}");
    assert!(refused.refused_with(69).ends_with("is paused; resume it first"), "{refused:?}");
    assert!(resumed.code == Some(0) && resumed.out.ends_with(": running\n"), "{resumed:?}");
    assert_eq!(runs.code, Some(0), "{runs:?}");
    assert!(ended.code == Some(0) && ended.out.ends_with(": ended\n"), "{ended:?}");
    assert!(over.refused_with(69).starts_with("no run is being worked on"), "{over:?}");
}

#[test]
fn status_is_one_json_object_and_lines_for_people() {
    let Some(rig) = Served::with_run() else { return };

    let json = rig.say(&["status", "--json"]);
    let lines = rig.say(&["status"]);

    let view: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!(view["runs"][0]["kit"], "small", "{view}");
    assert_eq!(view["devices"][0]["facts"]["target"], "cpu", "{view}");
    assert!(lines.out.starts_with("device 0 ("), "{lines:?}");
    assert!(lines.out.contains("running, kit small, 2 lanes"), "{lines:?}");
    assert!(!lines.out.contains('\x1b'), "no colours where nobody looks: {lines:?}");
}

#[test]
fn json_lines_tell_a_run_from_its_place_to_its_end() {
    let Some(rig) = Served::with_run() else { return };

    let said = rig.say(&["run", "--lane", "1", "--json", "--", "sh", "-c", "echo printed; exit 3"]);

    assert_eq!(said.code, Some(3), "{said:?}");
    let lines: Vec<serde_json::Value> = said.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.first().unwrap()["event"], "queued", "{said:?}");
    assert!(lines.iter().any(|line| line["event"] == "output" && line["text"] == "printed\n"), "{said:?}");
    let last = lines.last().unwrap();
    assert_eq!((&last["event"], &last["end"]["end"]), (&"ended".into(), &"exited".into()), "{said:?}");
    assert_eq!(last["note"], "diagnostic only: this number never counts");
}

#[test]
fn a_rig_that_is_killed_under_a_command_is_infrastructure() {
    let Some(rig) = Served::start() else { return };
    rig.lay_out(&KIT.replace("\"2 s\"", "\"10 min\""));
    assert_eq!(rig.say(&rig.start_args()).code, Some(0));
    let mut run = Own(rig.command(&["run", "--lane", "1", "--", "sh", "-c", "echo begun; sleep 600"]).spawn().unwrap());
    let mut out = BufReader::new(run.0.stdout.take().unwrap());
    out.read_line(&mut String::new()).unwrap();

    rig.server().signal(Signal::KILL);
    let said = run.end();

    assert_eq!(said.code, Some(70), "{said:?}");
    assert!(said.err.contains("no rig answers at http://127.0.0.1:"), "{said:?}");
}

#[test]
fn an_address_in_use_and_a_folder_in_use_are_named() {
    let Some(rig) = Served::start() else { return };
    let data = rig.path("data").display().to_string();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let other = rig.path("other").display().to_string();

    let folder = Said::by(command(&["serve", "--data", &data, "--listen", "127.0.0.1:0"]).output().unwrap());
    let port = Said::by(command(&["serve", "--data", &other, "--listen", &address]).output().unwrap());
    let open = Said::by(command(&["serve", "--data", &other, "--listen", "0.0.0.0:0"]).output().unwrap());

    assert!(folder.refused_with(75).contains("is in use by process"), "{folder:?}");
    assert!(port.refused_with(75).starts_with(&format!("{address} is in use by another program")), "{port:?}");
    assert!(open.refused_with(64).contains("a loopback address"), "{open:?}");
}

#[test]
fn a_second_rig_on_the_same_machine_is_refused_the_device() {
    let Some(rig) = Served::start() else { return };
    let other = rig.path("other").display().to_string();

    let mut second = command(&["serve", "--data", &other, "--listen", "127.0.0.1:0"]);
    let said = Said::by(second.env("THERMITE_DEVICE_LOCKS", rig.path("locks")).output().unwrap());

    // A rig logs to standard error as well; the last line is why it ended.
    let last = said.err.lines().last().unwrap();
    assert_eq!(said.code, Some(75), "{said:?}");
    assert!(last.starts_with("thermite: device ") && last.ends_with("; end that rig first"), "{said:?}");
}

#[test]
fn what_is_no_record_does_not_hold_and_what_is_not_there_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("record.json");
    std::fs::write(&file, "{}").unwrap();
    let verify = |name: &str| {
        Said::by(command(&["verify", name]).env("THERMITE_DATA", folder.path().join("data")).output().unwrap())
    };

    let no_record = verify(file.to_str().unwrap());
    let no_file = verify("nothing.json");
    let no_hash = verify(&"0".repeat(64));

    assert!(no_record.refused_with(1).contains("does not hold"), "{no_record:?}");
    assert_eq!(
        no_file.refused_with(69),
        "record nothing.json is not there: no such file, and it is neither a record's SHA-256 nor a job's id"
    );
    assert!(no_hash.refused_with(69).starts_with("record 0000"), "{no_hash:?}");
}

#[test]
fn nothing_a_command_started_is_left_when_its_rig_ends() {
    let Some(mut rig) = Served::start() else { return };
    rig.lay_out(&KIT.replace("\"2 s\"", "\"10 min\""));
    assert_eq!(rig.say(&rig.start_args()).code, Some(0));
    // A name that nothing else on this machine has.
    let mark = format!("86{:08}", std::process::id());
    let detached =
        rig.say(&["run", "--lane", "1", "--detach", "--", "sh", "-c", &format!("setsid sleep {mark} & sleep {mark}")]);
    assert_eq!(detached.code, Some(0), "{detached:?}");
    until("both sleeps run", || sleepers(&mark) == 2);

    rig.end();

    assert_eq!(sleepers(&mark), 0);
}

/// How many processes have that word among their arguments and `sleep` as their program.
fn sleepers(mark: &str) -> usize {
    let commands = std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
        let text = std::fs::read(entry.path().join("cmdline")).ok()?;
        Some(String::from_utf8_lossy(&text).split('\0').map(str::to_owned).collect::<Vec<_>>())
    });
    commands
        .filter(|words| words.first().is_some_and(|word| word == "sleep") && words.iter().any(|word| word == mark))
        .count()
}
