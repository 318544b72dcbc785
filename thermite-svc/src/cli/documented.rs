//! Every command line that our words name, in documents, help texts and the program's own sentences, is one that the
//! program takes: it is parsed by the very commands.

use std::fs;
use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::commands;

/// What stands in our words for something of the reader's own: one of these is read in each place.
const ANYTHING: [&str; 7] =
    ["lab", "1", "00000000-0000-7000-8000-000000000000", "own-0123456789abcdef", "box-1=judge", "run", "20"];
/// More places for the reader's own in one line are not tried out.
const PLACES_MOST: usize = 3;

/// How whole a command line must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whole {
    /// One to be copied.
    Line,
    /// A command as sentences name it: what it needs may be left out.
    Mention,
}

/// A command line, and where it is.
#[derive(Debug)]
struct Named {
    at: String,
    text: String,
    whole: Whole,
}

#[test]
fn every_command_line_that_is_named_anywhere_is_one_there_is() {
    let mut named = Vec::new();
    for file in files(&root(), &["md"]).into_iter().chain(files(&root().join("thermite-svc/src"), &["rs"])) {
        let text = fs::read_to_string(&file).unwrap();
        let at = file.strip_prefix(root()).unwrap().display().to_string();
        if at.ends_with(".md") {
            let lines = text.lines().filter(|line| line.starts_with("    "));
            named.extend(lines.map(|line| Named { at: at.clone(), text: line.trim().to_owned(), whole: Whole::Line }));
        }
        let spans = mentions(&text);
        named.extend(spans.into_iter().map(|text| Named { at: at.clone(), text, whole: Whole::Mention }));
    }
    of_help(&commands(), &mut named);

    let mut lines = [0, 0];
    let mut wrong = Vec::new();
    for Named { at, text, whole } in &named {
        for words in command_lines(text) {
            lines[*whole as usize] += 1;
            if let Err(why) = is_taken(&words, *whole) {
                wrong.push(format!("{at}: {}: {why}", words.join(" ")));
            }
        }
    }

    assert!(lines[0] >= 50 && lines[1] >= 100, "too few are found: {lines:?}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_command_or_flag_that_is_not_there_is_found() {
    let taken = |text: &str, whole| is_taken(&command_lines(text)[0], whole);

    for (text, whole) in [
        ("thermite token make --lane N", Whole::Mention),
        ("thermite control rig drop lab", Whole::Line),
        ("thermite split --judges 0,1", Whole::Line),
        ("thermite run -- true", Whole::Line),
        ("thermite control settings lab --runner box-2=lane-17", Whole::Line),
    ] {
        assert!(taken(text, whole).is_err(), "{text}");
    }
    for (text, whole) in [
        ("umask 077; thermite control rig add lab > lab.token", Whole::Line),
        ("THERMITE_TARGET=cpu thermite serve    # on this machine", Whole::Line),
        ("thermite judge", Whole::Mention),
        ("thermite token revoke ID", Whole::Mention),
    ] {
        assert_eq!(taken(text, whole), Ok(()), "{text}");
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// The files of those kinds below a folder, but for what is hidden or built.
fn files(folder: &Path, kinds: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let (path, name) = (entry.path(), entry.file_name().into_string().unwrap());
        if name.starts_with('.') || name == "target" || path == Path::new(file!()) {
            continue;
        }
        if entry.file_type().unwrap().is_dir() {
            found.extend(files(&path, kinds));
        } else if path.extension().is_some_and(|kind| kinds.iter().any(|wanted| kind == *wanted)) {
            found.push(path);
        }
    }
    found
}

/// What stands between backquotes and begins with the program's name.
fn mentions(text: &str) -> Vec<String> {
    // A sentence in the sources goes on over lines.
    let lines = text.lines().map(|line| line.trim_start().trim_start_matches("//! ").trim_start_matches("/// "));
    let mut joined = String::new();
    for line in lines {
        match line.strip_suffix('\\') {
            Some(part) => joined.push_str(part),
            None => joined.extend([line, "\n"]),
        }
    }
    let spans = joined.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    spans.filter(|span| span.starts_with("thermite ")).map(str::to_owned).collect()
}

/// The lines of help texts, of a command and all below it.
fn of_help(command: &clap::Command, named: &mut Vec<Named>) {
    if let Some(help) = command.get_after_help() {
        let help = help.to_string();
        let lines = help.lines().filter(|line| line.starts_with("  "));
        let at = format!("help of {}", command.get_name());
        named.extend(lines.map(|line| Named { at: at.clone(), text: line.trim().to_owned(), whole: Whole::Line }));
    }
    command.get_subcommands().for_each(|below| of_help(below, named));
}

/// The command lines of the program in a line of a shell, as words.
fn command_lines(line: &str) -> Vec<Vec<String>> {
    // What is explained behind a gap is no part of it.
    let line = line.split("  ").next().unwrap_or_default();
    let mut found = Vec::new();
    for part in parts(line) {
        let mut words: Vec<String> = part.into_iter().skip_while(|word| is_assignment(word)).collect();
        if words.iter().take(2).eq(["cargo", "run"]) && words.iter().any(|word| word == "thermite") {
            words = words.into_iter().skip_while(|word| word != "--").collect();
            words[0] = "thermite".to_owned();
        }
        if words.first().is_some_and(|word| word == "thermite") {
            found.push(words);
        }
    }
    found
}

fn is_assignment(word: &str) -> bool {
    word.split_once('=')
        .is_some_and(|(name, _)| name.chars().all(|letter| letter.is_ascii_uppercase() || letter == '_'))
}

/// The commands of a line of a shell, without comments and where their output goes.
fn parts(line: &str) -> Vec<Vec<String>> {
    let (mut all, mut words, mut word): (Vec<Vec<String>>, Vec<String>, Option<String>) = Default::default();
    let mut quote = None;
    let mut is_elsewhere = false;
    for letter in line.chars().chain([' ']) {
        match (quote, letter) {
            (Some(end), _) if letter == end => quote = None,
            (Some(_), _) => word.get_or_insert_default().push(letter),
            (None, '"' | '\'') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => break,
            (None, '>') => is_elsewhere = true,
            (None, '|') if word.is_none() => {
                all.push(std::mem::take(&mut words));
                is_elsewhere = false;
            }
            (None, ' ' | ';' | '&') => {
                words.extend(word.take().filter(|_| !is_elsewhere));
                if letter != ' ' {
                    all.push(std::mem::take(&mut words));
                    is_elsewhere = false;
                }
            }
            (None, _) => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word.filter(|_| !is_elsewhere));
    all.push(words);
    all
}

/// Whether the program takes it, with something in each place that is the reader's own.
fn is_taken(words: &[String], whole: Whole) -> Result<(), String> {
    if let Some(at) = words.iter().position(|word| word.contains('|')) {
        let ways = words[at].split('|').map(|way| {
            let way = [&words[..at], &[way.to_owned()], &words[at + 1..]].concat();
            is_taken(&way, whole)
        });
        return ways.collect();
    }
    let places: Vec<usize> = (1..words.len()).filter(|at| is_readers(&words[*at])).collect();
    assert!(places.len() <= PLACES_MOST, "{words:?}");
    let mut first = None;
    for number in 0..ANYTHING.len().pow(places.len() as u32) {
        let mut words = words.to_vec();
        let mut rest = number;
        for at in &places {
            words[*at] = ANYTHING[rest % ANYTHING.len()].to_owned();
            rest /= ANYTHING.len();
        }
        let Err(error) = commands().try_get_matches_from(&words) else { return Ok(()) };
        let is_help = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
        if is_help || (whole == Whole::Mention && lacks_only(&error)) {
            return Ok(());
        }
        first = first.or(Some(error.to_string()));
    }
    Err(first.unwrap_or_default())
}

/// Whether all that is wrong is that something is left out.
fn lacks_only(error: &clap::Error) -> bool {
    match error.kind() {
        ErrorKind::MissingRequiredArgument
        | ErrorKind::MissingSubcommand
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => true,
        // A flag without its value.
        ErrorKind::InvalidValue => {
            matches!(error.get(ContextKind::InvalidValue), Some(ContextValue::String(value)) if value.is_empty())
        }
        _ => false,
    }
}

/// Whether a word stands for something of the reader's own: `RIG`, `{job}`, `...`.
fn is_readers(word: &str) -> bool {
    let is_name = word.chars().all(|letter| letter.is_ascii_uppercase() || letter == '_');
    is_name || word.contains('{') || word.contains("...")
}
