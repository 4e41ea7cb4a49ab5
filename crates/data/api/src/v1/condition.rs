//! The common type of all conditions.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};

use crate::kind::open_enum;

open_enum! {
    /// Whether a condition holds.
    ConditionStatus {
        /// It holds.
        True,
        /// It does not hold.
        False,
        /// Currently unknown.
        Unknown,
    }
}

/// One observed aspect of an object; [`crate::conditions`] has the types and the rules for updating a list of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Condition {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_probe_time: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    pub status: ConditionStatus,
    #[serde(rename = "type")]
    pub type_: String,
}

/// A condition of a virtual machine.
pub type VirtualMachineCondition = Condition;
/// A condition of a virtual machine instance.
pub type VirtualMachineInstanceCondition = Condition;
/// A condition of a migration.
pub type VirtualMachineInstanceMigrationCondition = Condition;
/// A condition of the installation.
pub type KubeVirtCondition = Condition;

impl Condition {
    /// A condition that took its status at `now`. Empty reason or message stay unset.
    pub fn new(type_: &str, status: ConditionStatus, reason: &str, message: impl Into<String>, now: Time) -> Self {
        let message = message.into();
        Condition {
            last_probe_time: None,
            last_transition_time: Some(now),
            message: (!message.is_empty()).then_some(message),
            reason: (!reason.is_empty()).then(|| reason.to_owned()),
            status,
            type_: type_.to_owned(),
        }
    }

    /// The reason, empty when unset.
    pub fn reason(&self) -> &str {
        self.reason.as_deref().unwrap_or_default()
    }

    /// The message, empty when unset.
    pub fn message(&self) -> &str {
        self.message.as_deref().unwrap_or_default()
    }

    /// True only if the status is `True`.
    pub fn is_true(&self) -> bool {
        self.status == ConditionStatus::True
    }

    /// True only if the status is `False`.
    pub fn is_false(&self) -> bool {
        self.status == ConditionStatus::False
    }
}
