//! Labels, annotations and ownership of the launcher Pod.

use std::collections::BTreeMap;

use api::config::ClusterConfig;
use api::v1::VirtualMachineInstance;
use api::{annotations, labels};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use machinery::{meta, names};
use sha1::{Digest, Sha1};

use crate::context::Context;
use crate::error::Error;
use crate::network;
use crate::scheduling::reservation_labels;
use crate::traits::annotation;

/// Annotations that are not copied from the VMI: bookkeeping of `kubectl` and the controllers about *that* object.
const PRIVATE_ANNOTATIONS: &[&str] =
    &["kubectl.kubernetes.io", annotations::STORAGE_OBSERVED_API_VERSION, annotations::LATEST_OBSERVED_API_VERSION];

/// Annotations that tell Velero how to freeze a guest for a backup.
pub const VELERO_KEYS: [&str; 5] = [
    annotations::VELERO_PRE_HOOK_CONTAINER,
    annotations::VELERO_PRE_HOOK_COMMAND,
    annotations::VELERO_PRE_HOOK_TIMEOUT,
    annotations::VELERO_POST_HOOK_CONTAINER,
    annotations::VELERO_POST_HOOK_COMMAND,
];

/// The Pod's metadata. Its name is derived from the VMI's and from the Pod's purpose, so that a second attempt to
/// create it collides with the first.
pub(crate) fn pod_metadata(
    vmi: &VirtualMachineInstance,
    config: &ClusterConfig,
    ctx: &Context,
    purpose: Option<&str>,
    overhead: u64,
) -> Result<ObjectMeta, Error> {
    let name = vmi.metadata.name.as_deref().filter(|name| !name.is_empty()).ok_or(Error::Missing("metadata.name"))?;
    let uid = vmi.metadata.uid.as_deref().filter(|uid| !uid.is_empty()).ok_or(Error::Missing("metadata.uid"))?;
    let seed = purpose.map_or_else(|| uid.to_owned(), |purpose| format!("{uid}/{purpose}"));
    let mut labels = pod_labels(vmi, name, uid);
    labels.extend(reservation_labels(vmi, ctx)?.into_iter().map(|label| (label, String::new())));
    let mut annotations = pod_annotations(vmi, name, overhead);
    annotations.extend(network::annotations(vmi, config)?);
    annotations.extend(velero_annotations(vmi));
    Ok(ObjectMeta {
        name: Some(names::launcher_pod_name(name, &seed)),
        namespace: vmi.metadata.namespace.clone(),
        labels: Some(labels),
        annotations: Some(annotations),
        owner_references: meta::controller_ref(vmi).map(|owner| vec![owner]),
        ..ObjectMeta::default()
    })
}

fn pod_labels(vmi: &VirtualMachineInstance, name: &str, uid: &str) -> BTreeMap<String, String> {
    let mut all = vmi.metadata.labels.clone().unwrap_or_default();
    all.insert(labels::APP.to_owned(), labels::app::LAUNCHER.to_owned());
    all.insert(labels::CREATED_BY.to_owned(), uid.to_owned());
    all.insert(labels::VM_NAME.to_owned(), hostname(vmi));
    all.insert(labels::VMI_ID.to_owned(), vmi_id(name));
    let istio = annotation(vmi, labels::ISTIO_INJECT);
    all.extend(istio.map(|value| (labels::ISTIO_INJECT.to_owned(), value.to_owned())));
    all
}

fn pod_annotations(vmi: &VirtualMachineInstance, name: &str, overhead: u64) -> BTreeMap<String, String> {
    let own = vmi.metadata.annotations.iter().flatten();
    let mut all: BTreeMap<String, String> = own
        .filter(|(key, _)| !PRIVATE_ANNOTATIONS.iter().any(|prefix| key.starts_with(prefix)))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    let ours: [(&str, &str); 4] = [
        (annotations::DOMAIN, name),
        (annotations::DEFAULT_CONTAINER, crate::COMPUTE),
        (annotations::MIGRATION_TRANSPORT_UNIX, "true"),
        (annotations::DESCHEDULER_REQUEST_EVICT_ONLY, ""),
    ];
    all.extend(ours.map(|(key, value)| (key.to_owned(), value.to_owned())));
    all.insert(annotations::MEMORY_OVERHEAD_BYTES.to_owned(), overhead.to_string());
    all
}

/// Hooks for Velero that freeze the guest before a backup of its disks and thaw it afterwards; empty if the VMI opts
/// out. The installation's setting is applied once the Pod exists.
pub fn velero_annotations(vmi: &VirtualMachineInstance) -> BTreeMap<String, String> {
    let skip = annotation(vmi, annotations::SKIP_BACKUP_HOOKS).unwrap_or_default();
    if ["1", "t", "T", "true", "TRUE", "True"].contains(&skip) {
        return BTreeMap::new();
    }
    let name = vmi.metadata.name.as_deref().unwrap_or_default();
    let namespace = vmi.metadata.namespace.as_deref().unwrap_or_default();
    let command = |what: &str| {
        format!(r#"["/usr/bin/virt-freezer", "--{what}", "--name", "{name}", "--namespace", "{namespace}"]"#)
    };
    let container = crate::COMPUTE.to_owned();
    let values = [container.clone(), command("freeze"), "60s".to_owned(), container, command("unfreeze")];
    VELERO_KEYS.into_iter().map(str::to_owned).zip(values).collect()
}

/// The VMI's name as a label value. A name that is too long is truncated and made unique by a hash; clients that select
/// by it compute the same value.
fn vmi_id(name: &str) -> String {
    const KEPT: usize = 54;
    if name.len() <= names::LABEL_MAX {
        return name.to_owned();
    }
    let hash: String = Sha1::digest(name).iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    let kept: String = name.chars().take(KEPT).collect();
    format!("{kept}-{hash}")
}

/// The guest's host name: as in the VMI's spec, else the VMI's name up to the first dot.
pub fn hostname(vmi: &VirtualMachineInstance) -> String {
    if let Some(hostname) = vmi.spec.hostname.as_deref().filter(|hostname| !hostname.is_empty()) {
        return hostname.to_owned();
    }
    let name = vmi.metadata.name.as_deref().unwrap_or_default();
    let label = name.split('.').next().unwrap_or_default();
    let cut: String = label.chars().take(names::LABEL_MAX).collect();
    cut.trim_end_matches('-').to_owned()
}
