//! Annotation keys, and the values that several components must agree on.

/// On launcher Pods: the name of the VMI they belong to.
pub const DOMAIN: &str = "kubevirt.io/domain";
/// On VMIs: the generation of the virtual machine they reflect.
pub const VM_GENERATION: &str = "kubevirt.io/vm-generation";
/// On our kinds: the newest API version the controllers have seen the object in.
pub const LATEST_OBSERVED_API_VERSION: &str = "kubevirt.io/latest-observed-api-version";
/// On our kinds: the API version the object is stored in.
pub const STORAGE_OBSERVED_API_VERSION: &str = "kubevirt.io/storage-observed-api-version";
/// On VMIs: the launcher runs as non-root.
pub const NON_ROOT: &str = "kubevirt.io/nonroot";
/// On nodes: the last heartbeat of virt-handler.
pub const HEARTBEAT: &str = "kubevirt.io/heartbeat";
/// On nodes without a virt-handler Pod, not in KubeVirt: where virt-handler listens, as `address:port`.
pub const HANDLER_ADDRESS: &str = "ferrovirt.io/handler-address";
/// On nodes: present if the node labeller must skip them.
pub const LABELLER_SKIP_NODE: &str = "node-labeller.kubevirt.io/skip-node";
/// On nodes: KSM was enabled by us, so we may disable it.
pub const KSM_HANDLER_MANAGED: &str = "kubevirt.io/ksm-handler-managed";
/// On Pods: they only trigger the binding of volumes and never run a guest.
pub const EPHEMERAL_PROVISIONING: &str = "kubevirt.io/ephemeral-provisioning";
/// On attachment Pods: the VMI they serve, for when their launcher Pod is gone.
pub const OWNER_VMI_NAME: &str = "kubevirt.io/owner-vmi-name";
/// On attachment Pods: UID of the VMI they serve.
pub const OWNER_VMI_UID: &str = "kubevirt.io/owner-vmi-uid";
/// On launcher Pods: the memory overhead that was added to the guest's memory, in bytes.
pub const MEMORY_OVERHEAD_BYTES: &str = "kubevirt.io/memory-overhead-bytes";
/// On launcher Pods: information about network devices for the launcher.
pub const NETWORK_INFO: &str = "kubevirt.io/network-info";
/// On VMIs: libvirt's log filters inside the launcher.
pub const LIBVIRT_LOG_FILTERS: &str = "kubevirt.io/libvirt-log-filters";
/// On VMIs: the launcher stays after a failure, for debugging.
pub const KEEP_LAUNCHER_ALIVE_AFTER_FAILURE: &str = "kubevirt.io/keep-launcher-alive-after-failure";
/// On VMIs, for tests: the launcher fails as soon as it starts.
pub const SIMULATE_LAUNCHER_CRASH: &str = "kubevirt.io/func-test-virt-launcher-fail-fast";
/// On VMIs: `true` starts container disks without resolving their digests first.
pub const SKIP_DIGEST_RESOLUTION: &str = "kubevirt.io/image-volume-skip-digest-resolution";
/// On virtual machines: `false` delays the creation of DataVolumes until the start.
pub const IMMEDIATE_DATA_VOLUME_CREATION: &str = "kubevirt.io/immediate-data-volume-creation";
/// On claims: the file that a memory dump was written to, or that it failed.
pub const MEMORY_DUMP: &str = "kubevirt.io/memory-dump";
/// On virtual machines, VMIs and the installation: Velero's backups must not freeze guests.
pub const SKIP_BACKUP_HOOKS: &str = "kubevirt.io/skip-backup-hooks";

/// On VMIs: they wait to receive a guest instead of booting one.
pub const CREATE_MIGRATION_TARGET: &str = "kubevirt.io/create-migration-target";
/// On virtual machines that receive a guest: the run strategy they get afterwards.
pub const RESTORE_RUN_STRATEGY: &str = "kubevirt.io/restore-run-strategy";
/// On VMIs, not in KubeVirt: the UID of a migration whose source is gone. Its target has to report the guest's
/// fate.
pub const MIGRATION_SOURCE_GONE: &str = "ferrovirt.io/migration-source-gone";
/// On target Pods and their attachment Pods: the migration they serve.
pub const MIGRATION_JOB_NAME: &str = "kubevirt.io/migrationJobName";
/// On launcher Pods: migration runs over unix sockets.
pub const MIGRATION_TRANSPORT_UNIX: &str = "kubevirt.io/migrationTransportUnix";
/// On target Pods: since when the guest runs there.
pub const MIGRATION_TARGET_READY_TIMESTAMP: &str = "kubevirt.io/migration-target-ready-timestamp";
/// On migrations: they evacuate this node. Failures are retried with back-off.
pub const EVACUATION_MIGRATION: &str = "kubevirt.io/evacuationMigration";
/// On migrations: they update the workload of a VMI. Failures are retried with back-off.
pub const WORKLOAD_UPDATE_MIGRATION: &str = "kubevirt.io/workloadUpdateMigration";
/// On VMIs: a migration that updates their workload is to be aborted.
pub const WORKLOAD_UPDATE_MIGRATION_ABORTION: &str = "kubevirt.io/testWorkloadUpdateMigrationAbortion";
/// On migrations: seconds a target Pod may be unschedulable.
pub const MIGRATION_UNSCHEDULABLE_POD_TIMEOUT: &str = "kubevirt.io/migrationUnschedulablePodTimeoutSeconds";
/// On migrations: seconds a target Pod may be pending for any reason.
pub const MIGRATION_PENDING_POD_TIMEOUT: &str = "kubevirt.io/migrationPendingPodTimeoutSeconds";
/// On migrations: seconds a migration may wait for utility volumes to be detached.
pub const MIGRATION_UTILITY_VOLUMES_TIMEOUT: &str = "kubevirt.io/migrationUtilityVolumesTimeoutSeconds";
/// On migrations, for tests: failures cause no back-off.
pub const IGNORE_MIGRATION_BACKOFF: &str = "kubevirt.io/func-test-ignore-migration-backoff";
/// On migrations, for tests: the image of the target Pod's launcher.
pub const MIGRATION_TARGET_IMAGE_OVERRIDE: &str = "kubevirt.io/func-test-migration-target-image-override";
/// On VMIs: they may migrate despite a bridge binding to the Pod network.
pub const ALLOW_POD_BRIDGE_NETWORK_LIVE_MIGRATION: &str = "kubevirt.io/allow-pod-bridge-network-live-migration";
/// On VMIs that are being evacuated: who requested it; see [`eviction_source`].
pub const EVICTION_SOURCE: &str = "kubevirt.io/eviction-source";

/// On VMIs: they were sized by this instance type of their namespace.
pub const INSTANCETYPE: &str = "kubevirt.io/instancetype-name";
/// On VMIs: they were sized by this instance type of the cluster.
pub const CLUSTER_INSTANCETYPE: &str = "kubevirt.io/cluster-instancetype-name";
/// On VMIs: this preference of their namespace was applied.
pub const PREFERENCE: &str = "kubevirt.io/preference-name";
/// On VMIs: this preference of the cluster was applied.
pub const CLUSTER_PREFERENCE: &str = "kubevirt.io/cluster-preference-name";
/// On VMIs: `true` disables presets.
pub const EXCLUDE_PRESETS: &str = "virtualmachineinstancepresets.admission.kubevirt.io/exclude";
/// On VMIs, followed by a preset's name: the preset was applied; the value is its API version.
pub const PRESET_PREFIX: &str = "virtualmachinepreset.kubevirt.io/";

/// On VMIs: Ignition's configuration for the guest.
pub const IGNITION_DATA: &str = "kubevirt.io/ignitiondata";
/// On VMIs: hook sidecars that may change the domain, as JSON.
pub const HOOK_SIDECARS: &str = "hooks.kubevirt.io/hookSidecars";
/// On VMIs and their virtual machines: how PCI devices are laid out; see [`pci_topology`].
pub const PCI_TOPOLOGY_VERSION: &str = "kubevirt.io/pci-topology-version";
/// On VMIs and their virtual machines: how many PCI slots are reserved for hot-plugged interfaces.
pub const PCI_INTERFACE_SLOT_COUNT: &str = "kubevirt.io/pci-interface-slot-count";
/// On VMIs: `true` puts PCI devices on the root complex instead of ports of their own.
pub const PLACE_PCI_DEVICES_ON_ROOT_COMPLEX: &str = "kubevirt.io/placePCIDevicesOnRootComplex";
/// On VMIs: `true` leaves out the 64-bit window for PCI devices.
pub const DISABLE_PCI_HOLE64: &str = "kubevirt.io/disablePCIHole64";
/// On VMIs: `false` backs guest memory by anonymous memory instead of a memfd.
pub const MEMFD: &str = "kubevirt.io/memfd";
/// On VMIs: `true` disables free page reporting.
pub const FREE_PAGE_REPORTING_DISABLED: &str = "kubevirt.io/free-page-reporting-disabled";
/// On VMIs and the installation: emulator threads get one CPU or two, whichever makes the total even.
pub const EMULATOR_THREAD_COMPLETE_TO_EVEN_PARITY: &str = "alpha.kubevirt.io/EmulatorThreadCompleteToEvenParity";
/// On VMIs: the socket of the quote generation service (TDX attestation) on the node.
pub const QGS_SOCKET_PATH: &str = "kubevirt.io/qgs-socket-path";
/// On the installation: guests with EFI firmware get a VGA display instead of bochs.
pub const VGA_DISPLAY_FOR_EFI_GUESTS: &str = "kubevirt.io/vga-display-efi-x86";

/// On virtual machines and claims: the restore that last completed on them.
pub const LAST_RESTORE_UID: &str = "restore.kubevirt.io/lastRestoreUID";
/// On claims and DataVolumes: the restore that creates them.
pub const RESTORE_NAME: &str = "restore.kubevirt.io/name";
/// On restored claims: the virtual machine will own them once it exists.
pub const RESTORE_OWNED_BY_VM: &str = "restore.kubevirt.io/owned-by-vm";
/// On claims with a guest's persistent state: a restore has replaced them and deletes them at its end.
pub const RESTORE_CLEANUP_BACKEND_PVC: &str = "restore.kubevirt.io/cleanup-backend-pvc";
/// On exporter Pods: the certificate settings they were created with.
pub const EXPORT_CERT_PARAMETERS: &str = "kubevirt.io/export.certParameters";

/// On launcher Pods: the descheduler requests an eviction and leaves the rest to us.
pub const DESCHEDULER_REQUEST_EVICT_ONLY: &str = "descheduler.alpha.kubernetes.io/request-evict-only";
/// On launcher Pods: a requested eviction is in progress.
pub const DESCHEDULER_EVICTION_IN_PROGRESS: &str = "descheduler.alpha.kubernetes.io/eviction-in-progress";
/// On VMIs and launcher Pods: the descheduler may evict them.
pub const DESCHEDULER_EVICT: &str = "descheduler.alpha.kubernetes.io/evict";
/// On VMIs and launcher Pods: the descheduler should not evict them if possible.
pub const DESCHEDULER_PREFER_NO_EVICTION: &str = "descheduler.alpha.kubernetes.io/prefer-no-eviction";
/// On evictions: who requested them.
pub const EVICTION_REQUESTED_BY: &str = "requested-by";
/// On launcher Pods, read by `kubectl`: the default container.
pub const DEFAULT_CONTAINER: &str = "kubectl.kubernetes.io/default-container";
/// On launcher Pods, read by Istio: interfaces whose traffic its proxy intercepts.
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

/// On objects that the operator installs: the version they belong to.
pub const INSTALL_STRATEGY_VERSION: &str = "kubevirt.io/install-strategy-version";
/// On objects that the operator installs: the registry of their images.
pub const INSTALL_STRATEGY_REGISTRY: &str = "kubevirt.io/install-strategy-registry";
/// On objects that the operator installs: the hash of the settings they were created with.
pub const INSTALL_STRATEGY_IDENTIFIER: &str = "kubevirt.io/install-strategy-identifier";
/// On objects that the operator installs: the hash of the patches applied to them.
pub const CUSTOMIZER_IDENTIFIER: &str = "kubevirt.io/customizer-identifier";
/// On objects that the operator installs: the generation of the installation they reflect.
pub const KUBEVIRT_GENERATION: &str = "kubevirt.io/generation";

/// Whether this value of an annotation that turns something on does so: an empty value and `false` request nothing.
pub fn requests(value: &str) -> bool {
    !matches!(value, "" | "false")
}

/// Values of [`EVICTION_SOURCE`].
pub mod eviction_source {
    /// The descheduler.
    pub const DESCHEDULER: &str = "descheduler";
    /// How the descheduler names itself in [`EVICTION_REQUESTED_BY`](super::EVICTION_REQUESTED_BY).
    pub const DESCHEDULER_REQUEST: &str = "sigs.k8s.io/descheduler";
}

/// Values of [`PCI_TOPOLOGY_VERSION`].
pub mod pci_topology {
    /// The layout of guests that predate recorded versions.
    pub const V2: &str = "v2";
    /// The layout of new guests.
    pub const V3: &str = "v3";
}
