//! A virtual machine with its instance type and preference applied.

use std::borrow::Cow;

use api::instancetype::{VirtualMachineInstancetypeSpec, VirtualMachinePreferenceSpec};
use api::reasons;
use api::v1::{VirtualMachine, VirtualMachineInstanceSpec, VirtualMachineInstanceTemplateSpec};
use instancetype::{Live, Objects, Scope, Subject, apply, capture, find_instancetype, find_preference};
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use machinery::field::FieldPath;
use serde::Serialize;

use super::world::World;
use crate::{SyncError, meta};

/// The instance type and preference that a VM's matchers resolve to.
pub(super) struct Applied {
    pub(super) instancetype: Option<VirtualMachineInstancetypeSpec>,
    pub(super) preference: Option<VirtualMachinePreferenceSpec>,
}

/// Resolves a VM's matchers: to the named object, or to an earlier revision of it.
pub(super) fn find(w: &World, vm: &VirtualMachine) -> Result<Applied, SyncError> {
    let failed = |reason| move |error: instancetype::FindError| SyncError::caused_by(reason, &error);
    Ok(Applied {
        instancetype: find_instancetype(vm, w).map_err(failed(reasons::FAILED_FIND_INSTANCETYPE))?,
        preference: find_preference(vm, w).map_err(failed(reasons::FAILED_FIND_PREFERENCE))?,
    })
}

impl Applied {
    /// Applies both to a spec. If fields conflict with the instance type, returns them and applies nothing.
    pub(super) fn apply(
        &self,
        field: &str,
        spec: &mut VirtualMachineInstanceSpec,
        metadata: &mut ObjectMeta,
    ) -> Result<(), SyncError> {
        let Applied { instancetype, preference } = self;
        let conflicts = apply(&FieldPath::new(field), instancetype.as_ref(), preference.as_ref(), spec, metadata);
        if conflicts.is_empty() {
            return Ok(());
        }
        let fields: Vec<&str> = conflicts.iter().map(FieldPath::as_str).collect();
        let message = format!("the instance type sets fields that the VM also sets; remove {}", fields.join(", "));
        Err(SyncError::new(reasons::FAILED_CREATE, message))
    }
}

/// The template of a VM as its VMI would get it.
pub(super) fn template<'a>(
    w: &World,
    vm: &'a VirtualMachine,
) -> Result<Cow<'a, VirtualMachineInstanceTemplateSpec>, SyncError> {
    if vm.spec.instancetype.is_none() && vm.spec.preference.is_none() {
        return Ok(Cow::Borrowed(&vm.spec.template));
    }
    let mut template = vm.spec.template.clone();
    let mut metadata = template.metadata.take().unwrap_or_default();
    find(w, vm)?.apply("spec.template.spec", &mut template.spec, &mut metadata)?;
    template.metadata = Some(metadata);
    Ok(Cow::Owned(template))
}

/// Whether a matcher of the VM names a cluster-scoped object.
pub(super) fn is_cluster_wide(subject: Subject, kind: Option<&str>) -> bool {
    subject.scope(kind.unwrap_or_default(), "") == Some(Scope::Cluster)
}

impl Objects for World {
    /// A revision that was captured a moment ago may not be in the cache yet; its source has the same content.
    fn revision(&self, _: &str, name: &str) -> Option<ControllerRevision> {
        self.revision(name).cloned().or_else(|| {
            captured(self, self.instancetype.as_ref(), name).or_else(|| captured(self, self.preference.as_ref(), name))
        })
    }

    fn instancetype(&self, scope: Scope<'_>, name: &str) -> Option<VirtualMachineInstancetypeSpec> {
        at(self.instancetype.as_ref(), scope, name)
    }

    fn preference(&self, scope: Scope<'_>, name: &str) -> Option<VirtualMachinePreferenceSpec> {
        at(self.preference.as_ref(), scope, name)
    }
}

fn captured<T: Serialize>(w: &World, live: Option<&Live<T>>, name: &str) -> Option<ControllerRevision> {
    let revision = capture(&w.vm, live?);
    (meta::name(&revision.metadata) == name).then_some(revision)
}

fn at<T: Clone>(live: Option<&Live<T>>, scope: Scope<'_>, name: &str) -> Option<T> {
    let live = live.filter(|live| meta::name(&live.metadata) == name)?;
    let there = match scope {
        Scope::Cluster => live.metadata.namespace.is_none(),
        Scope::Namespace(namespace) => live.metadata.namespace.as_deref() == Some(namespace),
    };
    there.then(|| live.spec.clone())
}
