//! Which instance type and preference apply to a VM.
//!
//! ```text
//! matcher ─► revision it names, or the one on record, or the object as it is now ─► captured ─► on record in the status
//! ```
//!
//! With policy `reference`, the objects that a VM was first started with are captured as revisions, so that later
//! changes to the objects do not change the guest. With `expand` and `expandAll`, their content is copied into the VM
//! and the references are removed; `expand` leaves VMs alone that have a revision on record.

use api::reasons;
use api::v1::{ControllerRevisionRef, InstancetypeStatusRef, VirtualMachine, VirtualMachineStatus};
use instancetype::{Live, Matcher, apply_autoattach, capture, conflicts, upgrade};
use k8s_openapi::api::apps::v1::ControllerRevision;
use machinery::field::FieldPath;
use serde::Serialize;

use super::action::{drop_revision, keep_revision, patch_vm};
use super::decide::Plan;
use super::expand;
use super::start::{attach_default_network, attach_loose_volumes};
use super::wanted::recorded_revision;
use super::world::World;
use crate::guard::Guarded;
use crate::{SyncError, meta};

/// The status of both.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Refs {
    instancetype: Option<InstancetypeStatusRef>,
    preference: Option<InstancetypeStatusRef>,
}

impl Refs {
    fn recorded(vm: &VirtualMachine) -> Self {
        let status = vm.status.as_ref();
        Refs {
            instancetype: status.and_then(|status| status.instancetype_ref.clone()),
            preference: status.and_then(|status| status.preference_ref.clone()),
        }
    }

    pub(super) fn record(&self, status: &mut VirtualMachineStatus) {
        status.instancetype_ref.clone_from(&self.instancetype);
        status.preference_ref.clone_from(&self.preference);
    }

    fn has_revision(&self) -> bool {
        [&self.instancetype, &self.preference].into_iter().flatten().any(|one| recorded_revision(one).is_some())
    }
}

/// Updates the record. If there is anything to do, the returned plan is the whole pass.
pub(super) fn sync(w: &World) -> Result<Option<Plan>, SyncError> {
    let recorded = Refs::recorded(&w.vm);
    let expands = w.config.instancetype_reference_policy() != "reference";
    if w.vm.spec.instancetype.is_none() && w.vm.spec.preference.is_none() {
        return Ok((recorded != Refs::default()).then(|| forget(w, &recorded, expands)));
    }
    let found = expand::find(w, &w.vm)?;
    if expands {
        let kept = recorded.has_revision() && w.config.instancetype_reference_policy() == "expand";
        return if kept { Ok(None) } else { expanded(w, &found).map(Some) };
    }
    let mut plan = Plan::default();
    let spec = &w.vm.spec;
    let mut refs = Refs::default();
    if let Some(matcher) = &spec.instancetype {
        let matcher = Matcher::from(matcher);
        let mut one = Pin { w, plan: &mut plan, recorded: recorded.instancetype.as_ref(), matcher };
        refs.instancetype = Some(one.pin(w.instancetype.as_ref(), |live| {
            check_conflicts(w, live)?;
            Ok(capture(&w.vm, live))
        })?);
    }
    if let Some(matcher) = &spec.preference {
        let matcher = Matcher::from(matcher);
        let mut one = Pin { w, plan: &mut plan, recorded: recorded.preference.as_ref(), matcher };
        refs.preference = Some(one.pin(w.preference.as_ref(), |live| Ok(capture(&w.vm, live)))?);
    }
    if refs == recorded {
        return Ok(None);
    }
    plan.refs = Some(refs);
    plan.waits = Some("its instance type or preference is being recorded".to_owned());
    Ok(Some(plan))
}

/// A matcher that is being recorded.
struct Pin<'a> {
    w: &'a World,
    plan: &'a mut Plan,
    recorded: Option<&'a InstancetypeStatusRef>,
    matcher: Matcher<'a>,
}

impl Pin<'_> {
    /// The record for the matcher. What must be created for it is added to the plan.
    fn pin<T: Serialize>(
        &mut self,
        live: Option<&Live<T>>,
        capture: impl FnOnce(&Live<T>) -> Result<ControllerRevision, SyncError>,
    ) -> Result<InstancetypeStatusRef, SyncError> {
        let mut one = self.followed();
        if recorded_revision(&one).is_none()
            && let Some(live) = live
        {
            let revision = capture(live)?;
            one.controller_revision_ref = pointing_to(meta::name(&revision.metadata));
            self.create(revision)?;
        } else if self.matcher.revision_name.is_empty()
            && let Some(old) = recorded_revision(&one).and_then(|name| self.w.revision(name))
            && let Some(new) = upgrade(&self.w.vm, old).map_err(|e| SyncError::caused_by(reasons::FAILED_CREATE, &e))?
        {
            one.controller_revision_ref = pointing_to(meta::name(&new.metadata));
            if meta::is_controlled_by(&old.metadata, meta::uid(&self.w.vm.metadata)) {
                self.plan.actions.push(drop_revision(old));
            }
            self.create(new)?;
        }
        Ok(one)
    }

    /// The record, updated from the matcher. Another object means another revision.
    fn followed(&self) -> InstancetypeStatusRef {
        let Matcher { name, kind, revision_name, infer_from_volume, failure_policy } = self.matcher;
        let mut one = self.recorded.cloned().unwrap_or_default();
        let mut other = false;
        for (new, field) in
            [(name, &mut one.name), (kind, &mut one.kind), (infer_from_volume, &mut one.infer_from_volume)]
        {
            if !new.is_empty() && field.as_deref() != Some(new) {
                *field = Some(new.to_owned());
                other = true;
            }
        }
        if other {
            one.controller_revision_ref = None;
        }
        if let Some(policy) = failure_policy {
            one.infer_from_volume_failure_policy = Some(policy.to_owned());
        }
        if !revision_name.is_empty() {
            one.controller_revision_ref = pointing_to(revision_name);
        }
        one
    }

    /// An existing revision of this name must have the same content.
    fn create(&mut self, revision: ControllerRevision) -> Result<(), SyncError> {
        let name = meta::name(&revision.metadata);
        let held = |revision: &ControllerRevision| revision.data.as_ref().and_then(|data| data.0.get("spec").cloned());
        match self.w.revision(name) {
            None => self.plan.first.push(keep_revision(revision)),
            Some(found) if held(found) == held(&revision) => {}
            Some(_) => {
                let message = format!("ControllerRevision {name} exists with different content; delete it");
                return Err(SyncError::new(reasons::FAILED_CREATE, message));
            }
        }
        Ok(())
    }
}

fn pointing_to(name: &str) -> Option<ControllerRevisionRef> {
    Some(ControllerRevisionRef { name: Some(name.to_owned()) })
}

/// The object may have changed since admission checked it against the VM.
fn check_conflicts(w: &World, live: &Live<api::instancetype::VirtualMachineInstancetypeSpec>) -> Result<(), SyncError> {
    let template = &w.vm.spec.template;
    let metadata = template.metadata.clone().unwrap_or_default();
    let found = conflicts(&FieldPath::new("spec.template.spec"), &live.spec, &template.spec, &metadata);
    if found.is_empty() {
        return Ok(());
    }
    let fields: Vec<&str> = found.iter().map(FieldPath::as_str).collect();
    let message = format!(
        "the instance type {} sets fields that the VM also sets; remove {}",
        meta::name(&live.metadata),
        fields.join(", ")
    );
    Err(SyncError::new(reasons::FAILED_CREATE, message))
}

/// Copies instance type and preference into the VM; the event of the patch requeues us to remove the references.
fn expanded(w: &World, found: &expand::Applied) -> Result<Plan, SyncError> {
    let mut spec = w.vm.spec.clone();
    let mut metadata = spec.template.metadata.take().unwrap_or_default();
    attach_loose_volumes(&mut spec.template.spec);
    if let Some(preference) = &found.preference {
        apply_autoattach(preference, &mut spec.template.spec);
    }
    attach_default_network(&mut spec.template.spec, &w.config);
    found.apply("spec.template.spec", &mut spec.template.spec, &mut metadata)?;
    spec.template.metadata = Some(metadata);
    spec.instancetype = None;
    spec.preference = None;
    let patch = Guarded::new(&w.vm.metadata).whole(&["spec"], &w.vm.spec, &spec).build();
    let patch = patch.map(|patch| patch_vm(&w.vm, patch, reasons::FAILED_CREATE));
    Ok(Plan::act(patch.into_iter().collect()))
}

/// Clears the record of a VM without matchers. After an expansion its revisions are no longer needed.
fn forget(w: &World, recorded: &Refs, expands: bool) -> Plan {
    let mut plan = Plan { refs: Some(Refs::default()), ..Plan::default() };
    if expands {
        let pinned = [&recorded.instancetype, &recorded.preference].into_iter().flatten().filter_map(recorded_revision);
        let owned = pinned.filter_map(|name| w.revision(name));
        let owned = owned.filter(|found| meta::is_controlled_by(&found.metadata, meta::uid(&w.vm.metadata)));
        plan.actions = owned.map(drop_revision).collect();
    }
    plan
}
