//! 34: the finalizer of a VM is removed only if it has no VMI, or if the VMI is to be orphaned.

use api::finalizers::{ORPHAN, VIRTUAL_MACHINE_CONTROLLER};
use machinery::meta::{has_finalizer, is_controlled_by};

use super::support::{ensure, pass_of, vm_change};
use super::{Invariant, Scene, Verdict};
use crate::controllers;
use crate::kinds::{key, uid};
use crate::server::Change;

#[derive(Default)]
pub(crate) struct Rule;

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "vm_finalizer"
    }

    fn change(&mut self, scene: &Scene<'_>, change: &Change) -> Verdict {
        let Some((Some(was), is)) = vm_change(change) else { return Ok(()) };
        let left = has_finalizer(&was.metadata, VIRTUAL_MACHINE_CONTROLLER)
            && !has_finalizer(&is.metadata, VIRTUAL_MACHINE_CONTROLLER);
        if !left || pass_of(scene, change, controllers::VM).is_none() || has_finalizer(&was.metadata, ORPHAN) {
            return Ok(());
        }
        let vmi = scene.server.tables.vmis.get(&key(&is.metadata));
        let own = vmi.filter(|vmi| is_controlled_by(&vmi.metadata, uid(&is.metadata)));
        ensure(own.is_none(), || format!("{:?} goes while its instance exists", is.metadata.name))
    }
}
