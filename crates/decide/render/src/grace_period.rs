//! Grace periods, from the guest outwards.
//!
//! ```text
//! guest            g          (30 s unless the instance says otherwise)
//! virt-launcher    g + 15     then it stops waiting for the guest
//! Pod              g + 15 + 15 then the kubelet kills what is left
//! ```

use api::v1::VirtualMachineInstance;

/// The default grace period of a guest.
const DEFAULT_SECONDS: i64 = 30;
/// The extra time of each layer on top of the one inside it, to notice and to clean up.
const MARGIN_SECONDS: i64 = 15;

pub(crate) fn launcher(vmi: &VirtualMachineInstance) -> i64 {
    vmi.spec.termination_grace_period_seconds.unwrap_or(DEFAULT_SECONDS).saturating_add(MARGIN_SECONDS)
}

pub(crate) fn pod(vmi: &VirtualMachineInstance) -> i64 {
    launcher(vmi).saturating_add(MARGIN_SECONDS)
}
