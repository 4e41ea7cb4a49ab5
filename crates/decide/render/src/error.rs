//! Errors of rendering.

/// Why a Pod cannot be rendered for a VMI. Admission prevents most of these; they occur if an object bypassed it, a
/// claim went missing or the configuration has changed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// A required field is not set.
    #[error("{0} is not set, and the Pod cannot be made without it")]
    Missing(&'static str),
    /// An invalid quantity.
    #[error("failed to read {field}")]
    Quantity {
        /// The field's path.
        field: String,
        #[source]
        source: machinery::quantity::ParseError,
    },
    /// The claim of a volume does not exist, or not yet.
    #[error(
        "volume {volume} needs the PersistentVolumeClaim {name}, which does not exist in this namespace: create it"
    )]
    ClaimNotFound {
        /// The volume.
        volume: String,
        /// The claim.
        name: String,
    },
    /// The state claim of a VMI with persistent state does not exist yet.
    #[error("the claim for the guest's persistent state does not exist yet")]
    NoBackendClaim,
    /// A device that the cluster's administrator does not permit.
    #[error(
        "{field} asks for {resource}, which spec.configuration.permittedHostDevices of the KubeVirt object does not list"
    )]
    NotPermitted {
        /// The field that names the device.
        field: String,
        /// The resource it names.
        resource: String,
    },
    /// An interface with an unregistered binding plugin.
    #[error(
        "interface {interface} is bound by the plugin {plugin}, which spec.configuration.network.binding of the KubeVirt object does not list"
    )]
    UnknownBinding {
        /// The interface.
        interface: String,
        /// The plugin.
        plugin: String,
    },
    /// The annotation that describes sidecars cannot be decoded.
    #[error("annotation hooks.kubevirt.io/hookSidecars is not a list of sidecars: {0}")]
    Sidecars(String),
    /// A sidecar's ConfigMap that does not exist.
    #[error(
        "hook sidecar {sidecar} runs a script from the ConfigMap {name}, which does not exist in this namespace: create it"
    )]
    ConfigMapNotFound {
        /// The position of the sidecar, from 0.
        sidecar: usize,
        /// The ConfigMap.
        name: String,
    },
    /// A volume with the same name as another one of the Pod.
    #[error("the launcher Pod already has a volume called {name}: give the instance's volume another name")]
    VolumeName {
        /// The name.
        name: String,
    },
    /// A field whose value is not supported.
    #[error("{field} is {value:?}: {remedy}")]
    Invalid {
        /// The field's path.
        field: &'static str,
        /// What it says.
        value: String,
        /// What it might say instead.
        remedy: &'static str,
    },
    /// The SELinux label of the guest's processes is not known yet; disks with another label would be inaccessible to
    /// it.
    #[error("status.selinuxContext is not known yet")]
    NoSelinuxContext,
    /// A container disk that might be another image on the target.
    #[error("source Pod's status has no image digest of volume {volume} yet; the target needs the same image")]
    NoDigest {
        /// The volume, or `kernel-boot-volume`.
        volume: String,
    },
    /// The CPU model of the source node is unknown, so no target can be selected.
    #[error(
        "node {node} has no label host-model-cpu.node.kubevirt.io/*; cannot select a target node with the same CPU"
    )]
    NoHostModel {
        /// The source node.
        node: String,
    },
}
