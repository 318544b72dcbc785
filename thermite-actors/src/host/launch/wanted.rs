//! Which layers of containment a launcher may use: the best there are, or the one it is told to.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// How a run is kept apart from the machine and ended: one of these is under every run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Isolation {
    /// Namespaces of its own: when their init ends, the kernel ends all the rest (layer A).
    Namespaces,
    /// No view of its own, but a uid that nothing else has: all of that uid is ended, by that uid (layer C).
    OwnUid,
    /// No view of its own: its guard ends its children and theirs until the kernel knows of none (layer D).
    Children,
}

/// Which layers a launcher may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The one it must use; the best that works without it.
    pub isolation: Option<Isolation>,
    /// Whether a run may have a cgroup as well.
    pub cgroup: bool,
}

impl Wanted {
    /// The best that works.
    pub const BEST: Wanted = Wanted { isolation: None, cgroup: true };

    /// What a setting may say.
    pub const EXPECTED: &str = "best, namespaces, uid or children, each also with ,no-cgroup";
}

impl Default for Wanted {
    fn default() -> Wanted {
        Wanted::BEST
    }
}

impl FromStr for Wanted {
    type Err = &'static str;

    /// Reads `best`, `namespaces`, `uid` or `children`, each also with `,no-cgroup`.
    fn from_str(text: &str) -> Result<Wanted, Self::Err> {
        let (word, cgroup) = match text.strip_suffix(",no-cgroup") {
            Some(word) => (word, false),
            None => (text, true),
        };
        let isolation = match word {
            "best" => None,
            "namespaces" => Some(Isolation::Namespaces),
            "uid" => Some(Isolation::OwnUid),
            "children" => Some(Isolation::Children),
            _ => return Err(Wanted::EXPECTED),
        };
        Ok(Wanted { isolation, cgroup })
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.isolation {
            None => "best",
            Some(Isolation::Namespaces) => "namespaces",
            Some(Isolation::OwnUid) => "uid",
            Some(Isolation::Children) => "children",
        })?;
        if self.cgroup { Ok(()) } else { f.write_str(",no-cgroup") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wanted_is_read_as_it_is_written() {
        for text in ["best", "namespaces", "uid", "children", "uid,no-cgroup", "best,no-cgroup"] {
            assert_eq!(text.parse::<Wanted>().unwrap().to_string(), text);
        }
        for text in ["", "none", "Uid", "uid no-cgroup", "no-cgroup", "uid,no-cgroup,no-cgroup"] {
            assert_eq!(text.parse::<Wanted>(), Err(Wanted::EXPECTED), "{text}");
        }
    }
}
