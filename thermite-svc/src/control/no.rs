//! What control says no to.

use thermite_actors::ports::RecordsFault;
use thermite_core::refusal::Refusal;
use thermite_core::texts;
use thermite_core::time::Span;
use thermite_core::wire::ProcessName;

use super::tokens::TokenMake;
use crate::bus::subjects::RigName;
use crate::supervisor::key::SEED;
use crate::tokens::TokenId;

/// Control does not do what is asked.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ControlNo {
    /// No such token.
    #[error("{}", opens_nothing(*.0))]
    WrongToken(TokenMake),
    /// It has ended.
    #[error("token {0} has expired; ask control's owner for another")]
    ExpiredToken(TokenId),
    /// It does not open that.
    #[error("token {token}: {why}")]
    NotForThisToken {
        /// The token.
        token: TokenId,
        /// Why.
        why: String,
    },
    /// There is none of that name.
    #[error("token {0} does not exist")]
    UnknownToken(TokenId),
    /// It ends with the file alone.
    #[error(
        "token {0} is the one in the data folder's file owner-token; remove that file and start control again, and it \
         opens nothing"
    )]
    TokenOfTheFile(TokenId),
    /// Too many.
    #[error("{most} {what} are there already; remove one first")]
    TooMany {
        /// What.
        what: &'static str,
        /// How many may be.
        most: usize,
    },
    /// No such rig.
    #[error("rig {0} does not exist; `thermite control rig list` shows those that do")]
    UnknownRig(RigName),
    /// There is one of that name.
    #[error("rig {0} exists already; give another name, or remove it first")]
    RigExists(RigName),
    /// No such runner.
    #[error("rig {rig} has no runner {runner}: it is not listed and has not registered")]
    UnknownRunner {
        /// The rig.
        rig: RigName,
        /// The runner.
        runner: ProcessName,
    },
    /// It was removed.
    #[error("{who} was removed from rig {rig}; list it again in the rig's settings to let it come back")]
    Barred {
        /// The rig.
        rig: RigName,
        /// Which runner, or whose key.
        who: String,
    },
    /// The key is that of a core which was removed.
    #[error(
        "this key is that of the core that was removed from rig {rig}; to let this process back in, remove the file \
         {SEED} in its data folder and start it again: it makes a key of its own"
    )]
    CoreBarred {
        /// The rig.
        rig: RigName,
    },
    /// Another process has the name.
    #[error("{}", name_taken(.rig, .runner.as_ref(), .key, *.since_ms, *.ends_in_s))]
    NameTaken {
        /// The rig.
        rig: RigName,
        /// Whose name it is; none for the core.
        runner: Option<ProcessName>,
        /// The key that has it.
        key: String,
        /// When that key was registered: milliseconds since 1970.
        since_ms: u64,
        /// When the other's rights end by themselves, in seconds.
        ends_in_s: u64,
    },
    /// The key is another name's.
    #[error("this key is {who}'s in rig {rig}; each process has a data folder and a key of its own")]
    KeyTaken {
        /// The rig.
        rig: RigName,
        /// Whose key it is.
        who: String,
    },
    /// A newer start of the same process is there.
    #[error("a newer start of {who} of rig {rig} has taken its place; end one of the two processes")]
    Replaced {
        /// The rig.
        rig: RigName,
        /// Whose start it is.
        who: String,
    },
    /// The settings were set meanwhile.
    #[error("the settings of rig {rig} are at revision {revision}, not {read}; read them again")]
    SettingsMoved {
        /// The rig.
        rig: RigName,
        /// Where they are.
        revision: u64,
        /// What the asker had read.
        read: u64,
    },
    /// Control knows no cluster to start a runner on.
    #[error(
        "control knows no cluster to start runners on; start the runner yourself (`thermite supervisor`, `thermite \
         harness`) with the rig's token, and list it in the rig's settings"
    )]
    NoCluster,
    /// It can never be as asked.
    #[error(transparent)]
    Rules(#[from] Refusal),
    /// It can never be as asked.
    #[error("{0}")]
    Impossible(String),
    /// The disk did not take it; nobody's fault.
    #[error("{}", .0.0)]
    Records(RecordsFault),
    /// The system failed; nobody's fault.
    #[error("{0}")]
    Failed(String),
}

fn opens_nothing(make: TokenMake) -> &'static str {
    match make {
        TokenMake::Owner => {
            "this owner's token opens nothing here: it was revoked or is another control's; take the one in the file \
             owner-token of control's data folder"
        }
        TokenMake::Rig => {
            "this rig's token opens nothing here: it was revoked, or its rig was removed; control's owner makes another \
             with `thermite control token new --rig RIG`"
        }
        TokenMake::Runner => {
            "this runner's token opens nothing here: it was revoked, or its runner or rig was removed; control's owner \
             makes another with `thermite control token new --rig RIG --runner RUNNER`"
        }
        TokenMake::Foreign => {
            "this is no token of control's: those begin with th_own_, th_rig_ or th_run_; the owner's is in the file \
             owner-token of control's data folder"
        }
    }
}

fn name_taken(rig: &RigName, runner: Option<&ProcessName>, key: &str, since_ms: u64, ends_in_s: u64) -> String {
    let who = super::words::called(runner);
    let (since, rest) = (texts::minute(since_ms), Span::seconds(ends_in_s));
    let way_out = match runner {
        Some(runner) => format!("`thermite control runner remove {rig} {runner}`, and list it again"),
        None => format!("`thermite control rig remove-core {rig}`"),
    };
    format!(
        "{who} of rig {rig} is another process, whose key {key} was registered at {since}; end that one and wait {rest}, \
         or take its rights back: {way_out}"
    )
}

impl From<RecordsFault> for ControlNo {
    fn from(fault: RecordsFault) -> ControlNo {
        ControlNo::Records(fault)
    }
}
