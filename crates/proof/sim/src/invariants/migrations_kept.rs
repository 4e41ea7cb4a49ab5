//! 47: in the settled state a VMI has at most five ended migrations, and at most one other, which reports what it waits
//! for. No target Pod of a failed migration is left.

use api::labels;
use api::v1::VirtualMachineInstanceMigrationPhase as Phase;
use machinery::meta::{is_deleting, label};
use plan::migration::{Kind, kind};
use virt_controller::Stores;

use super::support::{ensure, name};
use super::{Invariant, Scene, Verdict};
use crate::actors::{has_ended, is_target};
use crate::kinds::uid;

#[derive(Default)]
pub(crate) struct Rule;

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "migrations_kept"
    }

    fn rest(&mut self, scene: &Scene<'_>, _: &Stores) -> Verdict {
        let tables = &scene.server.tables;
        for vmi in tables.vmis.all() {
            let all = tables.migrations.all().filter(|m| {
                m.spec.vmi_name == vmi.metadata.name && m.metadata.namespace == vmi.metadata.namespace
            });
            let own: Vec<_> = all.filter(|m| !is_deleting(&m.metadata)).collect();
            let ended = own.iter().filter(|m| m.is_final()).count();
            ensure(ended <= 5, || format!("VMI {} has {ended} ended migrations", name(vmi)))?;
            let going: Vec<_> = own.iter().filter(|m| !m.is_final()).collect();
            // Two that a user created at once may both wait for the guest; once it runs, they run one after the other. One
            // that would receive a guest for a VMI that has one waits until a user deletes it.
            let moving = going.iter().filter(|m| kind(m) != Kind::Receives).count();
            ensure(moving <= 1 || !vmi.is_running(), || format!("VMI {} has {moving} migrations that have not ended", name(vmi)))?;
            for migration in going {
                let told = migration.status.iter().flat_map(|status| &status.conditions);
                let told = told.filter(|condition| condition.is_true() && !condition.message().is_empty()).count();
                ensure(told > 0, || {
                    format!("migration {:?} waits in {:?} without reporting why", migration.metadata.name, migration.phase())
                })?;
            }
        }
        for pod in tables.pods.all().filter(|pod| is_target(pod) && !has_ended(pod)) {
            let of = label(&pod.metadata, labels::MIGRATION_JOB_UID);
            let migration = tables.migrations.all().find(|m| m.metadata.uid.as_deref() == of);
            let empty = scene.guests.in_pod(uid(&pod.metadata)).is_none();
            let lost = migration.map_or(empty, |m| m.phase() == Some(&Phase::Failed));
            ensure(!lost, || format!("target Pod {:?} of a failed or deleted migration is left", pod.metadata.name))?;
        }
        Ok(())
    }
}
