//! Which other objects a decision about a virtual machine looks at.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::cdi::DataSource;
use api::v1::{InstancetypeStatusRef, VirtualMachine, VirtualMachineInstance};
use instancetype::{Matcher, Scope, Subject};

use super::clone_source;
use super::world::Place;
use crate::claims;

/// The names to look up; those without a namespace are beside the virtual machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Names that a claim, a DataVolume or both may have.
    pub claims: BTreeSet<String>,
    /// Claims that DataVolumes are copied from.
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
    /// It belongs to the cluster, and not to the virtual machine's namespace.
    pub cluster: bool,
    pub name: String,
}

/// The objects that a decision about this virtual machine and this instance looks at. DataSources lead to more: ask
/// again with those that were found, until nothing is new.
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
