//! Control groups as a process sees them: its own group and every visible ancestor, on v1, v2 and hybrid mounts.
//!
//! Sources: `cgroups(7)`, `proc_pid_mountinfo(5)`, and the kernel's `Documentation/admin-guide/cgroup-v2.rst` and
//! `cgroup-v1/`. A counter the kernel does not show is unknown, never 0.

use std::path::{Path, PathBuf};

use thermite_core::readiness::ThrottleCounter;

/// Which interface a group's files follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// v1: `throttled_time` counts nanoseconds, the quota is in `cpu.cfs_quota_us`.
    V1,
    /// v2: `throttled_usec` counts microseconds, the quota is in `cpu.max`.
    V2,
}

/// One group that can hold a process back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The interface.
    pub version: Version,
    /// Its folder, below the root that was given.
    pub folder: PathBuf,
    /// Its path as the kernel shows it in the hierarchy: `cpu:/a/b` on v1, `/a/b` on v2.
    pub name: String,
}

/// Finds the calling process's own group and every visible ancestor, own group first, on each hierarchy that may
/// carry the CPU controller.
///
/// `cgroup` is the text of `/proc/self/cgroup`, `mountinfo` of `/proc/self/mountinfo`; folders lie below `root`.
pub fn groups(root: &Path, cgroup: &str, mountinfo: &str) -> Vec<Group> {
    let mut groups = Vec::new();
    for line in cgroup.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next()) else { continue };
        let version = if controllers.is_empty() {
            Version::V2
        } else if controllers.split(',').any(|controller| controller == "cpu") {
            Version::V1
        } else {
            continue;
        };
        let Some(mount) = mountinfo.lines().filter_map(Mount::read).find(|mount| mount.is_for(version)) else {
            continue;
        };
        groups.extend(mount.chain(root, path, version));
    }
    groups
}

/// One line of `mountinfo`.
struct Mount {
    /// The part of the hierarchy that is mounted.
    root: String,
    /// Where.
    at: String,
    kind: String,
    options: String,
}

impl Mount {
    fn read(line: &str) -> Option<Mount> {
        let (front, back) = line.split_once(" - ")?;
        let mut front = front.split(' ').skip(3);
        let (root, at) = (front.next()?, front.next()?);
        let mut back = back.split(' ');
        let kind = back.next()?;
        let options = back.nth(1)?;
        Some(Mount { root: unescape(root), at: unescape(at), kind: kind.to_owned(), options: options.to_owned() })
    }

    fn is_for(&self, version: Version) -> bool {
        match version {
            Version::V1 => self.kind == "cgroup" && self.options.split(',').any(|option| option == "cpu"),
            Version::V2 => self.kind == "cgroup2",
        }
    }

    /// The group at `path` of the hierarchy and its ancestors up to the mount point, the group first.
    fn chain(&self, root: &Path, path: &str, version: Version) -> Vec<Group> {
        let below = match self.root.as_str() {
            "/" => path,
            // Mounted from a group on: what lies above is not visible. A path outside it (another namespace's view)
            // is held to the mount point, which is as far as this process can see.
            mounted => path.strip_prefix(mounted).filter(|rest| rest.is_empty() || rest.starts_with('/')).unwrap_or(""),
        };
        let parts: Vec<&str> = below.split('/').filter(|part| !part.is_empty() && *part != "..").collect();
        let top = root.join(self.at.trim_start_matches('/'));
        (0..=parts.len())
            .rev()
            .map(|depth| {
                let inside = parts[..depth].join("/");
                let prefix = match version {
                    Version::V1 => "cpu:",
                    Version::V2 => "",
                };
                let name = format!("{prefix}{}/{inside}", self.root.trim_end_matches('/'));
                let folder = if inside.is_empty() { top.clone() } else { top.join(&inside) };
                let name = if name.len() > prefix.len() + 1 { name.trim_end_matches('/').to_owned() } else { name };
                Group { version, folder, name }
            })
            .collect()
    }
}

/// The kernel writes blanks and backslashes in mountinfo as three octal digits.
fn unescape(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let octal = bytes.get(at + 1..at + 4).and_then(|digits| std::str::from_utf8(digits).ok());
        let escaped = octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()).filter(|_| bytes[at] == b'\\');
        match escaped {
            Some(byte) => {
                plain.push(byte);
                at += 4;
            }
            None => {
                plain.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&plain).into_owned()
}

impl Group {
    /// How often and how long this group was held back; unknown where the kernel shows no such line.
    pub fn throttle(&self) -> ThrottleCounter {
        let text = std::fs::read_to_string(self.folder.join("cpu.stat")).unwrap_or_default();
        let (periods, held_ns) = throttle_figures(self.version, &text);
        ThrottleCounter { group: self.name.clone(), periods, held_ns }
    }

    /// How long the group was held back by its own quota or one above it, also one above what this process can see
    /// (`cpu.stat.local`, v2 only); none where the kernel has no such file.
    pub fn throttle_from_above(&self) -> Option<ThrottleCounter> {
        let text = match self.version {
            Version::V1 => return None,
            Version::V2 => std::fs::read_to_string(self.folder.join("cpu.stat.local")).ok()?,
        };
        let (_, held_ns) = throttle_figures(self.version, &text);
        Some(ThrottleCounter {
            group: format!("{} (its own quota or one above it)", self.name),
            periods: None,
            held_ns,
        })
    }

    /// How many CPUs' worth of time its quota allows; none where there is no quota, or it cannot be read.
    pub fn quota(&self) -> Option<f64> {
        let read = |name: &str| std::fs::read_to_string(self.folder.join(name)).ok();
        let (quota, period) = match self.version {
            Version::V1 => (read("cpu.cfs_quota_us")?, read("cpu.cfs_period_us")?),
            Version::V2 => {
                let text = read("cpu.max")?;
                let (quota, period) = text.trim().split_once(' ')?;
                (quota.to_owned(), period.to_owned())
            }
        };
        // "-1" on v1 and "max" on v2 mean that there is none.
        let quota: u64 = quota.trim().parse().ok()?;
        let period: u64 = period.trim().parse().ok()?;
        (period > 0).then(|| quota as f64 / period as f64)
    }
}

/// Periods held back and nanoseconds held back, from the text of `cpu.stat`.
pub fn throttle_figures(version: Version, text: &str) -> (Option<u64>, Option<u64>) {
    let figure = |name: &str| {
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse::<u64>().ok())
    };
    let held_ns = match version {
        Version::V1 => figure("throttled_time"),
        Version::V2 => figure("throttled_usec").map(|us| us.saturating_mul(1_000)),
    };
    (figure("nr_throttled"), held_ns)
}
