//! The list: devices, jobs, the line, runs, each row one line, a stage under way with a second one for its evidence.

use ratatui::style::Style;
use ratatui::text::{Line, Span as Piece};

use thermite_actors::view::{DevRunRow, DevRunStatus, DevicePool, DeviceRow, JobRow, JobStatus, RigView, RunRow};
use thermite_core::contract::Target;
use thermite_core::device::DeviceView;
use thermite_core::ids::{Holder, JobId};
use thermite_core::job::StageKind;
use thermite_core::limits;
use thermite_core::run::RunState;
use thermite_core::stage::{StagePhase, StageView};
use thermite_core::time::Span;
use thermite_core::verdict::hodges_lehmann;
use thermite_svc::plain::plain;
use thermite_svc::runner_lines;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::cli::say::cut_to;
use crate::cli::show;

use super::draw::Palette;
use super::screen::{Blocks, Rig, RowId};

/// Columns of what a row is called.
const NAME: usize = 13;

/// One line of the list.
pub(super) struct ListLine {
    /// What it belongs to; none for a heading or a remark.
    pub(super) row: Option<RowId>,
    pub(super) line: Line<'static>,
}

/// The list as it fits: sentences whole where there is room below each other, since their end says how a wait ends; else
/// one line for each row.
pub(super) fn list(rig: &Rig, palette: Palette, width: usize, height: usize) -> Vec<ListLine> {
    let whole = listed(rig, palette, Room { width, lines: LINES_MOST });
    if whole.len() <= height { whole } else { listed(rig, palette, Room { width, lines: 1 }) }
}

/// Lines that one row takes at most.
const LINES_MOST: usize = 3;

/// What a row may take.
#[derive(Clone, Copy)]
struct Room {
    width: usize,
    lines: usize,
}

fn listed(rig: &Rig, palette: Palette, room: Room) -> Vec<ListLine> {
    let width = room.width;
    let mut lines = Vec::new();
    let Some((_, view)) = &rig.view else {
        lines.push(remark("no view yet", palette));
        return lines;
    };
    lines.push(heading("DEVICES", "", palette, width));
    for row in &view.devices {
        push(&mut lines, RowId::Device(row.member), device(rig, view, row, palette, room));
    }
    runners(&mut lines, view, palette, room);
    jobs(&mut lines, rig, view, palette, room);
    let waiting = view.dev_runs.len();
    lines.push(heading("LINE", &counted(waiting, "development run", "development runs"), palette, width));
    if waiting == 0 {
        lines.push(remark("no development run waits or runs", palette));
    }
    for row in &view.dev_runs {
        push(&mut lines, RowId::DevRun(row.dev_run), dev_run(rig, row, palette, room));
    }
    for row in &view.leftovers {
        lines.push(remark(&cut_to(&show::leftover(row, rig.moment()), width.saturating_sub(2)), palette));
    }
    if view.leftovers_more {
        lines.push(remark("and more processes that development runs left behind", palette));
    }
    runs(&mut lines, view, palette, room);
    lines
}

fn push(lines: &mut Vec<ListLine>, row: RowId, of: Vec<Line<'static>>) {
    lines.extend(of.into_iter().map(|line| ListLine { row: Some(row), line }));
}

/// The runners on other machines, where the rig has any.
fn runners(lines: &mut Vec<ListLine>, view: &RigView, palette: Palette, room: Room) {
    let block = &view.runners;
    if block.is_empty() {
        return;
    }
    lines.push(heading("RUNNERS", &counted(block.runners.len(), "runner", "runners"), palette, room.width));
    if let Some(why) = &block.bus_away {
        lines.push(remark(
            &cut_to(&format!("cannot be reached: {}", plain(why)), room.width.saturating_sub(2)),
            palette,
        ));
    }
    for known in &block.runners {
        let pool = known.pool.map_or_else(|| "off the list".to_owned(), |pool| pool.to_string());
        let style = match (known.takes_runs, known.runs.is_some()) {
            (_, true) => palette.bold(),
            (true, false) => palette.good(),
            (false, false) => palette.bad(),
        };
        let text = format!("{pool}: {}", runner_lines::doing(known, view.now));
        push(lines, RowId::Runner(known.member), row(&plain(&known.name), &text, style, room));
    }
    for name in &block.without_pool {
        lines.push(remark(&format!("{} is given no pool: idle", plain(name)), palette));
    }
}

fn jobs(lines: &mut Vec<ListLine>, rig: &Rig, view: &RigView, palette: Palette, room: Room) {
    let width = room.width;
    lines.push(heading("JOBS", &counted(view.jobs_live, "job", "jobs"), palette, width));
    if view.jobs.is_empty() {
        lines.push(remark("no job: submit one with `thermite judge --change REV`", palette));
    }
    for row in &view.jobs {
        let id = RowId::Job(row.job);
        push(lines, id, job(row, palette, room));
        if let JobStatus::Measuring { stage: Some(stage), .. } = &row.status
            && stage.phase == StagePhase::Comparing
        {
            let ratios = rig.blocks.get(&row.job).and_then(|blocks| ratios(blocks, palette, width));
            push(lines, id, std::iter::once(evidence(stage, palette, width)).chain(ratios).collect());
        }
    }
    let more = view.jobs_live.saturating_sub(view.jobs.len());
    if more > 0 {
        lines.push(remark(&format!("and {more} more jobs wait"), palette));
    }
}

fn runs(lines: &mut Vec<ListLine>, view: &RigView, palette: Palette, room: Room) {
    let ended = view.runs.iter().filter(|run| run.state == RunState::Ended).count();
    let note = if ended > 0 { format!("{ended} ended") } else { String::new() };
    lines.push(heading("RUNS", &note, palette, room.width));
    let before = lines.len();
    for row in view.runs.iter().filter(|run| run.state != RunState::Ended) {
        push(lines, RowId::Run(row.run), run(row, palette, room));
    }
    if lines.len() == before {
        lines.push(remark("no run is being worked on: start one with `thermite start`", palette));
    }
}

fn heading(name: &str, note: &str, palette: Palette, width: usize) -> ListLine {
    let note = if note.is_empty() { String::new() } else { format!(" {note}") };
    let rule = "─".repeat(width.saturating_sub(name.len() + note.len() + 2));
    let line = Line::from(vec![
        Piece::styled(name.to_owned(), palette.bold()),
        Piece::styled(format!("{note} {rule}"), palette.dim()),
    ]);
    ListLine { row: None, line }
}

fn remark(text: &str, palette: Palette) -> ListLine {
    ListLine { row: None, line: Line::styled(format!("  {text}"), palette.dim()) }
}

/// A row: its name, and what it does in as many lines as there is room for.
fn row(name: &str, text: &str, style: Style, room: Room) -> Vec<Line<'static>> {
    let columns = room.width.saturating_sub(NAME + 4);
    let text = with_short_ids(text);
    let lines = match wrap(&text, columns) {
        lines if lines.len() <= room.lines => lines,
        mut lines => {
            let rest = lines.split_off(room.lines - 1).join(" ");
            lines.push(cut_to(&rest, columns));
            lines
        }
    };
    let mut name = cut_to(name, NAME);
    let line = |text| {
        let name = std::mem::take(&mut name);
        Line::from(vec![Piece::raw(format!("  {} ", padded(&name, NAME))), Piece::styled(text, style)])
    };
    lines.into_iter().map(line).collect()
}

/// Breaks between words; a word that is longer than a line is broken where the line ends.
fn wrap(text: &str, columns: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("there is always a line");
        let needed = line.width() + usize::from(!line.is_empty()) + word.width();
        if needed <= columns {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
            continue;
        }
        if !line.is_empty() {
            lines.push(String::new());
        }
        for letter in word.chars() {
            let line = lines.last_mut().expect("there is always a line");
            if line.width() + letter.width().unwrap_or(0) > columns.max(2) {
                lines.push(letter.to_string());
            } else {
                line.push(letter);
            }
        }
    }
    lines
}

/// The end of an id tells it from its neighbours; its beginning is the time. The detail has it whole.
pub(super) fn with_short_ids(text: &str) -> String {
    let words = text.split_inclusive(|letter: char| !letter.is_ascii_hexdigit() && letter != '-');
    words
        .map(|word| {
            let (id, rest) = word.split_at(word.len().min(ID));
            let is_id =
                id.len() == ID && id.parse::<JobId>().is_ok() && !rest.starts_with(|next: char| next.is_alphanumeric());
            if is_id { format!("…{}{rest}", &id[ID - 6..]) } else { word.to_owned() }
        })
        .collect()
}

/// Letters of an id.
const ID: usize = 36;

fn padded(text: &str, columns: usize) -> String {
    format!("{text}{}", " ".repeat(columns.saturating_sub(text.width())))
}

fn device(rig: &Rig, view: &RigView, of: &DeviceRow, palette: Palette, room: Room) -> Vec<Line<'static>> {
    let (text, style) = match &of.state {
        DeviceView::Ready if of.drained => (format!("drained · {}", named(of)), palette.warn()),
        DeviceView::Ready => (format!("free · {}", named(of)), palette.good()),
        DeviceView::Held { by, .. } => {
            let what = holder(view, of).map(|what| format!(", {what}")).unwrap_or_default();
            (format!("held by {by}{}{what}", held_for(rig, of)), palette.accent())
        }
        DeviceView::Stopping { .. } | DeviceView::Sweeping => (show::device_word(&of.state), palette.warn()),
        DeviceView::Out { why, next_try } => {
            let in_time = next_try.since(rig.moment());
            (format!("OUT OF SERVICE, tried again in {in_time}: {}", plain(why)), palette.bad())
        }
        DeviceView::Quarantined { why } => (format!("QUARANTINED: {}", plain(why)), palette.bad()),
    };
    row(&of.member.to_string(), &text, style, room)
}

/// A device's model; of a card also whom it serves, since there may be several.
fn named(of: &DeviceRow) -> String {
    let model = plain(&of.facts.model);
    match (of.facts.target, of.pool) {
        (Target::Cpu, _) | (Target::CudaGpu, DevicePool::Shared) => model,
        (Target::CudaGpu, DevicePool::Judge) => format!("the judge's · {model}"),
        (Target::CudaGpu, DevicePool::Agents) => format!("the lanes' · {model}"),
        (Target::CudaGpu, DevicePool::Idle) => format!("idle · {model}"),
    }
}

/// How long the holder has it, as far as that was seen.
pub(super) fn held_for(rig: &Rig, of: &DeviceRow) -> String {
    if let DeviceView::Held { running_since: Some(since), .. } = &of.state {
        return format!(" for {}", rig.moment().since(*since));
    }
    let Some(held) = rig.holders.get(&of.member) else { return String::new() };
    let span = Span::millis(rig.now.saturating_sub(held.since));
    if held.seen { format!(" for {span}") } else { format!(" for over {span}") }
}

/// What the holder does with it.
fn holder(view: &RigView, of: &DeviceRow) -> Option<String> {
    let DeviceView::Held { hold, by, limit_at, .. } = &of.state else { return None };
    match by {
        Holder::Judge => {
            let job = view
                .jobs
                .iter()
                .find(|job| matches!(&job.status, JobStatus::Measuring { hold: held, .. } if held == hold))?;
            Some(format!("{} of {}", job.stage, plain(show::short(&job.change))))
        }
        Holder::Lane(lane) => {
            let run = view.dev_runs.iter().find(|run| run.lane == *lane)?;
            let limit = if limit_at.is_some() { "" } else { ", no limit" };
            Some(format!("{}{limit}", show::command(&run.argv)))
        }
    }
}

fn job(of: &JobRow, palette: Palette, room: Room) -> Vec<Line<'static>> {
    let style = match &of.status {
        JobStatus::Measuring { sentence: Some(_), .. } => palette.warn(),
        JobStatus::Measuring { .. } | JobStatus::Concluding { .. } => palette.accent(),
        JobStatus::Waiting { .. } | JobStatus::Recording { .. } => palette.plain(),
        JobStatus::Ended { .. } => palette.dim(),
    };
    let text = match &of.status {
        // Evidence and bound have a line of their own.
        JobStatus::Measuring { stage: Some(stage), sentence, .. } if stage.phase == StagePhase::Comparing => {
            let thrown = if stage.thrown > 0 { format!(", {} thrown", stage.thrown) } else { String::new() };
            let waits = sentence.as_ref().map(|sentence| format!("; {}", plain(sentence))).unwrap_or_default();
            format!("{}: block {} of at most {}{thrown}{waits}", of.stage, stage.accepted, stage.blocks_most)
        }
        _ => show::job_status(of),
    };
    row(&plain(show::short(&of.change)), &text, style, room)
}

/// W and F against what decides, and the lower bound so far.
fn evidence(stage: &StageView, palette: Palette, width: usize) -> Line<'static> {
    let alpha = match stage.stage {
        StageKind::Screening => limits::SCREENING_ALPHA,
        StageKind::Confirmation => limits::CONFIRMATION_ALPHA,
    };
    let (columns, of) = if width < 78 { (6, "/") } else { (if width < 90 { 6 } else { 10 }, " of ") };
    let mut pieces = vec![Piece::raw(" ".repeat(NAME + 3))];
    let shares = [("W", stage.ln_w, alpha, palette.good()), ("F", stage.ln_f, limits::FUTILITY_BETA, palette.warn())];
    for (name, ln, chance, style) in shares {
        let most = (1.0 / chance).ln();
        let ln = ln.unwrap_or(0.0);
        pieces.push(Piece::styled(format!("ln {name} "), palette.dim()));
        pieces.push(Piece::styled(bar(ln / most, columns), style));
        pieces.push(Piece::raw(format!(" {ln:.1}{of}{most:.1}  ")));
    }
    let lower = stage.lower.map_or("none yet".to_owned(), show::lower);
    pieces.push(Piece::styled("lower ", palette.dim()));
    pieces.push(Piece::styled(lower, palette.bold()));
    Line::from(pieces)
}

/// The blocks that were seen, the newest at the right, and what they say so far.
fn ratios(blocks: &Blocks, palette: Palette, width: usize) -> Option<Line<'static>> {
    let all: Vec<f64> = blocks.ratios.iter().copied().collect();
    let estimate = hodges_lehmann(&all)?;
    let of =
        if all.len() == blocks.accepted as usize { String::new() } else { format!(" over the last {}", all.len()) };
    let said = format!(" {} so far{of}, early-stopped", show::percent(estimate));
    let room = width.saturating_sub(NAME + 3 + said.len()).clamp(8, 60);
    let shown = &all[all.len().saturating_sub(room)..];
    let low = shown.iter().copied().fold(0.0_f64, f64::min);
    let high = shown.iter().copied().fold(0.0_f64, f64::max);
    let mut pieces = vec![Piece::raw(" ".repeat(NAME + 3))];
    for d in shown {
        let style = if *d >= 0.0 { palette.good() } else { palette.bad() };
        pieces.push(Piece::styled(spark((d - low) / (high - low).max(1e-12)).to_string(), style));
    }
    pieces.push(Piece::styled(said, palette.dim()));
    Some(Line::from(pieces))
}

fn spark(share: f64) -> char {
    const LETTERS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    LETTERS[((share * 8.0) as usize).min(7)]
}

fn bar(share: f64, columns: usize) -> String {
    let full = (share.clamp(0.0, 1.0) * columns as f64) as usize;
    format!("{}{}", "█".repeat(full), "░".repeat(columns - full))
}

fn dev_run(rig: &Rig, of: &DevRunRow, palette: Palette, room: Room) -> Vec<Line<'static>> {
    let style = match &of.status {
        DevRunStatus::Running { .. } | DevRunStatus::Starting { .. } => palette.accent(),
        DevRunStatus::Stopping { .. } => palette.warn(),
        DevRunStatus::Recording { .. } | DevRunStatus::Waiting { .. } => palette.plain(),
        DevRunStatus::Ended { .. } => palette.dim(),
    };
    let text = match &of.status {
        // On one line the sentence needs all of it.
        DevRunStatus::Waiting { .. } if room.lines == 1 => show::dev_run_status(&of.status, rig.moment()),
        _ => format!("{}: {}", show::command(&of.argv), show::dev_run_status(&of.status, rig.moment())),
    };
    row(&of.lane.to_string(), &text, style, room)
}

fn run(of: &RunRow, palette: Palette, room: Room) -> Vec<Line<'static>> {
    let (state, style) = match of.state {
        RunState::Running => ("running", palette.plain()),
        RunState::Paused => ("PAUSED", palette.warn()),
        RunState::Ended => ("ended", palette.dim()),
    };
    let lanes = counted(usize::from(of.lanes), "lane", "lanes");
    let (champion, repo) = (plain(show::short(&of.champion)), plain(&of.repo.display().to_string()));
    row(&plain(&of.kit), &format!("{state}, {lanes}, champion {champion}, {repo}"), style, room)
}

fn counted(number: usize, one: &str, many: &str) -> String {
    match number {
        0 => String::new(),
        1 => format!("1 {one}"),
        number => format!("{number} {many}"),
    }
}
