//! Placement constraints of a running guest. They take effect with its next Pod.

use super::{Draft, Obstacle, compute::with_sizes};
use crate::vm::world::World;

pub(super) fn affinity(w: &World, draft: &mut Draft) -> Result<(), Obstacle> {
    let template = with_sizes(w)?;
    let Some(vmi) = &mut draft.vmi else { return Ok(()) };
    let (wanted, current) = (&template.spec, &mut vmi.spec);
    if wanted.affinity == current.affinity && wanted.node_selector == current.node_selector {
        return Ok(());
    }
    stay_while_migrating(w, "affinity and nodeSelector")?;
    current.affinity.clone_from(&wanted.affinity);
    current.node_selector.clone_from(&wanted.node_selector);
    Ok(())
}

pub(super) fn tolerations(w: &World, draft: &mut Draft) -> Result<(), Obstacle> {
    let template = with_sizes(w)?;
    let Some(vmi) = &mut draft.vmi else { return Ok(()) };
    if template.spec.tolerations == vmi.spec.tolerations {
        return Ok(());
    }
    stay_while_migrating(w, "tolerations")?;
    vmi.spec.tolerations.clone_from(&template.spec.tolerations);
    Ok(())
}

fn stay_while_migrating(w: &World, what: &str) -> Result<(), Obstacle> {
    match w.living_instance().is_some_and(|vmi| w.is_migrating(vmi)) {
        true => Err(format!("{what} cannot change during a migration; the change is applied afterwards")),
        false => Ok(()),
    }
}
