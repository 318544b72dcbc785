//! The picture: a function of what is known, drawn into a buffer.

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span as Piece};
use ratatui::widgets::{Paragraph, Widget, Wrap};

use thermite_core::time::Span;
use thermite_svc::plain::plain;

use crate::cli::say::cut_to;

use super::detail::{self, Tone};
use super::rows::{self, ListLine};
use super::screen::{Rig, Screen};

/// The least terminal that a picture fits on.
const LEAST: (u16, u16) = (50, 14);
/// From this width on the detail and the events have a column of their own.
const WIDE: u16 = 110;

/// How things are marked; without colours by weight alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Palette {
    pub(super) colours: bool,
}

impl Palette {
    pub(super) fn plain(self) -> Style {
        Style::new()
    }

    pub(super) fn bold(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    pub(super) fn dim(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    pub(super) fn good(self) -> Style {
        self.colour(Color::Green)
    }

    pub(super) fn warn(self) -> Style {
        self.colour(Color::Yellow)
    }

    pub(super) fn bad(self) -> Style {
        self.colour(Color::Red).add_modifier(Modifier::BOLD)
    }

    pub(super) fn accent(self) -> Style {
        self.colour(Color::Cyan)
    }

    fn colour(self, colour: Color) -> Style {
        if self.colours { Style::new().fg(colour) } else { Style::new() }
    }
}

/// Draws the whole.
pub(super) fn draw(screen: &Screen, palette: Palette, area: Rect, buffer: &mut Buffer) {
    if area.width < LEAST.0 || area.height < LEAST.1 {
        let text = format!("the terminal is {}x{}; top needs {}x{}", area.width, area.height, LEAST.0, LEAST.1);
        Paragraph::new(text).wrap(Wrap { trim: true }).render(area, buffer);
        return;
    }
    let rig = screen.shown();
    let fault = rig.view.as_ref().and_then(|(_, view)| view.records_fault.as_ref());
    let banner = u16::from(fault.is_some());
    let [title, warning, body, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(banner),
        Constraint::Fill(1),
        Constraint::Length(1),
    ])
    .areas(area);
    draw_title(screen, palette, title, buffer);
    if let Some(fault) = fault {
        let text = format!(" the records cannot be written, so nothing is granted: {}", plain(fault));
        let style = palette.bad().add_modifier(Modifier::REVERSED);
        Line::styled(cut_to(&text, usize::from(warning.width)), style).render(warning, buffer);
    }
    let (list, chosen, events) = parts(body);
    draw_list(screen, palette, list, buffer);
    draw_detail(screen, palette, chosen, buffer);
    draw_events(rig, palette, events, buffer);
    draw_keys(screen, palette, keys, buffer);
}

/// Where the list, the detail and the events are.
fn parts(body: Rect) -> (Rect, Rect, Rect) {
    if body.width >= WIDE {
        let [list, side] = Layout::horizontal([Constraint::Fill(5), Constraint::Fill(3)]).spacing(2).areas(body);
        let [chosen, events] = Layout::vertical([Constraint::Fill(2), Constraint::Fill(3)]).areas(side);
        return (list, chosen, events);
    }
    let low = body.height < 24;
    let (chosen, events) = if low { (5, 4) } else { (7, 8) };
    let [list, chosen, events] =
        Layout::vertical([Constraint::Fill(1), Constraint::Length(chosen), Constraint::Length(events)]).areas(body);
    (list, chosen, events)
}

fn draw_title(screen: &Screen, palette: Palette, area: Rect, buffer: &mut Buffer) {
    let rig = screen.shown();
    let (state, style) = match (screen.frozen_for(), &rig.away) {
        (Some(span), _) => (format!("FROZEN for {span} "), palette.warn().add_modifier(Modifier::BOLD)),
        (None, Some((since, why))) => {
            let span = Span::millis(rig.now.saturating_sub(*since));
            (format!("the rig is away for {span}: {} ", plain(why)), palette.bad())
        }
        (None, None) => ("live ".to_owned(), palette.good()),
    };
    let width = usize::from(area.width);
    let state = cut_to(&state, width.saturating_sub(12));
    let state_width = u16::try_from(Piece::raw(state.as_str()).width()).unwrap_or(area.width);
    let name = Piece::styled(" thermite ", palette.bold());
    let url = Piece::styled(plain(&rig.url), palette.dim());
    let left = Rect { width: area.width.saturating_sub(state_width + 1), ..area };
    Line::from(vec![name, url]).render(left, buffer);
    let right = Rect { x: area.x + area.width.saturating_sub(state_width), width: state_width.min(area.width), ..area };
    Line::styled(state, style).render(right, buffer);
}

/// The list, moved so that the chosen row is seen.
fn draw_list(screen: &Screen, palette: Palette, area: Rect, buffer: &mut Buffer) {
    let height = usize::from(area.height);
    let lines = rows::list(screen.shown(), palette, usize::from(area.width), height);
    let chosen = screen.chosen();
    let is_chosen = |line: &ListLine| chosen.is_some() && line.row == chosen;
    let first = lines.iter().position(is_chosen).unwrap_or(0);
    let last = lines.iter().rposition(is_chosen).unwrap_or(0);
    let mut from = lines.len().saturating_sub(height).min(first.saturating_sub(1));
    if last < height {
        from = 0;
    }
    let hidden_below = lines.len().saturating_sub(from + height);
    for (at, line) in lines.iter().skip(from).take(height).enumerate() {
        let place = Rect { y: area.y + at as u16, height: 1, ..area };
        line.line.clone().render(place, buffer);
        if is_chosen(line) {
            buffer.set_string(place.x, place.y, "▌", palette.accent().add_modifier(Modifier::BOLD));
        }
    }
    if hidden_below > 0 && height > 0 {
        let text = format!(" {hidden_below} more below ");
        let x = area.x + area.width.saturating_sub(text.len() as u16);
        buffer.set_string(x, area.y + area.height - 1, text, palette.dim());
    }
}

fn draw_detail(screen: &Screen, palette: Palette, area: Rect, buffer: &mut Buffer) {
    let (title, lines) = detail::detail(screen.shown(), screen.chosen());
    let [head, body] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(area);
    draw_rule(&title, palette, head, buffer);
    let mut lines = lines.into_iter();
    let mut text: Vec<Line<'static>> = Vec::new();
    text.extend(lines.next().map(|first| Line::styled(first, palette.plain())));
    text.extend(lines.map(|line| Line::styled(line, palette.dim())));
    let inner = Rect { x: body.x + 2, width: body.width.saturating_sub(2), ..body };
    Paragraph::new(text).wrap(Wrap { trim: true }).render(inner, buffer);
}

fn draw_events(rig: &Rig, palette: Palette, area: Rect, buffer: &mut Buffer) {
    let [head, body] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(area);
    draw_rule("EVENTS", palette, head, buffer);
    if rig.events.is_empty() {
        Line::styled("  nothing has happened since this began to look", palette.dim()).render(body, buffer);
    }
    for (at, event) in rig.events.iter().take(usize::from(body.height)).enumerate() {
        let (text, tone) = detail::event(event);
        let style = match tone {
            Tone::Plain => palette.plain(),
            Tone::Good => palette.good(),
            Tone::Bad => palette.bad(),
        };
        let age = event.wall_ms.map(|then| Span::millis(rig.wall_ms().saturating_sub(then)).to_string());
        let age = format!("  {:>11}  ", age.unwrap_or_default());
        let room = usize::from(body.width).saturating_sub(age.len());
        let line = Line::from(vec![Piece::styled(age, palette.dim()), Piece::styled(cut_to(&text, room), style)]);
        line.render(Rect { y: body.y + at as u16, height: 1, ..body }, buffer);
    }
}

fn draw_rule(title: &str, palette: Palette, area: Rect, buffer: &mut Buffer) {
    let title = cut_to(title, usize::from(area.width).saturating_sub(2));
    let rule = "─".repeat(usize::from(area.width).saturating_sub(Piece::raw(title.as_str()).width() + 1));
    Line::from(vec![Piece::styled(title, palette.bold()), Piece::styled(format!(" {rule}"), palette.dim())])
        .render(area, buffer);
}

fn draw_keys(screen: &Screen, palette: Palette, area: Rect, buffer: &mut Buffer) {
    let freeze = if screen.frozen_for().is_some() { "go on" } else { "freeze" };
    let mut pieces = vec![Piece::raw(" ")];
    for (key, what) in [("q", "leave"), ("↑↓ jk", "choose"), ("p", freeze)] {
        pieces.push(Piece::styled(key.to_owned(), palette.bold()));
        pieces.push(Piece::styled(format!(" {what}   "), palette.dim()));
    }
    pieces.push(Piece::styled("more agents, more load, a judge that waits longer", palette.dim()));
    Line::from(pieces).render(area, buffer);
}
