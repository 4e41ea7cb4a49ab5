//! 15: no two running VMIs have the same vsock CID, and none has a reserved one.

use super::support::{ensure, name, vmi_change};
use super::{Invariant, Scene, Verdict};
use crate::kinds::uid;
use crate::server::Change;

#[derive(Default)]
pub(crate) struct Rule;

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "vsock_cids"
    }

    fn change(&mut self, scene: &Scene<'_>, change: &Change) -> Verdict {
        let Some((_, is)) = vmi_change(change) else { return Ok(()) };
        let cid = |vmi: &api::v1::VirtualMachineInstance| vmi.status.as_ref().and_then(|status| status.vsock_cid);
        let Some(own) = cid(is) else { return Ok(()) };
        ensure(own >= 3, || format!("instance {} has the reserved address {own}", name(is)))?;
        let others = scene.server.tables.vmis.all().filter(|other| uid(&other.metadata) != uid(&is.metadata));
        match others.filter(|other| !other.is_final()).find(|other| cid(other) == Some(own)) {
            Some(other) => Err(format!("instances {} and {} share the address {own}", name(is), name(other))),
            None => Ok(()),
        }
    }
}
