//! Deletes the PodDisruptionBudgets that earlier versions created for VMIs. Evictions are now decided one by one
//! ([`crate::eviction`]), and a leftover budget would block evictions that are allowed.

use std::sync::Arc;

use api::events;
use api::v1::VirtualMachineInstance;
use k8s_openapi::Resource as _;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;

use crate::effect::{Effect, Report, Why};
use crate::object::Kind;
use crate::{Note, meta};

/// The input of the decision.
#[derive(Clone, Debug)]
pub struct World {
    /// The VMI that events are recorded on. It may no longer exist.
    pub instance: ObjectReference,
    /// Every budget in its namespace.
    pub budgets: Vec<Arc<PodDisruptionBudget>>,
}

/// Selects the budgets to delete: those controlled by a VMI of this name, whether or not it still exists.
pub fn decide(w: &World) -> Vec<Effect> {
    let instance = w.instance.name.as_deref().unwrap_or_default();
    let of_instance = |budget: &&Arc<PodDisruptionBudget>| {
        let owner = meta::controller_of(&budget.metadata);
        owner.is_some_and(|owner| owner.kind == VirtualMachineInstance::KIND && owner.name == instance)
    };
    let doomed = w.budgets.iter().filter(of_instance).filter(|budget| !meta::is_deleting(&budget.metadata));
    doomed
        .map(|budget| {
            let name = meta::name(&budget.metadata);
            let why = Why::from("PodDisruptionBudgets for instances are obsolete");
            Effect::delete(Kind::Budget, &budget.metadata, why).tell(Report {
                about: w.instance.clone(),
                done: Note::normal(events::SUCCESSFUL_DELETE, format!("Deleted disruption budget {name}")),
                failed: events::FAILED_DELETE,
                doing: format!("delete disruption budget {name}").into(),
                go_on: false,
            })
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
        let instance = ObjectReference { name: Some("a".to_owned()), ..ObjectReference::default() };
        let name = |effect: Effect| match effect {
            Effect::Tell { effect, .. } => match *effect {
                Effect::Delete { kind: Kind::Budget, name, .. } => name,
                other => panic!("{other}"),
            },
            other => panic!("{other}"),
        };
        let world = World { instance, budgets: all.to_vec() };
        let doomed: Vec<String> = decide(&world).into_iter().map(name).collect();
        assert_eq!(doomed, ["own"]);
    }
}
