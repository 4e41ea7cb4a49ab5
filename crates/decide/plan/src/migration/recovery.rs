//! Finds out how a migration ended when both Pods have vanished.
//!
//! If each side has a claim of its own, deleting the wrong one loses the guest's state. The source leaves a marker file
//! in its claim before it lets the guest go; a Job checks whether the file exists.

use std::collections::BTreeMap;
use std::time::Duration;

use api::v1::VirtualMachineInstanceMigration as Migration;
use k8s_openapi::api::batch::v1::{
    Job, JobSpec, PodFailurePolicy, PodFailurePolicyOnExitCodesRequirement, PodFailurePolicyRule,
};
use k8s_openapi::api::core::v1::{
    Capabilities, Container, PersistentVolumeClaimVolumeSource, PodSecurityContext, PodSpec, PodTemplateSpec,
    SeccompProfile, SecurityContext, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use launcher_contract::paths::MIGRATED_MARK;
use machinery::names;

use super::action::{Action, requeue_after};
use super::kinds::RUNNING_PRIORITY;
use super::world::World;
use super::{backend, status};
use crate::effect::Why;
use crate::meta;
use crate::object::Kind;

/// How long the Job may take, and how long its result is kept.
const SECONDS: i64 = 30;
/// The exit code of the Job if the file does not exist.
const NOT_MIGRATED: i32 = 42;
/// How often its result is polled.
const PAUSE: Duration = Duration::from_secs(2);
const USER: i64 = 107;
const CONTAINER: &str = "recover";

/// The name of a migration's Job.
pub fn job_name(migration: &Migration) -> String {
    names::truncated_name("recover", meta::name(&migration.metadata), names::LABEL_MAX)
}

/// Decides what follows from the Job, which was read live together with the claims of both sides. `because` says why it
/// was needed.
pub fn recover(w: &World, job: Option<&Job>, because: &str) -> Vec<Action> {
    let again = requeue_after(PAUSE, RUNNING_PRIORITY);
    if backend::is_adopted(w) {
        return status::ended(w, None); // by an earlier pass that is not in the cache yet
    }
    let Some(job) = job else {
        let job = backend::names(w).map(|names| Action::create(new_job(w, &names.source), Why::default()));
        return job.into_iter().chain([again]).collect();
    };
    // The Job may belong to an earlier migration of the same name.
    let ours = meta::is_controlled_by(&job.metadata, w.uid());
    match if ours { outcome(job) } else { Outcome::Unknown } {
        Outcome::Running => vec![again],
        Outcome::Migrated => status::ended(w, None),
        Outcome::Stayed => status::ended(w, Some(because)),
        Outcome::Unknown => {
            vec![Action::delete(Kind::Job, &job.metadata, "the Job ended without a result".into()), again]
        }
    }
}

enum Outcome {
    Running,
    Migrated,
    Stayed,
    Unknown,
}

fn outcome(job: &Job) -> Outcome {
    let conditions = job.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut holds = conditions.filter(|condition| condition.status == "True");
    let ended = holds.find(|condition| matches!(condition.type_.as_str(), "Complete" | "Failed"));
    match ended {
        None => Outcome::Running,
        Some(condition) if condition.type_ == "Complete" => Outcome::Migrated,
        Some(condition) if condition.reason.as_deref() == Some("PodFailurePolicy") => Outcome::Stayed,
        Some(_) => Outcome::Unknown,
    }
}

fn new_job(w: &World, claim: &str) -> Job {
    let rule = PodFailurePolicyRule {
        action: "FailJob".to_owned(),
        on_exit_codes: Some(PodFailurePolicyOnExitCodesRequirement {
            container_name: Some(CONTAINER.to_owned()),
            operator: "In".to_owned(),
            values: vec![NOT_MIGRATED],
        }),
        ..PodFailurePolicyRule::default()
    };
    Job {
        metadata: ObjectMeta {
            name: Some(job_name(&w.migration)),
            namespace: w.migration.metadata.namespace.clone(),
            owner_references: meta::controller_ref(&*w.migration).map(|owner| vec![owner]),
            labels: Some(BTreeMap::from([(
                api::labels::MIGRATION_NAME.to_owned(),
                meta::name(&w.migration.metadata).to_owned(),
            )])),
            ..ObjectMeta::default()
        },
        spec: Some(JobSpec {
            active_deadline_seconds: Some(SECONDS),
            backoff_limit: Some(0),
            ttl_seconds_after_finished: i32::try_from(SECONDS).ok(),
            pod_failure_policy: Some(PodFailurePolicy { rules: vec![rule] }),
            template: PodTemplateSpec { metadata: None, spec: Some(pod_spec(w, claim)) },
            ..JobSpec::default()
        }),
        status: None,
    }
}

fn pod_spec(w: &World, claim: &str) -> PodSpec {
    let volume = "state".to_owned();
    PodSpec {
        restart_policy: Some("Never".to_owned()),
        security_context: Some(PodSecurityContext {
            run_as_non_root: Some(true),
            run_as_user: Some(USER),
            run_as_group: Some(USER),
            fs_group: Some(USER),
            seccomp_profile: Some(SeccompProfile { type_: "RuntimeDefault".to_owned(), ..Default::default() }),
            ..PodSecurityContext::default()
        }),
        containers: vec![Container {
            name: CONTAINER.to_owned(),
            image: Some(w.config.launcher_image.clone()),
            command: Some(vec![
                "/bin/sh".to_owned(),
                "-c".to_owned(),
                format!("test -e /meta/{MIGRATED_MARK} || exit {NOT_MIGRATED}"),
            ]),
            security_context: Some(SecurityContext {
                allow_privilege_escalation: Some(false),
                capabilities: Some(Capabilities { add: None, drop: Some(vec!["ALL".to_owned()]) }),
                ..SecurityContext::default()
            }),
            volume_mounts: Some(vec![VolumeMount {
                name: volume.clone(),
                mount_path: "/meta".to_owned(),
                sub_path: Some("meta".to_owned()),
                ..VolumeMount::default()
            }]),
            ..Container::default()
        }],
        volumes: Some(vec![Volume {
            name: volume,
            persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
                claim_name: claim.to_owned(),
                read_only: None,
            }),
            ..Volume::default()
        }]),
        ..PodSpec::default()
    }
}
