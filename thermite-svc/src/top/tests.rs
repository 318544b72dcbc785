//! The picture of many states, as people see it, at two sizes. The snapshots are to be read as pictures.

use std::fmt::Write;

use insta::assert_snapshot;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use uuid::Uuid;

use thermite_actors::ports::DeviceFacts;
use thermite_actors::view::{
    DevRunRow, DevRunStatus, DevicePool, DeviceRow, JobRow, JobStatus, RigEvent, RigHappening, RigView, RunRow,
};
use thermite_core::contract::Target;
use thermite_core::dev_run::DevRunEnd;
use thermite_core::device::DeviceView;
use thermite_core::ids::{DevRunId, HoldId, Holder, JobId, LaneId, MemberId, RunId};
use thermite_core::job::{JobOutcome, StageKind};
use thermite_core::log::LogEntry;
use thermite_core::noise::{Noise, NoiseKey};
use thermite_core::run::RunState;
use thermite_core::stage::{StagePhase, StageView};
use thermite_core::time::{Moment, Span};
use thermite_core::wait::{NoLatest, Wait, WaitEnd, WaitReason};

use super::draw::{Palette, draw};
use super::rows::with_short_ids;
use super::screen::{Key, News, RowId, Screen};

const WALL: u64 = 1_700_000_000_000;

#[test]
fn an_empty_rig_says_what_to_do() {
    assert_snapshot!("empty_80x24", picture(&seeing(view()), 80, 24));
    assert_snapshot!("empty_120x40", picture(&seeing(view()), 120, 40));
}

#[test]
fn before_the_first_view_there_is_nothing_to_choose() {
    let mut screen = Screen::new("http://127.0.0.1:7077".into());
    screen.hear(0, News::Away("connection refused".into()));
    screen.press(Key::Down);

    assert_snapshot!("no_view_80x24", picture(&screen, 80, 24));
}

#[test]
fn a_busy_rig_shows_the_holder_the_line_and_the_blocks() {
    assert_snapshot!("busy_80x24", picture(&busy(), 80, 24));
    assert_snapshot!("busy_120x40", picture(&busy(), 120, 40));
}

#[test]
fn the_chosen_rows_whole_sentence_is_shown() {
    let mut screen = busy();
    screen.press(Key::Last);
    screen.press(Key::Up);

    assert!(matches!(screen.chosen(), Some(RowId::DevRun(_))));
    assert_snapshot!("chosen_80x24", picture(&screen, 80, 24));
}

#[test]
fn faults_stand_out() {
    let mut rig = view();
    rig.records_fault = Some("No space left on device (os error 28)".into());
    rig.devices[0].state = DeviceView::Out {
        why: "the end of pid 4711 (sleep) is not proved after 10 s".into(),
        next_try: Moment::from_millis(90_000),
    };
    rig.runs = vec![run(1, RunState::Paused)];
    rig.jobs = vec![job(1, JobStatus::Waiting { wait: unbounded(), sentence: unbounded().sentence(rig.now) })];
    rig.jobs[0].failures = vec!["throttled 6 of 20 blocks: a CPU quota held back group /x".into()];
    rig.jobs_live = 41;
    let mut screen = seeing(rig);
    screen.hear(1_000, News::Missed(Some(7)));
    screen.hear(
        1_000,
        happened(
            2,
            RigHappening::Device {
                member: MemberId(0),
                state: DeviceView::Out { why: "pid 4711 lives".into(), next_try: Moment::from_millis(90_000) },
            },
        ),
    );

    assert_snapshot!("faults_80x24", picture(&screen, 80, 24));
    assert_snapshot!("faults_120x40", picture(&screen, 120, 40));
}

#[test]
fn a_rig_that_is_away_is_said_to_be_and_its_last_picture_stays() {
    let mut screen = busy();
    screen.hear(5_000, News::Away("connection refused".into()));
    screen.hear(17_000, News::Away("connection refused".into()));
    let away = picture(&screen, 80, 24);
    screen.hear(18_000, News::View(Box::new(view())));

    assert_snapshot!("away_80x24", away);
    assert!(picture(&screen, 80, 24).lines().next().unwrap().ends_with("live"));
}

#[test]
fn a_frozen_picture_stands_and_goes_on_where_the_rig_is_by_then() {
    let mut screen = busy();
    screen.press(Key::Freeze);
    let frozen = picture(&screen, 80, 24);
    screen.hear(9_000, News::View(Box::new(view())));

    let later = picture(&screen, 80, 24);
    assert_eq!(frozen.lines().skip(1).collect::<Vec<_>>(), later.lines().skip(1).collect::<Vec<_>>());
    assert!(later.lines().next().unwrap().ends_with("FROZEN for 4.0 s"), "{later}");
    screen.press(Key::Freeze);
    assert!(picture(&screen, 80, 24).contains("no job: submit one"));
}

#[test]
fn hostile_and_long_names_stay_in_their_place() {
    let mut rig = view();
    rig.devices[0].facts.model = format!("\x1b]0;owned\x07{}", "A very long model name ".repeat(20));
    let mut hostile = run(1, RunState::Running);
    hostile.kit = "\u{202e}tik\x1b[31m".into();
    hostile.repo = format!("/\x1b[2J\x1b[H/{}", "x".repeat(300)).into();
    rig.runs = vec![hostile];
    rig.dev_runs = vec![dev_run(
        1,
        DevRunStatus::Recording { wait: Wait::durable(Moment::START, None), sentence: "is being recorded".into() },
        &["sh", "-c", "printf '\x1b[2J\u{9b}31m\r\n'", "速い速い速い速い速い速い"],
    )];
    let sentence = format!("waits for a ready device: \x1b[5m{}", "y".repeat(400));
    rig.jobs = vec![job(1, JobStatus::Waiting { wait: unbounded(), sentence })];
    rig.jobs[0].change = "\x1b[31mred\x1b[0m".into();
    rig.jobs_live = 1;
    let mut screen = seeing(rig);
    let end = DevRunEnd::NotStarted { why: "\x1b[2J\nline two\u{200b}".into() };
    let fact = LogEntry::DevRunEnded { dev_run: DevRunId(Uuid::nil()), end };
    screen.hear(0, happened(1, RigHappening::Recorded { fact: fact.into() }));

    for (width, height) in [(80, 24), (120, 40), (50, 14)] {
        let buffer = drawn(&screen, width, height);
        for cell in &buffer.content {
            assert!(!cell.symbol().chars().any(|letter| letter.is_control() || letter == '\u{202e}'), "{cell:?}");
        }
    }
    assert_snapshot!("hostile_80x24", picture(&screen, 80, 24));
    assert_snapshot!("hostile_120x40", picture(&screen, 120, 40));
}

#[test]
fn the_chosen_row_is_seen_however_long_the_list_is() {
    let mut rig = view();
    rig.jobs = (1..=90)
        .map(|at| {
            job(
                at,
                JobStatus::Recording { wait: Wait::durable(Moment::START, None), sentence: "is being recorded".into() },
            )
        })
        .collect();
    rig.jobs_live = 300;
    let mut screen = seeing(rig);
    screen.press(Key::Last);
    let last = picture(&screen, 80, 24);
    screen.press(Key::First);

    assert!(last.contains('▌'), "{last}");
    assert!(picture(&screen, 80, 24).contains("more below"));
    assert_snapshot!("long_list_80x24", last);
}

#[test]
fn every_size_of_terminal_is_drawn_on() {
    let screen = busy();
    for width in [1, 2, 10, 49, 50, 79, 80, 109, 110, 200, 400] {
        for height in [1, 2, 5, 13, 14, 24, 40, 100] {
            drawn(&screen, width, height);
        }
    }
    assert!(picture(&screen, 49, 14).contains("top needs 50x14"));
}

#[test]
fn blocks_are_kept_as_they_come_and_begin_anew_with_each_stage() {
    let mut screen = busy();
    let seen = |screen: &Screen| screen.shown().blocks[&JobId(Uuid::from_u128(1))].ratios.len();
    let before = seen(&screen);

    screen.hear(5_000, stage_event(StageView { accepted: 18, last_d: Some(0.2), ..stage() }));
    screen.hear(5_000, stage_event(StageView { accepted: 18, last_d: Some(0.2), ..stage() }));
    let after = seen(&screen);
    screen.hear(5_000, stage_event(StageView { stage: StageKind::Confirmation, accepted: 1, ..stage() }));

    assert_eq!((before, after, seen(&screen)), (17, 18, 1));
}

#[test]
fn without_colours_the_picture_says_the_same() {
    let screen = busy();
    let (area, mut plain) = (Rect::new(0, 0, 80, 24), Buffer::empty(Rect::new(0, 0, 80, 24)));
    draw(&screen, Palette { colours: false }, area, &mut plain);

    assert_eq!(text(&plain), picture(&screen, 80, 24));
    assert!(plain.content.iter().all(|cell| cell.fg == ratatui::style::Color::Reset));
}

#[test]
fn ids_in_rows_are_short_and_other_words_whole() {
    let text = "for job 01890a5d-ac96-774b-bcce-b302099a8057, at most 3 s more, dead-beef";

    assert_eq!(with_short_ids(text), "for job …9a8057, at most 3 s more, dead-beef");
}

/// A rig in the middle of a comparison, with everyone waiting for it.
fn busy() -> Screen {
    let mut rig = view();
    let hold = HoldId { member: MemberId(0), number: 4 };
    rig.devices[0].state = DeviceView::Held { hold, by: Holder::Judge, running_since: None, limit_at: None };
    rig.runs = vec![run(1, RunState::Running), run(2, RunState::Ended), run(3, RunState::Ended)];
    rig.jobs =
        vec![job(1, JobStatus::Measuring { hold, stage: Some(StageView { accepted: 0, ..stage() }), sentence: None })];
    let since = Moment::from_millis(40_000);
    for number in [2, 3] {
        let wait = Wait {
            reason: WaitReason::Earlier { ahead: number - 1 },
            place: number - 1,
            since,
            end: WaitEnd::Latest { at: since + Span::hours(9) },
        };
        let sentence = wait.sentence(rig.now);
        rig.jobs.push(job(number.into(), JobStatus::Waiting { wait, sentence }));
    }
    rig.jobs_live = 3;
    let reason = WaitReason::JudgeHolds { member: MemberId(0), job: Some(JobId(Uuid::from_u128(1))) };
    for lane in [1, 2] {
        let end = WaitEnd::Latest { at: since + Span::minutes(10) };
        let wait = Wait { reason: reason.clone(), place: lane - 1, since, end };
        let sentence = wait.sentence(rig.now);
        rig.dev_runs.push(dev_run(
            lane as u8,
            DevRunStatus::Waiting { wait, sentence },
            &["cargo", "bench", "--", "sum of squares"],
        ));
    }
    let mut screen = Screen::new("http://127.0.0.1:7077".into());
    screen.hear(0, News::View(Box::new(rig)));
    let facts = [
        LogEntry::RigStarted,
        LogEntry::ChampionMoved {
            run: RunId(Uuid::from_u128(1)),
            from: "a".repeat(40),
            to: "b".repeat(40),
            by: JobId(Uuid::from_u128(9)),
        },
        LogEntry::JobEnded {
            job: JobId(Uuid::from_u128(9)),
            outcome: JobOutcome::NoVerdict { why: "the device stayed busy for 3 min".into() },
            record: None,
        },
        LogEntry::JobEnded { job: JobId(Uuid::from_u128(8)), outcome: JobOutcome::Win { adopted: true }, record: None },
    ];
    for (at, fact) in facts.into_iter().enumerate() {
        screen.hear(1_000, happened(at as u64 + 1, RigHappening::Recorded { fact: fact.into() }));
    }
    for accepted in 1..=17 {
        // Up and down, and at times below nothing.
        let d = 0.04 + 0.06 * f64::sin(f64::from(accepted) * 1.7);
        screen.hear(5_000, stage_event(StageView { accepted, last_d: Some(d), ..stage() }));
    }
    screen
}

fn stage() -> StageView {
    StageView {
        job: JobId(Uuid::from_u128(1)),
        stage: StageKind::Screening,
        attempt: 1,
        phase: StagePhase::Comparing,
        accepted: 17,
        thrown: 2,
        blocks_most: 200,
        lower: Some(0.0123),
        ln_w: Some(2.1),
        ln_f: Some(-1.4),
        last_d: Some(0.05),
        waiting: None,
    }
}

fn stage_event(stage: StageView) -> News {
    happened(100, RigHappening::Stage { job: stage.job, stage })
}

fn happened(id: u64, what: RigHappening) -> News {
    News::Happened(Box::new(RigEvent { id, wall_ms: WALL, what }))
}

fn unbounded() -> Wait {
    Wait {
        reason: WaitReason::RunPaused { run: RunId(Uuid::from_u128(1)) },
        place: 0,
        since: Moment::from_millis(7_000),
        end: WaitEnd::Unbounded { cause: NoLatest::NoReadyDevice },
    }
}

fn view() -> RigView {
    let facts = DeviceFacts {
        target: Target::Cpu,
        uuid: "cpu-0f3c".into(),
        model: "AMD EPYC 7R13 Processor".into(),
        driver: "cpu, Linux 6.1, by the host's load".into(),
        clock_policy: "governor performance".into(),
        cpus: "0-1".into(),
        cores: 2,
    };
    let key = NoiseKey {
        device: facts.uuid.clone(),
        kit: "c".repeat(64),
        driver: facts.driver.clone(),
        clock_policy: facts.clock_policy.clone(),
    };
    let noise = vec![Noise { key, scale: 0.012, blocks: 40, wall_ms: WALL - 3_600_000 }];
    let containment = Some("namespaces + cgroup".to_owned());
    let device = DeviceRow {
        member: MemberId(0),
        facts,
        state: DeviceView::Ready,
        refused: 0,
        pool: DevicePool::default(),
        idle: None,
        drained: false,
        quarantine: None,
        noise,
        containment,
        warnings: Vec::new(),
        index: None,
        reading: None,
        disturbed: Vec::new(),
    };
    RigView {
        now: Moment::from_millis(60_000),
        wall_ms: WALL,
        devices: vec![device],
        runs: Vec::new(),
        dev_runs: Vec::new(),
        jobs: Vec::new(),
        jobs_live: 0,
        records_fault: None,
        overlooked: 0,
        leftovers: Vec::new(),
        leftovers_more: false,
        runners: thermite_actors::view::RunnersView {
            core_judges: true,
            ..thermite_actors::view::RunnersView::default()
        },
    }
}

fn run(number: u128, state: RunState) -> RunRow {
    RunRow {
        run: RunId(Uuid::from_u128(number)),
        state,
        repo: "/home/ada/sum".into(),
        kit: "rust-sum".into(),
        champion: "b".repeat(40),
        lanes: 3,
    }
}

fn job(number: u128, status: JobStatus) -> JobRow {
    JobRow {
        job: JobId(Uuid::from_u128(number)),
        run: RunId(Uuid::from_u128(1)),
        change: format!("{number:02}{}", "c4".repeat(19)),
        champion: "b".repeat(40),
        candidate: "d".repeat(40),
        stage: StageKind::Screening,
        attempt: 1,
        failures: Vec::new(),
        reused_from: None,
        warning: None,
        status,
    }
}

fn dev_run(lane: u8, status: DevRunStatus, argv: &[&str]) -> DevRunRow {
    DevRunRow {
        dev_run: DevRunId(Uuid::from_u128(lane.into())),
        run: RunId(Uuid::from_u128(1)),
        lane: LaneId::new(lane).unwrap(),
        argv: argv.iter().map(ToString::to_string).collect(),
        status,
        note: thermite_core::texts::DIAGNOSTIC_ONLY.into(),
    }
}

fn seeing(view: RigView) -> Screen {
    let mut screen = Screen::new("http://127.0.0.1:7077".into());
    screen.hear(0, News::View(Box::new(view)));
    screen
}

fn drawn(screen: &Screen, width: u16, height: u16) -> Buffer {
    let area = Rect::new(0, 0, width, height);
    let mut buffer = Buffer::empty(area);
    draw(screen, Palette { colours: true }, area, &mut buffer);
    buffer
}

fn picture(screen: &Screen, width: u16, height: u16) -> String {
    text(&drawn(screen, width, height))
}

/// The letters of a buffer, without what is blank at a line's end.
fn text(buffer: &Buffer) -> String {
    let mut all = String::new();
    for y in 0..buffer.area.height {
        let mut line = String::new();
        let mut skip = 0;
        for x in 0..buffer.area.width {
            let symbol = buffer[(x, y)].symbol();
            if skip > 0 {
                skip -= 1;
                continue;
            }
            skip = unicode_width::UnicodeWidthStr::width(symbol).saturating_sub(1);
            line.push_str(symbol);
        }
        writeln!(all, "{}", line.trim_end()).unwrap();
    }
    all
}
