//! The status of the KubeVirt object.
//!
//! ```text
//!   first start:    Deploying, not Available, Progressing ──► Deployed, Available
//!   other program:  Deployed, Available, Progressing, Degraded ──► Deployed, Available
//!   same program:   nothing changes
//! ```
//!
//! Reasons and combinations are those of KubeVirt's operator: scripts wait for `Available`, and for `Progressing` to end.

use api::conditions::{self, AVAILABLE, CREATED, DEGRADED, PROGRESSING, SYNCHRONIZED};
use api::reasons;
use api::v1::{Condition, ConditionStatus, KubeVirt, KubeVirtPhase, KubeVirtStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// The version that runs, or is about to run.
#[derive(Clone, Copy, Debug)]
pub struct Program<'a> {
    pub version: &'a str,
    /// Differs between builds that may behave differently.
    pub id: &'a str,
}

/// The status while the components are being started.
pub fn starting(kubevirt: &KubeVirt, program: Program<'_>, now: &Time) -> KubeVirtStatus {
    let mut status = observed(kubevirt);
    let before = status.observed_deployment_id.as_deref();
    let (phase, available, degraded, reason) = match before {
        None => (KubeVirtPhase::Deploying, false, false, reasons::DEPLOYMENT_IN_PROGRESS),
        Some(_) => (KubeVirtPhase::Deployed, true, true, reasons::UPDATE_IN_PROGRESS),
    };
    if before != Some(program.id) {
        conditions::remove(&mut status.conditions, SYNCHRONIZED);
        set(&mut status, AVAILABLE, available, reason, now);
        set(&mut status, PROGRESSING, true, reason, now);
        set(&mut status, DEGRADED, degraded, reason, now);
        status.phase = Some(phase);
    }
    status.operator_version = Some(program.version.to_owned());
    status.target_deployment_id = Some(program.id.to_owned());
    status.target_kube_virt_version = Some(program.version.to_owned());
    status
}

/// The status once all components run this version.
pub fn deployed(kubevirt: &KubeVirt, program: Program<'_>, now: &Time) -> KubeVirtStatus {
    let mut status = starting(kubevirt, program, now);
    conditions::remove(&mut status.conditions, SYNCHRONIZED);
    set(&mut status, CREATED, true, reasons::ALL_RESOURCES_CREATED, now);
    set(&mut status, AVAILABLE, true, reasons::ALL_COMPONENTS_READY, now);
    set(&mut status, PROGRESSING, false, reasons::ALL_COMPONENTS_READY, now);
    set(&mut status, DEGRADED, false, reasons::ALL_COMPONENTS_READY, now);
    status.phase = Some(KubeVirtPhase::Deployed);
    status.observed_deployment_id = Some(program.id.to_owned());
    status.observed_kube_virt_version = Some(program.version.to_owned());
    status
}

/// The status, up to date with the spec; fields of other writers are left alone.
fn observed(kubevirt: &KubeVirt) -> KubeVirtStatus {
    let mut status = kubevirt.status.clone().unwrap_or_default();
    status.observed_generation = kubevirt.metadata.generation;
    status.outdated_virtual_machine_instance_workloads = None;
    status
}

fn set(status: &mut KubeVirtStatus, type_: &str, holds: bool, reason: &str, now: &Time) {
    let message = match reason {
        reasons::DEPLOYMENT_IN_PROGRESS => "The components are being started.",
        reasons::UPDATE_IN_PROGRESS => "The components are being replaced by those of another version.",
        reasons::ALL_RESOURCES_CREATED => "All resources were created.",
        _ => "All components are ready.",
    };
    let holds = if holds { ConditionStatus::True } else { ConditionStatus::False };
    let mut condition = Condition::new(type_, holds, reason, message, now.clone());
    condition.last_probe_time = Some(now.clone());
    conditions::set(&mut status.conditions, condition);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const PROGRAM: Program<'_> = Program { version: "v1", id: "a" };

    fn at(seconds: i64) -> Time {
        Time(jiff::Timestamp::from_second(1_700_000_000 + seconds).unwrap())
    }

    fn kubevirt(status: KubeVirtStatus) -> KubeVirt {
        let mut object: KubeVirt = serde_json::from_value(json!({"metadata": {"generation": 3}, "spec": {}})).unwrap();
        object.status = Some(status);
        object
    }

    /// Phase, Available, Progressing, Degraded, and their reason.
    fn told(status: &KubeVirtStatus) -> (&str, [bool; 3], &str) {
        let holds = [AVAILABLE, PROGRESSING, DEGRADED].map(|type_| conditions::is_true(&status.conditions, type_));
        let reason = conditions::find(&status.conditions, AVAILABLE).map(Condition::reason).unwrap_or_default();
        (status.phase.as_ref().map(KubeVirtPhase::as_str).unwrap_or_default(), holds, reason)
    }

    #[test]
    fn a_new_cluster_is_deployed_once_its_components_are_ready() {
        let first = starting(&kubevirt(KubeVirtStatus::default()), PROGRAM, &at(0));
        assert_eq!(told(&first), ("Deploying", [false, true, false], "DeploymentInProgress"));
        let done = deployed(&kubevirt(first), PROGRAM, &at(5));
        assert_eq!(told(&done), ("Deployed", [true, false, false], "AllComponentsReady"));
        assert!(conditions::is_true(&done.conditions, CREATED));
        assert_eq!((done.observed_generation, done.operator_version.as_deref()), (Some(3), Some("v1")));
        assert_eq!(done.observed_deployment_id, done.target_deployment_id);
        let available = conditions::find(&done.conditions, AVAILABLE).unwrap();
        assert_eq!(available.last_transition_time, Some(at(5)));
    }

    #[test]
    fn a_restart_changes_nothing_and_another_program_is_an_update() {
        let running = deployed(&kubevirt(KubeVirtStatus::default()), PROGRAM, &at(0));
        assert_eq!(starting(&kubevirt(running.clone()), PROGRAM, &at(9)), running);
        assert_eq!(deployed(&kubevirt(running.clone()), PROGRAM, &at(9)), running);
        let newer = Program { version: "v2", id: "b" };
        let update = starting(&kubevirt(running), newer, &at(9));
        assert_eq!(told(&update), ("Deployed", [true, true, true], "UpdateInProgress"));
        assert_eq!(update.observed_deployment_id.as_deref(), Some("a"), "guests are not moved yet");
        assert_eq!(told(&deployed(&kubevirt(update), newer, &at(12))).1, [true, false, false]);
    }

    #[test]
    fn an_object_from_before_conditions_were_written_gets_them() {
        let old = KubeVirtStatus { observed_deployment_id: Some("a".to_owned()), ..Default::default() };
        assert_eq!(told(&deployed(&kubevirt(old), PROGRAM, &at(0))).1, [true, false, false]);
    }
}
