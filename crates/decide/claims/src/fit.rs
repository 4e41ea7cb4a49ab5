//! Which volumes fit a claim.

use std::borrow::Borrow;

use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};
use machinery::selector::{Labels, Selector, selects_node};

use crate::class::class_of;
use crate::read::{self, Phase};

/// When a claim is bound to its volume.
#[derive(Clone, Copy, Debug)]
pub enum When<'a> {
    Now,
    /// A Pod that uses it has to be scheduled first: only a volume that somebody has bound to the claim by hand counts.
    Later,
    /// The Pod is to run here.
    On(&'a Node),
}

/// The volume that is bound to the claim already, or the smallest free one that fits.
pub fn best<'a, V: Borrow<PersistentVolume>>(
    claim: &PersistentVolumeClaim,
    volumes: &'a [V],
    when: When<'_>,
) -> Option<&'a PersistentVolume> {
    let reachable = |volume: &&PersistentVolume| match when {
        When::Now | When::Later => true,
        When::On(node) => reaches(volume, node),
    };
    let candidates = || {
        let all = volumes.iter().map(Borrow::borrow);
        all.filter(|volume| {
            volume.metadata.deletion_timestamp.is_none()
                && read::mode(claim.spec.as_ref().and_then(|spec| spec.volume_mode.as_deref()))
                    == read::mode(volume.spec.as_ref().and_then(|spec| spec.volume_mode.as_deref()))
                && read::capacity(volume) >= read::request(claim)
        })
    };
    if let Some(own) = candidates().find(|volume| is_bound_to(volume, claim)) {
        return Some(own); // wherever it is: the scheduler looks at it, too
    }
    if matches!(when, When::Later) {
        return None;
    }
    let free = candidates().filter(|volume| is_free(volume) && suits(volume, claim)).filter(reachable);
    free.min_by_key(|volume| (read::capacity(volume), volume.metadata.name.clone()))
}

/// Whether a volume can be used on a node.
pub fn reaches(volume: &PersistentVolume, node: &Node) -> bool {
    let affinity = volume.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref());
    affinity.and_then(|affinity| affinity.required.as_ref()).is_none_or(|required| selects_node(required, node))
}

/// Whether a volume's reference names the claim. A reference made by hand has no UID.
pub(crate) fn is_bound_to(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let Some(reference) = read::claim_ref(volume) else { return false };
    let uid = reference.uid.as_deref().unwrap_or_default();
    reference.name == claim.metadata.name
        && reference.namespace == claim.metadata.namespace
        && (uid.is_empty() || Some(uid) == claim.metadata.uid.as_deref())
}

fn is_free(volume: &PersistentVolume) -> bool {
    read::volume_phase(volume) == Phase::Available && read::claim_ref(volume).is_none()
}

/// Whether class, access modes and labels are what the claim asks for.
fn suits(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let empty = Labels::new();
    let selector = claim.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    let selected = selector.is_none_or(|selector| {
        let labels = volume.metadata.labels.as_ref().unwrap_or(&empty);
        Selector::from_label_selector(selector).is_ok_and(|selector| selector.matches(labels))
    });
    selected && mismatch(volume, claim).is_none()
}

/// Why a volume cannot be bound to a claim that names it, in Kubernetes' words.
pub(crate) fn mismatch(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Option<&'static str> {
    let (spec, wanted) = (volume.spec.as_ref()?, claim.spec.as_ref()?);
    if read::capacity(volume) < read::request(claim) {
        return Some("requested PV is too small");
    }
    if read::volume_class(volume) != class_of(claim).unwrap_or_default() {
        return Some("storageClassName does not match");
    }
    if read::mode(spec.volume_mode.as_deref()) != read::mode(wanted.volume_mode.as_deref()) {
        return Some("incompatible volumeMode");
    }
    let offered = spec.access_modes.as_deref().unwrap_or_default();
    if !wanted.access_modes.iter().flatten().all(|mode| offered.contains(mode)) {
        return Some("incompatible accessMode");
    }
    None
}
