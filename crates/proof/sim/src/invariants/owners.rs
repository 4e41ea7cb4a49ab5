//! 76: whatever a controller creates has a controller of its own, so that garbage collection alone cleans up after it.

use machinery::meta::controller_of;

use super::{Invariant, Scene, Verdict};
use crate::kinds::Object;
use crate::server::Change;

#[derive(Default)]
pub(crate) struct Rule;

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "owners"
    }

    fn change(&mut self, _: &Scene<'_>, change: &Change) -> Verdict {
        if change.was.is_some() || !change.by.is_controller() {
            return Ok(());
        }
        let wanted = match &change.last {
            Object::Vmi(_) | Object::Revision(_) | Object::DataVolume(_) => &["VirtualMachine"][..],
            Object::Pod(_) => &["VirtualMachineInstance", "Pod"],
            // What a migration prepares is its own until the guest has come.
            Object::Claim(_) => &["VirtualMachine", "VirtualMachineInstance", "VirtualMachineInstanceMigration"],
            Object::Job(_) => &["VirtualMachineInstanceMigration"],
            // They belong to nobody, and go when their instance has gone.
            Object::Migration(_) => return Ok(()),
            _ => return Err(format!("{} was created", change.last.title())),
        };
        match controller_of(change.last.meta()) {
            Some(owner) if wanted.contains(&owner.kind.as_str()) => Ok(()),
            other => Err(format!("{} belongs to {:?}", change.last.title(), other.map(|owner| &owner.kind))),
        }
    }
}
