//! Resources that Pods request and nodes have.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Wire;
use machinery::quantity::Quantity;

/// Amounts by resource name. Absent resources are zero.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Amounts(BTreeMap<String, Quantity>);

impl Amounts {
    /// An invalid amount counts as zero: the API server accepted it, so it must not stop the scheduler.
    pub(crate) fn read(wire: Option<&BTreeMap<String, Wire>>) -> Self {
        let entries = wire.into_iter().flatten();
        Self(entries.map(|(name, amount)| (name.clone(), amount.0.parse().unwrap_or(Quantity::ZERO))).collect())
    }

    pub(crate) fn get(&self, name: &str) -> Quantity {
        self.0.get(name).copied().unwrap_or(Quantity::ZERO)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, Quantity)> {
        self.0.iter().map(|(name, amount)| (name.as_str(), *amount))
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (name, amount) in other.iter() {
            *self.0.entry(name.to_owned()).or_default() += amount;
        }
    }

    fn raise_to(&mut self, other: &Self) {
        for (name, amount) in other.iter() {
            let own = self.0.entry(name.to_owned()).or_default();
            *own = (*own).max(amount);
        }
    }
}

/// A Pod's peak requests: of its containers together, or of an init container before them.
pub(crate) fn requests(pod: &Pod) -> Amounts {
    at_most(pod, of_container)
}

/// A Pod's peak limits, where its containers have limits.
pub(crate) fn limits(pod: &Pod) -> Amounts {
    at_most(pod, |container| Amounts::read(container.resources.as_ref().and_then(|all| all.limits.as_ref())))
}

fn at_most(pod: &Pod, of_container: impl Fn(&Container) -> Amounts) -> Amounts {
    let Some(spec) = &pod.spec else { return Amounts::default() };
    let mut running = Amounts::default();
    for container in &spec.containers {
        running.add(&of_container(container));
    }
    let mut peak = Amounts::default();
    let mut sidecars = Amounts::default();
    for container in spec.init_containers.iter().flatten() {
        let mut now = of_container(container);
        now.add(&sidecars);
        peak.raise_to(&now);
        if container.restart_policy.as_deref() == Some("Always") {
            sidecars = now; // it keeps running with the others
        }
    }
    running.add(&sidecars);
    running.raise_to(&peak);
    running.add(&Amounts::read(spec.overhead.as_ref()));
    running
}

/// A limit without a request counts as a request, even if the Pod bypassed the API server's defaulting.
fn of_container(container: &Container) -> Amounts {
    let Some(resources) = &container.resources else { return Amounts::default() };
    let mut amounts = Amounts::read(resources.limits.as_ref());
    amounts.0.extend(Amounts::read(resources.requests.as_ref()).0);
    amounts
}
