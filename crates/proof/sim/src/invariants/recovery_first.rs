//! 45: if each side has its own PVC and the nodes have not reported the outcome of a migration, it ends only after a
//! Job has inspected the PVC, with the outcome that the Job found.

use api::v1::VirtualMachineInstanceMigrationPhase as Phase;
use api::labels::PERSISTENT_STATE_FOR;
use informer::Key;
use machinery::meta::label;
use plan::migration::owns;

use super::support::{ensure, job_said, migration_state};
use super::{Invariant, Scene, Verdict};
use crate::kinds::Object;
use crate::server::Change;

#[derive(Default)]
pub(crate) struct Rule;

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "recovery_first"
    }

    fn change(&mut self, scene: &Scene<'_>, change: &Change) -> Verdict {
        let (Object::Migration(is), Some(Object::Migration(was))) = (&change.last, &change.was) else { return Ok(()) };
        if was.is_final() || !is.is_final() {
            return Ok(());
        }
        let noted = was.status.as_ref().and_then(|status| status.migration_state.as_ref());
        let claims = noted.map(|noted| (&noted.source_persistent_state_pvc_name, &noted.target_persistent_state_pvc_name));
        let apart = claims.is_some_and(|(source, target)| source.is_some() && target.is_some() && source != target);
        let with_nodes = matches!(was.phase(), Some(Phase::PreparingTarget | Phase::TargetReady | Phase::Running));
        if !apart || !with_nodes {
            return Ok(());
        }
        let vmi = Key::new(
            is.metadata.namespace.clone().unwrap_or_default(),
            is.spec.vmi_name.clone().unwrap_or_default(),
        );
        let vmi = scene.server.tables.vmis.get(&vmi);
        let state = vmi.and_then(|vmi| migration_state(vmi)).filter(|state| owns(is, Some(*state)));
        if state.is_some_and(|state| state.completed == Some(true) || state.failed == Some(true)) {
            return Ok(());
        }
        // The target's PVC is the guest's already: the nodes had reported that the guest arrived.
        let target = noted.and_then(|noted| noted.target_persistent_state_pvc_name.clone()).unwrap_or_default();
        let target = scene.server.tables.claims.get(&Key::new(change.last.key().namespace, target));
        let followed = target.and_then(|claim| label(&claim.metadata, PERSISTENT_STATE_FOR)).is_some();
        let (name, said) = (change.last.key().name, job_said(scene.server, is).or(followed.then_some(true)));
        ensure(said.is_some(), || format!("migration {name} ended as {:?} before a Job found the outcome", is.phase()))?;
        ensure(said == Some(is.phase() == Some(&Phase::Succeeded)), || {
            format!("migration {name} ended as {:?}, which is not the outcome that was found", is.phase())
        })
    }
}
