//! Labels and annotations that are updated while the guest runs.

use api::annotations;

use super::{Draft, Obstacle};
use crate::meta;
use crate::vm::world::World;

/// Annotations that the descheduler reads from a running guest's Pod.
const FOLLOWED: [&str; 2] = [annotations::DESCHEDULER_EVICT, annotations::DESCHEDULER_PREFER_NO_EVICTION];

/// From the template to the VMI; and from the VM itself whether backups skip the guest.
pub(super) fn to_instance(w: &World, draft: &mut Draft) -> Result<(), Obstacle> {
    let Some(vmi) = &mut draft.vmi else { return Ok(()) };
    let template = draft.spec.template.metadata.clone().unwrap_or_default();
    let mut noted = vmi.metadata.annotations.take().unwrap_or_default();
    meta::follow(&FOLLOWED, &w.settings.follow_annotations, &template.annotations.unwrap_or_default(), &mut noted);
    let own = w.vm.metadata.annotations.clone().unwrap_or_default();
    meta::follow(&[annotations::SKIP_BACKUP_HOOKS], &[], &own, &mut noted);
    vmi.metadata.annotations = Some(noted);
    let mut labels = vmi.metadata.labels.take().unwrap_or_default();
    meta::follow(&[], &w.settings.follow_labels, &template.labels.unwrap_or_default(), &mut labels);
    vmi.metadata.labels = Some(labels);
    Ok(())
}

/// A guest keeps its PCI layout for life: the layout of its first start is recorded in the template.
pub(super) fn to_template(_: &World, draft: &mut Draft) -> Result<(), Obstacle> {
    let chosen = draft.vmi.as_ref().and_then(|vmi| vmi.metadata.annotations.as_ref());
    let Some(version) = chosen.and_then(|chosen| chosen.get(annotations::PCI_TOPOLOGY_VERSION)) else { return Ok(()) };
    let template = draft.spec.template.metadata.as_ref().and_then(|metadata| metadata.annotations.as_ref());
    if template.is_some_and(|template| template.contains_key(annotations::PCI_TOPOLOGY_VERSION)) {
        return Ok(());
    }
    let slots = chosen.and_then(|chosen| chosen.get(annotations::PCI_INTERFACE_SLOT_COUNT)).cloned();
    let target = draft.spec.template.metadata.get_or_insert_default().annotations.get_or_insert_default();
    target.insert(annotations::PCI_TOPOLOGY_VERSION.to_owned(), version.clone());
    if let Some(slots) = slots {
        target.insert(annotations::PCI_INTERFACE_SLOT_COUNT.to_owned(), slots);
    }
    Ok(())
}
