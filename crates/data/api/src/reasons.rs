//! Reasons of conditions: one word each, which scripts and dashboards match on. Some serve events too; [`crate::events`]
//! has those and the ones that only events carry.

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
/// The template cannot make a valid Pod.
pub const FAILED_CREATE_VALIDATION: &str = "FailedCreateValidation";
/// Pinned CPUs were asked for and the Pod did not get its guarantee.
pub const FAILED_GUARANTEE_RESOURCES: &str = "FailedGuaranteeResources";
/// A claim does not exist.
pub const FAILED_PVC_NOT_FOUND: &str = "FailedPvcNotFound";
/// A claim exists and cannot be used yet.
pub const PVC_NOT_READY: &str = "PVCNotReady";
/// A DataVolume's content did not come.
pub const FAILED_DATA_VOLUME_IMPORT: &str = "FailedDataVolumeImport";
/// Plugged volumes could not be taken away from an ended instance.
pub const FAILED_HOTPLUG_SYNC: &str = "FailedHotplugSync";
/// Plugged volumes lost the Pod that brought them to the node.
pub const MISSING_ATTACHMENT_POD: &str = "MissingAttachmentPod";
/// The claim for the guest's persistent state could not be made.
pub const FAILED_BACKEND_STORAGE_CREATE: &str = "FailedBackendStorageCreate";
/// It cannot be told whether the claim for the guest's persistent state is ready.
pub const FAILED_BACKEND_STORAGE_PROBE: &str = "FailedBackendStorageProbe";
/// The claim for the guest's persistent state is not ready.
pub const BACKEND_STORAGE_NOT_READY: &str = "BackendStorageNotReady";
/// The frequencies of the nodes' time stamp counters could not be learnt. The spelling is KubeVirt's.
pub const FAILED_GATHERING_CLUSTER_TOPOLOGY_HINTS: &str = "FailedGatherhingClusterTopologyHints";
/// An image cannot be pulled.
pub const ERR_IMAGE_PULL: &str = "ErrImagePull";
/// Pulling an image is retried later.
pub const IMAGE_PULL_BACK_OFF: &str = "ImagePullBackOff";
/// No node fits.
pub const UNSCHEDULABLE: &str = "Unschedulable";
/// The instance shares a directory of its container, which the cluster does not allow.
pub const CONTAINER_PATH_VOLUMES_DISABLED: &str = "ContainerPathVolumesDisabled";
/// The launcher Pod lacks the containers that share directories of its own.
pub const MISSING_VIRTIOFS_CONTAINERS: &str = "MissingVirtiofsContainers";
/// The instance receives a guest from elsewhere, and no migration has brought a Pod for it yet.
pub const WAITING_FOR_SYNC: &str = "WaitingForSync";
/// Volumes are filled once a Pod uses them, which one that only does that is about to do.
pub const WAIT_FOR_FIRST_CONSUMER: &str = "WaitForFirstConsumer";
/// The instance is in a phase that nobody knows.
pub const UNKNOWN_PHASE: &str = "UnknownPhase";
/// The node agent could not bring the domain in line with the instance.
pub const SYNCHRONIZING_WITH_DOMAIN_FAILED: &str = "Synchronizing with the Domain failed.";

// Why an instance or virtual machine is or is not ready or paused.

/// Instance not ready: it has no launcher Pod.
pub const POD_NOT_EXISTS: &str = "PodNotExists";
/// Instance not ready: its launcher Pod is on its way out.
pub const POD_TERMINATING: &str = "PodTerminating";
/// Instance not ready: the guest does not run.
pub const GUEST_NOT_RUNNING: &str = "GuestNotRunning";
/// Instance not ready: its launcher Pod does not say whether it is.
pub const POD_CONDITION_MISSING: &str = "PodConditionMissing";
/// Virtual machine not ready: it has no instance.
pub const VMI_NOT_EXISTS: &str = "VMINotExists";
/// Virtual machine not ready: its instance does not say whether it is.
pub const VMI_CONDITION_MISSING: &str = "VMIConditionMissing";
/// The guest is paused (launcher Pod's readiness gate), or a set's size is left alone.
pub const PAUSED: &str = "Paused";
/// The guest is not paused (launcher Pod's readiness gate).
pub const NOT_PAUSED: &str = "NotPaused";
/// The guest is paused because a user asked for it.
pub const PAUSED_BY_USER: &str = "PausedByUser";
/// The guest is paused because a disk failed.
pub const PAUSED_IO_ERROR: &str = "PausedIOError";
/// The guest is paused because its migration would not end otherwise.
pub const PAUSED_BY_MIGRATION_MONITOR: &str = "PausedByMigrationMonitor";
/// The instance failed because its node stopped answering.
pub const NODE_UNRESPONSIVE: &str = "NodeUnresponsive";
/// Somebody asked the launcher Pod to leave its node.
pub const EVICTION_REQUESTED: &str = "EvictionRequested";
/// Every DataVolume of the instance is ready.
pub const ALL_DVS_READY: &str = "AllDVsReady";
/// Some DataVolume of the instance is not ready.
pub const NOT_ALL_DVS_READY: &str = "NotAllDVsReady";
/// The guest's architecture is not the node's.
pub const CROSS_ARCHITECTURE_EMULATION: &str = "CrossArchitectureEmulation";

// Why an instance cannot migrate, or must.

/// The instance cannot migrate, for the reasons in the message.
pub const NOT_MIGRATABLE: &str = "NotMigratable";
/// A disk is not shared between nodes.
pub const DISKS_NOT_LIVE_MIGRATABLE: &str = "DisksNotLiveMigratable";
/// An interface's binding ties the guest to its node.
pub const INTERFACE_NOT_LIVE_MIGRATABLE: &str = "InterfaceNotLiveMigratable";
/// Plugged volumes tie the guest to its node.
pub const HOTPLUG_NOT_LIVE_MIGRATABLE: &str = "HotplugNotLiveMigratable";
/// The guest sees the host's CPU as it is. KubeVirt's word lacks the "Not", and clients match on it.
pub const CPU_MODE_NOT_LIVE_MIGRATABLE: &str = "CPUModeLiveMigratable";
/// The guest shares directories with its node.
pub const VIRTIOFS_NOT_LIVE_MIGRATABLE: &str = "VirtIOFSNotLiveMigratable";
/// The guest has a device of its node.
pub const HOST_DEVICE_NOT_LIVE_MIGRATABLE: &str = "HostDeviceNotLiveMigratable";
/// The guest's memory is encrypted (AMD SEV).
pub const SEV_NOT_LIVE_MIGRATABLE: &str = "SEVNotLiveMigratable";
/// The guest is shielded from the host (IBM Secure Execution).
pub const SECURE_EXECUTION_NOT_LIVE_MIGRATABLE: &str = "SecureExecutionNotLiveMigratable";
/// The guest is a trust domain (Intel TDX).
pub const TDX_NOT_LIVE_MIGRATABLE: &str = "TDXNotLiveMigratable";
/// The guest relies on a time stamp counter whose frequency is not known.
pub const NO_TSC_FREQUENCY_NOT_LIVE_MIGRATABLE: &str = "NoTSCFrequencyNotLiveMigratable";
/// The guest sees every Hyper-V feature of its node.
pub const HYPERV_PASSTHROUGH_NOT_LIVE_MIGRATABLE: &str = "HypervPassthroughNotLiveMigratable";
/// The guest reserves SCSI disks for itself.
pub const PERSISTENT_RESERVATION_NOT_LIVE_MIGRATABLE: &str = "PersistentReservationNotLiveMigratable";
/// A migration between clusters cannot go on.
pub const DECENTRALIZED_NOT_LIVE_MIGRATABLE: &str = "DecentralizedNotLiveMigratable";
/// A change to the template takes effect by migrating, which happens at once.
pub const AUTO_MIGRATION_DUE_TO_LIVE_UPDATE: &str = "AutoMigrationDueToLiveUpdate";
/// A change to the template may take effect without migrating, which is given a moment.
pub const AUTO_MIGRATION_PENDING: &str = "AutoMigrationPending";
/// A change of volumes was taken back.
pub const VOLUMES_CHANGE_CANCELLATION: &str = "VolumesChangeCancellation";
/// The guest's memory could not be changed.
pub const MEMORY_HOTPLUG_FAILED: &str = "Memory Hotplug Failed";
/// Migration waits: utility volumes are there.
pub const UTILITY_VOLUMES_PRESENT: &str = "UtilityVolumesPresent";
/// Migration waits: a backup runs.
pub const BACKUP_IN_PROGRESS: &str = "BackupInProgress";

/// Migration waits: the namespace's quota has no room for the target Pod.
pub const RESOURCE_QUOTA_EXCEEDED: &str = "ResourceQuotaExceeded";
/// Migration waits: as many run in the cluster as may.
pub const CLUSTER_LIMIT_REACHED: &str = "ClusterLimitReached";
/// Migration waits: as many guests leave its node as may at a time.
pub const NODE_LIMIT_REACHED: &str = "NodeLimitReached";
/// Migration waits: earlier ones failed, and the next attempt is given time.
pub const MIGRATION_BACKOFF: &str = "MigrationBackoff";
/// Migration waits: the instance has another Pod that has not ended.
pub const OTHER_POD_ACTIVE: &str = "OtherPodActive";
/// Migration waits: another one has the instance.
pub const OTHER_MIGRATION_ACTIVE: &str = "OtherMigrationActive";
/// Migration waits: the instance that is to receive a guest has one of its own.
pub const INSTANCE_NOT_RECEIVING: &str = "InstanceNotReceiving";
/// Migration waits: the guest does not run yet.
pub const INSTANCE_NOT_RUNNING: &str = "InstanceNotRunning";
/// Migration waits: no node fits the target Pod.
pub const TARGET_POD_UNSCHEDULABLE: &str = "TargetPodUnschedulable";
/// Migration waits: the target Pod, or the one with its plugged volumes, has not started.
pub const TARGET_POD_PENDING: &str = "TargetPodPending";
/// Migration waits: the target node prepares to receive.
pub const TARGET_NODE_PREPARING: &str = "TargetNodePreparing";
/// Migration waits: the source node is to begin sending.
pub const SOURCE_NODE_NOT_STARTED: &str = "SourceNodeNotStarted";
/// Migration waits: the guest has moved, and changes that came with the move are not in it yet.
pub const GUEST_CHANGES_PENDING: &str = "GuestChangesPending";
/// The migration was to empty a node, and nobody asks the guest to leave it any more.
pub const EVACUATION_CANCELED: &str = "EvacuationCanceled";
/// Migration waits: a Job finds out on which side the guest was last.
pub const RECOVERING: &str = "Recovering";
/// Migration waits: the other side of a migration between instances has not said what is needed.
pub const WAITING_FOR_OTHER_SIDE: &str = "WaitingForOtherSide";
/// A migration's target could not be handed to the nodes.
pub const FAILED_HAND_OVER: &str = "FailedHandOver";

// Why a volume's status is as it is.

/// The volume is mounted into the launcher Pod.
pub const VOLUME_MOUNTED_TO_POD: &str = "VolumeMountedToPod";
/// The volume is no longer mounted into the launcher Pod.
pub const VOLUME_UNMOUNTED_FROM_POD: &str = "VolumeUnMountedFromPod";
/// The guest sees the volume.
pub const VOLUME_READY: &str = "VolumeReady";

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
/// A memory dump could not be arranged.
pub const MEMORY_DUMP_ERROR: &str = "MemoryDumpError";
/// Labels and annotations could not be carried over to the instance.
pub const ANNOTATIONS_LABELS_CHANGE_ERROR: &str = "AnnotationsLabelsChangeError";
/// The instance's affinity could not be changed.
pub const AFFINITY_CHANGE_ERROR: &str = "AffinityChangeError";
/// The instance's tolerations could not be changed.
pub const TOLERATIONS_CHANGE_ERROR: &str = "TolerationsChangeError";
/// The instance's volumes could not be replaced.
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
/// Export: its Pod is in a state that nobody expects.
pub const UNKNOWN: &str = "Unknown";
/// Export: the virtual machine does not exist.
pub const VM_NOT_FOUND: &str = "VMNotFound";
/// Export: the virtual machine has no volumes to export.
pub const VM_NO_VOLUMES: &str = "VMNoVolumes";
/// Export: volumes are still being filled.
pub const VOLUMES_NOT_POPULATED: &str = "VolumesNotPopulated";
/// Export: a claim is not bound yet.
pub const PVC_PENDING: &str = "PVCPending";
/// Export: the OCI artifact's digests are being computed.
pub const DIGESTS_PENDING: &str = "DigestsPending";
/// Export: the OCI artifact's digests are known.
pub const DIGESTS_COMPUTED: &str = "DigestsComputed";
/// Backup: the guest was told to begin.
pub const INITIATED: &str = "Initiated";
/// Backup: its data can be read.
pub const EXPORT_READY: &str = "ExportReady";
/// Backup: it is being given up.
pub const ABORTING: &str = "Aborting";
/// Backup: it holds all it should.
pub const COMPLETED: &str = "Completed";
/// Backup: it holds all it should, and something is worth knowing.
pub const COMPLETED_WITH_WARNING: &str = "CompletedWithWarning";
/// Backup: it did not succeed.
pub const FAILED: &str = "Failed";
/// Backup: it was deleted before it began.
pub const DELETED_DURING_INIT: &str = "DeletedDuringInit";
/// Backup: the guest vanished while it ran.
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
/// There is an installation already, and a cluster has room for one.
pub const EXISTING_DEPLOYMENT: &str = "ExistingDeployment";
/// Components are being removed.
pub const DELETION_IN_PROGRESS: &str = "DeletionInProgress";
/// Components could not be removed.
pub const DELETION_FAILED: &str = "DeletionFailed";
