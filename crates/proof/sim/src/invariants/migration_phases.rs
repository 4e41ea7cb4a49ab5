//! 39, 40, 42: a migration's phases follow the table, and each is reached once; Succeeded and Failed are final. It
//! succeeds only if the nodes reported success, or a Job or the PVC proves it. The finalizer is removed only in a final
//! phase or after the VMI is gone.

use api::{conditions, finalizers};
use api::v1::VirtualMachineInstanceMigration as Migration;
use api::v1::VirtualMachineInstanceMigrationPhase as Phase;
use api::v1::VirtualMachineInstanceMigrationPhaseTransitionTimestamp as Transition;
use api::labels::PERSISTENT_STATE_FOR;
use informer::Key;
use machinery::meta::{has_finalizer, label};
use plan::migration::{Kind as Moves, kind, owns};

use super::support::{ensure, instance_key, job_said};
use super::{Invariant, Scene, Verdict};
use crate::kinds::{Kind, Object};
use crate::server::Change;

/// From and to; every phase may end in Failed.
const TABLE: &[(Option<Phase>, Phase)] = &[
    (None, Phase::Pending),
    (None, Phase::Synchronizing),
    (None, Phase::WaitingForSync),
    (Some(Phase::Synchronizing), Phase::Pending),
    (Some(Phase::WaitingForSync), Phase::Pending),
    (Some(Phase::Pending), Phase::Scheduling),
    (Some(Phase::Scheduling), Phase::Scheduled),
    (Some(Phase::Scheduled), Phase::PreparingTarget),
    (Some(Phase::PreparingTarget), Phase::TargetReady),
    (Some(Phase::TargetReady), Phase::Running),
    (Some(Phase::Running), Phase::Succeeded),
];

#[derive(Default)]
pub(crate) struct Rule;

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "migration_phases"
    }

    fn change(&mut self, scene: &Scene<'_>, change: &Change) -> Verdict {
        let (Object::Migration(is), Some(Object::Migration(was))) = (&change.last, &change.was) else { return Ok(()) };
        let name = change.last.key().name;
        if was.phase() != is.phase() {
            let found = is.phase() == Some(&Phase::Succeeded) && has_been_found(scene, is);
            let known = found || TABLE.iter().any(|(from, to)| was.phase() == from.as_ref() && is.phase() == Some(to));
            let fails = !was.is_final() && is.phase() == Some(&Phase::Failed);
            ensure(known || fails, || format!("migration {name} went from {:?} to {:?}", was.phase(), is.phase()))?;
        }
        let kept = times(is).len() >= times(was).len() && times(was).iter().zip(times(is)).all(|(old, new)| old == new);
        let once = times(is).iter().map(|step| &step.phase).collect::<Vec<_>>();
        let once = once.iter().enumerate().all(|(at, step)| !once[..at].contains(step));
        ensure(kept && once, || format!("migration {name} reached a phase twice: {:?}", times(is)))?;
        let vmi = instance(scene, is);
        let found = has_been_found(scene, is);
        if is.phase() == Some(&Phase::Succeeded) && was.phase() != is.phase() && !found {
            // The VMI of a guest that was sent may be gone since the controller read it.
            let seen = scene.pass(change.by).and_then(|pass| scene.cached(pass, Kind::Vmi, &instance_key(is)?));
            let seen = match &seen {
                Some(Object::Vmi(seen)) if kind(is) == Moves::Sends => Some(seen),
                _ => vmi.as_ref(),
            };
            let state = seen.and_then(|vmi| vmi.status.as_ref()?.migration_state.as_ref());
            let said = owns(is, state) && state.is_some_and(|s| s.completed == Some(true) && s.failed != Some(true));
            ensure(said, || format!("migration {name} succeeded, but its nodes did not report success"))?;
            // A change requested after this migration started is applied by the next one.
            let seen = scene.pass(change.by).and_then(|pass| scene.cached(pass, Kind::Vmi, &instance_key(is)?));
            let start = state.and_then(|state| state.start_timestamp.clone());
            let waits = |vmi: &api::v1::VirtualMachineInstance| {
                let asked = vmi.condition(conditions::HOT_MEMORY_CHANGE).filter(|condition| condition.is_true());
                asked.is_some_and(|asked| asked.last_transition_time <= start)
            };
            let pending = matches!(&seen, Some(Object::Vmi(seen)) if waits(seen)) && vmi.as_deref().is_some_and(waits);
            ensure(!pending || kind(is) == Moves::Sends, || {
                format!("migration {name} succeeded without applying the pending change")
            })?;
        }
        let held = |migration: &Migration| has_finalizer(&migration.metadata, finalizers::MIGRATION);
        let let_go = held(was) && !held(is);
        // A VMI younger than the migration is another one of the same name: the migration's own is gone.
        let gone = vmi.is_none_or(|vmi| vmi.metadata.creation_timestamp > is.metadata.creation_timestamp);
        ensure(!let_go || is.is_final() || gone, || format!("migration {name} lost its finalizer in phase {:?}", is.phase()))
    }
}

/// Whether a Job found that the guest had arrived, or the target's PVC has become the guest's.
fn has_been_found(scene: &Scene<'_>, migration: &Migration) -> bool {
    let state = migration.status.as_ref().and_then(|status| status.migration_state.as_ref());
    let target = state.and_then(|state| state.target_persistent_state_pvc_name.clone());
    let source = state.and_then(|state| state.source_persistent_state_pvc_name.clone());
    let at = Key::new(migration.metadata.namespace.clone().unwrap_or_default(), target.clone().unwrap_or_default());
    let claim = scene.server.tables.claims.get(&at).filter(|_| target != source);
    let name = claim.and_then(|claim| label(&claim.metadata, PERSISTENT_STATE_FOR));
    name.is_some() && name == migration.spec.vmi_name.as_deref() || job_said(scene.server, migration) == Some(true)
}

fn times(migration: &Migration) -> &[Transition] {
    migration.status.as_ref().map_or(&[], |status| &status.phase_transition_timestamps)
}

fn instance(scene: &Scene<'_>, migration: &Migration) -> Option<std::sync::Arc<api::v1::VirtualMachineInstance>> {
    scene.server.tables.vmis.get(&instance_key(migration)?).cloned()
}
