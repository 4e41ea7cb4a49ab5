//! The state of a migration, derived from the objects. Pure.

use api::v1::{
    Condition, VirtualMachineInstance, VirtualMachineInstanceMigration, VirtualMachineInstanceMigrationPhase as Phase,
    VirtualMachineInstanceMigrationState,
};
use api::{conditions, reasons};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

use crate::{Wait, guest};

/// The state of a migration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Not started yet.
    Waiting(Wait),
    /// The guest's memory is being transferred.
    Moving { source: String, target: String, since: Option<Timestamp> },
    /// The guest runs on the target.
    Succeeded { source: String, target: String },
    /// The guest stays where it was.
    Failed { why: String },
}

/// The state of `migration`. `target` is its target Pod, if there is one.
pub fn standing(
    migration: &VirtualMachineInstanceMigration,
    vmi: Option<&VirtualMachineInstance>,
    target: Option<&Pod>,
) -> Standing {
    let state = state(migration, vmi);
    let node = |name: fn(&VirtualMachineInstanceMigrationState) -> &Option<String>| {
        state.and_then(|state| name(state).clone()).unwrap_or_else(|| "its node".to_owned())
    };
    let (source, to) = (node(|state| &state.source_node), node(|state| &state.target_node));
    match migration.phase() {
        Some(Phase::Succeeded) => Standing::Succeeded { source, target: to },
        Some(Phase::Failed) => Standing::Failed { why: failure(migration, state) },
        Some(Phase::Running) if told(migration).is_none() => {
            let start = state.and_then(|state| state.start_timestamp.as_ref()).map(|time| time.0);
            Standing::Moving { source, target: to, since: start.or_else(|| since(migration)) }
        }
        phase => Standing::Waiting(wait(migration, phase, target, (&source, &to))),
    }
}

/// What both nodes report about this migration, from the VMI or, once it is over, from the migration.
fn state<'a>(
    migration: &'a VirtualMachineInstanceMigration,
    vmi: Option<&'a VirtualMachineInstance>,
) -> Option<&'a VirtualMachineInstanceMigrationState> {
    let uid = migration.metadata.uid.as_deref();
    let own = migration.status.as_ref().and_then(|status| status.migration_state.as_ref());
    let live = vmi.and_then(|vmi| vmi.status.as_ref()).and_then(|status| status.migration_state.as_ref());
    live.filter(|state| state.migration_uid.as_deref() == uid && uid.is_some()).or(own)
}

fn wait(
    migration: &VirtualMachineInstanceMigration,
    phase: Option<&Phase>,
    target: Option<&Pod>,
    (source, to): (&str, &str),
) -> Wait {
    let plain = |what: String| Wait { what, since: since(migration), unblock: None };
    if let Some(condition) = told(migration) {
        return Wait {
            what: match condition.message() {
                "" => condition.reason().to_owned(),
                message => message.trim_end_matches('.').to_owned(),
            },
            since: condition.last_transition_time.as_ref().map(|time| time.0).or_else(|| since(migration)),
            unblock: remedy(condition.reason(), migration),
        };
    }
    if let Some(waiting) = target.and_then(guest::pod) {
        return plain(waiting);
    }
    plain(match phase {
        None => "waits for virt-controller to process it".to_owned(),
        Some(Phase::Pending) => "waits for virt-controller to create the target Pod".to_owned(),
        Some(Phase::Scheduling) => "waits for the target Pod to become ready".to_owned(),
        Some(Phase::Scheduled) => "waits for virt-controller to hand it to the nodes".to_owned(),
        Some(Phase::PreparingTarget) => format!("waits for virt-handler on {to} to prepare for the guest"),
        Some(Phase::TargetReady) => format!("waits for virt-handler on {source} to begin sending"),
        Some(Phase::Synchronizing) => "waits for the receiver of the guest".to_owned(),
        Some(Phase::WaitingForSync) => "waits for the sender of a guest".to_owned(),
        Some(other) => format!("is in phase {other}"),
    })
}

/// The condition that explains a wait: KubeVirt's own first, since they are more specific.
fn told(migration: &VirtualMachineInstanceMigration) -> Option<&Condition> {
    let all = migration.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let types = [
        conditions::MIGRATION_REJECTED_BY_RESOURCE_QUOTA,
        conditions::MIGRATION_BLOCKED_BY_UTILITY_VOLUMES,
        conditions::MIGRATION_BLOCKED_BY_BACKUP,
        conditions::DECENTRALIZED_MIGRATION_BLOCKED,
        conditions::MIGRATION_WAITING,
    ];
    types.into_iter().find_map(|type_| conditions::find(all, type_).filter(|condition| condition.is_true()))
}

/// What resolves a wait for this reason, besides waiting.
fn remedy(reason: &str, migration: &VirtualMachineInstanceMigration) -> Option<String> {
    let vmi = migration.spec.vmi_name.as_deref().unwrap_or_default();
    let name = migration.metadata.name.as_deref().unwrap_or_default();
    let cancel = format!("`virtctl migrate-cancel {vmi}` cancels it");
    let text = match reason {
        reasons::RESOURCE_QUOTA_EXCEEDED => {
            "raise the quota, or delete Pods in the namespace; the migration then continues at once (`kubectl describe quota`)".to_owned()
        }
        reasons::CLUSTER_LIMIT_REACHED => {
            "wait for other migrations, or raise spec.configuration.migrations.parallelMigrationsPerCluster of the KubeVirt \
             object"
                .to_owned()
        }
        reasons::NODE_LIMIT_REACHED => {
            "wait for other migrations from the node, or raise \
             spec.configuration.migrations.parallelOutboundMigrationsPerNode of the KubeVirt object"
                .to_owned()
        }
        reasons::MIGRATION_BACKOFF => {
            format!("it is retried automatically; to see why earlier attempts failed: `kubectl get vmim -l \
                     kubevirt.io/vmi-name={vmi}`")
        }
        reasons::TARGET_POD_UNSCHEDULABLE => {
            format!("make room on another node, uncordon one, or relax the VM's node selector or affinity; {cancel}")
        }
        reasons::UTILITY_VOLUMES_PRESENT => "detach the utility volumes".to_owned(),
        reasons::DECENTRALIZED_NOT_LIVE_MIGRATABLE => format!(
            "both sides need a migration with the same migrationID, and the receiver's VM runStrategy WaitAsReceiver; \
             deleting either migration cancels both (`kubectl delete vmim {name}`)"
        ),
        reasons::BACKUP_IN_PROGRESS => "wait until the backup has ended".to_owned(),
        reasons::OTHER_MIGRATION_ACTIVE => format!("wait until the other migration has ended; {cancel}"),
        reasons::INSTANCE_NOT_RUNNING => format!("the guest must run first: `virtctl explain vmi {vmi}`"),
        _ => return None,
    };
    Some(text)
}

fn failure(
    migration: &VirtualMachineInstanceMigration,
    state: Option<&VirtualMachineInstanceMigrationState>,
) -> String {
    let reason = state.and_then(|state| state.failure_reason.as_deref()).filter(|reason| !reason.is_empty());
    if let Some(reason) = reason {
        return reason.to_owned();
    }
    let all = migration.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    if conditions::find(all, conditions::MIGRATION_ABORT_REQUESTED).is_some_and(Condition::is_true) {
        return "aborted on request".to_owned();
    }
    told(migration)
        .map(|condition| condition.message().to_owned())
        .filter(|message| !message.is_empty())
        .unwrap_or_else(|| {
            let name = migration.metadata.name.as_deref().unwrap_or_default();
            format!("no reason is recorded; see its events: `kubectl describe vmim {name}`")
        })
}

/// When the current phase was reached.
pub fn since(migration: &VirtualMachineInstanceMigration) -> Option<Timestamp> {
    let status = migration.status.as_ref();
    let reached = status.map(|status| status.phase_transition_timestamps.as_slice()).unwrap_or_default();
    let current = reached.iter().rev().find(|reached| reached.phase.as_ref() == migration.phase());
    let time = current.and_then(|reached| reached.phase_transition_timestamp.as_ref());
    time.or(migration.metadata.creation_timestamp.as_ref()).map(|time| time.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn migration(status: Value) -> VirtualMachineInstanceMigration {
        let metadata = json!({"name": "m", "uid": "mu", "creationTimestamp": "2026-01-02T03:00:00Z"});
        serde_json::from_value(json!({"metadata": metadata, "spec": {"vmiName": "demo"}, "status": status})).unwrap()
    }

    fn vmi(state: Value) -> VirtualMachineInstance {
        serde_json::from_value(json!({"metadata": {"name": "demo"}, "status": {"migrationState": state}})).unwrap()
    }

    fn tell(status: Value, state: Value) -> String {
        match standing(&migration(status), Some(&vmi(state)), None) {
            Standing::Waiting(wait) => format!("wait: {}", wait.what),
            Standing::Moving { source, target, .. } => format!("moves from {source} to {target}"),
            Standing::Succeeded { source, target } => format!("moved from {source} to {target}"),
            Standing::Failed { why } => format!("failed: {why}"),
        }
    }

    #[test]
    fn every_phase_names_who_acts_next() {
        let ours = json!({"migrationUid": "mu", "sourceNode": "n1", "targetNode": "n2"});
        let table = [
            ("", "wait: waits for virt-controller to process it"),
            ("Pending", "wait: waits for virt-controller to create the target Pod"),
            ("Scheduling", "wait: waits for the target Pod to become ready"),
            ("Scheduled", "wait: waits for virt-controller to hand it to the nodes"),
            ("PreparingTarget", "wait: waits for virt-handler on n2 to prepare for the guest"),
            ("TargetReady", "wait: waits for virt-handler on n1 to begin sending"),
            ("Synchronizing", "wait: waits for the receiver of the guest"),
            ("WaitingForSync", "wait: waits for the sender of a guest"),
            ("Running", "moves from n1 to n2"),
            ("Succeeded", "moved from n1 to n2"),
        ];
        for (phase, want) in table {
            assert_eq!(tell(json!({"phase": phase}), ours.clone()), want, "{phase}");
        }
    }

    #[test]
    fn a_condition_explains_a_wait_and_how_to_end_it() {
        let of = |type_: &str, reason: &str, message: &str| {
            let condition = json!({"type": type_, "status": "True", "reason": reason, "message": message,
                "lastTransitionTime": "2026-01-02T03:04:05Z"});
            let status = json!({"phase": "Pending", "conditions": [condition]});
            match standing(&migration(status), None, None) {
                Standing::Waiting(wait) => wait,
                other => panic!("{other:?}"),
            }
        };
        let wait = of("migrationWaiting", "NodeLimitReached", "2 guests leave n1 already.");
        assert_eq!(wait.what, "2 guests leave n1 already");
        assert_eq!(wait.since, Some("2026-01-02T03:04:05Z".parse().unwrap()));
        assert!(wait.unblock.unwrap().contains("parallelOutboundMigrationsPerNode"));
        let quota = of("migrationRejectedByResourceQuota", "ResourceQuotaExceeded", "exceeded quota: q");
        assert!(quota.unblock.unwrap().contains("raise the quota"));
        let unknown = of("migrationWaiting", "SomethingNew", "");
        assert_eq!((unknown.what.as_str(), unknown.unblock), ("SomethingNew", None));
    }

    #[test]
    fn each_reason_for_which_somebody_can_do_something_has_its_remedy() {
        for reason in [
            reasons::RESOURCE_QUOTA_EXCEEDED,
            reasons::CLUSTER_LIMIT_REACHED,
            reasons::NODE_LIMIT_REACHED,
            reasons::MIGRATION_BACKOFF,
            reasons::TARGET_POD_UNSCHEDULABLE,
            reasons::UTILITY_VOLUMES_PRESENT,
            reasons::BACKUP_IN_PROGRESS,
            reasons::OTHER_MIGRATION_ACTIVE,
            reasons::INSTANCE_NOT_RUNNING,
        ] {
            assert!(remedy(reason, &migration(json!({}))).is_some(), "{reason}");
        }
    }

    #[test]
    fn a_failure_says_why_from_the_nodes_or_from_the_controller() {
        let state = json!({"migrationUid": "mu", "failureReason": "the target went away"});
        assert_eq!(tell(json!({"phase": "Failed"}), state), "failed: the target went away");
        let abort = json!([{"type": "migrationAbortRequested", "status": "True"}]);
        let status = json!({"phase": "Failed", "conditions": abort});
        assert_eq!(tell(status, json!(null)), "failed: aborted on request");
        let own = json!({"phase": "Failed", "migrationState": {"failureReason": "no node for 5 minutes"}});
        let of_another = json!({"migrationUid": "other", "failureReason": "not ours"});
        assert_eq!(tell(own, of_another), "failed: no node for 5 minutes");
    }

    #[test]
    fn the_time_of_a_wait_is_that_of_its_phase() {
        let reached = json!([
            {"phase": "Pending", "phaseTransitionTimestamp": "2026-01-02T03:00:01Z"},
            {"phase": "Scheduling", "phaseTransitionTimestamp": "2026-01-02T03:00:02Z"},
        ]);
        let at = |phase: &str| since(&migration(json!({"phase": phase, "phaseTransitionTimestamps": reached})));
        assert_eq!(at("Scheduling"), Some("2026-01-02T03:00:02Z".parse().unwrap()));
        assert_eq!(at("Scheduled"), Some("2026-01-02T03:00:00Z".parse().unwrap()), "the creation, if nothing better");
    }
}
