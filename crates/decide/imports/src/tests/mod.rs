//! Tables of worlds and what is decided, and rules that hold for all of them.

mod admission;
mod claims;
mod decisions;
mod properties;
mod sources;

use std::sync::Arc;

use api::cdi::{DataSource, DataVolume, FilesystemOverhead, StorageProfile};
use api::volumesnapshot::VolumeSnapshot;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use machinery::meta;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::{Action, Cluster, Decision, Transfer, World, decide, installation};

pub(crate) fn of<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// Objects that a decision can look up.
#[derive(Clone, Default)]
pub(crate) struct Objects {
    pub(crate) claims: Vec<PersistentVolumeClaim>,
    pub(crate) data_volumes: Vec<DataVolume>,
    pub(crate) data_sources: Vec<DataSource>,
    pub(crate) snapshots: Vec<VolumeSnapshot>,
    pub(crate) classes: Vec<StorageClass>,
    pub(crate) overhead: FilesystemOverhead,
}

fn find<T: Clone>(
    list: &[T],
    key: impl Fn(&T) -> (Option<String>, Option<String>),
    namespace: &str,
    name: &str,
) -> Option<Arc<T>> {
    let wanted = (Some(namespace.to_owned()), Some(name.to_owned()));
    list.iter().find(|object| key(object) == wanted).cloned().map(Arc::new)
}

impl Cluster for Objects {
    fn claim(&self, namespace: &str, name: &str) -> Option<Arc<PersistentVolumeClaim>> {
        find(&self.claims, |o| (o.metadata.namespace.clone(), o.metadata.name.clone()), namespace, name)
    }

    fn data_volume(&self, namespace: &str, name: &str) -> Option<Arc<DataVolume>> {
        find(&self.data_volumes, |o| (o.metadata.namespace.clone(), o.metadata.name.clone()), namespace, name)
    }

    fn data_source(&self, namespace: &str, name: &str) -> Option<Arc<DataSource>> {
        find(&self.data_sources, |o| (o.metadata.namespace.clone(), o.metadata.name.clone()), namespace, name)
    }

    fn snapshot(&self, namespace: &str, name: &str) -> Option<Arc<VolumeSnapshot>> {
        find(&self.snapshots, |o| (o.metadata.namespace.clone(), o.metadata.name.clone()), namespace, name)
    }

    fn classes(&self) -> Vec<Arc<StorageClass>> {
        self.classes.iter().cloned().map(Arc::new).collect()
    }

    fn profile(&self, class: &str) -> Option<Arc<StorageProfile>> {
        let class = self.classes.iter().find(|found| found.metadata.name.as_deref() == Some(class))?;
        let mut profile = installation::profile(class);
        profile.status = Some(installation::profile_status(&profile, class));
        Some(Arc::new(profile))
    }

    fn overhead(&self) -> FilesystemOverhead {
        self.overhead.clone()
    }
}

/// The classes of an embedded cluster, and one of somebody else.
pub(crate) fn classes() -> Vec<StorageClass> {
    let class = |name: &str, provisioner: &str, mode: &str, default: &str| {
        of::<StorageClass>(json!({
            "metadata": {"name": name, "annotations": {"storageclass.kubernetes.io/is-default-class": default}},
            "provisioner": provisioner, "volumeBindingMode": mode,
        }))
    };
    vec![
        class("local", "csi.ferrovirt.io", "WaitForFirstConsumer", "true"),
        class("local-immediate", "csi.ferrovirt.io", "Immediate", "false"),
        class("other", "somebody.else", "Immediate", "false"),
    ]
}

/// One DataVolume with its claim, and what is known about it. Decisions are carried out on it.
#[derive(Clone)]
pub(crate) struct Scene {
    pub(crate) dv: Option<DataVolume>,
    pub(crate) claim: Option<PersistentVolumeClaim>,
    pub(crate) volume: Option<PersistentVolume>,
    pub(crate) transfer: Option<Transfer>,
    pub(crate) objects: Objects,
    pub(crate) now: i64,
}

impl Scene {
    /// A DataVolume with this spec in the class that binds at once.
    pub(crate) fn new(source: Value) -> Self {
        Self::with(json!({"source": source, "storage": {
            "storageClassName": "local-immediate", "resources": {"requests": {"storage": "1Gi"}}}}))
    }

    pub(crate) fn with(spec: Value) -> Self {
        let dv = of(json!({"metadata": {"namespace": "ns", "name": "disk", "uid": "dv-1"}, "spec": spec}));
        let objects = Objects { classes: classes(), ..Objects::default() };
        Scene { dv: Some(dv), claim: None, volume: None, transfer: None, objects, now: 1_000_000 }
    }

    pub(crate) fn decide(&self) -> Decision {
        decide(&World {
            now: Timestamp::from_second(self.now).unwrap(),
            data_volume: self.dv.as_ref(),
            claim: self.claim.as_ref(),
            volume: self.volume.as_ref(),
            transfer: self.transfer.as_ref(),
            node: Some("n1"),
            cluster: &self.objects,
        })
    }

    /// Decides and does what was decided, but for what a transfer comes to.
    pub(crate) fn pass(&mut self) -> Decision {
        let decision = self.decide();
        for action in &decision.actions {
            match action {
                Action::CreateClaim(claim) => {
                    let mut claim = claim.as_ref().clone();
                    claim.metadata.uid = Some("claim-1".to_owned());
                    self.claim = Some(of(
                        json!({"metadata": claim.metadata, "spec": claim.spec, "status": {"phase": "Pending"}}),
                    ));
                }
                Action::PatchClaim(patch) => {
                    let claim = self.claim.as_mut().unwrap();
                    let annotations = claim.metadata.annotations.get_or_insert_default();
                    annotations.extend(patch.annotations.iter().map(|(key, value)| ((*key).to_owned(), value.clone())));
                    if let Some(owner) = &patch.owner {
                        claim.metadata.owner_references.get_or_insert_default().push(owner.clone());
                    }
                }
                Action::Start(_) => self.transfer = Some(Transfer::Queued),
                Action::Stop { .. } => self.transfer = None,
            }
        }
        if let (Some(dv), Some(status)) = (&mut self.dv, &decision.status) {
            dv.status = Some(status.clone());
        }
        decision
    }

    /// Passes until nothing is left to do. Waiting is not done.
    pub(crate) fn settle(&mut self) -> &mut Self {
        for _ in 0..20 {
            let decision = self.pass();
            if decision.actions.is_empty() && decision.status.is_none() {
                return self;
            }
        }
        panic!("it does not settle: {:?}", self.decide());
    }

    /// Binds the claim to a volume of this driver.
    pub(crate) fn bind(&mut self, driver: &str) -> &mut Self {
        let claim = self.claim.as_mut().unwrap();
        let status: Value = json!({"phase": "Bound", "capacity": {"storage": "2Gi"}});
        claim.status = Some(of(status));
        self.volume = Some(of(json!({"metadata": {"name": "pv-1"},
            "spec": {"csi": {"driver": driver, "volumeHandle": "vol-1"}}})));
        self
    }

    pub(crate) fn is(&mut self, transfer: Transfer) -> &mut Self {
        self.transfer = Some(transfer);
        self
    }

    pub(crate) fn phase(&self) -> String {
        let status = self.dv.as_ref().and_then(|dv| dv.status.as_ref());
        status.and_then(|status| status.phase.clone()).map(|phase| phase.as_str().to_owned()).unwrap_or_default()
    }

    pub(crate) fn progress(&self) -> String {
        let status = self.dv.as_ref().and_then(|dv| dv.status.as_ref());
        status.and_then(|status| status.progress.clone()).unwrap_or_default()
    }

    /// `Status reason: message` of a condition.
    pub(crate) fn condition(&self, type_: &str) -> String {
        let status = self.dv.as_ref().and_then(|dv| dv.status.clone()).unwrap_or_default();
        let found = status.conditions.into_iter().find(|condition| condition.type_ == type_).unwrap_or_default();
        let text = |text: Option<String>| text.unwrap_or_default();
        format!("{} {}: {}", found.status.as_str(), text(found.reason), text(found.message))
    }

    pub(crate) fn note(&self, key: &str) -> String {
        self.claim.as_ref().and_then(|claim| meta::annotation(&claim.metadata, key)).unwrap_or_default().to_owned()
    }
}

pub(crate) fn failed(message: &str, permanent: bool, at: i64) -> Transfer {
    let failure = crate::Failure { message: message.to_owned(), permanent };
    Transfer::Failed { failure, at: Timestamp::from_second(at).unwrap() }
}

pub(crate) const OURS: &str = "csi.ferrovirt.io";
