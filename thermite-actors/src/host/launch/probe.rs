//! Which layers of containment this machine gives, found out by doing it in a throwaway run, never by a version.

use std::fmt;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::getuid;
use serde::{Deserialize, Serialize};
use thermite_core::dev_run::Exit;

use super::cards::{CardWay, Tried};
use super::cgroup;
use super::fault::{At, LaunchFault};
use super::grant::Grant;
use super::run::{Layers, Purpose, Shared};
use super::wanted::Isolation;
use super::{Identity, LaunchSpec, MOUNTS_AT};
use crate::ports::StopProof;

/// The uid and gid of a trial in namespaces by a root rig: nobody's. Nothing outside of them is touched.
const TRIAL_ID: u32 = 65_534;

/// How long a trial waits for others with the same uid.
const TURN_MAX: Duration = Duration::from_secs(10);
/// How often it looks.
const TURN_LOOK: Duration = Duration::from_millis(10);

/// One layer of containment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layer {
    /// PID, mount and IPC namespaces, no capabilities, no new privileges (layer A).
    Namespaces,
    /// A user namespace per run: a process cap of its own, and no namespaces inside.
    UserNamespace,
    /// A cgroup per run: a second way to end it all and a second proof, and the tree's CPU time (layer B).
    Cgroup,
    /// No namespaces: ended by a uid that nothing else has, proved by the kernel's word to its guard (layer C).
    OwnUid,
    /// No namespaces: ended by walking its children, proved by the kernel's word to its guard (layer D).
    Children,
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Layer::Namespaces => "namespaces",
            Layer::UserNamespace => "user namespace",
            Layer::Cgroup => "cgroup",
            Layer::OwnUid => "own uid",
            Layer::Children => "children walk",
        })
    }
}

impl From<Isolation> for Layer {
    fn from(isolation: Isolation) -> Layer {
        match isolation {
            Isolation::Namespaces => Layer::Namespaces,
            Isolation::OwnUid => Layer::OwnUid,
            Isolation::Children => Layer::Children,
        }
    }
}

/// A layer that is not in force.
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
    /// What stays open with the layers in force.
    pub open: Vec<String>,
}

impl Containment {
    /// What is under every run; nothing can be launched without any.
    pub fn isolation(&self) -> Option<Isolation> {
        [Isolation::Namespaces, Isolation::OwnUid, Isolation::Children]
            .into_iter()
            .find(|isolation| self.layers.contains(&Layer::from(*isolation)))
    }

    /// Whether a run sees only what it is given, and nodes and trees can be kept from it.
    pub fn has_own_view(&self) -> bool {
        self.isolation() == Some(Isolation::Namespaces)
    }

    /// Whether a run may leave something that nobody can prove gone.
    pub fn is_best_effort(&self) -> bool {
        self.isolation() == Some(Isolation::Children)
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
        if self.is_best_effort() { f.write_str(" (degraded: best effort)") } else { Ok(()) }
    }
}

/// Tries the fullest containment that is wanted and takes away what fails, until a throwaway run goes from launch to
/// proof.
pub(super) async fn probe(shared: &Arc<Shared>) -> (Option<Layers>, Containment) {
    let is_root = getuid().is_root();
    let wanted = shared.settings().wanted;
    let mut missing = Vec::new();
    let mut cgroup_parent = None;
    if !wanted.cgroup {
        missing.push(without_cgroup(format!("not asked for: THERMITE_CONTAINMENT is {wanted}")));
    } else {
        match cgroup::parent_group() {
            Ok(parent) => cgroup_parent = Some(parent),
            Err(why) => missing.push(without_cgroup(why)),
        }
    }
    let mut found = None;
    for isolation in [Isolation::Namespaces, Isolation::OwnUid, Isolation::Children] {
        if found.is_some() {
            // A lesser one is not missed.
            break;
        }
        if wanted.isolation.is_some_and(|only| only != isolation) {
            let why = format!("not asked for: THERMITE_CONTAINMENT is {wanted}");
            missing.push(Missing { layer: isolation.into(), why, leaves_open: leaves_open(isolation).to_owned() });
            continue;
        }
        let run_user_namespace = is_root && isolation == Isolation::Namespaces;
        let layers = Layers { isolation, cgroup_parent: cgroup_parent.clone(), run_user_namespace };
        let mut without = Vec::new();
        match try_out(shared, layers, is_root, &mut without).await {
            Ok(layers) => {
                missing.append(&mut without);
                found = Some(layers);
            }
            Err(why) => {
                missing.push(Missing { layer: isolation.into(), why, leaves_open: leaves_open(isolation).to_owned() });
            }
        }
    }
    let containment = match &found {
        Some(layers) => {
            Containment { layers: in_force(layers, is_root), missing, open: open(layers.isolation, is_root) }
        }
        None => Containment { layers: Vec::new(), missing, open: Vec::new() },
    };
    (found, containment)
}

/// Takes away what a trial fails on and can be done without; answers what works, or why nothing does.
async fn try_out(
    shared: &Arc<Shared>,
    mut layers: Layers,
    is_root: bool,
    missing: &mut Vec<Missing>,
) -> Result<Layers, String> {
    loop {
        let Err(fault) = trial(shared, &layers, is_root, Purpose::Trial).await else { return Ok(layers) };
        let why = fault.to_string();
        if layers.cgroup_parent.is_some() && fault.step.contains("cgroup") {
            layers.cgroup_parent = None;
            missing.push(without_cgroup(why));
        } else if layers.run_user_namespace && fault.step.contains("user namespace of the run") {
            layers.run_user_namespace = false;
            let leaves_open = "runs of one uid share its process cap".to_owned();
            missing.push(Missing { layer: Layer::UserNamespace, why, leaves_open });
        } else {
            return Err(why);
        }
    }
}

fn in_force(layers: &Layers, is_root: bool) -> Vec<Layer> {
    let mut in_force = vec![Layer::from(layers.isolation)];
    if layers.run_user_namespace || (!is_root && layers.isolation == Isolation::Namespaces) {
        in_force.push(Layer::UserNamespace);
    }
    if layers.cgroup_parent.is_some() {
        in_force.push(Layer::Cgroup);
    }
    in_force
}

/// What it leaves open that a layer is not there.
const fn leaves_open(isolation: Isolation) -> &'static str {
    match isolation {
        Isolation::Namespaces => "a run sees the machine as its user does, and its end is the work of a guard",
        Isolation::OwnUid => "a run can be ended by walking its children only",
        Isolation::Children => "nothing is launched here",
    }
}

/// What stays open with a layer in force.
fn open(isolation: Isolation, is_root: bool) -> Vec<String> {
    let mut open = vec!["the machine's network can be reached, abstract sockets and those in visible folders included"];
    match (isolation, is_root) {
        (Isolation::Namespaces, true) => open.push("trees that any user can read are visible unless they are hidden"),
        (Isolation::Namespaces, false) => open.extend([
            "trees that any user can read are visible unless they are hidden",
            "a run can read what the rig's user can read, unless it is hidden",
            "a run can change the resource limits of its own init",
        ]),
        (Isolation::OwnUid | Isolation::Children, true) => open.extend([
            "a run sees and can read all trees and processes that any user can, other lanes' included",
            "a run can write where any user can, such as /tmp and /dev/shm, and what it writes there stays",
            "a measured run can leave something in its workspace for the next",
            "tools under a home that only root may enter cannot be used",
            "runs of one uid share its process cap",
        ]),
        (Isolation::OwnUid | Isolation::Children, false) => open.extend([
            "a run can do all that the rig's user can: read and write its files, tell which side it measures, end the rig",
            "a measured run can leave something in its workspace for the next",
            "what a run leaves after it has killed its guards may live on; the device is then out of service",
        ]),
    }
    if isolation == Isolation::Children {
        open.push("a run that forks faster than its children are listed is not ended in time; the device is then out of service");
    }
    open.into_iter().map(str::to_owned).collect()
}

fn without_cgroup(why: String) -> Missing {
    let leaves_open = "a run's init or guard alone proves its end; CPU time counts only what was reaped".to_owned();
    Missing { layer: Layer::Cgroup, why, leaves_open }
}

/// Tries the ways to keep runs to their cards, each by doing.
pub(super) async fn card_ways(shared: &Arc<Shared>, layers: Option<&Layers>, containment: &Containment) -> Tried {
    let is_root = getuid().is_root();
    let mut tried = Vec::new();
    for way in CardWay::ALL {
        let works = match (way, layers) {
            _ if !shared.settings().cards.ways.contains(&way) => Err("switched off".to_owned()),
            (_, None) => Err("nothing is launched here".to_owned()),
            // A throwaway run went through with a view of its own.
            (CardWay::View, Some(_)) if containment.has_own_view() => Ok(()),
            (CardWay::View, Some(_)) => {
                let why = containment.missing.iter().find(|missing| missing.layer == Layer::Namespaces);
                Err(why.map_or_else(|| "no namespaces".to_owned(), |missing| missing.why.clone()))
            }
            (CardWay::Landlock, Some(layers)) => {
                trial(shared, layers, is_root, Purpose::FenceTrial).await.map_err(|fault| fault.to_string())
            }
            (CardWay::Modes, Some(_)) if is_root => Ok(()),
            (CardWay::Modes, Some(_)) => Err("the rig is not root, so its runs may open what it may".to_owned()),
        };
        tried.push((way, works));
    }
    tried
}

/// Who a trial runs as.
fn trial_identity(shared: &Shared, layers: &Layers, is_root: bool) -> Result<Identity, LaunchFault> {
    match (layers.isolation, is_root) {
        (Isolation::Namespaces, true) => Ok(Identity::Dedicated { uid: TRIAL_ID, gid: TRIAL_ID }),
        (Isolation::OwnUid, false) => {
            Err(LaunchFault::new("take another uid", "the rig is not root; serve as root to have it"))
        }
        // What is tried is to end all of a uid, so it must be nobody else's.
        (Isolation::OwnUid | Isolation::Children, true) => match shared.settings().trial_uid {
            Some(uid) => Ok(Identity::Dedicated { uid, gid: uid }),
            None => Err(LaunchFault::new("take another uid", "none is given to try it with")),
        },
        (Isolation::Namespaces | Isolation::Children, false) => Ok(Identity::RigsUser),
    }
}

/// Waits for one's turn with a uid: two trials at once, of a rig and a doctor, would end each other's.
///
/// An abstract socket is the lock: it goes with its process and leaves no file. Somebody who holds it for long only
/// makes the trial less certain.
async fn turn_with(uid: u32) -> Option<UnixListener> {
    let address = SocketAddr::from_abstract_name(format!("thermite-trial-{uid}")).ok()?;
    let until = Instant::now() + TURN_MAX;
    loop {
        match UnixListener::bind_addr(&address) {
            Ok(turn) => return Some(turn),
            Err(_) if Instant::now() >= until => return None,
            Err(_) => tokio::time::sleep(TURN_LOOK).await,
        }
    }
}

/// One throwaway run from launch to proof.
async fn trial(shared: &Arc<Shared>, layers: &Layers, is_root: bool, purpose: Purpose) -> Result<(), LaunchFault> {
    let identity = trial_identity(shared, layers, is_root)?;
    let _turn = match (layers.isolation, identity) {
        (Isolation::OwnUid | Isolation::Children, Identity::Dedicated { uid, .. }) => turn_with(uid).await,
        (Isolation::Namespaces, _) | (_, Identity::RigsUser) => None,
    };
    let state = shared.settings().state.join("trial");
    let workspace = match layers.isolation {
        Isolation::Namespaces => state,
        // The state folder is closed to it, and the root of the machine is not.
        Isolation::OwnUid | Isolation::Children => Path::new("/").to_owned(),
    };
    std::fs::create_dir_all(&workspace).at_path("make", &workspace)?;
    let spec = LaunchSpec {
        name: format!("trial-{}-{}", std::process::id(), super::sys::now_ns()),
        argv: Vec::new(),
        env: Vec::new(),
        workspace,
        workspace_at: Path::new(MOUNTS_AT).join("trial"),
        workspace_read_only: false,
        read_only: Vec::new(),
        hidden: Vec::new(),
        grant: Grant::default(),
        identity,
        capture: None,
        reports_times: false,
        keeps_leftovers: false,
    };
    let run = shared.launch(layers, spec, purpose).await?;
    // A trial's leader ends, or waits to be ended, where another's would become the command: there is no start to hear.
    let gate = run.go();
    let (ended, proof) = match layers.isolation {
        Isolation::Namespaces => {
            let _ = gate.await;
            (run.ended().await, run.stop(false).await)
        }
        Isolation::OwnUid | Isolation::Children => {
            let (_, proof) = tokio::join!(gate, run.stop(false));
            (run.ended().await, proof)
        }
    };
    run.finished().await;
    let expected = match layers.isolation {
        Isolation::Namespaces => Exit::Code(0),
        Isolation::OwnUid | Isolation::Children => Exit::Signal(libc::SIGKILL),
    };
    match proof {
        StopProof::Empty if ended.exit == expected => Ok(()),
        StopProof::Empty => Err(LaunchFault::new("end a throwaway run", format!("it ended with {:?}", ended.exit))),
        StopProof::NotProved { why } => Err(LaunchFault::new("prove a throwaway run's end", why)),
    }
}
