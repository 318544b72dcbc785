//! What control says no to.

use thermite_actors::ports::RecordsFault;
use thermite_core::refusal::Refusal;
use thermite_core::wire::ProcessName;

use crate::bus::subjects::RigName;
use crate::tokens::TokenId;

/// Control does not do what is asked.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ControlNo {
    /// No such token.
    #[error("the token opens nothing here; take the one in the data folder's file owner-token")]
    WrongToken,
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
    /// Another process has the name.
    #[error(
        "{who} of rig {rig} is another process with another key; end that one and wait {ends_in_s} s, or remove it and \
         list it again (`thermite control runner remove`)"
    )]
    NameTaken {
        /// The rig.
        rig: RigName,
        /// Whose name it is.
        who: String,
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

impl From<RecordsFault> for ControlNo {
    fn from(fault: RecordsFault) -> ControlNo {
        ControlNo::Records(fault)
    }
}
