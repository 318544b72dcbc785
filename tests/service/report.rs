//! The verdict page: whole, closed in itself, escaped, and with its drawings told in words as well.

use std::collections::BTreeSet;

use insta::assert_snapshot;
use thermite_core::block::{Side, ThrowCause, TriedBlock};
use thermite_core::record::VerdictRecord;
use thermite_core::stage::{StageEnd, StagePlan, StageStep, StepReport};
use thermite_core::time::Moment;
use thermite_svc::report::{Comparison, Stage, page};

use crate::support::Luck;
use crate::verify::scripted;

#[test]
fn the_page_reads_as_prose() {
    assert_snapshot!("win", prose(&page("Verdict", &[both()])));
    let slower = one(decided(scripted::plan(), 1.08, Faults::None));
    let same = one(decided(scripted::plan(), 1.0, Faults::None));
    let mut few = scripted::plan();
    // Three blocks cannot reach either threshold.
    few.spec.pinned.kit.contract.blocks_most = 3;
    few.spec.pinned.kit.contract.blocks_least = 3;
    let undecided = one(decided(few, 0.993, Faults::None));
    let unended =
        Comparison { name: Some("lane 3".into()), ended: Some("no verdict: busy".into()), stages: Vec::new() };
    assert_snapshot!("many", prose(&page("A trial", &[slower, same, undecided, unended])));
}

#[test]
fn the_drawing_of_the_blocks_is_as_it_was_looked_at() {
    let page = page("Verdict", &[one(decided(scripted::confirmation(), 0.9, Faults::Some))]);

    let drawing = page.split("<svg role").nth(1).unwrap().split("</svg>").next().unwrap();

    assert_snapshot!("blocks_svg", drawing.replace("><", ">\n<"));
}

#[test]
fn it_needs_nothing_but_itself() {
    for page in pages() {
        let tags: String =
            page.split('<').filter_map(|part| part.split('>').next()).map(|tag| format!("<{tag} ")).collect();
        let style = page.split("<style>").nth(1).unwrap().split("</style>").next().unwrap();
        let lower = format!("{tags}{style}").to_lowercase();
        for loads in ["<script", "<link", "<img", "<iframe", "<object", "<embed", "@import", "url(", " src=", " onload"]
        {
            assert!(!lower.contains(loads), "{loads} is in the page");
        }
        let hrefs = page.split("href=\"").skip(1).map(|rest| rest.split('"').next().unwrap());
        for href in hrefs {
            assert!(href.starts_with('#') || href.starts_with("data:application/json;base64,"), "{href}");
        }
        assert!(!page.contains("NaN") && !page.contains("inf\""), "a figure is no number");
    }
}

#[test]
fn its_elements_close_and_its_names_are_unique() {
    for page in pages() {
        let mut open: Vec<&str> = Vec::new();
        let mut ids = BTreeSet::new();
        for tag in page.split('<').skip(1).map(|rest| rest.split('>').next().unwrap()) {
            if let Some(closed) = tag.strip_prefix('/') {
                assert_eq!(open.pop(), Some(closed), "{tag}");
                continue;
            }
            let name = tag.split([' ', '\n']).next().unwrap();
            if !["!DOCTYPE", "meta", "br"].contains(&name) {
                open.push(name);
            }
            if let Some(id) = tag.split(" id=\"").nth(1).and_then(|rest| rest.split('"').next()) {
                assert!(ids.insert(id.to_owned()), "{id} is there twice");
            }
        }
        assert_eq!(open, [] as [&str; 0]);
        for named in
            page.split("aria-labelledby=\"").skip(1).flat_map(|rest| rest.split('"').next().unwrap().split(' '))
        {
            assert!(ids.contains(named), "nothing is called {named}");
        }
    }
}

#[test]
fn every_drawing_has_a_title_a_description_and_a_table_beside_it() {
    for page in pages() {
        for drawing in page.split("<svg role=\"img\"").skip(1) {
            let drawing = drawing.split("</svg>").next().unwrap();
            for element in ["<title id=", "<desc id="] {
                let words = drawing.split(element).nth(1).and_then(|rest| rest.split_once('>')).unwrap().1;
                assert!(!words.starts_with('<'), "a drawing without words: {drawing}");
            }
        }
    }
    let record = decided(scripted::confirmation(), 0.9, Faults::Some);
    let blocks = record.blocks.len();
    let page = page("Verdict", &[one(record)]);
    let table = page.split("<table class=\"blocks\">").nth(1).unwrap().split("</table>").next().unwrap();
    assert_eq!(table.matches("<tr").count(), blocks + 1);
}

#[test]
fn thrown_blocks_are_told_with_their_causes() {
    let record = decided(scripted::confirmation(), 0.9, Faults::Some);
    let thrown: Vec<&TriedBlock> =
        record.blocks.iter().filter(|block| !matches!(block, TriedBlock::Accepted { .. })).collect();
    assert_eq!(thrown.len(), 3);
    assert!(thrown.iter().any(|block| matches!(block, TriedBlock::Thrown { causes, .. }
        if matches!(causes[..], [ThrowCause::Throttled { .. }]))));

    let page = page("Verdict", &[one(record)]);

    for cause in
        ["a CPU quota held back group /rig", "a measured process died of infrastructure while the change ran: gone"]
    {
        assert!(page.contains(cause), "{cause}");
    }
    assert_eq!(page.matches("class=\"thrown\"").count(), 3 + 1, "a cross for each, and one that says what it is");
}

#[test]
fn what_others_named_is_escaped_wherever_it_stands() {
    let record = hostile();
    let comparison = Comparison {
        name: Some("<b>\x1b[2J\u{202e}".into()),
        ended: Some("</article><script>alert(1)</script>".into()),
        stages: vec![Stage { record, fault: Some("\"><img src=x>".into()) }],
    };

    let page = page("<title>\x07", &[comparison]);

    assert!(!page.contains("<script") && !page.contains("<img") && !page.contains("<b>"), "markup of others");
    assert!(!page.chars().any(|letter| letter.is_control() && letter != '\n'), "control characters");
    assert!(!page.contains('\u{202e}'), "a mark of direction");
    assert!(page.contains("&lt;img src=x&gt;") && page.contains("\\u{1b}[2J"), "they are shown, as text");
}

#[test]
fn the_record_it_carries_is_the_record() {
    let record = decided(scripted::confirmation(), 0.9, Faults::None);
    let json = record.to_json();

    let page = page("Verdict", &[one(record)]);

    let carried = page.split("base64,").nth(1).unwrap().split('"').next().unwrap();
    assert_eq!(String::from_utf8(decode(carried)).unwrap(), json);
}

#[test]
fn a_long_stage_is_drawn_in_a_moment() {
    let mut plan = scripted::plan();
    plan.spec.pinned.kit.contract.blocks_most = 1_500;
    plan.noise.as_mut().unwrap().scale = 0.02;
    let record = decided(plan, 0.995, Faults::None);
    println!("{} blocks", record.blocks.len());

    let page = page("Verdict", &[one(record)]);

    assert!(page.len() < 8 * 1024 * 1024, "{} bytes", page.len());
}

/// A confirmation that a tenth less time wins, with three blocks thrown away.
pub(crate) fn confirmation() -> VerdictRecord {
    decided(scripted::confirmation(), 0.9, Faults::Some)
}

/// A record whose every text is hostile. It does not hold.
pub(crate) fn hostile() -> VerdictRecord {
    let bad = || "<img src=x onerror=alert(1)>\x1b[2J\u{202e}&\"'\u{9b}".to_owned();
    let mut record = confirmation();
    let facts = &mut record.facts;
    for text in [
        &mut facts.champion,
        &mut facts.change,
        &mut facts.candidate,
        &mut facts.candidate_tree,
        &mut facts.kit,
        &mut facts.kit_hash,
        &mut facts.timer_note,
        &mut facts.on.uuid,
        &mut facts.on.model,
        &mut facts.on.driver,
        &mut facts.on.clock_policy,
        &mut facts.on.runner,
        &mut facts.on.cpus,
        &mut record.claim,
        &mut record.method,
        &mut record.coins.algorithm,
        &mut record.sha256,
    ] {
        *text = bad();
    }
    facts.artefacts.champion = Some(bad());
    facts.screened.as_mut().unwrap().record = bad();
    for block in &mut record.blocks {
        match block {
            TriedBlock::Accepted { times, .. } => {
                times.before.signals[0].name = bad();
                times.after.signals[0].unit = bad();
            }
            TriedBlock::Thrown { causes, .. } => causes.push(ThrowCause::Throttled { group: bad() }),
            TriedBlock::Lost { why, .. } => *why = bad(),
        }
    }
    record
}

/// What goes wrong on the way.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Faults {
    None,
    /// The third block is throttled, the fifth lost under the change, the eighth shared with another program.
    Some,
}

fn decided(plan: StagePlan, factor: f64, faults: Faults) -> VerdictRecord {
    let mut luck = Luck::seeded(7);
    let mut blocks = 0;
    let end = scripted::Rig::new(plan).run(|now, step| {
        if !matches!(step, StageStep::Block { .. }) {
            return scripted::well(now, step, factor, 0);
        }
        blocks += 1;
        let wobble = 1.0 + (luck.below(2_001) as f64 - 1_000.0) / 150_000.0;
        let mut report = scripted::well(now, step, factor * wobble, luck.below(90_000));
        if faults == Faults::Some {
            report = disturbed(blocks, now, report);
        }
        report
    });
    match end {
        StageEnd::Decided { record, .. } => *record,
        end @ (StageEnd::Built { .. } | StageEnd::ChangeFailed { .. } | StageEnd::Infrastructure { .. }) => {
            panic!("{end:?}")
        }
    }
}

fn disturbed(block: u32, now: Moment, report: StepReport) -> StepReport {
    match (block, report) {
        (3, StepReport::Timed { mut times }) => {
            times.after.throttle[0].periods = Some(4);
            StepReport::Timed { times }
        }
        (5, _) => StepReport::Lost { side: Side::Change, why: "gone".into() },
        (8, StepReport::Timed { mut times }) => {
            times.after.signals[1] = scripted::signal("slowed", Some(3.0), 0.0, "bits");
            times.after.at = now;
            StepReport::Timed { times }
        }
        (_, report) => report,
    }
}

fn one(record: VerdictRecord) -> Comparison {
    Comparison { name: None, ended: None, stages: vec![Stage { record, fault: None }] }
}

fn both() -> Comparison {
    let screening = Stage { record: decided(scripted::plan(), 0.9, Faults::None), fault: None };
    Comparison { stages: vec![screening, Stage { record: confirmation(), fault: None }], ..one(confirmation()) }
}

fn pages() -> [String; 3] {
    let hostile = Comparison { name: Some("<b>".into()), ..one(hostile()) };
    [page("Verdict", &[both()]), page("Two", &[both(), both()]), page("Hostile", &[hostile])]
}

/// The page's words, a line for each element that has any, drawings left out but for their descriptions.
fn prose(page: &str) -> String {
    let body = page.split("<body>").nth(1).unwrap();
    let mut lines = String::new();
    let mut skips = false;
    for part in body.split('<') {
        let (tag, text) = part.split_once('>').unwrap_or(("", part));
        let name = tag.split(' ').next().unwrap();
        skips = match name {
            "svg" => true,
            "desc" => false,
            "/desc" => true,
            "/svg" => false,
            _ => skips,
        };
        let begins =
            ["p", "h1", "h2", "h3", "li", "tr", "dt", "desc", "figcaption", "summary", "pre", "div", "section"];
        if begins.contains(&name) && !skips {
            lines.push('\n');
        } else if ["td", "th", "dd"].contains(&name) {
            lines.push_str(" | ");
        }
        if !skips {
            lines.push_str(text);
        }
    }
    let words = lines.replace('\u{a0}', " ").replace("&amp;", "&").replace("&quot;", "\"");
    words.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
}

fn decode(text: &str) -> Vec<u8> {
    let letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bits, mut count, mut bytes) = (0_u32, 0, Vec::new());
    for letter in text.trim_end_matches('=').chars() {
        bits = bits << 6 | u32::try_from(letters.find(letter).unwrap()).unwrap();
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count & 0xff) as u8);
        }
    }
    bytes
}
