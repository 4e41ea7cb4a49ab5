//! Annotation keys, and the values that several components must agree on.

/// On launcher Pods: the name of the instance they belong to.
pub const DOMAIN: &str = "kubevirt.io/domain";
/// On instances: the generation of the virtual machine they reflect.
pub const VM_GENERATION: &str = "kubevirt.io/vm-generation";
/// On our kinds: the newest API version the controllers have seen the object in.
pub const LATEST_OBSERVED_API_VERSION: &str = "kubevirt.io/latest-observed-api-version";
/// On our kinds: the API version the object is stored in.
pub const STORAGE_OBSERVED_API_VERSION: &str = "kubevirt.io/storage-observed-api-version";
/// On instances: the launcher runs without root rights.
pub const NON_ROOT: &str = "kubevirt.io/nonroot";
/// On nodes: when the node agent was last alive.
pub const HEARTBEAT: &str = "kubevirt.io/heartbeat";
/// On nodes: present if their features are not to be labelled.
pub const LABELLER_SKIP_NODE: &str = "node-labeller.kubevirt.io/skip-node";
/// On nodes: the merging of equal pages was turned on by us, so we may turn it off.
pub const KSM_HANDLER_MANAGED: &str = "kubevirt.io/ksm-handler-managed";
/// On Pods: they only provoke the binding of volumes and never run a guest.
pub const EPHEMERAL_PROVISIONING: &str = "kubevirt.io/ephemeral-provisioning";
/// On attachment Pods: the instance they serve, for when their launcher Pod is gone.
pub const OWNER_VMI_NAME: &str = "kubevirt.io/owner-vmi-name";
/// On attachment Pods: UID of the instance they serve.
pub const OWNER_VMI_UID: &str = "kubevirt.io/owner-vmi-uid";
/// On launcher Pods: bytes of memory added for what surrounds the guest.
pub const MEMORY_OVERHEAD_BYTES: &str = "kubevirt.io/memory-overhead-bytes";
/// On launcher Pods: what the guest's agent of network devices must know about them.
pub const NETWORK_INFO: &str = "kubevirt.io/network-info";
/// On instances: libvirt's log filters inside the launcher.
pub const LIBVIRT_LOG_FILTERS: &str = "kubevirt.io/libvirt-log-filters";
/// On instances: the launcher stays after a failure, for somebody to look.
pub const KEEP_LAUNCHER_ALIVE_AFTER_FAILURE: &str = "kubevirt.io/keep-launcher-alive-after-failure";
/// On instances: `true` starts container disks without finding out their digests first.
pub const SKIP_DIGEST_RESOLUTION: &str = "kubevirt.io/image-volume-skip-digest-resolution";
/// On virtual machines: `false` puts off DataVolumes until the start.
pub const IMMEDIATE_DATA_VOLUME_CREATION: &str = "kubevirt.io/immediate-data-volume-creation";
/// On claims: the file that a memory dump was written to, or that it failed.
pub const MEMORY_DUMP: &str = "kubevirt.io/memory-dump";
/// On virtual machines, instances and the installation: Velero's backups are not to freeze guests.
pub const SKIP_BACKUP_HOOKS: &str = "kubevirt.io/skip-backup-hooks";

/// On instances: they wait to receive a guest instead of starting one.
pub const CREATE_MIGRATION_TARGET: &str = "kubevirt.io/create-migration-target";
/// On virtual machines that receive a guest: the run strategy they get afterwards.
pub const RESTORE_RUN_STRATEGY: &str = "kubevirt.io/restore-run-strategy";
/// On instances, and ours: the UID of a migration whose source is gone. Its target has to tell what became of the guest.
pub const MIGRATION_SOURCE_GONE: &str = "ferrovirt.io/migration-source-gone";
/// On target Pods and their attachment Pods: the migration they serve.
pub const MIGRATION_JOB_NAME: &str = "kubevirt.io/migrationJobName";
/// On launcher Pods: migration runs over unix sockets.
pub const MIGRATION_TRANSPORT_UNIX: &str = "kubevirt.io/migrationTransportUnix";
/// On target Pods: since when the guest runs there.
pub const MIGRATION_TARGET_READY_TIMESTAMP: &str = "kubevirt.io/migration-target-ready-timestamp";
/// On migrations: they empty this node. Failures are retried at growing intervals.
pub const EVACUATION_MIGRATION: &str = "kubevirt.io/evacuationMigration";
/// On migrations: they bring an instance up to date. Failures are retried at growing intervals.
pub const WORKLOAD_UPDATE_MIGRATION: &str = "kubevirt.io/workloadUpdateMigration";
/// On instances: a migration that brings them up to date is to be given up.
pub const WORKLOAD_UPDATE_MIGRATION_ABORTION: &str = "kubevirt.io/testWorkloadUpdateMigrationAbortion";
/// On migrations: seconds a target Pod may wait for a node to fit.
pub const MIGRATION_UNSCHEDULABLE_POD_TIMEOUT: &str = "kubevirt.io/migrationUnschedulablePodTimeoutSeconds";
/// On migrations: seconds a target Pod may wait for whatever reason.
pub const MIGRATION_PENDING_POD_TIMEOUT: &str = "kubevirt.io/migrationPendingPodTimeoutSeconds";
/// On migrations: seconds a migration may wait for utility volumes to go.
pub const MIGRATION_UTILITY_VOLUMES_TIMEOUT: &str = "kubevirt.io/migrationUtilityVolumesTimeoutSeconds";
/// On migrations, for tests: failures do not delay the next attempt.
pub const IGNORE_MIGRATION_BACKOFF: &str = "kubevirt.io/func-test-ignore-migration-backoff";
/// On migrations, for tests: the image of the target Pod's launcher.
pub const MIGRATION_TARGET_IMAGE_OVERRIDE: &str = "kubevirt.io/func-test-migration-target-image-override";
/// On instances: they may migrate although they are bridged to the Pod network.
pub const ALLOW_POD_BRIDGE_NETWORK_LIVE_MIGRATION: &str = "kubevirt.io/allow-pod-bridge-network-live-migration";
/// On instances that are to leave their node: who asked; see [`eviction_source`].
pub const EVICTION_SOURCE: &str = "kubevirt.io/eviction-source";

/// On instances: they were sized by this instance type of their namespace.
pub const INSTANCETYPE: &str = "kubevirt.io/instancetype-name";
/// On instances: they were sized by this instance type of the cluster.
pub const CLUSTER_INSTANCETYPE: &str = "kubevirt.io/cluster-instancetype-name";
/// On instances: this preference of their namespace was applied.
pub const PREFERENCE: &str = "kubevirt.io/preference-name";
/// On instances: this preference of the cluster was applied.
pub const CLUSTER_PREFERENCE: &str = "kubevirt.io/cluster-preference-name";
/// On instances: `true` keeps presets away.
pub const EXCLUDE_PRESETS: &str = "virtualmachineinstancepresets.admission.kubevirt.io/exclude";
/// On instances, followed by a preset's name: the preset was applied; the value is its API version.
pub const PRESET_PREFIX: &str = "virtualmachinepreset.kubevirt.io/";

/// On instances: Ignition's configuration for the guest.
pub const IGNITION_DATA: &str = "kubevirt.io/ignitiondata";
/// On instances: containers beside the launcher that may change the domain, as JSON.
pub const HOOK_SIDECARS: &str = "hooks.kubevirt.io/hookSidecars";
/// On instances and their virtual machines: how PCI devices are laid out; see [`pci_topology`].
pub const PCI_TOPOLOGY_VERSION: &str = "kubevirt.io/pci-topology-version";
/// On instances and their virtual machines: how many slots are kept free for plugged interfaces.
pub const PCI_INTERFACE_SLOT_COUNT: &str = "kubevirt.io/pci-interface-slot-count";
/// On instances: `true` puts PCI devices on the root complex instead of ports of their own.
pub const PLACE_PCI_DEVICES_ON_ROOT_COMPLEX: &str = "kubevirt.io/placePCIDevicesOnRootComplex";
/// On instances: `true` leaves out the 64-bit window for PCI devices.
pub const DISABLE_PCI_HOLE64: &str = "kubevirt.io/disablePCIHole64";
/// On instances: `false` backs guest memory by plain memory instead of a memory file.
pub const MEMFD: &str = "kubevirt.io/memfd";
/// On instances: `true` keeps the guest's free pages to itself.
pub const FREE_PAGE_REPORTING_DISABLED: &str = "kubevirt.io/free-page-reporting-disabled";
/// On instances and the installation: emulator threads get one CPU or two, whichever makes the total even.
pub const EMULATOR_THREAD_COMPLETE_TO_EVEN_PARITY: &str = "alpha.kubevirt.io/EmulatorThreadCompleteToEvenParity";
/// On instances: where the service that vouches for trust domains listens on the node.
pub const QGS_SOCKET_PATH: &str = "kubevirt.io/qgs-socket-path";
/// On the installation: guests with EFI firmware get a VGA display instead of bochs.
pub const VGA_DISPLAY_FOR_EFI_GUESTS: &str = "kubevirt.io/vga-display-efi-x86";

/// On virtual machines and claims: the restore that last completed on them.
pub const LAST_RESTORE_UID: &str = "restore.kubevirt.io/lastRestoreUID";
/// On claims and DataVolumes: the restore that makes them.
pub const RESTORE_NAME: &str = "restore.kubevirt.io/name";
/// On restored claims: the virtual machine will own them once it exists.
pub const RESTORE_OWNED_BY_VM: &str = "restore.kubevirt.io/owned-by-vm";
/// On claims with a guest's persistent state: a restore has replaced them and deletes them at its end.
pub const RESTORE_CLEANUP_BACKEND_PVC: &str = "restore.kubevirt.io/cleanup-backend-pvc";
/// On exporter Pods: the certificate settings they were made for.
pub const EXPORT_CERT_PARAMETERS: &str = "kubevirt.io/export.certParameters";

/// On launcher Pods: the descheduler asks for an eviction and leaves the rest to us.
pub const DESCHEDULER_REQUEST_EVICT_ONLY: &str = "descheduler.alpha.kubernetes.io/request-evict-only";
/// On launcher Pods: an asked-for eviction is under way.
pub const DESCHEDULER_EVICTION_IN_PROGRESS: &str = "descheduler.alpha.kubernetes.io/eviction-in-progress";
/// On instances and launcher Pods: the descheduler may evict them.
pub const DESCHEDULER_EVICT: &str = "descheduler.alpha.kubernetes.io/evict";
/// On instances and launcher Pods: the descheduler had better not evict them.
pub const DESCHEDULER_PREFER_NO_EVICTION: &str = "descheduler.alpha.kubernetes.io/prefer-no-eviction";
/// On evictions: who asks for them.
pub const EVICTION_REQUESTED_BY: &str = "requested-by";
/// On launcher Pods, read by `kubectl`: the container to show without being asked.
pub const DEFAULT_CONTAINER: &str = "kubectl.kubernetes.io/default-container";
/// On launcher Pods, read by Istio: interfaces whose traffic its proxy takes.
pub const ISTIO_KUBEVIRT_INTERFACES: &str = "traffic.sidecar.istio.io/kubevirtInterfaces";
/// On launcher Pods, read by newer versions of Istio: the same.
pub const ISTIO_REROUTE_VIRTUAL_INTERFACES: &str = "istio.io/reroute-virtual-interfaces";
/// On launcher Pods, read by Velero: the container to freeze the guest from.
pub const VELERO_PRE_HOOK_CONTAINER: &str = "pre.hook.backup.velero.io/container";
/// On launcher Pods, read by Velero: the command that freezes the guest.
pub const VELERO_PRE_HOOK_COMMAND: &str = "pre.hook.backup.velero.io/command";
/// On launcher Pods, read by Velero: how long freezing may take.
pub const VELERO_PRE_HOOK_TIMEOUT: &str = "pre.hook.backup.velero.io/timeout";
/// On launcher Pods, read by Velero: the container to thaw the guest from.
pub const VELERO_POST_HOOK_CONTAINER: &str = "post.hook.backup.velero.io/container";
/// On launcher Pods, read by Velero: the command that thaws the guest.
pub const VELERO_POST_HOOK_COMMAND: &str = "post.hook.backup.velero.io/command";
/// On storage classes: `true` makes them the default for virtual machines.
pub const DEFAULT_VIRT_STORAGE_CLASS: &str = "storageclass.kubevirt.io/is-default-virt-class";
/// On storage classes, read by Kubernetes: `true` makes them the default.
pub const DEFAULT_STORAGE_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
/// On snapshot classes, read by Kubernetes: they are the default among those of a driver.
pub const DEFAULT_SNAPSHOT_CLASS: &str = "snapshot.storage.kubernetes.io/is-default-class";

/// On what the operator installs: the version it belongs to.
pub const INSTALL_STRATEGY_VERSION: &str = "kubevirt.io/install-strategy-version";
/// On what the operator installs: the registry its images come from.
pub const INSTALL_STRATEGY_REGISTRY: &str = "kubevirt.io/install-strategy-registry";
/// On what the operator installs: the hash of the settings it was made with.
pub const INSTALL_STRATEGY_IDENTIFIER: &str = "kubevirt.io/install-strategy-identifier";
/// On what the operator installs: the hash of the patches applied to it.
pub const CUSTOMIZER_IDENTIFIER: &str = "kubevirt.io/customizer-identifier";
/// On what the operator installs: the generation of the installation it reflects.
pub const KUBEVIRT_GENERATION: &str = "kubevirt.io/generation";

/// Values of [`EVICTION_SOURCE`].
pub mod eviction_source {
    /// The descheduler.
    pub const DESCHEDULER: &str = "descheduler";
    /// How the descheduler names itself in [`EVICTION_REQUESTED_BY`](super::EVICTION_REQUESTED_BY).
    pub const DESCHEDULER_REQUEST: &str = "sigs.k8s.io/descheduler";
}

/// Values of [`PCI_TOPOLOGY_VERSION`].
pub mod pci_topology {
    /// The layout of guests from before versions were recorded.
    pub const V2: &str = "v2";
    /// The layout of new guests.
    pub const V3: &str = "v3";
}
