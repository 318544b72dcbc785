//! The mark of a run without namespaces: a limit on file locks (`RLIMIT_LOCKS`), which Linux passes on to every child
//! and has not enforced since 2.4.25. A cleared environment, a new session or a closed descriptor does not take it off.
//!
//! It finds what was left when all guards of a run were killed; it proves nothing. A process that lowers that limit
//! itself is not found by it.

use std::collections::BTreeMap;
use std::fs;
use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::run_file;
use super::wire::InitFacts;

/// Far above any limit that somebody sets, and far below what the kernel can hold.
const BASE: u64 = 1 << 52;

/// The mark of a launch: a number of its own, made of its name.
pub(super) fn of(name: &str) -> u64 {
    // FNV-1a (Fowler, Noll, Vo): names hold a UUID or a time, so any hash that spreads will do.
    let hash = name
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    BASE | (hash % BASE)
}

/// Puts the mark on the calling process and all that come from it; whether it could be.
pub(super) fn put_on(mark: u64) -> io::Result<()> {
    let allowed = getrlimit(Resource::Locks).maximum.is_none_or(|most| most >= mark);
    if !allowed {
        return Err(io::Error::other("a limit on file locks is set already"));
    }
    setrlimit(Resource::Locks, Rlimit { current: Some(mark), maximum: Some(mark) })?;
    Ok(())
}

/// The live processes with a mark, by pid and start time.
pub(super) fn processes(mark: u64) -> Vec<InitFacts> {
    all().remove(&mark).unwrap_or_default()
}

/// All live processes that have any mark.
fn all() -> BTreeMap<u64, Vec<InitFacts>> {
    let mut found: BTreeMap<u64, Vec<InitFacts>> = BTreeMap::new();
    let Ok(entries) = fs::read_dir("/proc") else { return found };
    for pid in entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok()) {
        if let Some(mark) = mark_of(pid)
            && let Some(start) = run_file::start_time(pid)
        {
            found.entry(mark).or_default().push(InitFacts { pid, start });
        }
    }
    found
}

fn mark_of(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/limits")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Max file locks"))?;
    let hard: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    (BASE..2 * BASE).contains(&hard).then_some(hard)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_a_mark_of_its_own_in_the_range_that_is_looked_for() {
        let marks: std::collections::BTreeSet<u64> = (0..10_000).map(|n| of(&format!("dev-{n}"))).collect();
        assert_eq!(marks.len(), 10_000);
        assert!(marks.iter().all(|mark| (BASE..2 * BASE).contains(mark)));
        assert_eq!(of("dev-1"), of("dev-1"));
    }
}
