//! Label keys.

/// Marks objects by the component they belong to; `virt-launcher` on launcher Pods.
pub const APP: &str = "kubevirt.io";
/// On launcher Pods: UID of the instance they belong to. On DataVolumes: UID of their virtual machine.
pub const CREATED_BY: &str = "kubevirt.io/created-by";
/// On instances and launcher Pods: the node that runs the guest. A node agent selects its instances by it.
pub const NODE_NAME: &str = "kubevirt.io/nodeName";
/// On instances: the node that prepares to receive the guest.
pub const MIGRATION_TARGET_NODE_NAME: &str = "kubevirt.io/migrationTargetNodeName";
/// On instances and launcher Pods: the launcher's image is not the current one.
pub const OUTDATED_LAUNCHER_IMAGE: &str = "kubevirt.io/outdatedLauncherImage";
/// On launcher Pods: the guest's host name, for services to select by.
pub const VM_NAME: &str = "vm.kubevirt.io/name";
/// On launcher Pods: the instance's name, shortened to fit a label.
pub const VMI_ID: &str = "vmi.kubevirt.io/id";
/// On migrations: the instance they move.
pub const VMI_NAME: &str = "kubevirt.io/vmi-name";
/// On target Pods: UID of the migration they serve.
pub const MIGRATION_JOB_UID: &str = "kubevirt.io/migrationJobUID";
/// On nodes: `true` while the node agent is alive and takes instances.
pub const SCHEDULABLE: &str = "kubevirt.io/schedulable";
/// On nodes: `true` if the kubelet pins CPUs.
pub const CPU_MANAGER: &str = "kubevirt.io/cpumanager";
/// On nodes, followed by a model's name: the CPU model can run there.
pub const CPU_MODEL_PREFIX: &str = "cpu-model.node.kubevirt.io/";
/// On nodes, followed by a flag's name: the CPU has the flag.
pub const CPU_FEATURE_PREFIX: &str = "cpu-feature.node.kubevirt.io/";
/// On nodes, followed by a machine type: QEMU there can emulate it.
pub const MACHINE_TYPE_PREFIX: &str = "machine-type.node.kubevirt.io/";
/// On nodes: the host's CPU model is one the cluster counts as obsolete.
pub const OBSOLETE_HOST_MODEL: &str = "node-labeller.kubevirt.io/obsolete-host-model";
/// On nodes, set by Kubernetes: the CPU architecture.
pub const ARCH: &str = "kubernetes.io/arch";
