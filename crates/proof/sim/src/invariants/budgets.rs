//! 55: no controller creates a disruption budget, and at rest none is controlled by a VMI.

use api::v1::VirtualMachineInstance;
use k8s_openapi::Resource as _;
use machinery::meta::controller_of;
use virt_controller::Stores;

use super::support::ensure;
use super::{Invariant, Scene, Verdict};
use crate::kinds::Object;
use crate::server::Change;

#[derive(Default)]
pub(crate) struct Rule;

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "budgets"
    }

    fn change(&mut self, _: &Scene<'_>, change: &Change) -> Verdict {
        let made = matches!((&change.last, &change.was), (Object::Budget(_), None)) && change.by.is_controller();
        ensure(!made, || format!("{} made disruption budget {}", change.by.name(), change.last.key().name))
    }

    fn rest(&mut self, scene: &Scene<'_>, _: &Stores) -> Verdict {
        let ours = |budget: &&std::sync::Arc<k8s_openapi::api::policy::v1::PodDisruptionBudget>| {
            controller_of(&budget.metadata).is_some_and(|owner| owner.kind == VirtualMachineInstance::KIND)
        };
        let left = scene.server.tables.budgets.all().find(ours);
        left.map_or(Ok(()), |budget| Err(format!("disruption budget {:?} is left", budget.metadata.name)))
    }
}
