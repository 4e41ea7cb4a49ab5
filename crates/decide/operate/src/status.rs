//! The status of the KubeVirt object, in KubeVirt's phases, conditions and reasons.

use api::conditions::{self, AVAILABLE, CREATED, DEGRADED, PROGRESSING, SYNCHRONIZED};
use api::reasons;
use api::v1::{Condition, ConditionStatus, KubeVirt, KubeVirtPhase, KubeVirtStatus};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::target::Target;
use crate::world::Operator;

/// Components are no longer ready. Not in KubeVirt, like the next one.
const COMPONENTS_NOT_READY: &str = "ComponentsNotReady";
/// virt-operator is older than the running version, and changes nothing.
const DOWNGRADE_REFUSED: &str = "DowngradeRefused";

/// State of an installation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Standing {
    /// Components are being installed or replaced; what it waits for.
    UnderWay {
        waiting: String,
    },
    /// Every component of the target is ready.
    Ready,
    /// The target was ready, but components no longer are.
    NotReady {
        what: String,
        available: bool,
    },
    /// It cannot be installed.
    Failed {
        why: String,
    },
    /// It is older than the running version.
    Refused {
        why: String,
    },
    /// There is another installation.
    Other {
        why: String,
    },
    /// It is being removed; what it waits for.
    Leaving {
        waiting: String,
    },
    /// It cannot be removed.
    Stays {
        why: String,
    },
    Gone,
}

/// What the status is computed from.
pub(crate) struct Report<'a> {
    pub(crate) operator: &'a Operator,
    /// What is being installed; `None` during removal and after a refusal.
    pub(crate) target: Option<&'a Target>,
    /// Whether every object of the target exists.
    pub(crate) created: bool,
    pub(crate) now: Timestamp,
}

/// The new status of a KubeVirt object, if it changes.
pub(crate) fn status(kubevirt: &KubeVirt, standing: &Standing, report: &Report<'_>) -> Option<KubeVirtStatus> {
    let old = kubevirt.status.clone().unwrap_or_default();
    let mut new = Writer { status: old.clone(), now: Time(report.now) };
    new.status.observed_generation = kubevirt.metadata.generation;
    let is_ours = !matches!(standing, Standing::Other { .. } | Standing::Refused { .. });
    if is_ours {
        new.status.operator_version = Some(report.operator.version.clone());
        new.status.default_architecture = Some(architecture(kubevirt, report.operator));
    }
    if let Some(target) = report.target {
        new.status.target_deployment_id = Some(target.identifier());
        new.status.target_kube_virt_version = Some(target.settings.image_tag.clone());
        new.status.target_kube_virt_registry = Some(target.settings.image_prefix.clone());
    }
    new.conditions(standing, report.created);
    if matches!(standing, Standing::Ready) {
        let status = &mut new.status;
        status.observed_deployment_id = status.target_deployment_id.clone();
        status.observed_kube_virt_version = status.target_kube_virt_version.clone();
        status.observed_kube_virt_registry = status.target_kube_virt_registry.clone();
    }
    (new.status != old).then_some(new.status)
}

/// From the configuration, else from the nodes, else virt-operator's own architecture.
fn architecture(kubevirt: &KubeVirt, operator: &Operator) -> String {
    let configuration = kubevirt.spec.configuration.as_ref();
    let asked = configuration.and_then(|configuration| {
        configuration.architecture_configuration.as_ref().and_then(|one| one.default_architecture.clone())
    });
    let known = kubevirt.status.as_ref().and_then(|status| status.default_architecture.clone());
    let said = asked.filter(|text| !text.is_empty()).or(known).filter(|text| !text.is_empty());
    said.unwrap_or_else(|| operator.architecture.clone())
}

struct Writer {
    status: KubeVirtStatus,
    now: Time,
}

impl Writer {
    fn conditions(&mut self, standing: &Standing, created: bool) {
        let first = self.status.observed_deployment_id.is_none();
        match standing {
            Standing::UnderWay { waiting } if first => {
                self.status.phase = Some(KubeVirtPhase::Deploying);
                self.remove(SYNCHRONIZED);
                self.created(created);
                self.set(
                    &[(AVAILABLE, false), (PROGRESSING, true), (DEGRADED, false)],
                    reasons::DEPLOYMENT_IN_PROGRESS,
                    waiting,
                );
            }
            Standing::UnderWay { waiting } => {
                self.status.phase = Some(KubeVirtPhase::Deployed);
                self.remove(SYNCHRONIZED);
                self.remove(CREATED);
                self.set(
                    &[(AVAILABLE, true), (PROGRESSING, true), (DEGRADED, true)],
                    reasons::UPDATE_IN_PROGRESS,
                    waiting,
                );
            }
            Standing::Ready => {
                self.status.phase = Some(KubeVirtPhase::Deployed);
                self.remove(SYNCHRONIZED);
                self.created(true);
                let message = "All components are ready.";
                self.set(
                    &[(AVAILABLE, true), (PROGRESSING, false), (DEGRADED, false)],
                    reasons::ALL_COMPONENTS_READY,
                    message,
                );
            }
            Standing::NotReady { what, available } => {
                self.remove(SYNCHRONIZED);
                self.created(created);
                self.set(
                    &[(AVAILABLE, *available), (PROGRESSING, false), (DEGRADED, true)],
                    COMPONENTS_NOT_READY,
                    what,
                );
            }
            Standing::Failed { why } => {
                let all = [(SYNCHRONIZED, false), (AVAILABLE, false), (PROGRESSING, false), (DEGRADED, true)];
                self.set(&all, reasons::DEPLOYMENT_FAILED, why);
            }
            Standing::Refused { why } => self.set(&[(SYNCHRONIZED, false), (DEGRADED, true)], DOWNGRADE_REFUSED, why),
            Standing::Other { why } => self.set(&[(SYNCHRONIZED, false)], reasons::EXISTING_DEPLOYMENT, why),
            Standing::Leaving { waiting } => {
                self.status.phase = Some(KubeVirtPhase::Deleting);
                self.remove(CREATED);
                self.remove(SYNCHRONIZED);
                self.set(
                    &[(AVAILABLE, false), (PROGRESSING, false), (DEGRADED, true)],
                    reasons::DELETION_IN_PROGRESS,
                    waiting,
                );
            }
            Standing::Stays { why } => self.set(&[(SYNCHRONIZED, false)], reasons::DELETION_FAILED, why),
            Standing::Gone => {
                self.status.phase = Some(KubeVirtPhase::Deleted);
                self.remove(SYNCHRONIZED);
            }
        }
    }

    fn created(&mut self, created: bool) {
        if created {
            self.set(&[(CREATED, true)], reasons::ALL_RESOURCES_CREATED, "All resources were created.");
        }
    }

    fn remove(&mut self, type_: &str) {
        conditions::remove(&mut self.status.conditions, type_);
    }

    /// The message is part of what is told: it names what is waited for. It changes with steps, not with counts.
    fn set(&mut self, conditions: &[(&str, bool)], reason: &str, message: &str) {
        for (type_, holds) in conditions {
            let holds = if *holds { ConditionStatus::True } else { ConditionStatus::False };
            let mut new = Condition::new(type_, holds, reason, message, self.now.clone());
            new.last_probe_time = Some(self.now.clone());
            let stored = self.status.conditions.iter_mut().find(|stored| stored.type_ == *type_);
            match stored {
                Some(old) if old.status == new.status => {
                    if old.reason != new.reason || old.message != new.message {
                        new.last_transition_time = old.last_transition_time.take();
                        *old = new;
                    }
                }
                Some(old) => *old = new,
                None => self.status.conditions.push(new),
            }
        }
    }
}
