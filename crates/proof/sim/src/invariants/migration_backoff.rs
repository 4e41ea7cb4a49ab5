//! 46: automatic migrations back off after failures, 20 s and twice as long after each; those of users are not delayed.

use api::v1::VirtualMachineInstanceMigration as Migration;
use api::v1::VirtualMachineInstanceMigrationPhase as Phase;
use api::{annotations, conditions, labels, reasons};
use machinery::meta::{annotation, label};
use plan::migration::was_given_up;

use super::support::{ensure, instance_key, new_pod};
use super::{Invariant, Scene, Verdict};
use crate::actors::is_target;
use crate::kinds::Object;
use crate::server::Change;

#[derive(Default)]
pub(crate) struct Rule;

pub(super) fn is_automatic(migration: &Migration) -> bool {
    let has = |key| annotation(&migration.metadata, key).is_some();
    has(annotations::EVACUATION_MIGRATION) || has(annotations::WORKLOAD_UPDATE_MIGRATION)
}

fn failed_at(migration: &Migration) -> Option<jiff::Timestamp> {
    let times = migration.status.iter().flat_map(|status| &status.phase_transition_timestamps);
    let mut failures = times.filter(|t| t.phase == Some(Phase::Failed));
    failures.find_map(|t| t.phase_transition_timestamp.as_ref().map(|time| time.0))
}

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "migration_backoff"
    }

    fn change(&mut self, scene: &Scene<'_>, change: &Change) -> Verdict {
        if let Object::Migration(migration) = &change.last {
            let list = migration.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
            let waits = conditions::find(list, conditions::MIGRATION_WAITING);
            let put_off = waits.is_some_and(|waits| waits.reason() == reasons::MIGRATION_BACKOFF);
            return ensure(!put_off || is_automatic(migration), || {
                format!("migration {} of a user is put off", change.last.key().name)
            });
        }
        let Some(pod) = new_pod(change).filter(|pod| is_target(pod)) else { return Ok(()) };
        let all = || scene.server.tables.migrations.all();
        let of = label(&pod.metadata, labels::MIGRATION_JOB_UID);
        let Some(own) = all().find(|m| m.metadata.uid.as_deref() == of && is_automatic(m)) else { return Ok(()) };
        let mut earlier: Vec<_> = all()
            .filter(|m| instance_key(m) == instance_key(own) && is_automatic(m) && m.metadata.uid != own.metadata.uid)
            .filter(|m| !was_given_up(m))
            .collect();
        earlier.sort_by_key(|m| std::cmp::Reverse(m.metadata.creation_timestamp.clone()));
        let recent = earlier.iter().take_while(|m| m.phase() != Some(&Phase::Succeeded));
        let failures: Vec<_> = recent.filter(|m| m.phase() == Some(&Phase::Failed)).collect();
        let Some(last) = failures.first().and_then(|m| failed_at(m)) else { return Ok(()) };
        let waited = scene.server.time().0.duration_since(last).as_secs();
        let wanted = 20_i64 << (failures.len() - 1).min(20);
        ensure(waited >= wanted, || format!("after {} failures {waited} s were waited, not {wanted}", failures.len()))
    }
}
