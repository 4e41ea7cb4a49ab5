//! 39, 40, 42: phases of a migration move along the table, each is reached once; Succeeded and Failed are the end; success is what the nodes said, or what was found;
//! the finalizer goes only in a final phase, or after the instance has gone.

use api::{conditions, finalizers};
use api::v1::VirtualMachineInstanceMigration as Migration;
use api::v1::VirtualMachineInstanceMigrationPhase as Phase;
use api::v1::VirtualMachineInstanceMigrationPhaseTransitionTimestamp as Transition;
use api::labels::PERSISTENT_STATE_FOR;
use informer::Key;
use machinery::meta::{has_finalizer, label};
use plan::migration::{Kind as Moves, is_final, kind, owns, phase};

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
        if phase(was) != phase(is) {
            let found = phase(is) == Some(&Phase::Succeeded) && has_been_found(scene, is);
            let known = found || TABLE.iter().any(|(from, to)| phase(was) == from.as_ref() && phase(is) == Some(to));
            let fails = !is_final(was) && phase(is) == Some(&Phase::Failed);
            ensure(known || fails, || format!("migration {name} went from {:?} to {:?}", phase(was), phase(is)))?;
        }
        let kept = times(is).len() >= times(was).len() && times(was).iter().zip(times(is)).all(|(old, new)| old == new);
        let once = times(is).iter().map(|step| &step.phase).collect::<Vec<_>>();
        let once = once.iter().enumerate().all(|(at, step)| !once[..at].contains(step));
        ensure(kept && once, || format!("migration {name} reached a phase twice: {:?}", times(is)))?;
        let vmi = instance(scene, is);
        let found = has_been_found(scene, is);
        if phase(is) == Some(&Phase::Succeeded) && phase(was) != phase(is) && !found {
            // The instance of a guest that was sent may have gone since the look.
            let seen = scene.pass(change.by).and_then(|pass| scene.cached(pass, Kind::Vmi, &instance_key(is)?));
            let seen = match &seen {
                Some(Object::Vmi(seen)) if kind(is) == Moves::Sends => Some(seen),
                _ => vmi.as_ref(),
            };
            let state = seen.and_then(|vmi| vmi.status.as_ref()?.migration_state.as_ref());
            let said = owns(is, state) && state.is_some_and(|s| s.completed == Some(true) && s.failed != Some(true));
            ensure(said, || format!("migration {name} succeeded, and its nodes never said so"))?;
            // One that came a moment ago, or when the guest was on its way, is for the next migration.
            let seen = scene.pass(change.by).and_then(|pass| scene.cached(pass, Kind::Vmi, &instance_key(is)?));
            let start = state.and_then(|state| state.start_timestamp.clone());
            let waits = |vmi: &api::v1::VirtualMachineInstance| {
                let asked = vmi.condition(conditions::HOT_MEMORY_CHANGE).filter(|condition| condition.is_true());
                asked.is_some_and(|asked| asked.last_transition_time <= start)
            };
            let pending = matches!(&seen, Some(Object::Vmi(seen)) if waits(seen)) && vmi.as_deref().is_some_and(waits);
            ensure(!pending || kind(is) == Moves::Sends, || format!("migration {name} succeeded, and the guest lacks what it was to get by it"))?;
        }
        let held = |migration: &Migration| has_finalizer(&migration.metadata, finalizers::MIGRATION);
        let let_go = held(was) && !held(is);
        // One that came after the migration is another instance of this name: the migration's own has gone.
        let gone = vmi.is_none_or(|vmi| vmi.metadata.creation_timestamp > is.metadata.creation_timestamp);
        ensure(!let_go || is_final(is) || gone, || format!("migration {name} was let go in {:?}", phase(is)))
    }
}

/// A Job has found that the guest had arrived, or its claim has followed it.
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
