//! Rule D8: all limits stand in one place in code and in one table in the docs, and the two agree.

use std::fmt::Write as _;
use std::path::PathBuf;

/// One constant of `limits.rs`.
struct Limit {
    name: String,
    value: String,
    why: String,
}

#[test]
fn the_table_in_the_docs_is_the_limits_of_the_code() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let code = std::fs::read_to_string(root.join("thermite-core/src/limits.rs")).unwrap();
    let page = root.join("docs/limits.md");

    let expected = page_of(&limits_of(&code));
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&page, &expected).unwrap();
    }
    let found = std::fs::read_to_string(&page).unwrap_or_default();

    assert!(
        found == expected,
        "docs/limits.md differs from thermite-core/src/limits.rs; write it anew with \
         `UPDATE_DOCS=1 cargo test -p thermite-tests-rules limits` and read what changed"
    );
}

#[test]
fn every_limit_says_why_it_is_there() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let code = std::fs::read_to_string(root.join("thermite-core/src/limits.rs")).unwrap();

    let limits = limits_of(&code);

    assert!(limits.len() > 30, "only {} limits were found", limits.len());
    for limit in limits {
        assert!(limit.why.len() > 20, "{} does not say what it limits and why", limit.name);
    }
}

fn limits_of(code: &str) -> Vec<Limit> {
    let mut why = String::new();
    let mut limits = Vec::new();
    for line in code.lines() {
        if let Some(text) = line.strip_prefix("/// ") {
            if !why.is_empty() {
                why.push(' ');
            }
            why.push_str(text);
        } else if let Some(rest) = line.strip_prefix("pub const ") {
            let (name, rest) = rest.split_once(": ").expect("a constant has a type");
            let (_, value) = rest.split_once(" = ").expect("a constant has a value");
            let value = value.trim_end_matches(';').replace("Span::", "").replace('_', "");
            limits.push(Limit { name: name.to_owned(), value: value.to_owned(), why: std::mem::take(&mut why) });
        } else {
            why.clear();
        }
    }
    limits
}

fn page_of(limits: &[Limit]) -> String {
    let mut page = String::from(
        "# Limits and thresholds\n\n\
         Every limit of Thermite, with its value and its reason (rule D8). This table is written from \
         `thermite-core/src/limits.rs`; a test holds the two together. A kit's contract may set, before a job's first \
         block: `plan_percent`, `gate_percent`, `null_margin_percent`, `blocks_least`, `blocks_most`, `dev_run_max`, \
         `build_max`, `check_max`, `measure_max`, `leftovers`.\n\n\
         | limit | value | what and why |\n|---|---|---|\n",
    );
    for Limit { name, value, why } in limits {
        writeln!(page, "| `{name}` | {value} | {why} |").expect("writing to a string cannot fail");
    }
    page
}
