//! The effects specific to this controller.

use std::fmt;

use machinery::names::PodName;

use crate::effect::{Deed, Effect, Never};

/// Every effect this controller can have. Their outcomes are reported as events on the VMI, and a failure does not stop
/// the remaining ones.
pub type Action = Effect<Never, Own>;

/// Effects that only this controller has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Own {
    /// Evicts the guest's Pod. If the guest is migrated instead, that is success, too.
    Evict { namespace: String, pod: PodName, uid: String },
}

impl Deed for Own {}

/// For logs.
impl fmt::Display for Own {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Evict { pod, .. } = self;
        write!(f, "evict Pod {pod}")
    }
}
