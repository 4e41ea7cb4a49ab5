//! The status of a DataSource: where it leads, and whether that can be cloned.

use std::collections::BTreeMap;

use api::cdi::{self, DataSource, DataSourceSource, DataSourceStatus, DataVolumePhase};
use api::v1::{ConditionStatus, DataVolumeSourcePVC, DataVolumeSourceSnapshot};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::cluster::Cluster;
use crate::source::{Broken, End, Origin, OriginKind, end_of};
use crate::status::set_condition;
use crate::words::{keys, reasons};

/// What is written to a DataSource, where it differs.
#[derive(Debug, Default, PartialEq)]
pub struct Update {
    pub status: Option<DataSourceStatus>,
    /// Labels that the disk passes on.
    pub labels: BTreeMap<String, String>,
}

/// Whether a DataSource can be used.
pub fn decide(found: &DataSource, cluster: &dyn Cluster, now: Timestamp) -> Update {
    let old = found.status.clone().unwrap_or_default();
    let namespace = found.metadata.namespace.as_deref().unwrap_or_default();
    let (origin, verdict) = match end_of(found, cluster) {
        Err(Broken { reason, message }) => (None, Verdict::no(reason, message)),
        Ok(End::Empty) => (None, Verdict::no(reasons::NO_SOURCE, "No source PVC set")),
        Ok(End::Origin(origin)) => {
            let verdict = judge(&origin, cluster);
            (Some(origin), verdict)
        }
    };
    let Verdict { ready, reason, message, labels } = verdict;
    let mut conditions = old.conditions.clone();
    let word = if ready { ConditionStatus::True } else { ConditionStatus::False };
    set_condition(&mut conditions, cdi::CONDITION_READY, word, &reason, &message, now);
    let source = origin.filter(|_| ready).map(|origin| source(origin, namespace)).unwrap_or_default();
    let new = DataSourceStatus { conditions, source };
    let lacks =
        |(key, _): &(String, String)| !found.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(key));
    Update { status: (new != old).then_some(new), labels: labels.into_iter().filter(lacks).collect() }
}

struct Verdict {
    ready: bool,
    reason: String,
    message: String,
    labels: BTreeMap<String, String>,
}

impl Verdict {
    fn no(reason: &str, message: impl Into<String>) -> Self {
        Self { ready: false, reason: reason.to_owned(), message: message.into(), labels: BTreeMap::new() }
    }

    fn yes(labels: BTreeMap<String, String>) -> Self {
        let message = "DataSource is ready to be consumed".to_owned();
        Self { ready: true, reason: reasons::READY.to_owned(), message, labels }
    }
}

fn judge(Origin { kind, namespace, name }: &Origin, cluster: &dyn Cluster) -> Verdict {
    match kind {
        OriginKind::Claim => {
            let claim = cluster.claim(namespace, name);
            let dv = cluster.data_volume(namespace, name);
            let phase = dv.as_ref().map(|dv| dv.status.as_ref().and_then(|status| status.phase.clone()));
            match (&claim, phase) {
                (None, None) => Verdict::no(reasons::NOT_FOUND, "PVC not found"),
                (_, None | Some(Some(DataVolumePhase::Succeeded))) => {
                    let mut labels = dv.map(|dv| passed_on(&dv.metadata)).unwrap_or_default();
                    labels.extend(claim.map(|claim| passed_on(&claim.metadata)).unwrap_or_default());
                    Verdict::yes(labels)
                }
                (_, Some(phase)) => {
                    let phase = phase.map(|phase| phase.as_str().to_owned()).unwrap_or_default();
                    let message = format!("Import DataVolume phase {phase}");
                    let reason = if phase.is_empty() { reasons::PENDING } else { &phase };
                    Verdict::no(reason, message)
                }
            }
        }
        OriginKind::Snapshot => match cluster.snapshot(namespace, name) {
            None => Verdict::no(reasons::NOT_FOUND, "Snapshot not found"),
            Some(snapshot) if snapshot.status.as_ref().and_then(|status| status.ready_to_use) == Some(true) => {
                Verdict::yes(passed_on(&snapshot.metadata))
            }
            Some(_) => Verdict::no(reasons::SNAPSHOT_NOT_READY, "Snapshot phase is not ready"),
        },
    }
}

fn source(origin: Origin, own: &str) -> DataSourceSource {
    let Origin { kind, namespace, name } = origin;
    let namespace = if namespace.is_empty() { own.to_owned() } else { namespace };
    match kind {
        OriginKind::Claim => {
            DataSourceSource { pvc: Some(DataVolumeSourcePVC { name, namespace }), ..DataSourceSource::default() }
        }
        OriginKind::Snapshot => DataSourceSource {
            snapshot: Some(DataVolumeSourceSnapshot { name, namespace }),
            ..DataSourceSource::default()
        },
    }
}

/// The labels that a disk passes on to what is made from it.
pub(crate) fn passed_on(metadata: &ObjectMeta) -> BTreeMap<String, String> {
    let labels = metadata.labels.iter().flatten();
    let ours = labels.filter(|(key, _)| keys::DEFAULT_INSTANCETYPE.contains(&key.as_str()));
    ours.map(|(key, value)| (key.clone(), value.clone())).collect()
}
