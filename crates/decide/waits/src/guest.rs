//! What something waits for, in one sentence derived from the objects, so that every wait can be explained.
//!
//! Pure functions over objects that were already fetched. The sentence names the next step in the chain from VM to
//! guest, and quotes the condition that explains it if there is one.

use api::conditions;
use api::v1::{RunStrategy, VirtualMachine, VirtualMachineInstance, VirtualMachineInstancePhase as Phase};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Whether a guest runs, will run, or will not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outlook {
    /// It runs.
    Running,
    /// It does not run yet; the sentence says what is next.
    Waiting(String),
    /// It will not run unless somebody acts; the sentence says what to do.
    Never(String),
}

/// The objects behind a guest, as far as they exist.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen<'a> {
    pub vm: Option<&'a VirtualMachine>,
    pub vmi: Option<&'a VirtualMachineInstance>,
    /// The launcher Pod.
    pub pod: Option<&'a Pod>,
}

/// What the guest `name` waits for.
pub fn outlook(name: &str, seen: Seen<'_>) -> Outlook {
    match (seen.vmi, seen.vm) {
        (None, None) => Outlook::Never(format!("there is no VirtualMachine and no VirtualMachineInstance {name}")),
        (None, Some(vm)) => without_instance(name, vm),
        (Some(vmi), vm) if vmi.is_final() => ended(name, vmi, vm),
        (Some(vmi), vm) if vmi.is_marked_for_deletion() => stopping(name, vm),
        (Some(vmi), _) => alive(name, vmi, seen.pod),
    }
}

/// What a Pod waits for before its containers run; `None` once they have started.
pub fn pod(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref();
    let phase = status.and_then(|status| status.phase.as_deref()).unwrap_or("Pending");
    if phase != "Pending" {
        return None;
    }
    let name = name_of(&pod.metadata);
    let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    if let Some(unschedulable) = conditions.iter().find(|c| c.type_ == "PodScheduled" && c.status == "False") {
        let message = unschedulable.message.as_deref().or(unschedulable.reason.as_deref());
        return Some(format!("Pod {name} waits for a node{}", because(message)));
    }
    let Some(node) = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) else {
        return Some(format!("Pod {name} waits to be scheduled"));
    };
    if let Some(stuck) = containers(pod).find_map(waiting_container) {
        return Some(format!("Pod {name} on node {node} waits for {stuck}"));
    }
    Some(format!("Pod {name} is being started on node {node}"))
}

/// What an object that is being deleted waits for; `None` if it is not being deleted. `left` is what still depends on
/// it: a VM's VMI, a VMI's launcher Pod.
pub fn deletion(kind: &str, metadata: &ObjectMeta, left: Seen<'_>) -> Option<String> {
    metadata.deletion_timestamp.as_ref()?;
    let name = name_of(metadata);
    if let Some(vmi) = left.vmi {
        let phase = vmi.phase().map_or("Pending", Phase::as_str);
        return Some(format!("{kind} {name} waits for its instance to end, which is {phase}"));
    }
    if let Some(pod) = left.pod {
        return Some(format!("{kind} {name} waits for Pod {} to end", name_of(&pod.metadata)));
    }
    Some(match metadata.finalizers.as_deref() {
        None | Some([]) => format!("{kind} {name} is being deleted"),
        Some(finalizers) => format!("{kind} {name} waits for its finalizers to be removed: {}", finalizers.join(", ")),
    })
}

fn without_instance(name: &str, vm: &VirtualMachine) -> Outlook {
    if vm.is_marked_for_deletion() {
        return Outlook::Never(format!("VirtualMachine {name} is being deleted"));
    }
    let status = vm.status.as_ref();
    if let Some(retry) = status.and_then(|status| status.start_failure.as_ref()) {
        let times = retry.consecutive_fail_count.unwrap_or(1);
        let next = retry.retry_after_timestamp.as_ref().map(|time| format!("next attempt at {}", time.0));
        let next = next.unwrap_or_else(|| "retrying".to_owned());
        return Outlook::Waiting(format!("VirtualMachine {name} failed to start {times} times; {next}"));
    }
    if let Some(failure) = vm.condition(conditions::FAILURE).filter(|failure| failure.is_true()) {
        return Outlook::Waiting(format!("VirtualMachine {name} waits{}", because(failure.message.as_deref())));
    }
    let start_requested = status.is_some_and(|status| !status.state_change_requests.is_empty());
    match vm.run_strategy() {
        Ok(RunStrategy::Always | RunStrategy::RerunOnFailure | RunStrategy::Once | RunStrategy::WaitAsReceiver) => {
            Outlook::Waiting(format!("VirtualMachine {name} waits for virt-controller to create its instance"))
        }
        _ if start_requested => {
            Outlook::Waiting(format!("VirtualMachine {name} waits for virt-controller to act on a request"))
        }
        Ok(_) => Outlook::Never(format!("VirtualMachine {name} is stopped; start it with `virtctl start {name}`")),
        Err(error) => Outlook::Never(format!("VirtualMachine {name}: {error}")),
    }
}

/// The VMI has ended: the VM's run strategy decides whether another one follows.
fn ended(name: &str, vmi: &VirtualMachineInstance, vm: Option<&VirtualMachine>) -> Outlook {
    let failed = vmi.phase() == Some(&Phase::Failed);
    let reason = vmi.status.as_ref().and_then(|status| status.reason.as_deref()).filter(|reason| !reason.is_empty());
    let how = format!("the guest of {name} {}{}", if failed { "failed" } else { "has stopped" }, because(reason));
    let strategy = vm.filter(|vm| !vm.is_marked_for_deletion()).map(VirtualMachine::run_strategy);
    match strategy {
        Some(Ok(RunStrategy::Always)) => Outlook::Waiting(format!("{how}; waiting for its next run")),
        Some(Ok(RunStrategy::RerunOnFailure)) if failed => Outlook::Waiting(format!("{how}; waiting for its next run")),
        Some(_) => Outlook::Never(format!("{how}; start it with `virtctl start {name}`")),
        None => Outlook::Never(how),
    }
}

fn stopping(name: &str, vm: Option<&VirtualMachine>) -> Outlook {
    let again = vm.is_some_and(|vm| {
        let requested = vm.status.as_ref().is_some_and(|status| !status.state_change_requests.is_empty());
        !vm.is_marked_for_deletion() && (requested || vm.run_strategy() == Ok(RunStrategy::Always))
    });
    if again {
        Outlook::Waiting(format!("the guest of {name} is being stopped and will be started again"))
    } else {
        Outlook::Never(format!("the guest of {name} is being stopped"))
    }
}

fn alive(name: &str, vmi: &VirtualMachineInstance, launcher: Option<&Pod>) -> Outlook {
    let node = vmi.status.as_ref().and_then(|status| status.node_name.as_deref()).unwrap_or("its node");
    let next = match vmi.phase() {
        Some(Phase::Running) => return Outlook::Running,
        None | Some(Phase::Pending) => {
            blocked(vmi).unwrap_or_else(|| "waits for virt-controller to create its launcher Pod".to_owned())
        }
        Some(Phase::Scheduling) => launcher
            .and_then(pod)
            .or_else(|| blocked(vmi))
            .unwrap_or_else(|| "waits for its launcher Pod to become ready".to_owned()),
        Some(Phase::Scheduled) => {
            blocked(vmi).unwrap_or_else(|| format!("waits for virt-handler on {node} to start the guest"))
        }
        Some(Phase::Unknown) => format!("has an unknown state: {node} is not responding"),
        Some(other) => format!("is in phase {other}"),
    };
    // A sentence about the Pod has its own subject.
    Outlook::Waiting(if next.starts_with("Pod ") { next } else { format!("VirtualMachineInstance {name} {next}") })
}

/// The condition that blocks a VMI's next phase.
fn blocked(vmi: &VirtualMachineInstance) -> Option<String> {
    let failing = |type_: &str| vmi.condition(type_).filter(|condition| condition.is_false());
    let explain = |condition: &api::v1::Condition| match (condition.message(), condition.reason()) {
        ("", reason) => because(Some(reason)),
        (message, _) => because(Some(message)),
    };
    failing(conditions::POD_SCHEDULED)
        .map(|condition| format!("waits for a node{}", explain(condition)))
        .or_else(|| failing(conditions::SYNCHRONIZED).map(|condition| format!("waits{}", explain(condition))))
        .or_else(|| {
            failing(conditions::DATA_VOLUMES_READY)
                .map(|condition| format!("waits for its volumes{}", explain(condition)))
        })
}

fn containers(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    pod.status
        .iter()
        .flat_map(|status| [status.init_container_statuses.as_deref(), status.container_statuses.as_deref()])
        .flatten()
        .flatten()
}

/// Why a container does not run yet, unless it is just starting.
fn waiting_container(container: &ContainerStatus) -> Option<String> {
    let waiting = container.state.as_ref()?.waiting.as_ref()?;
    let reason = waiting.reason.as_deref()?;
    let message = waiting.message.as_deref().filter(|message| !message.is_empty());
    let just_starting = matches!(reason, "ContainerCreating" | "PodInitializing");
    Some(match message {
        // A node of ours says here what the Pod's volumes wait for.
        Some(message) if just_starting => format!("container {}: {message}", container.name),
        None if just_starting => return None,
        Some(message) => format!("container {}: {reason}: {message}", container.name),
        None => format!("container {}: {reason}", container.name),
    })
}

fn because(message: Option<&str>) -> String {
    message.filter(|message| !message.is_empty()).map(|message| format!(": {message}")).unwrap_or_default()
}

fn name_of(metadata: &ObjectMeta) -> &str {
    metadata.name.as_deref().unwrap_or("(unnamed)")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn vm(strategy: &str, status: Value) -> VirtualMachine {
        serde_json::from_value(
            json!({"metadata": {"name": "demo"}, "spec": {"runStrategy": strategy}, "status": status}),
        )
        .unwrap()
    }

    fn vmi(status: Value) -> VirtualMachineInstance {
        serde_json::from_value(json!({"metadata": {"name": "demo"}, "status": status})).unwrap()
    }

    fn launcher(node: Option<&str>, status: Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "virt-launcher-demo"},
            "spec": {"containers": [], "nodeName": node}, "status": status}))
        .unwrap()
    }

    fn tell(vm: Option<&VirtualMachine>, vmi: Option<&VirtualMachineInstance>, pod: Option<&Pod>) -> String {
        match outlook("demo", Seen { vm, vmi, pod }) {
            Outlook::Running => "running".into(),
            Outlook::Waiting(sentence) => format!("wait: {sentence}"),
            Outlook::Never(sentence) => format!("never: {sentence}"),
        }
    }

    #[test]
    fn a_machine_without_an_instance_waits_or_says_how_to_start_it() {
        let strategies = [
            ("Always", json!({}), "wait: VirtualMachine demo waits for virt-controller to create its instance"),
            ("Halted", json!({}), "never: VirtualMachine demo is stopped; start it with `virtctl start demo`"),
            ("Manual", json!({}), "never: VirtualMachine demo is stopped; start it with `virtctl start demo`"),
            (
                "Manual",
                json!({"stateChangeRequests": [{"action": "Start"}]}),
                "wait: VirtualMachine demo waits for virt-controller to act on a request",
            ),
            (
                "Always",
                json!({"startFailure": {"consecutiveFailCount": 3, "retryAfterTimestamp": "2026-01-02T03:04:05Z"}}),
                "wait: VirtualMachine demo failed to start 3 times; next attempt at 2026-01-02T03:04:05Z",
            ),
            (
                "Always",
                json!({"conditions": [{"type": "Failure", "status": "True", "message": "quota exceeded"}]}),
                "wait: VirtualMachine demo waits: quota exceeded",
            ),
        ];
        for (strategy, status, want) in strategies {
            assert_eq!(tell(Some(&vm(strategy, status.clone())), None, None), want, "{strategy} {status}");
        }
        assert_eq!(tell(None, None, None), "never: there is no VirtualMachine and no VirtualMachineInstance demo");
    }

    #[test]
    fn every_phase_names_its_next_step() {
        let cases = [
            (json!({}), "wait: VirtualMachineInstance demo waits for virt-controller to create its launcher Pod"),
            (
                json!({"phase": "Pending", "conditions": [
                    {"type": "Synchronized", "status": "False", "reason": "FailedCreate", "message": "pods is forbidden"}]}),
                "wait: VirtualMachineInstance demo waits: pods is forbidden",
            ),
            (
                json!({"phase": "Scheduling", "conditions": [
                    {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes are available"}]}),
                "wait: VirtualMachineInstance demo waits for a node: 0/2 nodes are available",
            ),
            (
                json!({"phase": "Scheduling"}),
                "wait: VirtualMachineInstance demo waits for its launcher Pod to become ready",
            ),
            (
                json!({"phase": "Scheduled", "nodeName": "n1"}),
                "wait: VirtualMachineInstance demo waits for virt-handler on n1 to start the guest",
            ),
            (
                json!({"phase": "Scheduled", "nodeName": "n1", "conditions": [
                    {"type": "Synchronized", "status": "False", "reason": "LauncherError"}]}),
                "wait: VirtualMachineInstance demo waits: LauncherError",
            ),
            (json!({"phase": "Running"}), "running"),
            (
                json!({"phase": "Unknown", "nodeName": "n1"}),
                "wait: VirtualMachineInstance demo has an unknown state: n1 is not responding",
            ),
            (json!({"phase": "Succeeded"}), "never: the guest of demo has stopped"),
            (json!({"phase": "Failed", "reason": "OutOfmemory"}), "never: the guest of demo failed: OutOfmemory"),
        ];
        for (status, want) in cases {
            assert_eq!(tell(None, Some(&vmi(status.clone())), None), want, "{status}");
        }
    }

    #[test]
    fn an_ended_run_is_followed_by_another_only_if_the_strategy_says_so() {
        let cases = [
            ("Always", "Succeeded", "wait: the guest of demo has stopped; waiting for its next run"),
            ("RerunOnFailure", "Failed", "wait: the guest of demo failed; waiting for its next run"),
            ("RerunOnFailure", "Succeeded", "never: the guest of demo has stopped; start it with `virtctl start demo`"),
            ("Once", "Failed", "never: the guest of demo failed; start it with `virtctl start demo`"),
        ];
        for (strategy, phase, want) in cases {
            let vmi = vmi(json!({"phase": phase}));
            assert_eq!(tell(Some(&vm(strategy, json!({}))), Some(&vmi), None), want, "{strategy} {phase}");
        }
    }

    #[test]
    fn a_run_being_stopped_is_waited_for_only_if_another_follows() {
        let mut ending = vmi(json!({"phase": "Running"}));
        ending.metadata.deletion_timestamp = Some(serde_json::from_value(json!("2026-01-02T03:04:05Z")).unwrap());
        let halted = vm("Halted", json!({}));
        assert_eq!(tell(Some(&halted), Some(&ending), None), "never: the guest of demo is being stopped");
        let always = vm("Always", json!({}));
        assert_eq!(
            tell(Some(&always), Some(&ending), None),
            "wait: the guest of demo is being stopped and will be started again"
        );
    }

    #[test]
    fn a_pod_names_what_holds_it() {
        let cases = [
            (None, json!({}), Some("Pod virt-launcher-demo waits to be scheduled")),
            (
                None,
                json!({"phase": "Pending", "conditions": [
                    {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no node has 9Ti"}]}),
                Some("Pod virt-launcher-demo waits for a node: no node has 9Ti"),
            ),
            (Some("n1"), json!({"phase": "Pending"}), Some("Pod virt-launcher-demo is being started on node n1")),
            (
                Some("n1"),
                json!({"phase": "Pending", "containerStatuses": [{"name": "compute", "image": "", "imageID": "", "ready": false,
                    "restartCount": 0, "state": {"waiting": {"reason": "ErrImagePull", "message": "no image x"}}}]}),
                Some("Pod virt-launcher-demo on node n1 waits for container compute: ErrImagePull: no image x"),
            ),
            (
                Some("n1"),
                json!({"phase": "Pending", "containerStatuses": [{"name": "compute", "image": "", "imageID": "", "ready": false,
                    "restartCount": 0, "state": {"waiting": {"reason": "ContainerCreating", "message": "claim a is in use"}}}]}),
                Some("Pod virt-launcher-demo on node n1 waits for container compute: claim a is in use"),
            ),
            (
                Some("n1"),
                json!({"phase": "Pending", "containerStatuses": [{"name": "compute", "image": "", "imageID": "", "ready": false,
                    "restartCount": 0, "state": {"waiting": {"reason": "ContainerCreating"}}}]}),
                Some("Pod virt-launcher-demo is being started on node n1"),
            ),
            (Some("n1"), json!({"phase": "Running"}), None),
        ];
        for (node, status, want) in cases {
            assert_eq!(pod(&launcher(node, status.clone())).as_deref(), want, "{status}");
        }
    }

    #[test]
    fn the_launcher_pod_explains_a_scheduling_instance() {
        let vmi = vmi(json!({"phase": "Scheduling"}));
        let pod = launcher(Some("n1"), json!({"phase": "Pending"}));
        assert_eq!(tell(None, Some(&vmi), Some(&pod)), "wait: Pod virt-launcher-demo is being started on node n1");
    }

    #[test]
    fn a_deletion_names_its_finalizers() {
        let metadata = |finalizers: Value, deleted: Value| {
            serde_json::from_value::<ObjectMeta>(
                json!({"name": "demo", "finalizers": finalizers, "deletionTimestamp": deleted}),
            )
            .unwrap()
        };
        let now = json!("2026-01-02T03:04:05Z");
        let tell = |metadata: ObjectMeta, left| deletion("VM", &metadata, left);
        let nothing = Seen::default();
        assert_eq!(tell(metadata(json!(["a"]), json!(null)), nothing), None);
        assert_eq!(tell(metadata(json!([]), now.clone()), nothing).unwrap(), "VM demo is being deleted");
        let held = metadata(json!(["a", "b"]), now);
        assert_eq!(tell(held.clone(), nothing).unwrap(), "VM demo waits for its finalizers to be removed: a, b");
        let vmi = vmi(json!({"phase": "Running"}));
        let left = Seen { vmi: Some(&vmi), ..nothing };
        assert_eq!(tell(held.clone(), left).unwrap(), "VM demo waits for its instance to end, which is Running");
        let pod = launcher(None, json!({}));
        let left = Seen { pod: Some(&pod), ..nothing };
        assert_eq!(tell(held, left).unwrap(), "VM demo waits for Pod virt-launcher-demo to end");
    }
}
