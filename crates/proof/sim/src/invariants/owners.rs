//! 76: everything a controller creates has a controller owner reference, so that garbage collection alone cleans up.

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
            // What is prepared for a migration is owned by it until the guest has arrived.
            Object::Claim(_) => &["VirtualMachine", "VirtualMachineInstance", "VirtualMachineInstanceMigration"],
            Object::Job(_) => &["VirtualMachineInstanceMigration"],
            // They have no owner, and are deleted when their VMI is gone.
            Object::Migration(_) => return Ok(()),
            _ => return Err(format!("{} was created", change.last.title())),
        };
        match controller_of(change.last.meta()) {
            Some(owner) if wanted.contains(&owner.kind.as_str()) => Ok(()),
            other => Err(format!("{} belongs to {:?}", change.last.title(), other.map(|owner| &owner.kind))),
        }
    }
}
