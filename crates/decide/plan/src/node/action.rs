use std::fmt;
use std::time::Duration;

use json_patch::Patch;
use serde_json::Value;

use crate::Note;
use crate::guard::paths;

/// Every effect this controller can have on a node and the instances on it.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Reads the node, the instances on it, their Pods and the node agents live. [`judge`](super::judge) says what follows.
    Confirm,
    /// Merges into the node's labels, unless it has changed since it was read.
    PatchNode { patch: Value, because: &'static str },
    /// Patches an instance, guarded by tests.
    PatchVmi { namespace: String, name: String, patch: Patch, because: &'static str },
    /// Publishes an event on the node.
    NoteNode(Note),
    /// Publishes an event on an instance.
    NoteVmi { namespace: String, name: String, uid: String, note: Note },
    /// Tells the operator's log: there is nothing on the API to show it on.
    Warn(String),
    /// Another look after this time.
    RequeueAfter(Duration),
}

/// For logs: what is done to which object, and never what is in it.
impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Confirm => f.write_str("look at the node live"),
            Self::PatchNode { because, .. } => write!(f, "patch the node: {because}"),
            Self::PatchVmi { namespace, name, patch, because } => {
                write!(f, "patch instance {namespace}/{name}: {}: {because}", paths(patch))
            }
            Self::NoteNode(note) => write!(f, "event {} on the node", note.reason),
            Self::NoteVmi { namespace, name, note, .. } => {
                write!(f, "event {} on instance {namespace}/{name}", note.reason)
            }
            Self::Warn(message) => write!(f, "warn: {message}"),
            Self::RequeueAfter(delay) => write!(f, "look again after {delay:?}"),
        }
    }
}
