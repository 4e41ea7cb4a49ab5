//! What this controller can do beyond the common vocabulary.

use std::fmt;

use crate::effect::{Deed, Effect, Never};

/// Every effect this controller can have. People are told about them on the instance, and the failure of one is no reason to
/// leave the rest undone.
pub type Action = Effect<Never, Own>;

/// What only this controller does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Own {
    /// Evicts the Pod that the guest is in. If the guest is moved instead, that is as good.
    Evict { namespace: String, pod: String, uid: String },
}

impl Deed for Own {}

/// For logs.
impl fmt::Display for Own {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Evict { pod, .. } = self;
        write!(f, "evict Pod {pod}")
    }
}
