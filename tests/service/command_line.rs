//! What needs no rig: completions and manual pages as real shells and page readers take them, the table of exit codes,
//! verdicts from files.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::binary::{Said, command, thermite};
use crate::report::{confirmation, hostile};

/// Whether a program is there; a test that needs one that is not is skipped, and says so.
fn is_there(program: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output().unwrap().status.success();
    if !found {
        println!("skipped: {program} is not there");
    }
    found
}

fn script(shell: &str) -> String {
    let said = Said::by(command(&["completions", shell]).output().unwrap());
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "{said:?}");
    said.out
}

#[test]
fn bash_takes_its_completions_and_completes_commands_and_options() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("thermite.bash");
    std::fs::write(&file, script("bash")).unwrap();
    let ask = r#"
        source "$1"
        complete_line() {
            COMP_WORDS=("$@"); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMPREPLY=()
            _thermite thermite "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
            echo "${COMPREPLY[@]}"
        }
        complete -p thermite
        complete_line thermite ju
        complete_line thermite run --det
        complete_line thermite completions fi
    "#;

    let bash = Command::new("bash").args(["--norc", "-euc", ask, "bash"]).arg(&file).output().unwrap();

    let said = Said::by(bash);
    let lines: Vec<&str> = said.out.lines().collect();
    assert!(lines.first().is_some_and(|line| line.starts_with("complete ") && line.ends_with(" thermite")), "{said:?}");
    assert_eq!(lines[1..], ["judge", "--detach", "fish"], "{said:?}");
}

#[test]
fn the_other_shells_take_theirs() {
    let folder = tempfile::tempdir().unwrap();
    for (shell, check) in [("zsh", "zsh --no-exec"), ("fish", "fish --no-execute"), ("elvish", "elvish -compileonly")] {
        let file = folder.path().join(shell);
        let script = script(shell);
        assert!(script.contains("judge") && script.contains("exit-codes"), "{shell}: {script}");
        std::fs::write(&file, script).unwrap();
        if !is_there(shell) {
            continue;
        }

        let checked = Command::new("sh").args(["-c", &format!("{check} \"$1\""), "sh"]).arg(&file).output().unwrap();

        assert!(checked.status.success(), "{shell}: {checked:?}");
    }
    assert_eq!(Said::by(command(&["completions", "csh"]).output().unwrap()).code, Some(64));
}

#[test]
fn there_is_a_page_for_each_command_and_readers_take_it_without_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("man1");

    let said = Said::by(command(&["man", pages.to_str().unwrap()]).output().unwrap());

    assert_eq!(said.code, Some(0), "{said:?}");
    let mut names: Vec<String> = std::fs::read_dir(&pages).unwrap().map(|page| name(&page.unwrap().path())).collect();
    names.sort();
    for page in ["thermite.1", "thermite-run.1", "thermite-judge.1", "thermite-top.1", "thermite-exit-codes.1"] {
        assert!(names.iter().any(|name| name == page), "{page} is not in {names:?}");
    }
    for page in &names {
        let text = std::fs::read_to_string(pages.join(page)).unwrap();
        for request in [".TH ", ".SH NAME", ".SH SYNOPSIS", ".SH DESCRIPTION", ".SH EXAMPLES", ".nf", ".fi"] {
            assert!(text.lines().any(|line| line.starts_with(request)), "{page} has no {request}:\n{text}");
        }
        let is_request = |line: &&str| line.starts_with('.') || line.starts_with('\'');
        let known = [".TH", ".SH", ".PP", ".TP", ".IP", ".RS", ".RE", ".br", ".nf", ".fi", ".sp", ".ie", ".el"];
        let unknown = text.lines().filter(is_request).find(|line| !known.iter().any(|known| line.starts_with(known)));
        assert_eq!(unknown, None, "{page}");
    }
    let readers = [
        ("groff", "groff -man -Tutf8 -ww -z \"$1\""),
        ("man", "LC_ALL=C.UTF-8 MANROFFSEQ= man --warnings -E UTF-8 -l \"$1\" >/dev/null"),
        ("mandoc", "mandoc -T lint -W warning \"$1\""),
    ];
    for (reader, check) in readers {
        if !is_there(reader) {
            continue;
        }
        for page in &names {
            let read = Command::new("sh").args(["-c", check, "sh"]).arg(pages.join(page)).output().unwrap();
            let said = Said::by(read);
            assert_eq!((said.code, said.out.as_str(), said.err.as_str()), (Some(0), "", ""), "{reader} on {page}");
        }
    }
    let whole = Said::by(command(&["man"]).output().unwrap());
    assert!(whole.out.contains(".TH thermite 1") && whole.out.contains("thermite\\-run(1)"), "{whole:?}");
}

fn name(path: &Path) -> String {
    path.file_name().unwrap().to_str().unwrap().to_owned()
}

#[test]
fn exit_codes_are_one_table_as_text_in_help_and_as_json() {
    let text = Said::by(command(&["exit-codes"]).output().unwrap());
    let json = Said::by(command(&["exit-codes", "--json"]).output().unwrap());

    assert!(text.out.contains("judge\n        0  win\n        1  no gain\n"), "{text:?}");
    let json: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    let rows = json["exit_codes"].as_array().unwrap();
    assert!(rows.iter().any(|row| row["command"] == "run" && row["code"] == "124"), "{json}");
    for row in rows {
        let means = row["means"].as_str().unwrap();
        assert!(text.out.contains(means), "{means} is not in the text");
    }
    let help = Said::by(command(&["help", "exit-codes"]).output().unwrap());
    assert!(help.out.contains("124"), "{help:?}");
}

#[test]
fn help_lists_commands_in_groups_and_version_answers_without_a_rig() {
    let help = Said::by(command(&["help"]).output().unwrap());
    let version = Said::by(command(&["--version"]).env("THERMITE_DATA", "/no/such/folder").output().unwrap());

    for heading in ["See it work:", "Work on a rig:", "Look at a rig:", "Runs:", "Keep a rig:", "More:"] {
        assert!(help.out.contains(heading), "{heading} is not in\n{}", help.out);
    }
    assert_eq!(version.code, Some(0));
}

#[test]
fn a_verdict_from_a_file_needs_no_rig() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("record.json");
    let record = confirmation();
    std::fs::write(&file, record.to_json()).unwrap();
    let page = folder.path().join("page.html");
    let verdict = |args: &[&str]| {
        let args = [&["verdict", file.to_str().unwrap()][..], args].concat();
        Said::by(command(&args).env("THERMITE_DATA", folder.path().join("none")).output().unwrap())
    };

    let lines = verdict(&[]);
    let json = verdict(&["--json"]);
    let html = verdict(&["--html", page.to_str().unwrap()]);
    let nowhere = verdict(&["--html", "/no/such/folder/page.html"]);

    assert_eq!(lines.code, Some(0), "{lines:?}");
    assert!(lines.out.contains("confirmation: win; lower bound +"), "{lines:?}");
    assert!(lines.out.contains(&format!("record    {} holds", record.sha256)), "{lines:?}");
    let json: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    let stage = &json["comparisons"][0]["stages"][0];
    assert_eq!((&stage["holds"], &stage["record"]), (&true.into(), &record.sha256.clone().into()), "{json}");
    assert_eq!(stage["intervals"].as_array().unwrap().len(), record.after.len());
    assert_eq!(html.code, Some(0), "{html:?}");
    assert!(std::fs::read_to_string(&page).unwrap().contains("is at least"));
    assert_eq!(nowhere.code, Some(70), "{nowhere:?}");
    assert!(nowhere.err.contains("name another file with --html"), "{nowhere:?}");
}

#[test]
fn a_record_that_does_not_hold_is_shown_as_such_and_hostile_names_reach_no_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("record.json");
    std::fs::write(&file, hostile().to_json()).unwrap();
    let other = folder.path().join("other.json");
    std::fs::write(&other, "{}").unwrap();

    let shown = Said::by(command(&["verdict", file.to_str().unwrap()]).output().unwrap());
    let none = Said::by(command(&["verdict", other.to_str().unwrap()]).output().unwrap());

    assert_eq!(shown.code, Some(0), "{shown:?}");
    assert!(shown.out.contains("does not hold: "), "{shown:?}");
    assert!(!shown.out.chars().any(|letter| letter.is_control() && letter != '\n'), "{shown:?}");
    assert!(none.refused_with(69).contains("it is no record"), "{none:?}");
}

#[test]
fn completions_into_a_reader_that_closed_end_quietly() {
    let mut child = Command::new(thermite())
        .args(["completions", "bash"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut nothing = std::io::sink();
    nothing.write_all(b"").unwrap();

    let end = child.wait_with_output().unwrap();

    assert_eq!((end.status.code(), end.stderr.as_slice()), (Some(0), &b""[..]));
}
