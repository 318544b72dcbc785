//! `thermite split`, `drain`, `undrain`: which cards are the judge's and which the lanes', and which take no work.

use std::io::{BufRead, IsTerminal};

use clap::Args;

use thermite_actors::view::{CardRow, IdleRow, RigView};
use thermite_core::ids::MemberId;
use thermite_core::split::SplitAsk;
use thermite_svc::plain::plain;
use thermite_svc::server::split::SplitPreview;

use crate::client::{Client, Fault};

use super::exit;
use super::say::Say;

/// What `split` takes.
#[derive(Debug, Args)]
#[command(after_help = AFTER_SPLIT)]
pub(crate) struct SplitArgs {
    /// The judge's cards, by number or UUID, with commas between; with --agents
    #[arg(long, value_name = "DEVICES", value_delimiter = ',', requires = "agents")]
    judge: Vec<String>,
    /// The lanes' cards; those in neither list are left idle
    #[arg(long, value_name = "DEVICES", value_delimiter = ',', requires = "judge")]
    agents: Vec<String>,
    /// Split as a rig does by itself: the judge gets half, rounded up
    #[arg(long, conflicts_with_all = ["judge", "agents", "shared"])]
    default: bool,
    /// Share every card: the judge's and the lanes', in turn
    #[arg(long, conflicts_with_all = ["judge", "agents"])]
    shared: bool,
    /// Only say what it would change and end
    #[arg(long)]
    dry_run: bool,
    /// Do not ask before something is ended
    #[arg(long, short)]
    yes: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

const AFTER_SPLIT: &str = "\
Examples:
  thermite split
  thermite split --judge 0,1 --agents 2,3
  thermite split --default --dry-run
  thermite split --shared --yes

With two or more cards the judge and the lanes have cards of their own, and neither waits for the other. A new split \
ends what has a card: the judge's jobs go back to their place in the queue and start over, lanes are told to run their \
commands again; who waits keeps place and end. It says so before, and asks unless --yes is given. The judge's cards must \
be of one model: of several models only the first card judges.

Exit codes: 0 done; 69 refused, or not said yes to; 70 infrastructure.";

/// What `drain` and `undrain` take.
#[derive(Debug, Args)]
#[command(after_help = AFTER_DRAIN)]
pub(crate) struct DrainArgs {
    /// The device, by number or UUID; a runner by name
    #[arg(value_name = "DEVICE|RUNNER")]
    device: String,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

const AFTER_DRAIN: &str = "\
Examples:
  thermite drain 1
  thermite undrain 1
  thermite drain box-2/1

A drained device or runner finishes the stage or development run it has and takes nothing more, also after a restart, until it is \
undrained.

Exit codes: 0 done; 69 refused, such as where there is no such device; 70 infrastructure.";

/// Shows the split, or sets it.
pub(crate) fn split(args: &SplitArgs, client: &Client, say: &Say) -> anyhow::Result<u8> {
    let Some(new) = wanted(args, client)? else {
        let split = client.split()?;
        if args.json {
            say.json(&split);
        } else {
            lines(split.shared, &split.judge, &split.agents, &split.idle).iter().for_each(|line| say.line(line));
            split.note.iter().for_each(|note| say.line(&format!("note: {}", plain(note))));
        }
        return Ok(exit::OK);
    };
    let preview = client.split_preview(&new)?;
    if args.dry_run {
        if args.json {
            say.json(&preview);
        } else {
            say.line(if preview.changes { "this would change hands:" } else { "this is so already:" });
            let SplitPreview { shared, judge, agents, idle, .. } = &preview;
            lines(*shared, judge, agents, idle).iter().for_each(|line| say.line(line));
            ends(&preview).iter().for_each(|line| say.line(line));
        }
        return Ok(exit::OK);
    }
    if !preview.ends.is_empty() && !args.yes && !is_agreed(&preview, say) {
        return Ok(exit::REFUSED);
    }
    // Only over the state that was shown: who sets it meanwhile is not undone unseen.
    let split = client.set_split(&new, preview.revision)?;
    if args.json {
        say.json(&split);
    } else {
        lines(split.shared, &split.judge, &split.agents, &split.idle).iter().for_each(|line| say.line(line));
        split.note.iter().for_each(|note| say.line(&format!("note: {}", plain(note))));
    }
    Ok(exit::OK)
}

/// Drains a device, or undoes that.
pub(crate) fn drain(args: &DrainArgs, drained: bool, client: &Client, say: &Say) -> anyhow::Result<u8> {
    let device = member_of(&args.device, &client.rig()?)?;
    let answer = client.drain(device, drained)?;
    let what = if device.is_runner() { format!("runner {}", plain(&args.device)) } else { device.to_string() };
    if args.json {
        say.json(&answer);
    } else if drained {
        let name = plain(&args.device);
        say.line(&format!("{what}: finishes what it has and takes nothing more until `thermite undrain {name}`"));
    } else {
        say.line(&format!("{what}: takes work again"));
    }
    Ok(exit::OK)
}

fn wanted(args: &SplitArgs, client: &Client) -> Result<Option<SplitAsk>, Fault> {
    if args.default {
        return Ok(Some(SplitAsk::Default));
    }
    if args.shared {
        return Ok(Some(SplitAsk::Shared));
    }
    if args.judge.is_empty() {
        return Ok(None);
    }
    let view = client.rig()?;
    let uuids = |names: &[String]| names.iter().map(|name| uuid_of(name, &view)).collect::<Result<Vec<_>, _>>();
    Ok(Some(SplitAsk::Cards { judge: uuids(&args.judge)?, agents: uuids(&args.agents)? }))
}

/// A device by its number in the rig's list, or by its UUID.
fn find<'a>(name: &str, view: &'a RigView) -> Result<&'a thermite_actors::view::DeviceRow, Fault> {
    let found = view.devices.iter().find(|row| row.facts.uuid == name || name.parse() == Ok(row.member));
    found.ok_or_else(|| {
        let there: Vec<String> =
            view.devices.iter().map(|row| format!("{} ({})", row.member.0, plain(&row.facts.uuid))).collect();
        Fault::Refused { sentence: format!("there is no device {}; the rig has {}", plain(name), there.join(", ")) }
    })
}

fn uuid_of(name: &str, view: &RigView) -> Result<String, Fault> {
    Ok(find(name, view)?.facts.uuid.clone())
}

/// A device or runner by its number, its UUID or its name; of a process with one runner its own name will do.
fn member_of(name: &str, view: &RigView) -> Result<MemberId, Fault> {
    let rows = &view.runners.runners;
    let is_it = |full: &str| full == name || full.strip_suffix("/1") == Some(name);
    let runner = rows.iter().find(|row| is_it(&row.name) || name.parse() == Ok(row.member));
    match runner {
        Some(row) => Ok(row.member),
        None => Ok(find(name, view)?.member),
    }
}

fn lines(shared: bool, judge: &[CardRow], agents: &[CardRow], idle: &[IdleRow]) -> Vec<String> {
    let card = |card: &CardRow| format!("{} ({}, {})", card.member, plain(&card.model), plain(&card.uuid));
    let all = |cards: &[CardRow]| cards.iter().map(card).collect::<Vec<_>>().join(", ");
    let mut lines = if shared {
        vec![format!("shared by judge and lanes, the judge first: {}", all(judge))]
    } else {
        vec![format!("the judge's: {}", all(judge)), format!("the lanes': {}", all(agents))]
    };
    lines.extend(idle.iter().map(|row| format!("idle: {}: {}", card(&row.card), plain(&row.why))));
    lines
}

fn ends(preview: &SplitPreview) -> Vec<String> {
    preview.ends.iter().map(|end| format!("ends: {}: {}", end.device, plain(&end.sentence))).collect()
}

/// Says what would end and asks; where nobody can answer it says how to go on.
fn is_agreed(preview: &SplitPreview, say: &Say) -> bool {
    ends(preview).iter().for_each(|line| say.aside(line));
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        say.error("a new split ends what is listed above; say --yes to do it");
        return false;
    }
    say.aside("set it? [y/N]");
    let mut answer = String::new();
    // No answer is a no.
    let _nothing_read = stdin.lock().read_line(&mut answer);
    ["y", "yes"].contains(&answer.trim().to_ascii_lowercase().as_str())
}
