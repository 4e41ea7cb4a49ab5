//! Renders the chain as text. Pure.

use std::fmt::Write as _;

use api::v1::{VirtualMachine, VirtualMachineInstance, VirtualMachineInstanceMigration};
use api::{conditions, labels};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use machinery::age;

use crate::Wait;
use crate::guest::{Outlook, Seen, outlook};
use crate::migration::{self, Standing, standing};

/// The objects behind a guest, as far as they exist.
#[derive(Default)]
pub struct Chain {
    /// The guest's name.
    pub name: String,
    pub vm: Option<VirtualMachine>,
    pub vmi: Option<VirtualMachineInstance>,
    /// The Pod in which the guest runs.
    pub pod: Option<Pod>,
    pub migration: Option<VirtualMachineInstanceMigration>,
    /// The target Pod of its migration.
    pub target: Option<Pod>,
}

/// The state at the end of the chain.
enum End {
    /// Nothing is pending.
    Settled(String),
    Waits(Wait),
    /// Nothing will happen unless somebody acts; the sentence says what to do.
    Stuck(String),
}

/// The chain, one line per object, and what comes next.
pub fn tell(chain: &Chain, now: Timestamp) -> String {
    let mut rows = vec![];
    if let Some(vm) = &chain.vm {
        let status = vm.status.as_ref().and_then(|status| status.printable_status.as_ref());
        let status = status.map(ToString::to_string).unwrap_or_default();
        rows.push(("VirtualMachine", &vm.metadata, status, created(&vm.metadata)));
    }
    if let Some(vmi) = &chain.vmi {
        rows.push(("VirtualMachineInstance", &vmi.metadata, vmi_state(vmi), vmi_since(vmi)));
    }
    if let Some(pod) = &chain.pod {
        rows.push(("Pod", &pod.metadata, pod_state(pod), created(&pod.metadata)));
    }
    if let Some(migration) = &chain.migration {
        let phase = migration.phase().map_or_else(|| "New".to_owned(), ToString::to_string);
        let kind = "VirtualMachineInstanceMigration";
        rows.push((kind, &migration.metadata, phase, migration::since(migration)));
    }
    if let Some(target) = &chain.target {
        rows.push(("Pod (target)", &target.metadata, pod_state(target), created(&target.metadata)));
    }
    let names: Vec<String> = rows.iter().map(|(kind, metadata, ..)| format!("{kind} {}", name(metadata))).collect();
    let width = names.iter().map(String::len).max().unwrap_or(0);
    let mut text = String::new();
    for (shown, (_, _, state, since)) in names.iter().zip(&rows) {
        let since = since.map(|then| format!("  for {}", age::since(then, now))).unwrap_or_default();
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{shown:width$}  {state}{since}");
    }
    text.push('\n');
    text += &end_text(end(chain), now);
    text
}

fn end_text(end: End, now: Timestamp) -> String {
    match end {
        End::Settled(what) => format!("{what}\n"),
        End::Stuck(what) => format!("nothing pending: {what}\n"),
        End::Waits(Wait { what, since, unblock }) => {
            let mut text = format!("waiting:      {what}\n");
            if let Some(then) = since {
                text += &format!("since:        {then} ({})\n", age::since(then, now));
            }
            if let Some(unblock) = unblock {
                text += &format!("to unblock:   {unblock}\n");
            }
            text
        }
    }
}

fn end(chain: &Chain) -> End {
    let seen = Seen { vm: chain.vm.as_ref(), vmi: chain.vmi.as_ref(), pod: chain.pod.as_ref() };
    if let Some(migration) = &chain.migration {
        match standing(migration, chain.vmi.as_ref(), chain.target.as_ref()) {
            Standing::Waiting(wait) => return End::Waits(wait),
            Standing::Moving { source, target, since } => {
                let unblock =
                    format!("`virtctl migrate-cancel {}` cancels it; the guest then stays on {source}", chain.name);
                let what = format!("the guest's memory is being copied from {source} to {target}");
                return End::Waits(Wait { what, since, unblock: Some(unblock) });
            }
            Standing::Succeeded { source, target } => {
                return End::Settled(format!("the guest was migrated from {source} to {target}"));
            }
            Standing::Failed { why } => return End::Stuck(format!("the migration failed: {why}")),
        }
    }
    if let Some(wait) = chain.vmi.as_ref().and_then(evacuation) {
        return End::Waits(wait);
    }
    match outlook(&chain.name, seen) {
        Outlook::Running => running(chain),
        Outlook::Never(what) => End::Stuck(what),
        Outlook::Waiting(what) => {
            let since = chain.vmi.as_ref().and_then(vmi_since).or_else(|| created(&chain.vm.as_ref()?.metadata));
            let unschedulable = what.contains(" waits for a node");
            let room = "make room on a node, uncordon one, or relax the VM's node selector or affinity";
            End::Waits(Wait { what, since, unblock: unschedulable.then(|| room.to_owned()) })
        }
    }
}

/// The guest runs; changes may still be pending.
fn running(chain: &Chain) -> End {
    if let Some(wait) = chain.vmi.as_ref().and_then(change) {
        return End::Waits(wait);
    }
    let outdated = |vmi: &VirtualMachineInstance| {
        vmi.metadata.labels.as_ref().is_some_and(|all| all.contains_key(labels::OUTDATED_LAUNCHER_IMAGE))
    };
    End::Settled(match chain.vmi.as_ref().is_some_and(outdated) {
        true => "the guest is running in an outdated launcher; migrate or restart it to update, or have it updated \
                 automatically by spec.workloadUpdateStrategy of the KubeVirt object"
            .to_owned(),
        false => "the guest is running".to_owned(),
    })
}

/// A pending change that is applied by migrating.
fn change(vmi: &VirtualMachineInstance) -> Option<Wait> {
    let changes = [
        conditions::HOT_VCPU_CHANGE,
        conditions::HOT_MEMORY_CHANGE,
        conditions::VOLUMES_CHANGE,
        conditions::MIGRATION_REQUIRED,
    ];
    let condition = changes.into_iter().find_map(|type_| vmi.condition(type_).filter(|found| found.is_true()))?;
    let unblock = format!(
        "`virtctl migrate {}` applies the change; method LiveMigrate in spec.workloadUpdateStrategy of the KubeVirt \
         object does that automatically",
        name(&vmi.metadata)
    );
    let since = condition.last_transition_time.as_ref().map(|time| time.0);
    Some(Wait { what: condition.message().to_owned(), since, unblock: Some(unblock) })
}

/// A VMI that must leave its node and has no migration yet.
fn evacuation(vmi: &VirtualMachineInstance) -> Option<Wait> {
    let node = vmi.status.as_ref()?.evacuation_node_name.as_deref().filter(|node| !node.is_empty())?;
    let what = format!("the guest must leave node {node}; waiting for virt-controller to create a migration");
    let external = vmi.spec.eviction_strategy.as_deref() == Some("External");
    let unblock = match external {
        true => "eviction strategy External: an external controller must migrate or stop it".to_owned(),
        false => format!("`virtctl evacuate-cancel vmi {}` cancels the evacuation", name(&vmi.metadata)),
    };
    Some(Wait { what, since: None, unblock: Some(unblock) })
}

fn vmi_state(vmi: &VirtualMachineInstance) -> String {
    let phase = vmi.phase().map_or_else(|| "Pending".to_owned(), ToString::to_string);
    match vmi.status.as_ref().and_then(|status| status.node_name.as_deref()).filter(|node| !node.is_empty()) {
        Some(node) => format!("{phase} on {node}"),
        None => phase,
    }
}

fn vmi_since(vmi: &VirtualMachineInstance) -> Option<Timestamp> {
    let reached = vmi.status.as_ref().map(|status| status.phase_transition_timestamps.as_slice()).unwrap_or_default();
    let current = reached.iter().rev().find(|reached| reached.phase.as_ref() == vmi.phase());
    let time = current.and_then(|reached| reached.phase_transition_timestamp.as_ref());
    time.map(|time| time.0).or_else(|| created(&vmi.metadata))
}

fn pod_state(pod: &Pod) -> String {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Pending");
    let phase = if pod.metadata.deletion_timestamp.is_some() { "Terminating" } else { phase };
    match pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) {
        Some(node) => format!("{phase} on {node}"),
        None => phase.to_owned(),
    }
}

fn created(metadata: &ObjectMeta) -> Option<Timestamp> {
    metadata.creation_timestamp.as_ref().map(|time| time.0)
}

fn name(metadata: &ObjectMeta) -> &str {
    metadata.name.as_deref().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};

    fn object<T: DeserializeOwned>(name: &str, rest: Value) -> Option<T> {
        let mut object = rest;
        object["metadata"] = json!({"name": name, "uid": name, "creationTimestamp": "2026-01-02T03:00:00Z"});
        Some(serde_json::from_value(object).unwrap())
    }

    fn at_rest() -> Chain {
        Chain {
            name: "demo".into(),
            vm: object("demo", json!({"spec": {"runStrategy": "Always"}, "status": {"printableStatus": "Running"}})),
            vmi: object("demo", json!({"status": {"phase": "Running", "nodeName": "n1"}})),
            pod: object(
                "launcher",
                json!({"spec": {"containers": [], "nodeName": "n1"}, "status": {"phase": "Running"}}),
            ),
            ..Chain::default()
        }
    }

    fn told(chain: &Chain) -> String {
        tell(chain, "2026-01-02T03:01:00Z".parse().unwrap())
    }

    #[test]
    fn a_guest_that_runs_waits_for_nothing() {
        let expected = "\
VirtualMachine demo          Running  for 60s
VirtualMachineInstance demo  Running on n1  for 60s
Pod launcher                 Running on n1  for 60s

the guest is running
";
        assert_eq!(told(&at_rest()), expected);
    }

    #[test]
    fn a_guest_that_runs_may_have_something_to_get_by_moving() {
        let change = json!({"type": "HotMemoryChange", "status": "True", "message": "the guest's memory was changed",
            "lastTransitionTime": "2026-01-02T03:00:48Z"});
        let vmi = object("demo", json!({"status": {"phase": "Running", "nodeName": "n1", "conditions": [change]}}));
        let text = told(&Chain { vmi, ..at_rest() });
        assert!(
            text.contains("waiting:      the guest's memory was changed\nsince:        2026-01-02T03:00:48Z (12s)")
        );
        assert!(text.contains("to unblock:   `virtctl migrate demo` applies the change"), "{text}");
        let mut chain = at_rest();
        let labels = &mut chain.vmi.as_mut().unwrap().metadata.labels;
        labels.get_or_insert_default().insert("kubevirt.io/outdatedLauncherImage".into(), String::new());
        let text = told(&chain);
        assert!(text.contains("\nthe guest is running in an outdated launcher"), "{text}");
    }

    #[test]
    fn a_migration_without_a_node_says_so_since_when_and_what_helps() {
        let condition = json!({"type": "migrationWaiting", "status": "True", "reason": "TargetPodUnschedulable",
            "message": "no node: 0/2 nodes are available", "lastTransitionTime": "2026-01-02T03:00:48Z"});
        let status = json!({"phase": "Scheduling", "conditions": [condition]});
        let migration = object("m", json!({"spec": {"vmiName": "demo"}, "status": status}));
        let target = object("target", json!({"spec": {"containers": []}, "status": {"phase": "Pending"}}));
        let text = told(&Chain { migration, target, ..at_rest() });
        let expected = "
waiting:      no node: 0/2 nodes are available
since:        2026-01-02T03:00:48Z (12s)
to unblock:   make room on another node, uncordon one, or relax the VM's node selector or affinity; \
`virtctl migrate-cancel demo` cancels it
";
        assert!(text.ends_with(expected), "{text}");
        assert!(text.contains("\nPod (target) target "), "{text}");
    }

    #[test]
    fn each_end_is_told_apart() {
        let with = |status: Value| {
            let migration = object("m", json!({"spec": {"vmiName": "demo"}, "status": status}));
            told(&Chain { migration, ..at_rest() }).lines().last().unwrap_or_default().to_owned()
        };
        let state = json!({"sourceNode": "n1", "targetNode": "n2", "failureReason": "the link broke"});
        let moved = with(json!({"phase": "Succeeded", "migrationState": state}));
        assert_eq!(moved, "the guest was migrated from n1 to n2");
        let failed = with(json!({"phase": "Failed", "migrationState": state}));
        assert_eq!(failed, "nothing pending: the migration failed: the link broke");
        let moving = with(json!({"phase": "Running", "migrationState": state}));
        assert!(moving.contains("the guest then stays on n1"), "{moving}");
        let marked = json!({"status": {"phase": "Running", "nodeName": "n1", "evacuationNodeName": "n1"}});
        let marked = told(&Chain { vmi: object("demo", marked), ..at_rest() });
        assert!(marked.contains("must leave node n1"), "{marked}");
        let stopped = object("demo", json!({"spec": {"runStrategy": "Halted"}}));
        let stopped = told(&Chain { name: "demo".into(), vm: stopped, ..Chain::default() });
        assert!(stopped.contains("nothing pending: VirtualMachine demo is stopped"), "{stopped}");
    }
}
