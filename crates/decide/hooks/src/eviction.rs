//! Evictions of launcher Pods. `plan::eviction` decides whether the guest is to be migrated; in that case the eviction
//! is refused and the VMI is marked.

use std::error::Error;

use admission::{Wanted, World};
use api::config::ClusterConfig;
use api::v1::VirtualMachineInstance;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use machinery::status;
use plan::eviction::{self, Subject, subject};
use review::{Refusal, Review, SideEffect, User, Verdict};
use serde_json::Value;

use crate::table::{ATTACHMENT_EVICTION, LAUNCHER_EVICTION};

const VMI: &str = "VirtualMachineInstance";
/// The service account that marks VMIs.
const ACCOUNT: &str = "kubevirt-apiserver";
/// The number of seconds after which clients should retry.
const RETRY_AFTER: i32 = 10;

/// The Pod, the launcher Pod it serves, and their VMI, one after the other.
pub(crate) fn wanted(review: &Review<'_>, world: &World) -> Vec<Wanted> {
    let (own, launcher) = (pod(review, world, review.name), launcher(review, world));
    let named = own.as_ref().map(subject);
    let wanted = match (named, launcher.as_ref().map(subject)) {
        (None, _) => Some(Wanted::one("", "Pod", review.namespace, review.name)),
        (Some(Subject::Attachment { launcher }), None) => Some(Wanted::one("", "Pod", review.namespace, launcher)),
        (Some(Subject::Launcher { vmi }), _) | (Some(_), Some(Subject::Launcher { vmi })) => {
            Some(Wanted::one(api::v1::GROUP, VMI, review.namespace, vmi))
        }
        _ => None,
    };
    wanted.into_iter().filter(|wanted| !world.knows(wanted)).collect()
}

fn pod(review: &Review<'_>, world: &World, name: &str) -> Option<Pod> {
    world.get("Pod", review.namespace, name)
}

/// The launcher Pod that an attachment Pod serves.
fn launcher(review: &Review<'_>, world: &World) -> Option<Pod> {
    match subject(&pod(review, world, review.name)?) {
        Subject::Attachment { launcher } => pod(review, world, launcher),
        Subject::Free | Subject::Launcher { .. } => None,
    }
}

pub(crate) fn review(review: &Review<'_>, config: &ClusterConfig, world: &World) -> Verdict {
    // If the Pod does not exist there is nothing to protect, and the API server reports that.
    let Some(own) = pod(review, world, review.name).filter(|own| is_about(review.object, own)) else {
        return Verdict::default();
    };
    let launcher = launcher(review, world);
    let Subject::Launcher { vmi: name } = subject(launcher.as_ref().unwrap_or(&own)) else {
        return Verdict::default();
    };
    let vmi: Option<VirtualMachineInstance> = world.get(VMI, review.namespace, name);
    let annotations = serde_json::from_value(review.object["metadata"]["annotations"].clone()).ok();
    let answer = eviction::judge(&eviction::World {
        pod: &own,
        launcher: launcher.as_ref(),
        vmi: vmi.as_ref(),
        annotations: annotations.as_ref(),
        config,
    });
    let by = if launcher.is_some() { ATTACHMENT_EVICTION } else { LAUNCHER_EVICTION };
    match if review.dry_run { answer.without_effect() } else { answer } {
        eviction::Verdict::Allow => Verdict::default(),
        eviction::Verdict::Deny(message) => Refusal { by, status: later(message) }.into(),
        eviction::Verdict::Mark { patch, message } => {
            let mark = SideEffect {
                group: api::v1::GROUP,
                resource: "virtualmachineinstances",
                namespace: review.namespace.to_owned(),
                name: name.to_owned(),
                patch,
                user: own_account(config),
                failed: not_marked,
            };
            let refusal = Refusal { by, status: later(message) };
            Verdict { refusal: Some(refusal), side_effect: Some(mark), ..Verdict::default() }
        }
    }
}

/// Whether the Eviction is about this Pod. If it is about another one that had the same name, or about an older state of
/// it, the API server refuses it after the webhooks, and the guest must not be marked.
fn is_about(eviction: &Value, pod: &Pod) -> bool {
    let same = |asked: &Value, own: &Option<String>| asked.as_str().is_none_or(|asked| own.as_deref() == Some(asked));
    let asked = &eviction["deleteOptions"]["preconditions"];
    let (named, own) = (&eviction["metadata"], &pod.metadata);
    same(&named["name"], &own.name)
        && same(&named["namespace"], &own.namespace)
        && same(&asked["uid"], &own.uid)
        && same(&asked["resourceVersion"], &own.resource_version)
}

/// The status code that makes `kubectl drain` and similar clients retry.
fn later(message: String) -> Status {
    status::too_many_requests(message, RETRY_AFTER)
}

fn not_marked(error: &dyn Error) -> Status {
    match eviction::Verdict::unknown("marking its instance for evacuation", error) {
        eviction::Verdict::Deny(message) | eviction::Verdict::Mark { message, .. } => later(message),
        eviction::Verdict::Allow => later(error.to_string()),
    }
}

fn own_account(config: &ClusterConfig) -> User {
    let name = format!("system:serviceaccount:{}:{ACCOUNT}", config.install_namespace);
    User { name, groups: vec!["system:authenticated".to_owned()], ..User::default() }
}
