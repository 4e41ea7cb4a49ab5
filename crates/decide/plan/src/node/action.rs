//! The effects specific to this controller.

use std::fmt;

use crate::effect::{Deed, Effect, Never};

/// Every effect this controller can have on a node and its VMIs.
pub type Action = Effect<Never, Own>;

/// Effects that only this controller has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Own {
    /// Reads the node, its VMIs, their Pods and the virt-handler Pods live. [`judge`](super::judge) decides what
    /// follows.
    LookLive,
    /// Logs a warning: there is no API object to report it on.
    Warn(String),
}

impl Deed for Own {}

/// For logs.
impl fmt::Display for Own {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LookLive => f.write_str("read the node, its instances and their Pods live"),
            Self::Warn(message) => write!(f, "warn: {message}"),
        }
    }
}
