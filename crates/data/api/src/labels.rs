//! Label keys, and the values that several components must agree on.

/// Marks objects by the component they belong to, with one of the values of [`app`].
pub const APP: &str = "kubevirt.io";
/// On launcher Pods: UID of the VMI they belong to. On DataVolumes: UID of their virtual machine.
pub const CREATED_BY: &str = "kubevirt.io/created-by";
/// On VMIs and launcher Pods: the node that runs the guest. virt-handler selects its VMIs by it.
pub const NODE_NAME: &str = "kubevirt.io/nodeName";
/// On VMIs: the target node of a migration.
pub const MIGRATION_TARGET_NODE_NAME: &str = "kubevirt.io/migrationTargetNodeName";
/// On VMIs and launcher Pods: the launcher's image is not the current one.
pub const OUTDATED_LAUNCHER_IMAGE: &str = "kubevirt.io/outdatedLauncherImage";
/// On launcher Pods: the guest's host name, for services to select by.
pub const VM_NAME: &str = "vm.kubevirt.io/name";
/// On launcher Pods: the VMI's name, shortened to fit a label.
pub const VMI_ID: &str = "vmi.kubevirt.io/id";
/// On migrations: the VMI they move.
pub const VMI_NAME: &str = "kubevirt.io/vmi-name";
/// On target Pods and their attachment Pods: UID of the migration they serve.
pub const MIGRATION_JOB_UID: &str = "kubevirt.io/migrationJobUID";
/// On claims with a guest's persistent state: the migration they were prepared for.
pub const MIGRATION_NAME: &str = "kubevirt.io/migrationName";
/// On migrations: they copy volumes because a virtual machine has been changed to use new ones.
pub const VOLUME_UPDATE_MIGRATION: &str = "kubevirt.io/volume-update-migration";
/// On claims: the virtual machine whose TPM, NVRAM and block tracking they hold.
pub const PERSISTENT_STATE_FOR: &str = "persistent-state-for";
/// On virtual machines and VMIs of a pool: the revision of the pool's template they were made from.
pub const VM_POOL_REVISION_NAME: &str = "kubevirt.io/vm-pool-revision-name";
/// On the operator's ConfigMaps: they contain the objects that a version installs.
pub const INSTALL_STRATEGY: &str = "kubevirt.io/install-strategy";

/// On VMIs, for the target node: the CPU limit of the target Pod.
pub const VMI_POD_CPU_LIMITS: &str = "kubevirt.io/vmi-pod-cpu-resource-limits";
/// On VMIs, for the target node: the memory request of the target Pod.
pub const VMI_POD_MEMORY_REQUESTS: &str = "kubevirt.io/vmi-pod-memory-resource-requests";
/// On VMIs whose memory is about to change: the factor on the memory overhead.
pub const MEMORY_HOTPLUG_OVERHEAD_RATIO: &str = "kubevirt.io/memory-hotplug-overhead-ratio";
/// On namespaces: the ratio of memory limit to request of launcher Pods, where a quota requires a limit.
pub const AUTO_MEMORY_LIMITS_RATIO: &str = "alpha.kubevirt.io/auto-memory-limits-ratio";
/// On launcher Pods, followed by a claim's UID: they use SCSI persistent reservations on the claim's disk.
pub const PERSISTENT_RESERVATION_PREFIX: &str = "pr.kubevirt.io/";
/// On VMIs: the launcher's log verbosity, as a number.
pub const LOG_VERBOSITY: &str = "logVerbosity";
/// On VMIs: `true` turns on libvirt's debug output.
pub const DEBUG_LOGS: &str = "debugLogs";
/// On VMIs: `true` turns on virtiofsd's debug output.
pub const VIRTIOFSD_DEBUG_LOGS: &str = "virtiofsdDebugLogs";

/// On exporter Pods: the export they serve; the export's Service selects by it.
pub const EXPORT_SERVICE: &str = "kubevirt.io.virt-export-service";
/// On volume snapshots: the virtual machine they were taken of.
pub const SNAPSHOT_SOURCE_NAME: &str = "snapshot.kubevirt.io/source-vm-name";
/// On volume snapshots: the namespace of the virtual machine they were taken of.
pub const SNAPSHOT_SOURCE_NAMESPACE: &str = "snapshot.kubevirt.io/source-vm-namespace";
/// On restored claims: the virtual machine they come from.
pub const RESTORE_SOURCE_NAME: &str = "restore.kubevirt.io/source-vm-name";
/// On restored claims: the namespace of the virtual machine they come from.
pub const RESTORE_SOURCE_NAMESPACE: &str = "restore.kubevirt.io/source-vm-namespace";

/// On volumes and their sources: the instance type for virtual machines that boot from them.
pub const DEFAULT_INSTANCETYPE: &str = "instancetype.kubevirt.io/default-instancetype";
/// On volumes and their sources: the kind of the instance type in the label above.
pub const DEFAULT_INSTANCETYPE_KIND: &str = "instancetype.kubevirt.io/default-instancetype-kind";
/// On volumes and their sources: the preference for virtual machines that boot from them.
pub const DEFAULT_PREFERENCE: &str = "instancetype.kubevirt.io/default-preference";
/// On volumes and their sources: the kind of the preference in the label above.
pub const DEFAULT_PREFERENCE_KIND: &str = "instancetype.kubevirt.io/default-preference-kind";
/// On revisions of instance types and preferences: the generation of the object they hold.
pub const REVISION_OBJECT_GENERATION: &str = "instancetype.kubevirt.io/object-generation";
/// On revisions of instance types and preferences: the kind of the object they hold.
pub const REVISION_OBJECT_KIND: &str = "instancetype.kubevirt.io/object-kind";
/// On revisions of instance types and preferences: the name of the object they hold.
pub const REVISION_OBJECT_NAME: &str = "instancetype.kubevirt.io/object-name";
/// On revisions of instance types and preferences: the UID of the object they hold.
pub const REVISION_OBJECT_UID: &str = "instancetype.kubevirt.io/object-uid";
/// On revisions of instance types and preferences: the API version of the object they hold.
pub const REVISION_OBJECT_VERSION: &str = "instancetype.kubevirt.io/object-version";

/// On nodes: `true` while virt-handler is alive and accepts VMIs.
pub const SCHEDULABLE: &str = "kubevirt.io/schedulable";
/// On nodes: `true` if the kubelet's static CPU manager is enabled.
pub const CPU_MANAGER: &str = "kubevirt.io/cpumanager";
/// On nodes, followed by a model's name: the CPU model can run there.
pub const CPU_MODEL_PREFIX: &str = "cpu-model.node.kubevirt.io/";
/// On nodes, followed by a model's name: guests of a host with this CPU model can migrate there.
pub const CPU_MODEL_MIGRATION_PREFIX: &str = "cpu-model-migration.node.kubevirt.io/";
/// On nodes, followed by a flag's name: the CPU has the flag.
pub const CPU_FEATURE_PREFIX: &str = "cpu-feature.node.kubevirt.io/";
/// On nodes, followed by a vendor's name: the CPU's vendor.
pub const CPU_VENDOR_PREFIX: &str = "cpu-vendor.node.kubevirt.io/";
/// On nodes, followed by a model's name: the host's own CPU model.
pub const HOST_MODEL_CPU_PREFIX: &str = "host-model-cpu.node.kubevirt.io/";
/// On nodes, followed by a flag's name: guests with the host's CPU model need the flag on migration targets.
pub const HOST_MODEL_REQUIRED_FEATURES_PREFIX: &str = "host-model-required-features.node.kubevirt.io/";
/// On nodes, followed by a feature's name: the hypervisor offers it to Windows guests.
pub const HYPERV_PREFIX: &str = "hyperv.node.kubevirt.io/";
/// On nodes, followed by a machine type: QEMU there can emulate it.
pub const MACHINE_TYPE_PREFIX: &str = "machine-type.node.kubevirt.io/";
/// On nodes: the TSC frequency in Hz.
pub const TSC_FREQUENCY: &str = "cpu-timer.node.kubevirt.io/tsc-frequency";
/// On nodes: `true` if the TSC frequency can be scaled for a guest.
pub const TSC_SCALABLE: &str = "cpu-timer.node.kubevirt.io/tsc-scalable";
/// On nodes, followed by a frequency: guests that need this frequency can run there.
pub const TSC_FREQUENCY_SCHEDULING_PREFIX: &str = "scheduling.node.kubevirt.io/tsc-frequency-";
/// On nodes: the host's CPU model is configured as obsolete.
pub const OBSOLETE_HOST_MODEL: &str = "node-labeller.kubevirt.io/obsolete-host-model";
/// On nodes: the kernel is tuned for real-time guests.
pub const REALTIME: &str = "kubevirt.io/realtime";
/// On nodes: guests' memory can be encrypted (AMD SEV).
pub const SEV: &str = "kubevirt.io/sev";
/// On nodes: guests' memory and registers can be encrypted (AMD SEV-ES).
pub const SEV_ES: &str = "kubevirt.io/sev-es";
/// On nodes: guests' memory can be encrypted and its integrity kept (AMD SEV-SNP).
pub const SEV_SNP: &str = "kubevirt.io/sev-snp";
/// On nodes: guests can be shielded from the host (IBM Secure Execution).
pub const SECURE_EXECUTION: &str = "kubevirt.io/s390-pv";
/// On nodes: guests can run as trust domains (Intel TDX).
pub const TDX: &str = "kubevirt.io/tdx";
/// On nodes, followed by an architecture: guests of the architecture can run there, emulated if necessary.
pub const VM_ARCH_PREFIX: &str = "kubevirt.io/vm-arch-";
/// On nodes: KSM is enabled.
pub const KSM_ENABLED: &str = "kubevirt.io/ksm-enabled";
/// On nodes, set by Kubernetes: the CPU architecture.
pub const ARCH: &str = "kubernetes.io/arch";
/// On nodes, set by Kubernetes: the node's name among its peers.
pub const HOSTNAME: &str = "kubernetes.io/hostname";

/// On objects the operator installs: the component that manages them.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// On Pods that may access the cluster's services despite a network policy.
pub const ALLOW_ACCESS_CLUSTER_SERVICES: &str = "np.kubevirt.io/allow-access-cluster-services";
/// On launcher Pods, from an annotation of the VMI: whether Istio adds its proxy.
pub const ISTIO_INJECT: &str = "sidecar.istio.io/inject";

/// Values of [`APP`].
pub mod app {
    /// Launcher Pods.
    pub const LAUNCHER: &str = "virt-launcher";
    /// Attachment Pods, which attach hot-plugged volumes to the node.
    pub const HOTPLUG_DISK: &str = "hotplug-disk";
    /// virt-handler's Pods.
    pub const HANDLER: &str = "virt-handler";
    /// Pods and Services that serve exports.
    pub const EXPORTER: &str = "virt-exporter";
}
