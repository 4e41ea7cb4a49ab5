//! Computes a Pod's status from the state on disk.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus,
    HostIP, Pod, PodCondition, PodIP, PodSpec, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use machinery::pod::is_final;

use crate::{
    CREATING, ContainerRecord, Exit, Observed, PodView, RestartPolicy, ShimState, Stage, Unsupported, qos_class,
    restart_policy,
};

const UNSUPPORTED: &str = "UnsupportedByRunner";
/// The conditions of this runner; those of others are kept.
const OWN_CONDITIONS: [&str; 4] = ["Initialized", "Ready", "ContainersReady", "PodScheduled"];

/// The API has a resolution of one second.
fn time(at: Timestamp) -> Time {
    Time(Timestamp::from_second(at.as_second()).unwrap_or(at))
}

/// The status of a Pod that uses an unsupported feature.
pub(super) fn refused(pod: &Pod, unsupported: &Unsupported, view: &PodView<'_>) -> PodStatus {
    let message = format!("this node cannot run the Pod: {unsupported}");
    PodStatus {
        phase: Some("Failed".to_owned()),
        reason: Some(UNSUPPORTED.to_owned()),
        message: Some(message),
        qos_class: pod.spec.as_ref().map(|s| qos_class(s).to_owned()),
        start_time: pod.status.as_ref().and_then(|s| s.start_time.clone()).or_else(|| Some(time(view.now))),
        conditions: Some(vec![
            condition("PodScheduled", true, None, None),
            condition("Ready", false, Some("PodFailed"), None),
            condition("ContainersReady", false, Some("PodFailed"), None),
        ]),
        ..pod.status.clone().unwrap_or_default()
    }
}

pub(super) fn observed(pod: &Pod, spec: &PodSpec, view: &PodView<'_>) -> PodStatus {
    let seen = Seen::new(pod, spec, view);
    let before = pod.status.clone().unwrap_or_default();
    // If the Pod was declared finished, that phase is kept.
    let told = before.phase.as_deref().filter(|phase| is_final(phase));
    let phase = told.unwrap_or_else(|| seen.phase());
    let (reason, message) = if told.is_some() { (before.reason.clone(), before.message.clone()) } else { (None, None) };
    let address =
        view.disk.and_then(|d| d.address).filter(|_| view.disk.is_some_and(|d| d.shim != ShimState::NotStarted));
    let address = address.map(|a| a.to_string()).or(before.pod_ip.clone());
    PodStatus {
        phase: Some(phase.to_owned()),
        conditions: Some(conditions(pod, spec, &seen, phase)),
        container_statuses: Some(spec.containers.iter().map(|c| seen.container(c, false)).collect()),
        init_container_statuses: spec
            .init_containers
            .as_ref()
            .filter(|list| !list.is_empty())
            .map(|list| list.iter().map(|c| seen.container(c, true)).collect()),
        host_ip: Some(view.node_address.to_string()),
        host_ips: Some(vec![HostIP { ip: view.node_address.to_string() }]),
        pod_ips: address.clone().map(|ip| vec![PodIP { ip }]),
        pod_ip: address,
        qos_class: Some(qos_class(spec).to_owned()),
        start_time: view.disk.map(|d| time(d.accepted_at)).or(before.start_time.clone()),
        reason,
        message,
        // Fields of other writers.
        ..before
    }
}

/// The Pod and its records together.
struct Seen<'a> {
    pod: &'a Pod,
    spec: &'a PodSpec,
    view: &'a PodView<'a>,
    policy: RestartPolicy,
    initialized: bool,
}

impl<'a> Seen<'a> {
    fn new(pod: &'a Pod, spec: &'a PodSpec, view: &'a PodView<'a>) -> Seen<'a> {
        let mut seen = Seen { pod, spec, view, policy: restart_policy(spec), initialized: false };
        let succeeded =
            |c: &Container| seen.record(&c.name).and_then(|r| r.stage.exit().cloned()).is_some_and(|e| e.code == 0);
        seen.initialized = seen.spec.init_containers.iter().flatten().all(succeeded);
        seen
    }

    /// The record of a container. One that is running according to its record, but whose shim is gone, counts as lost.
    fn record(&self, name: &str) -> Option<ContainerRecord> {
        let disk: &Observed = self.view.disk?;
        let record = disk.containers.get(name)?.clone();
        if disk.shim == ShimState::Alive {
            return Some(record);
        }
        // A fixed time, so that the status converges.
        let at = record_time(&record);
        Some(record.lost(at))
    }

    fn phase(&self) -> &'static str {
        let failed_init = |c: &Container| {
            let exit = self.record(&c.name).and_then(|r| r.stage.exit().cloned());
            self.policy == RestartPolicy::Never && exit.is_some_and(|e| e.code != 0)
        };
        if self.spec.init_containers.iter().flatten().any(failed_init) {
            return "Failed";
        }
        let records: Vec<_> = self.spec.containers.iter().map(|c| self.record(&c.name)).collect();
        let gone = self.view.disk.is_some_and(|d| d.shim == ShimState::Gone);
        // Stopped before everything had started.
        if gone && records.iter().any(Option::is_none) && self.ends_with_shim() {
            return "Failed";
        }
        if !self.initialized || records.iter().any(Option::is_none) {
            return "Pending";
        }
        let exits: Option<Vec<Exit>> = records.iter().flatten().map(|r| self.final_exit(r)).collect();
        match exits {
            None => "Running",
            Some(exits) if exits.iter().all(|e| e.code == 0) => "Succeeded",
            Some(_) => "Failed",
        }
    }

    /// Whether the Pod ends with the shim: otherwise the shim is started again.
    fn ends_with_shim(&self) -> bool {
        self.policy == RestartPolicy::Never || self.view.disk.is_some_and(|d| d.stopping_since.is_some())
    }

    /// How a container ended, if it will not be restarted.
    fn final_exit(&self, record: &ContainerRecord) -> Option<Exit> {
        let exit = record.stage.exit()?;
        let stopped = self.view.disk.is_some_and(|d| d.shim == ShimState::Gone && d.stopping_since.is_some());
        let last = match self.policy {
            RestartPolicy::Never => true,
            RestartPolicy::OnFailure => exit.code == 0 || stopped,
            RestartPolicy::Always => stopped,
        };
        last.then(|| exit.clone())
    }

    fn container(&self, container: &Container, init: bool) -> ContainerStatus {
        let record = self.record(&container.name);
        let running = matches!(record.as_ref().map(|r| &r.stage), Some(Stage::Running { .. }));
        let succeeded = record.as_ref().and_then(|r| r.stage.exit()).is_some_and(|e| e.code == 0);
        let restarts = record.as_ref().map_or(0, |r| r.restarts);
        let uid = self.pod.metadata.uid.as_deref().unwrap_or_default();
        let id = record.is_some().then(|| format!("ferrovirt://{uid}/{}/{restarts}", container.name));
        let image = container.image.clone().unwrap_or_default();
        ContainerStatus {
            name: container.name.clone(),
            image_id: if record.is_some() { image.clone() } else { String::new() },
            image,
            ready: if init { succeeded } else { running },
            started: Some(running),
            restart_count: i32::try_from(restarts).unwrap_or(i32::MAX),
            state: Some(self.state(record.as_ref(), id.as_deref(), init)),
            last_state: record.as_ref().and_then(last_exit).map(|exit| terminated(exit, None)),
            container_id: id,
            ..ContainerStatus::default()
        }
    }

    fn state(&self, record: Option<&ContainerRecord>, id: Option<&str>, init: bool) -> ContainerState {
        match record.map(|r| &r.stage) {
            Some(Stage::Running { started_at, .. }) => ContainerState {
                running: Some(ContainerStateRunning { started_at: Some(time(*started_at)) }),
                ..ContainerState::default()
            },
            Some(Stage::Exited(exit)) => terminated(exit, id),
            Some(Stage::BackingOff { until, .. }) => {
                waiting("CrashLoopBackOff", Some(format!("it ended and starts again at {}", time(*until).0)))
            }
            None => self.not_started(init),
        }
    }

    fn not_started(&self, init: bool) -> ContainerState {
        if let Some(obstacle) = self.view.blocked {
            return waiting(obstacle.reason(self.view.now), Some(obstacle.blocked.message.clone()));
        }
        let waits_for_init = self.view.disk.is_some() && !self.initialized && !init;
        waiting(if waits_for_init { "PodInitializing" } else { CREATING }, None)
    }
}

fn record_time(record: &ContainerRecord) -> Timestamp {
    match &record.stage {
        Stage::Running { started_at, .. } => *started_at,
        Stage::Exited(exit) | Stage::BackingOff { exit, .. } => exit.finished_at,
    }
}

/// The run before the one that `state` describes.
fn last_exit(record: &ContainerRecord) -> Option<&Exit> {
    match &record.stage {
        Stage::BackingOff { exit, .. } => Some(exit),
        _ => record.previous.as_ref(),
    }
}

fn waiting(reason: &str, message: Option<String>) -> ContainerState {
    let waiting = ContainerStateWaiting { reason: Some(reason.to_owned()), message };
    ContainerState { waiting: Some(waiting), ..ContainerState::default() }
}

fn terminated(exit: &Exit, id: Option<&str>) -> ContainerState {
    let terminated = ContainerStateTerminated {
        container_id: id.map(str::to_owned),
        exit_code: exit.code,
        signal: exit.signal,
        reason: Some(exit.reason.as_str().to_owned()),
        message: Some(exit.message.clone()).filter(|m| !m.is_empty()),
        started_at: exit.started_at.map(time),
        finished_at: Some(time(exit.finished_at)),
    };
    ContainerState { terminated: Some(terminated), ..ContainerState::default() }
}

fn conditions(pod: &Pod, spec: &PodSpec, seen: &Seen<'_>, phase: &str) -> Vec<PodCondition> {
    let unready: Vec<&str> = spec
        .containers
        .iter()
        .filter(|c| !matches!(seen.record(&c.name).map(|r| r.stage), Some(Stage::Running { .. })))
        .map(|c| c.name.as_str())
        .collect();
    let containers = match phase {
        "Succeeded" => condition("ContainersReady", false, Some("PodCompleted"), None),
        "Failed" => condition("ContainersReady", false, Some("PodFailed"), None),
        _ if unready.is_empty() => condition("ContainersReady", true, None, None),
        _ => {
            let message = format!("containers with unready status: [{}]", unready.join(" "));
            condition("ContainersReady", false, Some("ContainersNotReady"), Some(message))
        }
    };
    let ready = match (containers.status.as_str(), closed_gates(pod, spec)) {
        ("True", gates) if gates.is_empty() => condition("Ready", true, None, None),
        ("True", gates) => condition("Ready", false, Some("ReadinessGatesNotReady"), Some(gates.join(", "))),
        _ => PodCondition { type_: "Ready".to_owned(), ..containers.clone() },
    };
    let initialized = if seen.initialized {
        condition("Initialized", true, None, None)
    } else {
        condition("Initialized", false, Some("ContainersNotInitialized"), None)
    };
    vec![initialized, ready, containers, condition("PodScheduled", true, None, None)]
}

/// Readiness gates whose condition is not true, as messages.
fn closed_gates(pod: &Pod, spec: &PodSpec) -> Vec<String> {
    let given = pod.status.as_ref().and_then(|s| s.conditions.as_deref()).unwrap_or_default();
    let describe = |gate: &str| match given.iter().find(|c| c.type_ == gate) {
        Some(condition) if condition.status == "True" => None,
        Some(condition) => Some(format!("the status of readiness gate {gate:?} is {:?}", condition.status)),
        None => Some(format!("the condition of readiness gate {gate:?} does not exist")),
    };
    spec.readiness_gates.iter().flatten().filter_map(|g| describe(&g.condition_type)).collect()
}

fn condition(type_: &str, status: bool, reason: Option<&str>, message: Option<String>) -> PodCondition {
    PodCondition {
        type_: type_.to_owned(),
        status: if status { "True" } else { "False" }.to_owned(),
        reason: reason.map(str::to_owned),
        message,
        ..PodCondition::default()
    }
}

/// Keeps the conditions of others, and the transition time of unchanged conditions.
pub(super) fn settle_conditions(pod: &Pod, status: &mut PodStatus, now: Timestamp) {
    let before = pod.status.as_ref().and_then(|s| s.conditions.clone()).unwrap_or_default();
    let mut settled = Vec::new();
    for mut condition in status.conditions.take().unwrap_or_default() {
        if !OWN_CONDITIONS.contains(&condition.type_.as_str()) {
            continue;
        }
        let same = before.iter().find(|c| c.type_ == condition.type_ && c.status == condition.status);
        condition.last_transition_time = same.and_then(|c| c.last_transition_time.clone()).or(Some(time(now)));
        condition.last_probe_time = same.and_then(|c| c.last_probe_time.clone());
        condition.observed_generation = same.and_then(|c| c.observed_generation);
        settled.push(condition);
    }
    // Keeps the existing order, so that an unchanged status compares equal.
    let position = |type_: &str| before.iter().position(|c| c.type_ == type_).unwrap_or(usize::MAX);
    settled.extend(before.iter().filter(|c| !OWN_CONDITIONS.contains(&c.type_.as_str())).cloned());
    settled.sort_by_key(|c| position(&c.type_));
    status.conditions = Some(settled);
}
