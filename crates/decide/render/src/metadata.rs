//! Labels, annotations and ownership of the launcher Pod.

use std::collections::BTreeMap;

use api::v1::VirtualMachineInstance;
use api::{annotations, labels};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use machinery::{meta, names};
use sha1::{Digest, Sha1};

use crate::Error;

/// Annotations that belong to the instance alone: what `kubectl` and the controllers noted about *that* object.
const PRIVATE_ANNOTATIONS: &[&str] =
    &["kubectl.kubernetes.io", annotations::STORAGE_OBSERVED_API_VERSION, annotations::LATEST_OBSERVED_API_VERSION];

/// The Pod's metadata. Its name is derived from the instance's, so that a second attempt to create it meets the first.
pub(crate) fn pod_metadata(vmi: &VirtualMachineInstance, overhead: u64) -> Result<ObjectMeta, Error> {
    let name = vmi.metadata.name.as_deref().filter(|name| !name.is_empty()).ok_or(Error::Missing("metadata.name"))?;
    let uid = vmi.metadata.uid.as_deref().filter(|uid| !uid.is_empty()).ok_or(Error::Missing("metadata.uid"))?;
    Ok(ObjectMeta {
        name: Some(names::launcher_pod_name(name, uid)),
        namespace: vmi.metadata.namespace.clone(),
        labels: Some(pod_labels(vmi, name, uid)),
        annotations: Some(pod_annotations(vmi, name, overhead)),
        owner_references: meta::controller_ref(vmi).map(|owner| vec![owner]),
        ..ObjectMeta::default()
    })
}

fn pod_labels(vmi: &VirtualMachineInstance, name: &str, uid: &str) -> BTreeMap<String, String> {
    let mut all = vmi.metadata.labels.clone().unwrap_or_default();
    all.insert(labels::APP.to_owned(), "virt-launcher".to_owned());
    all.insert(labels::CREATED_BY.to_owned(), uid.to_owned());
    all.insert(labels::VM_NAME.to_owned(), hostname(vmi));
    all.insert(labels::VMI_ID.to_owned(), vmi_id(name));
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

/// The instance's name as a label's value. A name too long for one is cut and told apart by a hash; clients that
/// select by it compute the same.
fn vmi_id(name: &str) -> String {
    const KEPT: usize = 54;
    if name.len() <= names::LABEL_MAX {
        return name.to_owned();
    }
    let hash: String = Sha1::digest(name).iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    let kept: String = name.chars().take(KEPT).collect();
    format!("{kept}-{hash}")
}

/// The guest's host name: what the instance says, else its name up to the first dot.
pub fn hostname(vmi: &VirtualMachineInstance) -> String {
    if let Some(hostname) = vmi.spec.hostname.as_deref().filter(|hostname| !hostname.is_empty()) {
        return hostname.to_owned();
    }
    let name = vmi.metadata.name.as_deref().unwrap_or_default();
    let label = name.split('.').next().unwrap_or_default();
    let cut: String = label.chars().take(names::LABEL_MAX).collect();
    cut.trim_end_matches('-').to_owned()
}
