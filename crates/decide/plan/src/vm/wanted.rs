//! The other objects that a decision about a VM needs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::cdi::DataSource;
use api::v1::{InstancetypeStatusRef, VirtualMachine, VirtualMachineInstance};
use instancetype::{Matcher, Scope, Subject};

use super::clone_source;
use super::world::Place;
use crate::claims;

/// The names to look up; those without a namespace are in the VM's namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Names of claims, DataVolumes or both.
    pub claims: BTreeSet<String>,
    /// Claims that DataVolumes are cloned from.
    pub copied_claims: BTreeSet<Place>,
    /// DataSources.
    pub data_sources: BTreeSet<Place>,
    /// Revisions by name.
    pub revisions: BTreeSet<String>,
    pub instancetype: Option<Object>,
    pub preference: Option<Object>,
}

/// An instance type or preference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// It is cluster-scoped, rather than in the VM's namespace.
    pub cluster: bool,
    pub name: String,
}

/// The objects that a decision about this VM and VMI needs. DataSources lead to more: call this again with those that
/// were found, until the result no longer changes.
pub fn wanted(
    vm: &VirtualMachine,
    vmi: Option<&VirtualMachineInstance>,
    known: &BTreeMap<Place, Arc<DataSource>>,
) -> Wanted {
    let spec = &vm.spec;
    let mut wanted = Wanted {
        instancetype: spec.instancetype.as_ref().and_then(|m| object(Subject::Instancetype, &m.into())),
        preference: spec.preference.as_ref().and_then(|m| object(Subject::Preference, &m.into())),
        ..Wanted::default()
    };
    let volumes = spec.template.spec.volumes.iter().chain(vmi.into_iter().flat_map(|vmi| &vmi.spec.volumes));
    wanted.claims.extend(volumes.filter_map(claims::claim_name).map(str::to_owned));
    let namespace = vm.metadata.namespace.as_deref().unwrap_or_default();
    for template in &spec.data_volume_templates {
        wanted.claims.extend(template.metadata.iter().filter_map(|metadata| metadata.name.clone()));
        let (passed, claim) = clone_source::way(&template.spec, namespace, known);
        wanted.data_sources.extend(passed);
        wanted.copied_claims.extend(claim);
    }
    let status = vm.status.as_ref();
    wanted.claims.extend(status.and_then(|status| status.memory_dump_request.as_ref()).map(|r| r.claim_name.clone()));
    let recorded = status.into_iter().flat_map(|status| [&status.instancetype_ref, &status.preference_ref]);
    wanted.revisions.extend(recorded.flatten().filter_map(recorded_revision).map(str::to_owned));
    let named = [
        spec.instancetype.as_ref().and_then(|matcher| matcher.revision_name.clone()),
        spec.preference.as_ref().and_then(|matcher| matcher.revision_name.clone()),
    ];
    wanted.revisions.extend(named.into_iter().flatten().filter(|name| !name.is_empty()));
    wanted
}

fn object(subject: Subject, matcher: &Matcher<'_>) -> Option<Object> {
    let scope = subject.scope(matcher.kind, "").filter(|_| !matcher.name.is_empty())?;
    Some(Object { cluster: scope == Scope::Cluster, name: matcher.name.to_owned() })
}

/// The revision that a reference in the status pins.
pub(super) fn recorded_revision(recorded: &InstancetypeStatusRef) -> Option<&str> {
    let name = recorded.controller_revision_ref.as_ref()?.name.as_deref()?;
    Some(name).filter(|name| !name.is_empty())
}
