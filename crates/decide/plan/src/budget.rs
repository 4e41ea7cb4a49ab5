//! Disruption budgets that earlier versions made for instances. Evictions are judged one by one now
//! ([`crate::eviction`]), and a budget that is left over would hold up what is allowed: it goes.

use std::fmt;
use std::sync::Arc;

use api::events;
use api::v1::VirtualMachineInstance;
use k8s_openapi::Resource as _;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;

use crate::{Note, meta};

/// Deletes a budget if it still has this UID.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delete {
    pub name: String,
    pub uid: String,
    /// Tells of the success, on the instance.
    pub deleted: Note,
}

impl Delete {
    /// The event of a failure.
    pub fn failure(&self, error: &str) -> Note {
        Note::warning(events::FAILED_DELETE, format!("Failed to delete disruption budget {}: {error}", self.name))
    }
}

impl fmt::Display for Delete {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "delete disruption budget {}: budgets for instances are a thing of the past", self.name)
    }
}

/// Which of a namespace's budgets go: those of the instance of this name, whether it exists or not.
pub fn decide(instance: &str, budgets: &[Arc<PodDisruptionBudget>]) -> Vec<Delete> {
    let of_instance = |budget: &&Arc<PodDisruptionBudget>| {
        let owner = meta::controller_of(&budget.metadata);
        owner.is_some_and(|owner| owner.kind == VirtualMachineInstance::KIND && owner.name == instance)
    };
    let doomed = budgets.iter().filter(of_instance).filter(|budget| !meta::is_deleting(&budget.metadata));
    doomed
        .map(|budget| {
            let name = meta::name(&budget.metadata).to_owned();
            let deleted = Note::normal(events::SUCCESSFUL_DELETE, format!("Deleted disruption budget {name}"));
            Delete { name, uid: meta::uid(&budget.metadata).to_owned(), deleted }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn budget(name: &str, kind: &str, owner: &str, controls: bool) -> Arc<PodDisruptionBudget> {
        let object = json!({"metadata": {"name": name, "uid": format!("uid-of-{name}"), "ownerReferences": [
            {"apiVersion": "kubevirt.io/v1", "kind": kind, "name": owner, "uid": "u", "controller": controls}]}});
        Arc::new(serde_json::from_value(object).unwrap())
    }

    #[test]
    fn budgets_that_an_instance_controls_go_and_all_others_stay() {
        let mut going = (*budget("going", "VirtualMachineInstance", "a", true)).clone();
        let now = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::UNIX_EPOCH);
        going.metadata.deletion_timestamp = Some(now);
        let all = [
            budget("own", "VirtualMachineInstance", "a", true),
            budget("neighbour", "VirtualMachineInstance", "b", true),
            budget("owned only", "VirtualMachineInstance", "a", false),
            budget("namesake", "Deployment", "a", true),
            Arc::new(going),
        ];
        let doomed: Vec<String> = decide("a", &all).into_iter().map(|delete| delete.name).collect();
        assert_eq!(doomed, ["own"]);
    }
}
