//! Reading `kit.toml`: what it means, what each fault says, and that no bytes bring it down.

use std::path::Path;

use proptest::prelude::*;

use thermite_actors::host::kit::{self, Editable};
use thermite_core::contract::{Argv, Contract, Kit, Leftovers, Target, Timer};
use thermite_core::limits;
use thermite_core::time::Span;

const WHOLE: &str = r#"name = "matrix-1.0"
target = "cpu"
build = ["make", "-j2"]
check = ["./check"]
measure = ["./bench", "--once"]
timer = "reported"
editable = ["src/**", "Makefile"]
artefacts = ["build/bench"]

[contract]
plan_percent = 5
gate_percent = 2.0
null_margin_percent = 0.5
blocks_least = 10
blocks_most = 100
dev_run_max = "1 min 30 s"
build_max = "2 h"
check_max = "250 ms"
measure_max = "30 s"
leftovers = "keep"
"#;

const LEAST: &str = r#"name = "least"
target = "cpu"
measure = ["./bench"]
editable = ["src/**"]
"#;

#[test]
fn every_key_of_a_whole_kit_is_read() {
    let kit = kit::parse("kit.toml", WHOLE.as_bytes()).unwrap();

    let argv = |words: &[&str]| Argv(words.iter().map(|word| (*word).to_owned()).collect());
    let expected = Kit {
        name: "matrix-1.0".into(),
        target: Target::Cpu,
        build: Some(argv(&["make", "-j2"])),
        check: Some(argv(&["./check"])),
        measure: argv(&["./bench", "--once"]),
        timer: Timer::Reported,
        editable: vec!["src/**".into(), "Makefile".into()],
        artefacts: vec!["build/bench".into()],
        models: Vec::new(),
        contract: Contract {
            plan_effect: libm::log(1.05),
            gate: libm::log(1.02),
            null_margin: libm::log(1.005),
            blocks_least: 10,
            blocks_most: 100,
            dev_run_max: Some(Span::seconds(90)),
            build_max: Span::hours(2),
            check_max: Span::millis(250),
            measure_max: Span::seconds(30),
            leftovers: Leftovers::Keep,
        },
    };
    assert_eq!(kit, expected);
}

#[test]
fn what_a_kit_leaves_out_is_the_methods() {
    let kit = kit::parse("kit.toml", LEAST.as_bytes()).unwrap();

    assert_eq!(kit.contract, Contract::default());
    assert_eq!((kit.build, kit.check, kit.timer), (None, None, Timer::Wall));
    assert_eq!(kit.artefacts, Vec::<String>::new());
}

#[test]
fn the_methods_own_percents_give_the_methods_own_effects() {
    let text = format!("{LEAST}[contract]\nplan_percent = 1\ngate_percent = 0.5\nnull_margin_percent = 0\n");

    let kit = kit::parse("kit.toml", text.as_bytes()).unwrap();

    assert_eq!(kit.contract, Contract::default());
}

#[test]
fn the_least_of_many_blocks_raises_the_most_of_a_kit_that_names_none() {
    let text = format!("{LEAST}[contract]\nblocks_least = 300\n");

    let kit = kit::parse("kit.toml", text.as_bytes()).unwrap();

    assert_eq!((kit.contract.blocks_least, kit.contract.blocks_most), (300, 300));
}

#[test]
fn a_reported_timer_is_apart_only_where_the_kit_says_so() {
    let timer = |lines: &str| kit::parse("kit.toml", format!("{LEAST}{lines}").as_bytes()).unwrap().timer;

    assert_eq!(timer(""), Timer::Wall);
    assert_eq!(timer("timer_isolated = false\n"), Timer::Wall);
    assert_eq!(timer("timer = \"reported\"\n"), Timer::Reported);
    assert_eq!(timer("timer = \"reported\"\ntimer_isolated = false\n"), Timer::Reported);
    assert_eq!(timer("timer = \"reported\"\ntimer_isolated = true\n"), Timer::ReportedApart);
}

#[test]
fn every_fault_names_file_line_key_value_and_what_was_expected() {
    let argv = "a list of the program and its arguments, such as [\"./bench\", \"--once\"]";
    let globs = "a list of globs from the repository's root, such as [\"src/**\"]";
    let files = "a list of files from the repository's root, such as [\"build/bench\"]";
    let name = "1 to 64 letters, digits, '.', '_' or '-'";
    let span = "a text of whole numbers with units, such as \"5 min\", \"30 s\" or \"1 min 30 s\", \
                longer than 0 and at most 24 h";
    let cases: Vec<(&str, &str, String)> = vec![
        (
            "timer = \"reported\"",
            "timer = \"walll\"",
            "6: timer is \"walll\"; expected \"wall\" or \"reported\"".into(),
        ),
        (
            "timer = \"reported\"",
            "timer = \"reported\"\ntimer_isolated = 1",
            "7: timer_isolated is 1; expected true or false".into(),
        ),
        (
            "timer = \"reported\"",
            "timer = \"wall\"\ntimer_isolated = true",
            "7: timer_isolated is true; expected false, or timer = \"reported\" with it: the wall timer is the judge's \
             own"
                .into(),
        ),
        ("\"cpu\"", "\"gpu\"", "2: target is \"gpu\"; expected \"cpu\" or \"cuda-gpu\"".into()),
        ("\"matrix-1.0\"", "\"my kit\"", format!("1: name is \"my kit\"; expected {name}")),
        ("\"matrix-1.0\"", "7", format!("1: name is 7; expected {name}")),
        ("name = \"matrix-1.0\"\n", "", format!(": name is missing; expected {name}")),
        ("[\"./check\"]", "\"./check\"", format!("4: check is \"./check\"; expected {argv}")),
        ("[\"./check\"]", "[]", format!("4: check is []; expected {argv}")),
        ("[\"./check\"]", "[\"\"]", format!("4: check is [\"\"]; expected {argv}")),
        ("[\"./check\"]", "[\"a\", 1]", format!("4: check is [\"a\", 1]; expected {argv}")),
        ("[\"./check\"]", "[\"a\\u0000\"]", format!("4: check is [\"a\\u0000\"]; expected {argv}")),
        ("\"src/**\", \"Makefile\"", "", format!("7: editable is []; expected {globs}")),
        (
            "\"src/**\"",
            "\"/etc/*\"",
            "7: editable has \"/etc/*\", which begins with a slash; begin at the repository's root, such as \"src/**\""
                .into(),
        ),
        (
            "\"src/**\"",
            "\"a/../b\"",
            "7: editable has \"a/../b\", which has a part `.`, `..` or `.git`; name what is inside the repository"
                .into(),
        ),
        (
            "\"src/**\"",
            "\"src/[\"",
            "7: editable has \"src/[\", which is no glob: unclosed character class; missing ']'; write a glob such as \
             \"src/**\""
                .into(),
        ),
        (
            "\"build/bench\"",
            "\"../bench\"",
            "8: artefacts has \"../bench\", which has a part `.`, `..` or `.git`; name what is inside the repository"
                .into(),
        ),
        ("[\"build/bench\"]", "\"bench\"", format!("8: artefacts is \"bench\"; expected {files}")),
        ("\"1 min 30 s\"", "\"5min\"", format!("16: contract.dev_run_max is \"5min\"; expected {span}")),
        ("\"1 min 30 s\"", "\"0 s\"", format!("16: contract.dev_run_max is \"0 s\"; expected {span}")),
        ("\"1 min 30 s\"", "\"25 h\"", format!("16: contract.dev_run_max is \"25 h\"; expected {span}")),
        ("\"1 min 30 s\"", "\"30 s 1 min\"", format!("16: contract.dev_run_max is \"30 s 1 min\"; expected {span}")),
        ("\"1 min 30 s\"", "90", format!("16: contract.dev_run_max is 90; expected {span}")),
        (
            "plan_percent = 5",
            "plan_percent = 0",
            "11: contract.plan_percent is 0; expected a number of percent from 0.001 to 100".into(),
        ),
        (
            "gate_percent = 2.0",
            "gate_percent = nan",
            "12: contract.gate_percent is nan; expected a number of percent from 0 to 100".into(),
        ),
        (
            "blocks_least = 10",
            "blocks_least = 0",
            "14: contract.blocks_least is 0; expected a whole number from 1 to 10000".into(),
        ),
        (
            "blocks_most = 100",
            "blocks_most = 9",
            "15: contract.blocks_most is 9; expected a whole number from blocks_least (10) to 10000".into(),
        ),
        ("\"keep\"", "true", "20: contract.leftovers is true; expected \"stop\" or \"keep\"".into()),
        (
            "check = ",
            "chek = ",
            "4: chek is not a key of a kit; expected one of name, target, build, check, measure, timer, timer_isolated, \
             editable, artefacts, model, contract"
                .into(),
        ),
        (
            "build_max",
            "alpha",
            "17: contract.alpha is not a key of a contract; expected one of plan_percent, gate_percent, \
             null_margin_percent, blocks_least, blocks_most, dev_run_max, build_max, check_max, measure_max, leftovers"
                .into(),
        ),
        ("target = \"cpu\"\n", "target = \"cpu\ntimer", "2: is not TOML: invalid basic string, expected `\"`".into()),
        ("target = \"cpu\"", "name = \"b\"", "2: is not TOML: duplicate key".into()),
    ];
    for (from, to, expected) in cases {
        assert!(WHOLE.contains(from), "{from:?} is in the kit");
        let text = WHOLE.replacen(from, to, 1);

        let fault = kit::parse("kit.toml", text.as_bytes()).expect_err(&text);

        let said = fault.to_string();
        let expected = if expected.starts_with(':') { expected } else { format!(":{expected}") };
        assert_eq!(said, format!("kit.toml{expected}"), "{from:?} made {to:?}");
    }
}

#[test]
fn a_contract_that_is_no_table_is_refused() {
    let fault = kit::parse("k/kit.toml", format!("{LEAST}contract = 5\n").as_bytes()).unwrap_err();

    assert_eq!(fault.to_string(), "k/kit.toml:5: contract is 5; expected a table, [contract]");
}

#[test]
fn a_long_wrong_value_is_shown_cut_and_on_one_line() {
    let text = format!("name = \"\"\"\n{}\"\"\"\n", "x".repeat(500));

    let fault = kit::parse("kit.toml", text.as_bytes()).unwrap_err();

    let shown = format!("\"\"\" {}", "x".repeat(76));
    assert_eq!(
        fault.to_string(),
        format!("kit.toml:1: name is {shown}...; expected 1 to 64 letters, digits, '.', '_' or '-'")
    );
}

#[test]
fn a_file_that_is_no_text_or_too_large_is_refused() {
    let no_text = kit::parse("kit.toml", b"name = \"a\"\n\xff").unwrap_err();
    let large = kit::parse("kit.toml", &vec![b' '; limits::KIT_BYTES_MAX as usize + 1]).unwrap_err();

    assert_eq!(no_text.to_string(), "kit.toml:2: is not UTF-8 text");
    assert_eq!(large.to_string(), "kit.toml: is too large; expected at most 262144 bytes");
}

#[test]
fn a_file_is_read_with_the_hash_of_its_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kit.toml");
    std::fs::write(&path, LEAST).unwrap();

    let (kit, hash) = kit::read_file(&path).unwrap();
    let missing = kit::read_file(&folder.path().join("none.toml")).unwrap_err();

    assert_eq!(kit.name, "least");
    assert_eq!(hash, kit::hash(LEAST.as_bytes()));
    assert_eq!(kit::hash(b""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    assert!(missing.to_string().ends_with("none.toml: cannot be read: No such file or directory (os error 2)"));
}

#[test]
fn a_deeply_nested_file_is_refused_and_does_not_end_the_process() {
    for (open, count) in [("[", 100_000), ("{a=", 60_000), ("a.", 100_000)] {
        let text = format!("name = {}", open.repeat(count));

        assert!(kit::parse("kit.toml", text.as_bytes()).is_err());
    }
    let long_key = format!("{}b = 1", "a.".repeat(100_000));
    assert!(kit::parse("kit.toml", long_key.as_bytes()).is_err());
}

#[test]
fn globs_stay_inside_a_directory_unless_they_say_so() {
    let editable = Editable::new(&["src/*.c".into(), "lib/**".into(), "{a,b}.h".into()]).unwrap();

    let covered = ["src/x.c", "lib/x", "lib/deep/er/y", "a.h", "b.h"];
    let not_covered = ["src/deep/x.c", "src/x.C", "lib", "c.h", "x/src/x.c", "kit.toml"];
    assert!(covered.iter().all(|path| editable.covers(Path::new(path))));
    assert!(!not_covered.iter().any(|path| editable.covers(Path::new(path))));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_000) })]

    #[test]
    fn no_bytes_bring_the_reader_down(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        judge_answer(&bytes)?;
    }

    #[test]
    fn no_change_of_a_whole_kit_brings_the_reader_down(
        edits in proptest::collection::vec((0..WHOLE.len(), any::<u8>(), 0usize..40), 1..8),
    ) {
        let mut bytes = WHOLE.as_bytes().to_vec();
        for (at, byte, cut) in edits {
            let at = at.min(bytes.len());
            let until = (at + cut).min(bytes.len());
            bytes.splice(at..until, [byte]);
        }
        judge_answer(&bytes)?;
    }

    #[test]
    fn no_values_bring_the_reader_down(
        key in "plan_percent|gate_percent|blocks_most|dev_run_max|leftovers",
        value in "-?[0-9]{1,30}|-?[0-9]{1,3}\\.[0-9]{1,3}(e[0-9]{1,4})?|0x[0-9a-f]{1,20}|\"[0-9]{1,25} (h|min|s|ms)\"|inf|true|\\[\\]",
    ) {
        judge_answer(format!("{LEAST}[contract]\n{key} = {value}\n").as_bytes())?;
    }
}

/// A kit that is taken holds what core asks of it; a fault is one line that names the file.
fn judge_answer(bytes: &[u8]) -> Result<(), TestCaseError> {
    match kit::parse("kit.toml", bytes) {
        Ok(kit) => {
            prop_assert_eq!(kit.contract.check(), Ok(()));
            prop_assert!(!kit.measure.0.is_empty());
            prop_assert!(Editable::new(&kit.editable).is_ok());
        }
        Err(fault) => {
            let said = fault.to_string();
            prop_assert!(said.starts_with("kit.toml:"), "{}", said);
            prop_assert!(said.len() < 600 && !said.contains('\n'), "{}", said);
        }
    }
    Ok(())
}
