//! The words of the Containerized Data Importer: annotations and labels of its claims, reasons and messages.

/// Annotations and labels.
pub mod keys {
    /// On claims: whether the transfer is `Pending`, `Running`, `Failed` or `Succeeded`.
    pub const PHASE: &str = "cdi.kubevirt.io/storage.pod.phase";
    /// On claims: an upload can begin.
    pub const READY: &str = "cdi.kubevirt.io/storage.pod.ready";
    /// On claims: how often the transfer began anew.
    pub const RESTARTS: &str = "cdi.kubevirt.io/storage.pod.restarts";
    /// On claims: the transfer cannot succeed.
    pub const FATAL: &str = "cdi.kubevirt.io/storage.import.fatalError";
    /// On claims: they wait for an upload.
    pub const UPLOAD: &str = "cdi.kubevirt.io/storage.upload.target";
    /// On claims: where the content comes from.
    pub const SOURCE: &str = "cdi.kubevirt.io/storage.import.source";
    /// On claims: the UID of the DataVolume they were made for.
    pub const CREATED_FOR: &str = "cdi.kubevirt.io/createdForDataVolume";
    pub const PREALLOCATION_REQUESTED: &str = "cdi.kubevirt.io/storage.preallocation.requested";
    pub const PREALLOCATION_APPLIED: &str = "cdi.kubevirt.io/storage.preallocation";
    pub const PRIORITY_CLASS: &str = "cdi.kubevirt.io/storage.pod.priorityclassname";
    /// On claims: whether the transfer runs; with `.reason` and `.message` for the condition of the DataVolume.
    pub const RUNNING: &str = "cdi.kubevirt.io/storage.condition.running";
    pub const RUNNING_REASON: &str = "cdi.kubevirt.io/storage.condition.running.reason";
    pub const RUNNING_MESSAGE: &str = "cdi.kubevirt.io/storage.condition.running.message";
    /// On claims and DataVolumes: a claim is filled behind another one. Never here.
    pub const USE_POPULATOR: &str = "cdi.kubevirt.io/storage.usePopulator";
    /// On claims: cloning was completed.
    pub const CLONE_OF: &str = "k8s.io/CloneOf";
    /// On claims of a class that waits: the node of the first consumer.
    pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
    /// Label on claims.
    pub const APP: &str = "app";
    pub const APP_VALUE: &str = "containerized-data-importer";
    /// On classes: the default for virtual machines, and the cluster's.
    pub const DEFAULT_VIRT_CLASS: &str = "storageclass.kubevirt.io/is-default-virt-class";
    pub const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
    /// Labels that a disk passes on to what is made from it.
    pub const DEFAULT_INSTANCETYPE: [&str; 4] = [
        "instancetype.kubevirt.io/default-instancetype",
        "instancetype.kubevirt.io/default-instancetype-kind",
        "instancetype.kubevirt.io/default-preference",
        "instancetype.kubevirt.io/default-preference-kind",
    ];
}

/// Values of [`keys::PHASE`].
pub mod phases {
    pub const PENDING: &str = "Pending";
    pub const RUNNING: &str = "Running";
    pub const FAILED: &str = "Failed";
    pub const SUCCEEDED: &str = "Succeeded";
}

/// Content types of a DataVolume.
pub mod content {
    pub const KUBEVIRT: &str = "kubevirt";
    pub const ARCHIVE: &str = "archive";
}

/// Reasons of conditions and events.
pub mod reasons {
    pub const BOUND: &str = "Bound";
    pub const PENDING: &str = "Pending";
    pub const NOT_FOUND: &str = "NotFound";
    pub const CLAIM_LOST: &str = "ClaimLost";
    pub const ERR_CLAIM_LOST: &str = "ErrClaimLost";
    pub const CLAIM_NOT_VALID: &str = "ErrClaimNotValid";
    pub const RESOURCE_EXISTS: &str = "ErrResourceExists";
    pub const MARKED_FOR_DELETION: &str = "ErrResourceMarkedForDeletion";
    pub const TRANSFER_RUNNING: &str = "TransferRunning";
    pub const POD_RUNNING: &str = "Pod is running";
    pub const COMPLETED: &str = "Completed";
    pub const CHECKSUM: &str = "ChecksumError";
    /// Not one of the importer's own words: it would have to run a Pod first.
    pub const NOT_SUPPORTED: &str = "NotSupported";
    pub const TARGET_IN_USE: &str = "ImportTargetInUse";
    pub const IMPORT_SCHEDULED: &str = "ImportScheduled";
    pub const IMPORT_IN_PROGRESS: &str = "ImportInProgress";
    pub const IMPORT_FAILED: &str = "ImportFailed";
    pub const IMPORT_SUCCEEDED: &str = "ImportSucceeded";
    pub const UPLOAD_SCHEDULED: &str = "UploadScheduled";
    pub const UPLOAD_READY: &str = "UploadReady";
    pub const UPLOAD_SUCCEEDED: &str = "UploadSucceeded";
    pub const CLONE_SCHEDULED: &str = "CloneScheduled";
    pub const CLONE_IN_PROGRESS: &str = "CloneInProgress";
    pub const CSI_CLONE_IN_PROGRESS: &str = "CSICloneInProgress";
    pub const CLONE_FROM_SNAPSHOT: &str = "CloneFromSnapshotSourceInProgress";
    pub const CLONE_SUCCEEDED: &str = "CloneSucceeded";
    pub const CLONE_WITHOUT_SOURCE: &str = "CloneWithoutSource";
    pub const CLONE_VALIDATION_FAILED: &str = "CloneValidationFailed";
    pub const SOURCE_NOT_READY: &str = "ImportPVCNotReady";
    pub const READY: &str = "Ready";
    pub const NO_SOURCE: &str = "NoSource";
    pub const SNAPSHOT_NOT_READY: &str = "SnapshotNotReady";
    pub const MAX_REFERENCE_DEPTH: &str = "MaxReferenceDepthReached";
    pub const SELF_REFERENCE: &str = "SelfReference";
    pub const CROSS_NAMESPACE_REFERENCE: &str = "CrossNamespaceReference";
}

/// What a finished transfer says.
pub mod complete {
    pub const IMPORT: &str = "Import Complete";
    pub const UPLOAD: &str = "Upload Complete";
    pub const CLONE: &str = "Clone Complete";
}
