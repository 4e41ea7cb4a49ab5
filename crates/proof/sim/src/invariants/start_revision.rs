//! 27: the VMI of a started VM was built from a start revision that exists, and none of an earlier start is left. One of a
//! later generation may be: a start that then finds that the VMI exists already has stored it. The next start uses it or
//! deletes it. Deleting it at once could take it from a VMI that the cache does not show yet.

use serde_json::Value;
use virt_controller::Stores;

use super::support::{ensure, own_revision, owner_vm};
use super::{Invariant, Scene, Verdict};
use crate::kinds::uid;

#[derive(Default)]
pub(crate) struct Rule;

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "start_revision"
    }

    fn rest(&mut self, scene: &Scene<'_>, _: &Stores) -> Verdict {
        let tables = &scene.server.tables;
        for vmi in tables.vmis.all().filter(|vmi| vmi.is_running()) {
            let Some(vm) = owner_vm(scene.server, vmi) else { continue };
            let Some(named) = own_revision(vm, vmi) else { continue };
            let prefix = format!("revision-start-vm-{}-", uid(&vm.metadata));
            let is_start = |name: Option<&String>| name.is_some_and(|name| name.starts_with(&prefix));
            let all: Vec<_> = tables.revisions.all().filter(|revision| is_start(revision.metadata.name.as_ref())).collect();
            let own = all.iter().find(|revision| revision.metadata.name.as_deref() == Some(&named));
            let Some(own) = own else { return Err(format!("the instance names revision {named}, which does not exist")) };
            let later = all.iter().filter(|revision| revision.revision > own.revision).count();
            ensure(all.len() == 1 + later && later <= 1, || {
                format!("{} has {} start revisions", vm.metadata.name.as_deref().unwrap_or_default(), all.len())
            })?;
            let seconds = |value: &Value| value["spec"]["template"]["spec"]["terminationGracePeriodSeconds"].as_i64();
            let kept = own.data.as_ref().and_then(|data| seconds(&data.0));
            ensure(kept == vmi.spec.termination_grace_period_seconds, || {
                format!("revision {named} holds another template than the instance was built from")
            })?;
        }
        Ok(())
    }
}
