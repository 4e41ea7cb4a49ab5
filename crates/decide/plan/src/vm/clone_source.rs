//! The source that a DataVolume is cloned from, and the permission to clone it.
//!
//! We create DataVolumes with our own permissions, so we check whether the guest's service account may read the source.
//! Within one namespace no check is needed.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::cdi::{DataSource, DataSourceSource, GROUP};
use api::reasons;
use api::v1::{DataVolumeSource, DataVolumeSourcePVC, DataVolumeSourceSnapshot, DataVolumeSpec, VirtualMachine};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReviewSpec};

use super::world::{Place, World};
use crate::SyncError;

/// A reference from one DataSource to another is followed once, as the importer does.
const LONGEST_CHAIN: usize = 2;

/// DataSources keyed by namespace and name.
pub(super) type DataSources = BTreeMap<Place, Arc<DataSource>>;

/// The known DataSources on the way to a DataVolume's content, and the claim at the end of the chain.
pub(super) fn way(spec: &DataVolumeSpec, namespace: &str, known: &DataSources) -> (Vec<Place>, Option<Place>) {
    let claim = |claim: &DataVolumeSourcePVC, near: &str| (or(Some(&claim.namespace), near), claim.name.clone());
    let Some(reference) = &spec.source_ref else {
        let source = spec.source.as_ref().and_then(|source| source.pvc.as_ref());
        return (vec![], source.map(|source| claim(source, namespace)));
    };
    let mut passed = vec![(or(reference.namespace.as_deref(), namespace), reference.name.clone())];
    while let Some(found) = passed.last().and_then(|place| known.get(place)) {
        let near = found.metadata.namespace.as_deref().unwrap_or_default();
        let DataSourceSource { pvc, data_source, .. } = source_of(found);
        match (pvc, data_source) {
            (Some(source), _) => return (passed, Some(claim(&source, near))),
            (None, Some(next)) if passed.len() < LONGEST_CHAIN => {
                passed.push((or(Some(&next.namespace), near), next.name));
            }
            (None, _) => break,
        }
    }
    (passed, None)
}

fn or(namespace: Option<&str>, default: &str) -> String {
    namespace.filter(|namespace| !namespace.is_empty()).unwrap_or(default).to_owned()
}

/// The fully resolved source of a DataVolume: DataSources followed, namespaces filled in.
pub(super) fn resolve(w: &World, field: &str, spec: &DataVolumeSpec) -> Result<Option<DataVolumeSource>, SyncError> {
    let Some(reference) = &spec.source_ref else {
        return Ok(spec.source.clone().map(|source| in_namespace(source, w.namespace())));
    };
    let refuse = |why: String| SyncError::new(reasons::FAILED_CREATE, format!("{field}.sourceRef: {why}"));
    if !reference.kind.eq_ignore_ascii_case("DataSource") {
        return Err(refuse(format!("the kind {:?} is not known; use DataSource", reference.kind)));
    }
    let mut place = (or(reference.namespace.as_deref(), w.namespace()), reference.name.clone());
    for _ in 0..LONGEST_CHAIN {
        let (namespace, name) = &place;
        let found = w.data_sources.get(&place).ok_or_else(|| {
            refuse(format!("DataSource {name} does not exist in namespace {namespace}; create it or name another one"))
        })?;
        let source = source_of(found);
        if source.pvc.is_some() || source.snapshot.is_some() {
            let source = DataVolumeSource { pvc: source.pvc, snapshot: source.snapshot, ..DataVolumeSource::default() };
            return Ok(Some(in_namespace(source, namespace)));
        }
        let next = source.data_source.ok_or_else(|| {
            refuse(format!("DataSource {name} in namespace {namespace} names neither a claim nor a snapshot"))
        })?;
        place = (or(Some(&next.namespace), namespace), next.name);
    }
    Err(refuse("DataSources that point to one another are followed once; name the last one".to_owned()))
}

/// The target of a DataSource: as resolved by the importer, else as in its spec.
fn source_of(found: &DataSource) -> DataSourceSource {
    let resolved = found.status.as_ref().map(|status| &status.source);
    let resolved = resolved.filter(|source| source.pvc.is_some() || source.snapshot.is_some());
    resolved.unwrap_or(&found.spec.source).clone()
}

fn in_namespace(mut source: DataVolumeSource, namespace: &str) -> DataVolumeSource {
    if let Some(DataVolumeSourcePVC { namespace: own, .. }) = &mut source.pvc {
        *own = or(Some(own), namespace);
    }
    if let Some(DataVolumeSourceSnapshot { namespace: own, .. }) = &mut source.snapshot {
        *own = or(Some(own), namespace);
    }
    source
}

/// The access reviews for a clone: all requests of one of these lists must be allowed. Empty within one namespace.
pub(super) fn questions(vm: &VirtualMachine, source: &DataVolumeSource) -> Vec<Vec<SubjectAccessReviewSpec>> {
    let namespace = vm.metadata.namespace.as_deref().unwrap_or_default();
    let claim = source.pvc.as_ref().map(|claim| (&claim.namespace, &claim.name, ["pods"].as_slice()));
    let snapshot = source.snapshot.as_ref();
    let snapshot = snapshot.map(|snapshot| (&snapshot.namespace, &snapshot.name, ["pods", "pvcs"].as_slice()));
    let Some((from, name, implied)) = claim.or(snapshot).filter(|(from, ..)| *from != namespace) else {
        return vec![];
    };
    let ask = |attributes: ResourceAttributes| SubjectAccessReviewSpec {
        user: Some(format!("system:serviceaccount:{namespace}:{}", service_account(vm))),
        groups: Some(vec![
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{namespace}"),
            "system:authenticated".to_owned(),
        ]),
        resource_attributes: Some(attributes),
        ..SubjectAccessReviewSpec::default()
    };
    let create = |resource: &str| ResourceAttributes {
        namespace: Some(from.clone()),
        name: Some(name.clone()),
        verb: Some("create".to_owned()),
        resource: Some(resource.to_owned()),
        ..ResourceAttributes::default()
    };
    let explicit = ResourceAttributes {
        group: Some(GROUP.to_owned()),
        subresource: Some("source".to_owned()),
        ..create("datavolumes")
    };
    // An account that may create Pods in the source's namespace can read the claim anyway.
    vec![vec![ask(explicit)], implied.iter().map(|resource| ask(create(resource))).collect()]
}

/// What the answers to access reviews mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Access<'a> {
    /// Not known yet: this is the next request to ask about.
    Ask(&'a SubjectAccessReviewSpec),
    Granted,
    Denied,
}

/// Judges the answers so far, in the order in which the requests were asked about. Access is granted if all requests of
/// one of the lists are allowed; what cannot change that is not asked.
pub fn access<'a>(any_of: &'a [Vec<SubjectAccessReviewSpec>], answers: &[bool]) -> Access<'a> {
    let mut answers = answers.iter();
    'lists: for all in any_of {
        for asked in all {
            match answers.next() {
                None => return Access::Ask(asked),
                Some(true) => {}
                Some(false) => continue 'lists,
            }
        }
        return Access::Granted;
    }
    Access::Denied
}

/// The service account that the guest's Pod runs as.
fn service_account(vm: &VirtualMachine) -> &str {
    let spec = &vm.spec.template.spec;
    let mounted = spec.volumes.iter().filter_map(|volume| volume.source().service_account());
    let mounted = mounted.filter_map(|account| account.service_account_name.as_deref());
    let named = spec.service_account_name.as_deref().into_iter().chain(mounted).find(|name| !name.is_empty());
    named.unwrap_or("default")
}

/// The claim to clone, if it does not exist: the clone waits for it, which its owner should know.
pub(super) fn missing_claim(w: &World, source: &DataVolumeSource) -> Option<Place> {
    let claim = source.pvc.as_ref()?;
    let place = (claim.namespace.clone(), claim.name.clone());
    let beside = place.0 == w.namespace() && w.claims.claim(&place.1).is_some();
    (!beside && !w.copied_claims.contains(&place)).then_some(place)
}
