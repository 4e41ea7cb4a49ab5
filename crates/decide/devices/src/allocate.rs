//! What a container with a resource gets.

use std::fmt;

use crate::catalogue::Plugin;
use crate::health::Health;

/// Why the kubelet's request for a container is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    NoDevice { resource: String },
    Unknown { resource: String, id: String },
    Unhealthy { resource: String, why: String },
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::NoDevice { resource } => write!(f, "no device of {resource} is requested for the container"),
            Refused::Unknown { resource, id } => write!(f, "{resource} has no device {id:?}"),
            Refused::Unhealthy { resource, why } => write!(f, "{resource} does not work on this node: {why}"),
        }
    }
}

impl Plugin {
    /// The device nodes for a container that gets the devices with these IDs. All of them stand for the same nodes.
    pub fn allocate<'a>(&'a self, ids: &[String], health: &Health) -> Result<&'a [String], Refused> {
        let resource = || self.resource.clone();
        if ids.is_empty() {
            return Err(Refused::NoDevice { resource: resource() });
        }
        if let Some(id) = ids.iter().find(|id| !self.has(id)) {
            // Bounded: the answer goes into the Pod's status.
            return Err(Refused::Unknown { resource: resource(), id: id.chars().take(63).collect() });
        }
        match health {
            Health::Healthy => Ok(&self.nodes),
            Health::Unhealthy(why) => Err(Refused::Unhealthy { resource: resource(), why: why.clone() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::Check;

    #[test]
    fn containers_get_the_nodes_of_known_and_healthy_devices() {
        let plugin = Plugin {
            name: "kvm".to_owned(),
            resource: "devices.kubevirt.io/kvm".to_owned(),
            nodes: vec!["/dev/kvm".to_owned()],
            count: 2,
            permissions: "rw",
            check: Check::RunsVcpu,
        };
        let broken = Health::Unhealthy("/dev/kvm does not exist".to_owned());
        let cases: [(&[&str], &Health, Result<(), &str>); 5] = [
            (&["kvm1"], &Health::Healthy, Ok(())),
            (&["kvm0", "kvm1"], &Health::Healthy, Ok(())),
            (&[], &Health::Healthy, Err("no device of devices.kubevirt.io/kvm is requested for the container")),
            (&["kvm0", "kvm2"], &Health::Healthy, Err("devices.kubevirt.io/kvm has no device \"kvm2\"")),
            (&["kvm0"], &broken, Err("devices.kubevirt.io/kvm does not work on this node: /dev/kvm does not exist")),
        ];
        for (ids, health, expected) in cases {
            let ids: Vec<String> = ids.iter().map(|id| (*id).to_owned()).collect();
            let found = plugin.allocate(&ids, health).map_err(|refused| refused.to_string());
            assert_eq!(found, expected.map(|()| plugin.nodes.as_slice()).map_err(str::to_owned), "{ids:?}");
        }
    }
}
