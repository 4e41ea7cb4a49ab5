//! 46, 47, 52, 53, 55: at rest an instance has no more than five ended migrations, at most one that has not ended (and that
//! says what it waits for), and no target Pod without one; no budget is controlled by an instance; and automatic
//! migrations keep their distance after failures.

use api::v1::VirtualMachineInstanceMigration as Migration;
use api::v1::VirtualMachineInstanceMigrationPhase as Phase;
use api::{annotations, labels};
use machinery::meta::{annotation, is_deleting, label};
use plan::migration::{is_final, phase};
use virt_controller::Stores;

use super::support::{ensure, name, new_pod};
use super::{Invariant, Scene, Verdict};
use crate::actors::{has_ended, is_target};
use crate::server::Change;

#[derive(Default)]
pub(crate) struct Rule;

fn is_automatic(migration: &Migration) -> bool {
    annotation(&migration.metadata, annotations::EVACUATION_MIGRATION).is_some()
}

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "migration_ends"
    }

    fn change(&mut self, scene: &Scene<'_>, change: &Change) -> Verdict {
        let Some(pod) = new_pod(change).filter(|pod| is_target(pod)) else { return Ok(()) };
        let all = || scene.server.tables.migrations.all();
        let of = label(&pod.metadata, labels::MIGRATION_JOB_UID);
        let Some(own) = all().find(|m| m.metadata.uid.as_deref() == of && is_automatic(m)) else { return Ok(()) };
        let failed_at = |m: &Migration| {
            let times = m.status.iter().flat_map(|status| &status.phase_transition_timestamps);
            times.filter(|t| t.phase == Some(Phase::Failed)).find_map(|t| t.phase_transition_timestamp.clone())
        };
        let mut earlier: Vec<_> = all()
            .filter(|m| m.spec.vmi_name == own.spec.vmi_name && is_automatic(m) && m.metadata.uid != own.metadata.uid)
            .filter(|m| !is_deleting(&m.metadata))
            .collect();
        earlier.sort_by_key(|m| std::cmp::Reverse(m.metadata.creation_timestamp.clone()));
        let failures: Vec<_> = earlier
            .iter()
            .take_while(|m| phase(m) != Some(&Phase::Succeeded))
            .filter(|m| phase(m) == Some(&Phase::Failed))
            .collect();
        let Some(last) = failures.first().and_then(|m| failed_at(m)) else { return Ok(()) };
        let waited = scene.server.time().0.duration_since(last.0).as_secs();
        let wanted = 20_i64 << (failures.len() - 1).min(20);
        ensure(waited >= wanted, || format!("after {} failures {waited} s were waited, not {wanted}", failures.len()))
    }

    fn rest(&mut self, scene: &Scene<'_>, _: &Stores) -> Verdict {
        let tables = &scene.server.tables;
        for vmi in tables.vmis.all() {
            let own: Vec<_> = tables
                .migrations
                .all()
                .filter(|m| m.spec.vmi_name == vmi.metadata.name && !is_deleting(&m.metadata))
                .collect();
            let ended = own.iter().filter(|m| is_final(m)).count();
            ensure(ended <= 5, || format!("{ended} ended migrations of {} are kept", name(vmi)))?;
            let going: Vec<_> = own.iter().filter(|m| !is_final(m)).collect();
            ensure(going.len() <= 1, || format!("{} migrations of {} go on", going.len(), name(vmi)))?;
            for migration in going {
                let told = migration.status.iter().flat_map(|status| &status.conditions);
                let told = told.filter(|condition| condition.is_true() && !condition.message().is_empty()).count();
                ensure(told > 0, || format!("{:?} waits in {:?} and does not say why", migration.metadata.name, phase(migration)))?;
            }
        }
        for pod in tables.pods.all().filter(|pod| is_target(pod) && !has_ended(pod)) {
            let of = label(&pod.metadata, labels::MIGRATION_JOB_UID);
            let migration = tables.migrations.all().find(|m| m.metadata.uid.as_deref() == of);
            let lost = migration.is_some_and(|m| phase(m) == Some(&Phase::Failed));
            ensure(!lost, || format!("target {:?} of a failed migration is left", pod.metadata.name))?;
        }
        ensure(tables.budgets.all().next().is_none(), || "a disruption budget is left".to_owned())
    }
}
