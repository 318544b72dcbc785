//! The subjects of one rig on the bus (docs/bus.md), and the name that they begin with.

use std::fmt;
use std::str::FromStr;

use thermite_core::wire::ProcessName;

/// A rig's name on the bus: 2 to 64 of `a-z`, `0-9`, `-`, so that it is one word of a subject.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RigName(String);

/// A name that is no rig's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no rig's name: 2 to 64 of a-z, 0-9 and -")]
pub struct BadRigName(pub String);

impl FromStr for RigName {
    type Err = BadRigName;

    fn from_str(text: &str) -> Result<RigName, BadRigName> {
        let fits = (2..=64).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
        if fits { Ok(RigName(text.to_owned())) } else { Err(BadRigName(text.to_owned())) }
    }
}

impl fmt::Display for RigName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl RigName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Where a runner's process is asked.
    pub fn ask(&self, process: &ProcessName) -> String {
        format!("rig.{self}.runner.{process}.ask")
    }

    /// Where a runner's process is asked for bulk, on the second connection.
    pub fn bulk(&self, process: &ProcessName) -> String {
        format!("rig.{self}.runner.{process}.bulk")
    }

    /// Where a runner's process hints that there is something to fetch.
    pub fn more(&self, process: &ProcessName) -> String {
        format!("rig.{self}.runner.{process}.more")
    }

    /// Where all hints of the rig's runners are heard.
    pub fn all_more(&self) -> String {
        format!("rig.{self}.runner.*.more")
    }

    /// The runner's process that a subject of this rig is about.
    pub fn process_of(&self, subject: &str) -> Option<ProcessName> {
        let rest = subject.strip_prefix("rig.")?.strip_prefix(self.as_str())?.strip_prefix(".runner.")?;
        rest.split_once('.')?.0.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rigs_name_is_one_word_of_a_subject() {
        for good in ["r1", "0198c1f2-7a10-7c3e-9d7f-1b2a3c4d5e6f", &"a".repeat(64)] {
            assert!(good.parse::<RigName>().is_ok(), "{good}");
        }
        for bad in ["", "r", "r.1", "r*", "r>", "R1", "r 1", "r\n1", &"a".repeat(65)] {
            assert!(bad.parse::<RigName>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_hints_subject_names_its_process_and_anothers_none() {
        let rig: RigName = "r1".parse().unwrap();
        let box_2: ProcessName = "box-2".parse().unwrap();

        assert_eq!(rig.process_of(&rig.more(&box_2)), Some(box_2));
        assert_eq!(rig.process_of("rig.r11.runner.box-2.more"), None);
        assert_eq!(rig.process_of("rig.r1.runner.Box.more"), None);
        assert_eq!(rig.process_of("rig.r1.report"), None);
    }
}
