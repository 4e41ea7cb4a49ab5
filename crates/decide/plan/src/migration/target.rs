//! The target Pod and its prerequisites. [`start`](super::start) decides whether it may be created.

use std::time::Duration;

use api::v1::{VirtualMachineInstance, VolumeSource};
use api::{annotations, reasons};
use k8s_openapi::api::core::v1::Pod;
use render::Attachment;

use super::action::{Action, Own, patch_pod, patch_vmi, requeue_after};
use super::backend::{self, Prepared};
use super::decentralized;
use super::kinds::{Kind, RUNNING_PRIORITY, spec_priority};
use super::start::patience;
use super::sync::Sync;
use super::world::World;
use crate::effect::Why;
use crate::guard::Guarded;
use crate::vmi as instance;
use crate::{Note, SyncError, meta, pods};

/// The user that non-root launchers run as.
const NON_ROOT_USER: u64 = launcher_contract::USER as u64;

/// How long the creation of a Pod is expected to show in the cache.
const UNSEEN: Duration = Duration::from_secs(300);

/// Current launchers may run as a different user than the one the guest was started with.
pub(super) fn runtime_user(w: &World, vmi: &VirtualMachineInstance) -> Option<Action> {
    let root = w.config.feature_gate("Root");
    let (wanted, old) = (if root { 0 } else { NON_ROOT_USER }, vmi.status.as_ref().and_then(|s| s.runtime_user));
    if old.unwrap_or(0) == wanted {
        return None;
    }
    let mut marks = vmi.metadata.annotations.clone().unwrap_or_default();
    if root {
        marks.remove(annotations::NON_ROOT);
    } else {
        marks.insert(annotations::NON_ROOT.to_owned(), "true".to_owned());
    }
    let patch = Guarded::new(&vmi.metadata)
        .field(&["status", "runtimeUser"], &old, &Some(wanted))
        .annotations(&marks)
        .build()?;
    Some(patch_vmi(vmi, patch, "the target's launcher runs as another user"))
}

pub(super) fn create(w: &World, vmi: &VirtualMachineInstance, source: Option<&Pod>) -> Result<Vec<Action>, SyncError> {
    let refuse = |message: &str| SyncError::new(reasons::FAILED_CREATE, message);
    let claim = match backend::prepare(w, vmi)? {
        Prepared::Create(action) => return Ok(vec![action]), // the event of its creation requeues us
        Prepared::Ready(claim) => claim,
    };
    let source = source.ok_or_else(|| refuse("source Pod not found"))?;
    if pods::is_down(source) {
        return Err(refuse("source Pod has ended"));
    }
    if w.kind() == Kind::Receives
        && decentralized::source_of(vmi).and_then(|s| s.pod.as_deref()) != source.metadata.name.as_deref()
    {
        return Err(refuse("source Pod differs from the one the sender reported"));
    }
    let node = pods::node_name(source);
    let node = w.nodes.iter().find(|known| Some(meta::name(&known.metadata)) == node);
    let node = node.ok_or_else(|| refuse("source node not found"))?;
    let from = render::Source { pod: source, node: Some(node) };
    let pod = render::migration_target_pod(vmi, &w.migration, from, &w.config, &w.context(claim.as_deref()))
        .map_err(|error| SyncError::caused_by(reasons::FAILED_CREATE, &error))?;
    let message = format!("Created migration target pod {}", meta::name(&pod.metadata));
    let because = "the migration limits allow it";
    Ok(vec![
        Action::Own(Own::CreateTarget { pod: Box::new(pod), because }),
        Action::Note(Note::normal(reasons::SUCCESSFUL_CREATE, message)),
        // A Pod that is created and deleted while the watch is down leaves no event.
        requeue_after(UNSEEN, spec_priority(&w.migration)),
    ])
}

/// The attachment Pod with every hot-plugged volume of the source, next to the target.
pub(super) fn attachment(w: &World, vmi: &VirtualMachineInstance, target: &Pod) -> Sync {
    let source = w.source().map(|pod| meta::uid(&pod.metadata).to_owned()).unwrap_or_default();
    let beside = w.helpers.iter().filter(|pod| meta::is_controlled_by(&pod.metadata, &source) && !pods::is_down(pod));
    let cargo = beside.filter_map(|pod| pod.spec.as_ref()).flat_map(|spec| spec.volumes.iter().flatten());
    let volumes: Vec<Attachment> = cargo
        .filter_map(|volume| {
            let claim = volume.persistent_volume_claim.as_ref()?.claim_name.clone();
            let used = vmi.spec.volumes.iter().any(|own| own.name == volume.name && goes_along(own.source()));
            used.then(|| Attachment { volume: volume.name.clone(), claim })
        })
        .collect();
    match render::migration_attachment_pod(vmi, target, &volumes, &w.config, &w.context(None)) {
        Ok(pod) => {
            let message = format!("Created attachment pod {}", meta::name(&pod.metadata));
            let because = "the target needs the guest's hot-plugged volumes";
            Sync::doing(vec![
                Action::create(pod, Why::shown(reasons::FAILED_CREATE, because)),
                Action::Note(Note::normal(reasons::SUCCESSFUL_CREATE, message)),
            ])
        }
        Err(error) => {
            let error = SyncError::caused_by(reasons::FAILED_CREATE, &error);
            Sync::waiting(reasons::FAILED_CREATE, error.message).again(patience(w), RUNNING_PRIORITY)
        }
    }
}

/// Whether a hot-plugged volume of this kind must be on the target before the guest.
fn goes_along(source: VolumeSource<'_>) -> bool {
    match source {
        VolumeSource::DataVolume(_) | VolumeSource::PersistentVolumeClaim(_) | VolumeSource::MemoryDump(_) => {
            source.claim_name().is_some_and(|name| !name.is_empty())
        }
        VolumeSource::CloudInitConfigDrive(_)
        | VolumeSource::CloudInitNoCloud(_)
        | VolumeSource::ConfigMap(_)
        | VolumeSource::ContainerDisk(_)
        | VolumeSource::ContainerPath(_)
        | VolumeSource::DownwardApi(_)
        | VolumeSource::DownwardMetrics
        | VolumeSource::EmptyDisk(_)
        | VolumeSource::Ephemeral(_)
        | VolumeSource::HostDisk(_)
        | VolumeSource::Secret(_)
        | VolumeSource::ServiceAccount(_)
        | VolumeSource::Sysprep(_)
        | VolumeSource::Unset => false,
    }
}

/// The guest's networks in the target Pod, which virt-handler needs before it prepares the target.
pub(super) fn network_annotations(w: &World, vmi: &VirtualMachineInstance, pod: &Pod) -> Option<Action> {
    let view = instance::World::new(std::sync::Arc::new(vmi.clone()), w.config.clone(), w.now.clone());
    let mut wanted = pod.metadata.annotations.clone().unwrap_or_default();
    wanted.extend(instance::network_annotations(&view, pod));
    let patch = Guarded::new(&pod.metadata).annotations(&wanted).build()?;
    Some(patch_pod(pod, patch, "its node must know the guest's networks"))
}
