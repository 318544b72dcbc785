//! `thermite top` on a real terminal (a pty) against a real rig.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::Command;
use std::sync::{Arc, Mutex};

use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Termios, Winsize, tcgetattr, tcsetwinsize};

use super::house::{House, Load, Who};
use crate::binary::{Own, until};

const OTHER_SCREEN: &str = "\x1b[?1049h";
const OWN_SCREEN: &str = "\x1b[?1049l";
const CURSOR_SHOWN: &str = "\x1b[?25h";

#[test]
fn it_draws_leaves_by_q_and_gives_the_terminal_back() {
    let Some(house) = House::served(Who::Me, Load::Quiet, "10 min") else { return };
    let (busy, probe) = (house.shared("busy"), house.at("probe"));
    let holds = house.ask(1, &[&busy, "hold", &probe, "200000", &house.tag]);
    house.running(&holds);
    let terminal = Terminal::open(80, 24);
    let before = terminal.modes();
    let mut top = terminal.start(house.command(&["top"]));

    until("it draws", || terminal.screen().contains("held by lane 1"));
    assert!(!terminal.modes().local_modes.contains(LocalModes::ECHO), "keys are not echoed meanwhile");
    terminal.resize(120, 40);
    top.signal(Signal::WINCH);
    until("it draws anew at the new size", || terminal.screen().lines().any(|line| line.chars().count() > 80));
    terminal.press("jkp");
    until("it freezes", || terminal.screen().contains("FROZEN for"));
    terminal.press("q");

    let status = top.0.wait().unwrap();
    assert_eq!(status.code(), Some(0), "{}", terminal.shown());
    terminal.assert_given_back(&before);
}

#[test]
fn a_signal_gives_the_terminal_back_too() {
    let Some(house) = House::served(Who::Me, Load::Quiet, "10 min") else { return };
    for signal in [Signal::TERM, Signal::HUP, Signal::INT] {
        let terminal = Terminal::open(80, 24);
        let before = terminal.modes();
        let mut top = terminal.start(house.command(&["top"]));
        until("it draws", || terminal.screen().contains("DEVICES"));

        top.signal(signal);

        let status = top.0.wait().unwrap();
        assert_eq!(status.code(), Some(0), "{signal:?}: {}", terminal.shown());
        terminal.assert_given_back(&before);
    }
}

#[test]
fn a_rig_that_is_killed_and_started_again_is_away_meanwhile() {
    let Some(house) = House::served(Who::Me, Load::Quiet, "10 min") else { return };
    let terminal = Terminal::open(100, 30);
    let mut top = terminal.start(house.command(&["top"]));
    until("it draws", || terminal.screen().contains("DEVICES"));

    house.kill();
    until("the rig is away", || terminal.screen().contains("the rig is away for"));
    // It listens on another port: the address is looked for again.
    house.restart();
    until("the rig is back", || terminal.screen().contains(&house.url()) && terminal.screen().contains(" live"));
    let job = house.submit(&house.slower("late"));
    until("its events are heard again", || terminal.screen().contains("was submitted"));
    terminal.press("\x03");

    assert_eq!(top.0.wait().unwrap().code(), Some(0));
    house.judged(&job);
}

#[test]
fn elsewhere_than_on_a_terminal_it_points_to_status() {
    let Some(house) = House::served(Who::Me, Load::Quiet, "10 min") else { return };

    let piped = house.say(&["top"]);
    let terminal = Terminal::open(80, 24);
    let mut dumb = house.command(&["top"]);
    dumb.env("TERM", "dumb");
    let mut dumb = terminal.start(dumb);

    assert!(piped.refused_with(69).contains("`thermite status` shows the rig once"), "{piped:?}");
    assert_eq!(dumb.0.wait().unwrap().code(), Some(69));
    until("it says why", || terminal.shown().contains("top draws on a terminal"));
}

#[test]
fn colours_come_on_a_terminal_alone_and_as_the_environment_wants_them() {
    let Some(house) = House::served(Who::Me, Load::Quiet, "10 min") else { return };
    let on_terminal = |name: &str, value: &str| {
        let terminal = Terminal::open(80, 24);
        let mut status = house.command(&["status"]);
        status.env(name, value);
        let mut status = terminal.start(status);
        assert_eq!(status.0.wait().unwrap().code(), Some(0));
        until("it is shown", || terminal.shown().contains("running, kit whole"));
        terminal.shown().contains('\x1b')
    };

    assert!(on_terminal("PLAIN", "1"));
    assert!(!on_terminal("NO_COLOR", "1"));
    assert!(!on_terminal("TERM", "dumb"));
    let piped = |name: &str| {
        let output = house.command(&["status"]).env(name, "1").output().unwrap();
        String::from_utf8(output.stdout).unwrap().contains('\x1b')
    };
    assert!(!piped("PLAIN"));
    assert!(piped("CLICOLOR_FORCE"));
}

/// A terminal of the test's own, and everything that was written on it.
struct Terminal {
    master: File,
    slave: File,
    shown: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    fn open(columns: u16, lines: u16) -> Terminal {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let slave = File::options().read(true).write(true).open(name).unwrap();
        let master = File::from(master);
        let shown = Arc::new(Mutex::new(Vec::new()));
        let (mut reader, written) = (master.try_clone().unwrap(), Arc::clone(&shown));
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = reader.read(&mut bytes) {
                written.lock().unwrap().extend_from_slice(&bytes[..read]);
            }
        });
        let terminal = Terminal { master, slave, shown };
        terminal.resize(columns, lines);
        terminal
    }

    /// Starts a command on it.
    fn start(&self, mut command: Command) -> Own {
        let side = || OwnedFd::from(self.slave.try_clone().unwrap());
        if !command.get_envs().any(|(name, _)| name == "TERM") {
            command.env("TERM", "xterm-256color");
        }
        Own(command.stdin(side()).stdout(side()).stderr(side()).spawn().unwrap())
    }

    fn resize(&self, columns: u16, lines: u16) {
        tcsetwinsize(&self.master, Winsize { ws_col: columns, ws_row: lines, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    }

    fn press(&self, keys: &str) {
        (&self.master).write_all(keys.as_bytes()).unwrap();
    }

    fn modes(&self) -> Termios {
        tcgetattr(&self.slave).unwrap()
    }

    /// Everything that was written, as it came.
    fn shown(&self) -> String {
        String::from_utf8_lossy(&self.shown.lock().unwrap()).into_owned()
    }

    /// What stands on the screen: only cells that changed are written, so a word may come in pieces.
    fn screen(&self) -> String {
        let mut cells = vec![vec![' '; 200]; 60];
        let (mut line, mut column) = (0, 0);
        let shown = self.shown();
        let mut letters = shown.chars();
        while let Some(letter) = letters.next() {
            if letter != '\x1b' {
                if let Some(cell) = cells.get_mut(line).and_then(|line| line.get_mut(column)) {
                    *cell = letter;
                }
                column += 1;
                continue;
            }
            if letters.next() != Some('[') {
                continue;
            }
            let mut numbers = String::new();
            let end = letters.by_ref().find(|letter| {
                let ends = letter.is_ascii_alphabetic();
                if !ends {
                    numbers.push(*letter);
                }
                ends
            });
            match end {
                Some('H') => {
                    let mut places = numbers.split(';').map(|number| number.parse::<usize>().unwrap_or(1) - 1);
                    (line, column) = (places.next().unwrap_or(0), places.next().unwrap_or(0));
                }
                Some('J') => cells.iter_mut().for_each(|line| line.fill(' ')),
                _ => {}
            }
        }
        let lines = cells.iter().map(|line| line.iter().collect::<String>().trim_end().to_owned());
        lines.collect::<Vec<_>>().join("\n")
    }

    fn assert_given_back(&self, before: &Termios) {
        until("the terminal is told all", || self.shown().ends_with(OWN_SCREEN) || self.shown().contains(CURSOR_SHOWN));
        let shown = self.shown();
        assert!(shown.contains(OTHER_SCREEN), "{shown:?}");
        assert!(shown.rfind(OWN_SCREEN) > shown.rfind(OTHER_SCREEN), "{shown:?}");
        assert!(shown.contains(CURSOR_SHOWN), "{shown:?}");
        let after = self.modes();
        assert_eq!(
            (after.input_modes, after.output_modes, after.local_modes),
            (before.input_modes, before.output_modes, before.local_modes)
        );
    }
}
