//! The terminal: taken at the start, given back on every way out, and what comes from it.

use std::io;
use std::sync::mpsc::Sender;

use anyhow::Context;
use ratatui::DefaultTerminal;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::Rect;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::Wake;
use super::screen::Key;

/// The terminal, in its other screen and without echo, until this is dropped or the program panics.
pub(super) struct Terminal(DefaultTerminal);

impl Terminal {
    /// Takes it.
    pub(super) fn take() -> io::Result<Terminal> {
        // It gives the terminal back at a panic too, before the message is printed.
        Ok(Terminal(ratatui::try_init()?))
    }

    /// Draws one picture; what is the same as before is not sent.
    pub(super) fn draw(&mut self, draw: impl FnOnce(Rect, &mut Buffer)) -> io::Result<()> {
        self.0.draw(|frame| draw(frame.area(), frame.buffer_mut())).map(drop)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing back.
        let _gone = self.0.show_cursor();
        let _gone = ratatui::try_restore();
    }
}

/// A signal to end leaves by the same way as the key, so that the terminal is given back.
pub(super) fn listen_for_signals(wake: &Sender<Wake>) -> anyhow::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGHUP, SIGINT]).context("failed to listen for signals")?;
    let wake = wake.clone();
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            for _ in signals.forever() {
                let _nobody_waits = wake.send(Wake::Leave);
            }
        })
        .context("failed to listen for signals")?;
    Ok(())
}

/// Keys and changes of size, as they come.
pub(super) fn listen_for_keys(wake: &Sender<Wake>) -> anyhow::Result<()> {
    let wake = wake.clone();
    std::thread::Builder::new()
        .name("keys".to_owned())
        .spawn(move || {
            loop {
                let told = match event::read() {
                    Ok(Event::Key(key)) if key.kind != KeyEventKind::Release => {
                        key_of(key.code, key.modifiers).map(Wake::Key)
                    }
                    Ok(Event::Resize(..)) => Some(Wake::Resized),
                    Ok(_) => None,
                    // A terminal that cannot be read any more is gone.
                    Err(_) => Some(Wake::Leave),
                };
                if told.is_some_and(|told| wake.send(told).is_err()) {
                    return;
                }
            }
        })
        .context("failed to listen for keys")?;
    Ok(())
}

fn key_of(code: KeyCode, modifiers: KeyModifiers) -> Option<Key> {
    match code {
        KeyCode::Char('c') if modifiers.contains(KeyModifiers::CONTROL) => Some(Key::Leave),
        KeyCode::Char('q') | KeyCode::Esc => Some(Key::Leave),
        KeyCode::Up | KeyCode::Char('k') => Some(Key::Up),
        KeyCode::Down | KeyCode::Char('j') => Some(Key::Down),
        KeyCode::Home | KeyCode::Char('g') => Some(Key::First),
        KeyCode::End | KeyCode::Char('G') => Some(Key::Last),
        KeyCode::Char('p' | ' ') => Some(Key::Freeze),
        _ => None,
    }
}
