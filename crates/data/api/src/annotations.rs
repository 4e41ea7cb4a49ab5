//! Annotation keys.

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
/// On Pods: they only provoke the binding of volumes and never run a guest.
pub const EPHEMERAL_PROVISIONING: &str = "kubevirt.io/ephemeral-provisioning";
/// On instances: they wait to receive a guest instead of starting one.
pub const CREATE_MIGRATION_TARGET: &str = "kubevirt.io/create-migration-target";
/// On target Pods: the migration they serve.
pub const MIGRATION_JOB_NAME: &str = "kubevirt.io/migrationJobName";
/// On launcher Pods: migration runs over unix sockets.
pub const MIGRATION_TRANSPORT_UNIX: &str = "kubevirt.io/migrationTransportUnix";
/// On launcher Pods: bytes of memory added for what surrounds the guest.
pub const MEMORY_OVERHEAD_BYTES: &str = "kubevirt.io/memory-overhead-bytes";
/// On instances: libvirt's log filters inside the launcher.
pub const LIBVIRT_LOG_FILTERS: &str = "kubevirt.io/libvirt-log-filters";
/// On instances: the launcher stays after a failure, for somebody to look.
pub const KEEP_LAUNCHER_ALIVE_AFTER_FAILURE: &str = "kubevirt.io/keep-launcher-alive-after-failure";
/// On virtual machines: `false` puts off DataVolumes until the start.
pub const IMMEDIATE_DATA_VOLUME_CREATION: &str = "kubevirt.io/immediate-data-volume-creation";
/// On launcher Pods: the descheduler asks for an eviction and leaves the rest to us.
pub const DESCHEDULER_REQUEST_EVICT_ONLY: &str = "descheduler.alpha.kubernetes.io/request-evict-only";
/// On launcher Pods: an asked-for eviction is under way.
pub const DESCHEDULER_EVICTION_IN_PROGRESS: &str = "descheduler.alpha.kubernetes.io/eviction-in-progress";
/// On launcher Pods, read by `kubectl`: the container to show without being asked.
pub const DEFAULT_CONTAINER: &str = "kubectl.kubernetes.io/default-container";
