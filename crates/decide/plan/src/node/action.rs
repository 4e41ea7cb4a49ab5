//! What this controller can do beyond the common vocabulary.

use std::fmt;

use crate::effect::{Deed, Effect, Never};

/// Every effect this controller can have on a node and the instances on it.
pub type Action = Effect<Never, Own>;

/// What only this controller does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Own {
    /// Reads the node, the instances on it, their Pods and the node agents live. [`judge`](super::judge) says what follows.
    LookLive,
    /// Tells the operator's log: there is nothing on the API to show it on.
    Warn(String),
}

impl Deed for Own {}

/// For logs.
impl fmt::Display for Own {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LookLive => f.write_str("look at the node live"),
            Self::Warn(message) => write!(f, "warn: {message}"),
        }
    }
}
