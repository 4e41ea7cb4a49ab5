//! Reasons of conditions, which scripts and dashboards match on. Some are used for events too; [`crate::events`] has
//! those and the reasons that only events have.

/// An object was created.
pub const SUCCESSFUL_CREATE: &str = "SuccessfulCreate";
/// An object could not be created.
pub const FAILED_CREATE: &str = "FailedCreate";
/// An object was deleted.
pub const SUCCESSFUL_DELETE: &str = "SuccessfulDelete";
/// An object could not be deleted.
pub const FAILED_DELETE: &str = "FailedDelete";

// Why an instance is not synchronized.

/// A launcher Pod's metadata could not be patched.
pub const FAILED_POD_PATCH: &str = "FailedPodPatch";
/// The template yields no valid Pod.
pub const FAILED_CREATE_VALIDATION: &str = "FailedCreateValidation";
/// Dedicated CPUs were requested, but the Pod does not have QoS class Guaranteed.
pub const FAILED_GUARANTEE_RESOURCES: &str = "FailedGuaranteeResources";
/// A claim does not exist.
pub const FAILED_PVC_NOT_FOUND: &str = "FailedPvcNotFound";
/// A claim exists and cannot be used yet.
pub const PVC_NOT_READY: &str = "PVCNotReady";
/// A DataVolume could not be populated.
pub const FAILED_DATA_VOLUME_IMPORT: &str = "FailedDataVolumeImport";
/// Hot-plugged volumes could not be detached from a finished VMI.
pub const FAILED_HOTPLUG_SYNC: &str = "FailedHotplugSync";
/// The attachment Pod of hot-plugged volumes is gone.
pub const MISSING_ATTACHMENT_POD: &str = "MissingAttachmentPod";
/// The claim for the guest's persistent state could not be created.
pub const FAILED_BACKEND_STORAGE_CREATE: &str = "FailedBackendStorageCreate";
/// It is unknown whether the claim for the guest's persistent state is ready.
pub const FAILED_BACKEND_STORAGE_PROBE: &str = "FailedBackendStorageProbe";
/// The claim for the guest's persistent state is not ready.
pub const BACKEND_STORAGE_NOT_READY: &str = "BackendStorageNotReady";
/// The TSC frequencies of the nodes could not be determined. The spelling is KubeVirt's.
pub const FAILED_GATHERING_CLUSTER_TOPOLOGY_HINTS: &str = "FailedGatherhingClusterTopologyHints";
/// An image cannot be pulled.
pub const ERR_IMAGE_PULL: &str = "ErrImagePull";
/// Pulling an image is retried later.
pub const IMAGE_PULL_BACK_OFF: &str = "ImagePullBackOff";
/// No node fits.
pub const UNSCHEDULABLE: &str = "Unschedulable";
/// The VMI shares a directory of its container, which is disabled in the cluster.
pub const CONTAINER_PATH_VOLUMES_DISABLED: &str = "ContainerPathVolumesDisabled";
/// The launcher Pod lacks the containers that share directories of its own.
pub const MISSING_VIRTIOFS_CONTAINERS: &str = "MissingVirtiofsContainers";
/// The VMI waits to receive a guest, and no migration has created a Pod for it yet.
pub const WAITING_FOR_SYNC: &str = "WaitingForSync";
/// Volumes are populated once a Pod uses them; a temporary Pod is about to do so.
pub const WAIT_FOR_FIRST_CONSUMER: &str = "WaitForFirstConsumer";
/// The VMI is in an unknown phase.
pub const UNKNOWN_PHASE: &str = "UnknownPhase";
/// virt-handler could not synchronize the domain with the VMI.
pub const SYNCHRONIZING_WITH_DOMAIN_FAILED: &str = "Synchronizing with the Domain failed.";

// Why an instance or virtual machine is or is not ready or paused.

/// VMI not ready: it has no launcher Pod.
pub const POD_NOT_EXISTS: &str = "PodNotExists";
/// VMI not ready: its launcher Pod is terminating.
pub const POD_TERMINATING: &str = "PodTerminating";
/// VMI not ready: the guest does not run.
pub const GUEST_NOT_RUNNING: &str = "GuestNotRunning";
/// VMI not ready: its launcher Pod has no condition Ready.
pub const POD_CONDITION_MISSING: &str = "PodConditionMissing";
/// Virtual machine not ready: it has no instance.
pub const VMI_NOT_EXISTS: &str = "VMINotExists";
/// Virtual machine not ready: its VMI has no condition Ready.
pub const VMI_CONDITION_MISSING: &str = "VMIConditionMissing";
/// The guest is paused (launcher Pod's readiness gate), or scaling is paused.
pub const PAUSED: &str = "Paused";
/// The guest is not paused (launcher Pod's readiness gate).
pub const NOT_PAUSED: &str = "NotPaused";
/// The guest was paused by a user.
pub const PAUSED_BY_USER: &str = "PausedByUser";
/// The guest is paused because of an I/O error.
pub const PAUSED_IO_ERROR: &str = "PausedIOError";
/// The guest is paused so that its migration can converge.
pub const PAUSED_BY_MIGRATION_MONITOR: &str = "PausedByMigrationMonitor";
/// The VMI failed because its node became unresponsive.
pub const NODE_UNRESPONSIVE: &str = "NodeUnresponsive";
/// The launcher Pod was asked to leave its node.
pub const EVICTION_REQUESTED: &str = "EvictionRequested";
/// Every DataVolume of the VMI is ready.
pub const ALL_DVS_READY: &str = "AllDVsReady";
/// Some DataVolume of the VMI is not ready.
pub const NOT_ALL_DVS_READY: &str = "NotAllDVsReady";
/// The guest's architecture is not the node's.
pub const CROSS_ARCHITECTURE_EMULATION: &str = "CrossArchitectureEmulation";

// Why an instance cannot migrate, or must.

/// The VMI cannot migrate, for the reasons in the message.
pub const NOT_MIGRATABLE: &str = "NotMigratable";
/// A disk is not shared between nodes.
pub const DISKS_NOT_LIVE_MIGRATABLE: &str = "DisksNotLiveMigratable";
/// An interface's binding does not support migration.
pub const INTERFACE_NOT_LIVE_MIGRATABLE: &str = "InterfaceNotLiveMigratable";
/// Hot-plugged volumes prevent migration.
pub const HOTPLUG_NOT_LIVE_MIGRATABLE: &str = "HotplugNotLiveMigratable";
/// The guest uses host-passthrough CPUs. KubeVirt's reason lacks the "Not", and clients match on it.
pub const CPU_MODE_NOT_LIVE_MIGRATABLE: &str = "CPUModeLiveMigratable";
/// The guest shares directories with its node.
pub const VIRTIOFS_NOT_LIVE_MIGRATABLE: &str = "VirtIOFSNotLiveMigratable";
/// The guest has a host device.
pub const HOST_DEVICE_NOT_LIVE_MIGRATABLE: &str = "HostDeviceNotLiveMigratable";
/// The guest's memory is encrypted (AMD SEV).
pub const SEV_NOT_LIVE_MIGRATABLE: &str = "SEVNotLiveMigratable";
/// The guest is shielded from the host (IBM Secure Execution).
pub const SECURE_EXECUTION_NOT_LIVE_MIGRATABLE: &str = "SecureExecutionNotLiveMigratable";
/// The guest is a trust domain (Intel TDX).
pub const TDX_NOT_LIVE_MIGRATABLE: &str = "TDXNotLiveMigratable";
/// The guest depends on a TSC whose frequency is unknown.
pub const NO_TSC_FREQUENCY_NOT_LIVE_MIGRATABLE: &str = "NoTSCFrequencyNotLiveMigratable";
/// The guest sees every Hyper-V feature of its node.
pub const HYPERV_PASSTHROUGH_NOT_LIVE_MIGRATABLE: &str = "HypervPassthroughNotLiveMigratable";
/// The guest uses SCSI persistent reservations.
pub const PERSISTENT_RESERVATION_NOT_LIVE_MIGRATABLE: &str = "PersistentReservationNotLiveMigratable";
/// A decentralized migration cannot continue.
pub const DECENTRALIZED_NOT_LIVE_MIGRATABLE: &str = "DecentralizedNotLiveMigratable";
/// A change to the template takes effect by migration, which follows at once.
pub const AUTO_MIGRATION_DUE_TO_LIVE_UPDATE: &str = "AutoMigrationDueToLiveUpdate";
/// A change to the template may take effect without migration; that is waited for first.
pub const AUTO_MIGRATION_PENDING: &str = "AutoMigrationPending";
/// A change of volumes was reverted.
pub const VOLUMES_CHANGE_CANCELLATION: &str = "VolumesChangeCancellation";
/// The guest's memory could not be changed.
pub const MEMORY_HOTPLUG_FAILED: &str = "Memory Hotplug Failed";
/// Migration waits: utility volumes are attached.
pub const UTILITY_VOLUMES_PRESENT: &str = "UtilityVolumesPresent";
/// Migration waits: a backup runs.
pub const BACKUP_IN_PROGRESS: &str = "BackupInProgress";

/// Migration waits: the target Pod exceeds the namespace's quota.
pub const RESOURCE_QUOTA_EXCEEDED: &str = "ResourceQuotaExceeded";
/// Migration waits: the cluster's limit of parallel migrations is reached.
pub const CLUSTER_LIMIT_REACHED: &str = "ClusterLimitReached";
/// Migration waits: the source node's limit of parallel outbound migrations is reached.
pub const NODE_LIMIT_REACHED: &str = "NodeLimitReached";
/// Migration waits: back-off after failed attempts.
pub const MIGRATION_BACKOFF: &str = "MigrationBackoff";
/// Migration waits: the VMI has another Pod that has not ended.
pub const OTHER_POD_ACTIVE: &str = "OtherPodActive";
/// Migration waits: another migration owns the VMI.
pub const OTHER_MIGRATION_ACTIVE: &str = "OtherMigrationActive";
/// Migration waits: the receiving VMI has a guest of its own.
pub const INSTANCE_NOT_RECEIVING: &str = "InstanceNotReceiving";
/// Migration waits: the guest does not run yet.
pub const INSTANCE_NOT_RUNNING: &str = "InstanceNotRunning";
/// Migration waits: no node fits the target Pod.
pub const TARGET_POD_UNSCHEDULABLE: &str = "TargetPodUnschedulable";
/// Migration waits: the target Pod, or its attachment Pod, has not started.
pub const TARGET_POD_PENDING: &str = "TargetPodPending";
/// Migration waits: the target node is being prepared.
pub const TARGET_NODE_PREPARING: &str = "TargetNodePreparing";
/// Migration waits: the source node has not started the transfer.
pub const SOURCE_NODE_NOT_STARTED: &str = "SourceNodeNotStarted";
/// Migration waits: the guest has moved, but changes that the migration was for have not reached it yet.
pub const GUEST_CHANGES_PENDING: &str = "GuestChangesPending";
/// The migration was to evacuate a node, and the evacuation was canceled.
pub const EVACUATION_CANCELED: &str = "EvacuationCanceled";
/// Migration waits: a Job determines on which side the guest was last.
pub const RECOVERING: &str = "Recovering";
/// Migration waits: the other side of a decentralized migration has not published what is needed.
pub const WAITING_FOR_OTHER_SIDE: &str = "WaitingForOtherSide";
/// A migration could not be handed off to the nodes.
pub const FAILED_HAND_OVER: &str = "FailedHandOver";

// Why a volume's status is as it is.

/// The volume is mounted into the launcher Pod.
pub const VOLUME_MOUNTED_TO_POD: &str = "VolumeMountedToPod";
/// The volume is no longer mounted into the launcher Pod.
pub const VOLUME_UNMOUNTED_FROM_POD: &str = "VolumeUnMountedFromPod";
/// The guest sees the volume.
pub const VOLUME_READY: &str = "VolumeReady";
/// The guest's memory is being written to a volume.
pub const MEMORY_DUMP_IN_PROGRESS: &str = "MemoryDumpInProgress";
/// The guest's memory has been written to a volume.
pub const MEMORY_DUMP_COMPLETED: &str = "MemoryDumpCompleted";
/// The guest's memory could not be written to a volume.
pub const MEMORY_DUMP_FAILED: &str = "MemoryDumpFailed";

// Why a virtual machine's last reconcile failed.

/// The virtual machine could not be updated.
pub const FAILED_UPDATE_ERROR: &str = "FailedUpdateError";
/// The instance type does not exist or cannot be read.
pub const FAILED_FIND_INSTANCETYPE: &str = "FailedFindInstancetype";
/// The preference does not exist or cannot be read.
pub const FAILED_FIND_PREFERENCE: &str = "FailedFindPreference";
/// Interfaces could not be plugged or unplugged.
pub const HOT_PLUG_NETWORK_INTERFACE_ERROR: &str = "HotPlugNetworkInterfaceError";
/// Volumes could not be plugged or unplugged.
pub const HOT_PLUG_VOLUME_ERROR: &str = "HotPlugVolumeError";
/// The number of virtual CPUs could not be changed.
pub const HOT_PLUG_CPU_ERROR: &str = "HotPlugCPUError";
/// The guest's memory could not be changed.
pub const HOT_PLUG_MEMORY_ERROR: &str = "HotPlugMemoryError";
/// The firmware's UUID could not be recorded.
pub const FIRMWARE_UUID_ERROR: &str = "FirmwareUUIDError";
/// A memory dump could not be set up.
pub const MEMORY_DUMP_ERROR: &str = "MemoryDumpError";
/// Labels and annotations could not be copied to the VMI.
pub const ANNOTATIONS_LABELS_CHANGE_ERROR: &str = "AnnotationsLabelsChangeError";
/// The VMI's affinity could not be changed.
pub const AFFINITY_CHANGE_ERROR: &str = "AffinityChangeError";
/// The VMI's tolerations could not be changed.
pub const TOLERATIONS_CHANGE_ERROR: &str = "TolerationsChangeError";
/// The VMI's volumes could not be replaced.
pub const VOLUMES_UPDATE_ERROR: &str = "VolumesUpdateError";

// Why a pool's last change failed.

/// Virtual machines could not be added.
pub const FAILED_SCALE_OUT: &str = "FailedScaleOut";
/// Virtual machines could not be removed.
pub const FAILED_SCALE_IN: &str = "FailedScaleIn";
/// Virtual machines could not be updated.
pub const FAILED_UPDATE: &str = "FailedUpdate";
/// Old revisions could not be removed.
pub const FAILED_REVISION_PRUNING: &str = "FailedRevisionPruning";

// Where an export, a clone or a backup stands.

/// Clone: it waits for its source.
pub const PENDING: &str = "Pending";
/// Export and backup: it is being prepared.
pub const INITIALIZING: &str = "Initializing";
/// Export: something else uses the source.
pub const IN_USE: &str = "InUse";
/// Export: its Pod is not running yet.
pub const POD_PENDING: &str = "PodPending";
/// Export: its Pod serves.
pub const POD_READY: &str = "PodReady";
/// Export: its Pod has ended.
pub const POD_COMPLETED: &str = "PodCompleted";
/// Export: its Pod is in an unexpected state.
pub const UNKNOWN: &str = "Unknown";
/// Export: the virtual machine does not exist.
pub const VM_NOT_FOUND: &str = "VMNotFound";
/// Export: the virtual machine has no volumes to export.
pub const VM_NO_VOLUMES: &str = "VMNoVolumes";
/// Export: volumes are still being populated.
pub const VOLUMES_NOT_POPULATED: &str = "VolumesNotPopulated";
/// Export: a claim is not bound yet.
pub const PVC_PENDING: &str = "PVCPending";
/// Export: the OCI artifact's digests are being computed.
pub const DIGESTS_PENDING: &str = "DigestsPending";
/// Export: the OCI artifact's digests are known.
pub const DIGESTS_COMPUTED: &str = "DigestsComputed";
/// Backup: the guest was told to start.
pub const INITIATED: &str = "Initiated";
/// Backup: its data can be read.
pub const EXPORT_READY: &str = "ExportReady";
/// Backup: it is being aborted.
pub const ABORTING: &str = "Aborting";
/// Backup: it is complete.
pub const COMPLETED: &str = "Completed";
/// Backup: it is complete, with a warning.
pub const COMPLETED_WITH_WARNING: &str = "CompletedWithWarning";
/// Backup: it failed.
pub const FAILED: &str = "Failed";
/// Backup: it was deleted before it started.
pub const DELETED_DURING_INIT: &str = "DeletedDuringInit";
/// Backup: the guest disappeared while it ran.
pub const SOURCE_LOST: &str = "SourceLost";
/// Backup: the guest ended while it ran.
pub const SOURCE_UNHEALTHY: &str = "SourceUnhealthy";

// Where the installation stands.

/// Components are being installed for the first time.
pub const DEPLOYMENT_IN_PROGRESS: &str = "DeploymentInProgress";
/// Components are being replaced by those of another version.
pub const UPDATE_IN_PROGRESS: &str = "UpdateInProgress";
/// Every object of the version exists.
pub const ALL_RESOURCES_CREATED: &str = "AllResourcesCreated";
/// Every component serves.
pub const ALL_COMPONENTS_READY: &str = "AllComponentsReady";
/// Components could not be installed.
pub const DEPLOYMENT_FAILED: &str = "DeploymentFailed";
/// There already is an installation, and a cluster can have only one.
pub const EXISTING_DEPLOYMENT: &str = "ExistingDeployment";
/// Components are being removed.
pub const DELETION_IN_PROGRESS: &str = "DeletionInProgress";
/// Components could not be removed.
pub const DELETION_FAILED: &str = "DeletionFailed";
