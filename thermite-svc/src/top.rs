//! The live screen: the rig's own view and events, drawn anew with each piece of news.
//!
//! [`screen`] folds news into what is known, [`draw`] makes a picture of it; both are pure. [`feed`] reads REST and
//! events on threads of its own, [`terminal`] has the terminal and gives it back on every way out.

mod detail;
mod draw;
mod feed;
mod rows;
mod screen;
mod terminal;
#[cfg(test)]
mod tests;

use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::Context;

use thermite_actors::view::RigView;

use crate::client::Client;

use draw::Palette;
use screen::{News, Screen};
use terminal::Terminal;

/// How often the picture is drawn anew while nothing comes: ages run on.
const DRAW_EVERY: Duration = Duration::from_millis(500);
/// How soon after a picture the next may follow: many blocks in a moment are one picture.
const DRAW_PACE: Duration = Duration::from_millis(40);

/// What wakes the loop.
enum Wake {
    News(News),
    Key(screen::Key),
    Resized,
    Leave,
}

/// Watches until the watcher leaves.
pub(crate) fn watch(client: Client, view: RigView, colours: bool) -> anyhow::Result<()> {
    let began = Instant::now();
    let now = || u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    let mut screen = Screen::new(client.base().to_owned());
    screen.hear(now(), News::View(Box::new(view)));
    let (wake, woken) = mpsc::channel();
    terminal::listen_for_signals(&wake)?;
    feed::start(&client, &wake)?;
    let mut terminal = Terminal::take().context("failed to take the terminal")?;
    terminal::listen_for_keys(&wake)?;
    let palette = Palette { colours };
    loop {
        screen.hear(now(), News::Nothing);
        terminal.draw(|area, buffer| draw::draw(&screen, palette, area, buffer)).context("failed to draw")?;
        let drawn = Instant::now();
        let mut wakes = woken.recv_timeout(DRAW_EVERY).ok();
        while let Some(next) = wakes {
            match next {
                Wake::News(news) => screen.hear(now(), news),
                Wake::Key(screen::Key::Leave) | Wake::Leave => return Ok(()),
                Wake::Key(key) => screen.press(key),
                Wake::Resized => {}
            }
            wakes = woken.recv_timeout(DRAW_PACE.saturating_sub(drawn.elapsed())).ok();
        }
    }
}
