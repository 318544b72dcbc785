//! Which layers of containment this machine gives, found out by doing it in a throwaway run, never by a version.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use rustix::process::getuid;
use serde::{Deserialize, Serialize};
use thermite_core::dev_run::Exit;

use super::cgroup;
use super::fault::{At, LaunchFault};
use super::run::{Layers, Shared};
use super::{Identity, LaunchSpec, MOUNTS_AT};
use crate::ports::StopProof;

/// The uid and gid of a trial by a root rig: nobody's.
const TRIAL_ID: u32 = 65_534;

/// One layer of containment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layer {
    /// PID, mount and IPC namespaces, no capabilities, no new privileges (layer A). Without it nothing is launched.
    Namespaces,
    /// A user namespace per run: a process cap of its own, and no namespaces inside.
    UserNamespace,
    /// A cgroup per run: a second way to end it all and a second proof, and the tree's CPU time (layer B).
    Cgroup,
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Layer::Namespaces => "namespaces",
            Layer::UserNamespace => "user namespace",
            Layer::Cgroup => "cgroup",
        })
    }
}

/// A layer that this machine does not give.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// Which.
    pub layer: Layer,
    /// The call that failed, and how.
    pub why: String,
    /// What that leaves open.
    pub leaves_open: String,
}

/// What containment is in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Containment {
    /// The layers in force.
    pub layers: Vec<Layer>,
    /// The layers that are not, and why.
    pub missing: Vec<Missing>,
    /// What stays open even with all layers.
    pub open: Vec<String>,
}

impl Containment {
    /// Whether runs can be launched at all.
    pub fn is_isolating(&self) -> bool {
        self.layers.contains(&Layer::Namespaces)
    }

    /// What is missing, as the end of a sentence.
    pub fn missing_in_words(&self) -> String {
        let words: Vec<String> =
            self.missing.iter().map(|missing| format!("{} ({})", missing.layer, missing.why)).collect();
        words.join("; ")
    }
}

impl fmt::Display for Containment {
    /// The layers in force, such as `namespaces + user namespace + cgroup`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.layers.is_empty() {
            return f.write_str("none");
        }
        for (i, layer) in self.layers.iter().enumerate() {
            if i > 0 {
                f.write_str(" + ")?;
            }
            layer.fmt(f)?;
        }
        Ok(())
    }
}

/// Tries the fullest containment and takes away what fails, until a throwaway run goes from launch to proof.
pub(super) async fn probe(shared: &Arc<Shared>) -> (Layers, Containment) {
    let is_root = getuid().is_root();
    let mut missing = Vec::new();
    let mut layers = Layers { cgroup_parent: None, run_user_namespace: is_root };
    match cgroup::parent_group() {
        Ok(parent) => layers.cgroup_parent = Some(parent),
        Err(why) => missing.push(without_cgroup(why)),
    }
    let isolating = loop {
        let Err(fault) = trial(shared, &layers, is_root).await else { break true };
        let why = fault.to_string();
        if layers.cgroup_parent.is_some() && fault.step.contains("cgroup") {
            layers.cgroup_parent = None;
            missing.push(without_cgroup(why));
        } else if layers.run_user_namespace && fault.step.contains("user namespace of the run") {
            layers.run_user_namespace = false;
            missing.push(Missing {
                layer: Layer::UserNamespace,
                why,
                leaves_open: "runs of one uid share its process cap".to_owned(),
            });
        } else {
            missing.push(Missing { layer: Layer::Namespaces, why, leaves_open: "nothing is launched here".to_owned() });
            break false;
        }
    };
    let mut in_force = Vec::new();
    if isolating {
        in_force.push(Layer::Namespaces);
        if layers.run_user_namespace || !is_root {
            in_force.push(Layer::UserNamespace);
        }
        if layers.cgroup_parent.is_some() {
            in_force.push(Layer::Cgroup);
        }
    }
    let mut open = vec![
        "the machine's network can be reached, abstract sockets and those in visible folders included".to_owned(),
        "trees that any user can read are visible unless they are hidden".to_owned(),
    ];
    if !is_root {
        open.push("a run can read what the rig's user can read, unless it is hidden".to_owned());
        open.push("a run can change the resource limits of its own init".to_owned());
    }
    (layers, Containment { layers: in_force, missing, open })
}

fn without_cgroup(why: String) -> Missing {
    let leaves_open = "the namespace's init alone proves the end; CPU time counts only what was reaped".to_owned();
    Missing { layer: Layer::Cgroup, why, leaves_open }
}

/// One throwaway run from launch to proof.
async fn trial(shared: &Arc<Shared>, layers: &Layers, is_root: bool) -> Result<(), LaunchFault> {
    let workspace = shared.settings().state.join("trial");
    std::fs::create_dir_all(&workspace).at_path("make", &workspace)?;
    let identity = if is_root { Identity::Dedicated { uid: TRIAL_ID, gid: TRIAL_ID } } else { Identity::RigsUser };
    let spec = LaunchSpec {
        name: format!("trial-{}-{}", std::process::id(), super::sys::now_ns()),
        argv: Vec::new(),
        env: Vec::new(),
        workspace,
        workspace_at: Path::new(MOUNTS_AT).join("trial"),
        workspace_read_only: false,
        read_only: Vec::new(),
        hidden: Vec::new(),
        nodes: Vec::new(),
        identity,
        capture: None,
        reports_times: false,
        keeps_leftovers: false,
    };
    let run = shared.launch(layers, spec, true).await?;
    // A trial's leader ends where another's would become the command, so there is no start to hear of.
    let _ = run.go().await;
    let ended = run.ended().await;
    let proof = run.stop(false).await;
    run.finished().await;
    match (ended.exit, proof) {
        (Exit::Code(0), StopProof::Empty) => Ok(()),
        (exit, StopProof::Empty) => Err(LaunchFault::new("end a throwaway run", format!("it ended with {exit:?}"))),
        (_, StopProof::NotProved { why }) => Err(LaunchFault::new("prove a throwaway run's end", why)),
    }
}
