use api::v1::VirtualMachineInstance;

use crate::binding::{Bound, attached};
use crate::{NetPlan, Observed, PlanError, bridge, masquerade};

/// The desired state of the Pod's network namespace for the guest.
///
/// The same plan follows from a namespace in which it has been applied, or any first part of it.
///
/// IPv6 is masqueraded when the Pod has an IPv6 address, but nothing in the Pod sends router advertisements: the guest
/// needs a static address and default route (`vmIPv6NetworkCIDR`, first and second host).
pub fn phase1(vmi: &VirtualMachineInstance, observed: &Observed) -> Result<NetPlan, PlanError> {
    let mut plan = NetPlan::default();
    for interface in attached(vmi)? {
        match interface.bound {
            Bound::Masquerade(network) => masquerade::add(&interface, network, observed, &mut plan)?,
            Bound::Bridge => bridge::add(&interface, observed, &mut plan)?,
        }
    }
    Ok(plan)
}
