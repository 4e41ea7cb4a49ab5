//! Reads the other objects that a review needs.

use admission::{Wanted, World};
use api::resources;
use api::v1::VirtualMachineInstancePreset;
use k8s_openapi::Resource as _;
use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use review::{Phase, Review};
use serde_json::Value;

/// A kind of another project that reviews look at.
#[derive(Clone, Copy, Debug)]
pub struct ReadKind {
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
}

/// Kinds that are not ours. Those of optional components may be missing; then there are no such objects.
pub const READ_KINDS: &[ReadKind] = &[
    ReadKind { group: "", version: "v1", kind: "Pod", plural: "pods" },
    ReadKind { group: "", version: "v1", kind: "PersistentVolumeClaim", plural: "persistentvolumeclaims" },
    ReadKind { group: "apps", version: "v1", kind: "ControllerRevision", plural: "controllerrevisions" },
    ReadKind { group: "cdi.kubevirt.io", version: "v1beta1", kind: "DataSource", plural: "datasources" },
    ReadKind { group: "cdi.kubevirt.io", version: "v1beta1", kind: "DataVolume", plural: "datavolumes" },
    ReadKind { group: "snapshot.storage.k8s.io", version: "v1", kind: "VolumeSnapshot", plural: "volumesnapshots" },
];

/// Why a review cannot be answered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LookupError {
    #[error("failed to read {kind} {namespace}/{name}: {source}")]
    Read {
        kind: &'static str,
        namespace: String,
        name: String,
        #[source]
        source: Box<kube::Error>,
    },
    #[error("no API serves kind {kind} of group {group:?}")]
    Unknown { group: &'static str, kind: &'static str },
    #[error("an object of kind {kind} cannot be read: {source}")]
    Unreadable {
        kind: &'static str,
        #[source]
        source: serde_json::Error,
    },
}

/// Reads what a review needs, following references round by round.
pub(crate) async fn world(client: &kube::Client, review: &Review<'_>, phase: Phase) -> Result<World, LookupError> {
    let mut world = World::default();
    loop {
        let wanted = hooks::wanted(review, &world);
        if wanted.is_empty() {
            return Ok(world);
        }
        let (wanted, done): (Vec<_>, Vec<_>) = wanted.into_iter().partition(|wanted| needs(phase, wanted.kind));
        for wanted in done {
            world.learn(wanted, vec![]);
        }
        let found = futures::future::try_join_all(wanted.iter().map(|wanted| find(client, wanted))).await?;
        for (wanted, found) in wanted.into_iter().zip(found) {
            world.learn(wanted, found);
        }
    }
}

/// Presets only complete a new VMI. That is done when the validating webhook sees it.
fn needs(phase: Phase, kind: &str) -> bool {
    phase == Phase::Mutating || kind != VirtualMachineInstancePreset::KIND
}

async fn find(client: &kube::Client, wanted: &Wanted) -> Result<Vec<Value>, LookupError> {
    let resource =
        resource(wanted.group, wanted.kind).ok_or(LookupError::Unknown { group: wanted.group, kind: wanted.kind })?;
    let objects: Api<DynamicObject> = match wanted.namespace.as_str() {
        "" => Api::all_with(client.clone(), &resource),
        namespace => Api::namespaced_with(client.clone(), namespace, &resource),
    };
    let found = match &wanted.name {
        Some(name) => objects.get_opt(name).await.map(|found| found.into_iter().collect()),
        None => objects.list(&ListParams::default()).await.map(|list| list.items),
    };
    let found: Vec<DynamicObject> = match found {
        Ok(found) => found,
        // The list of a kind that is not installed.
        Err(kube::Error::Api(status)) if status.code == 404 => vec![],
        Err(source) => {
            let name = wanted.name.clone().unwrap_or_else(|| "(all)".to_owned());
            let namespace = wanted.namespace.clone();
            return Err(LookupError::Read { kind: wanted.kind, namespace, name, source: Box::new(source) });
        }
    };
    let value = |object| serde_json::to_value(object);
    let values: Result<_, _> = found.into_iter().map(value).collect();
    values.map_err(|source| LookupError::Unreadable { kind: wanted.kind, source })
}

fn resource(group: &str, kind: &str) -> Option<ApiResource> {
    let ours = resources::of_kind(group, kind).map(|ours| (ours.storage_version(), ours.plural));
    let others = READ_KINDS.iter().find(|other| other.group == group && other.kind == kind);
    let (version, plural) = ours.or_else(|| others.map(|other| (other.version, other.plural)))?;
    Some(named(group, version, kind, plural))
}

/// The resource of one of our kinds.
pub(crate) fn of_plural(group: &str, plural: &str) -> ApiResource {
    let (version, kind) =
        resources::of_plural(group, plural).map_or(("v1", ""), |ours| (ours.storage_version(), ours.kind));
    named(group, version, kind, plural)
}

fn named(group: &str, version: &str, kind: &str, plural: &str) -> ApiResource {
    ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        api_version: if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") },
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_are_read_once_for_a_new_instance() {
        let preset = VirtualMachineInstancePreset::KIND;
        assert!(needs(Phase::Mutating, preset) && !needs(Phase::Validating, preset));
        assert!(needs(Phase::Validating, "VirtualMachineInstancetype"));
    }
}
