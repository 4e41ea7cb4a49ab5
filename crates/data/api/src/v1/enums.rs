//! Strings that decisions depend on, as open enumerations.

use crate::kind::open_enum;

open_enum! {
    /// Where a virtual machine instance stands.
    ///
    /// ```text
    /// (unset) ─► Pending ─► Scheduling ─► Scheduled ─► Running ─► Succeeded
    ///                            │             │           └─────► Failed
    ///                            └─────────────┴─────────────────► Failed
    /// ```
    ///
    /// virt-controller owns a VMI up to `Scheduled`, virt-handler from there on.
    VirtualMachineInstancePhase {
        /// Accepted; no launcher Pod yet.
        Pending,
        /// The launcher Pod exists and is not ready yet.
        Scheduling,
        /// The launcher is ready on its node; virt-handler takes over.
        Scheduled,
        /// The guest runs.
        Running,
        /// The guest ended by itself or was stopped in good order.
        Succeeded,
        /// The guest or its launcher crashed.
        Failed,
        /// A receiving instance waits for its sending side.
        WaitingForSync,
        /// The node does not answer.
        Unknown,
    }
}

open_enum! {
    /// When a virtual machine's instance should exist.
    RunStrategy {
        /// Always: ended instances are replaced.
        Always,
        /// Never.
        Halted,
        /// Only start and stop requests decide.
        Manual,
        /// Failed instances are replaced, succeeded ones are not.
        RerunOnFailure,
        /// Started once, never replaced.
        Once,
        /// Started as the receiving end of a migration.
        WaitAsReceiver,
    }
}

open_enum! {
    /// A virtual machine's state in one word for users.
    VirtualMachinePrintableStatus {
        /// No instance, and none wanted.
        Stopped,
        /// Volumes are being made.
        Provisioning,
        /// An instance is on its way up.
        Starting,
        /// The guest runs.
        Running,
        /// The guest is paused.
        Paused,
        /// The instance is on its way down.
        Stopping,
        /// The virtual machine is being deleted.
        Terminating,
        /// Starting failed repeatedly; the next try waits.
        CrashLoopBackOff,
        /// The guest moves to another node.
        Migrating,
        /// The node does not answer.
        Unknown,
        /// No node fits.
        ErrorUnschedulable,
        /// An image cannot be pulled.
        ErrImagePull,
        /// Pulling an image is retried later.
        ImagePullBackOff,
        /// A claim does not exist.
        ErrorPvcNotFound,
        /// A DataVolume failed.
        DataVolumeError,
        /// A claim waits for its first consumer.
        WaitingForVolumeBinding,
        /// The receiving end of a migration waits for the sender.
        WaitingForReceiver,
    }
}

open_enum! {
    /// What a state change request asks for.
    StateChangeRequestAction {
        /// Create the instance.
        Start,
        /// Delete the instance.
        Stop,
    }
}

open_enum! {
    /// Where a live migration stands.
    VirtualMachineInstanceMigrationPhase {
        /// Queued.
        Pending,
        /// The target Pod exists and is not ready yet.
        Scheduling,
        /// The target Pod is ready.
        Scheduled,
        /// The target node prepares to receive.
        PreparingTarget,
        /// The target node listens.
        TargetReady,
        /// One side of a migration between clusters waits for the other.
        WaitingForSync,
        /// Both sides of a migration between clusters exchange their state.
        Synchronizing,
        /// Memory is being copied.
        Running,
        /// The guest runs on the target.
        Succeeded,
        /// The guest stays on the source.
        Failed,
    }
}

open_enum! {
    /// Where the installation stands.
    KubeVirtPhase {
        /// Components are being installed or updated.
        Deploying,
        /// Components run.
        Deployed,
        /// Components are being removed.
        Deleting,
        /// Components are gone.
        Deleted,
    }
}

open_enum! {
    /// How far a volume is on its way into the guest, or out of it.
    VolumePhase {
        /// Its claim is not bound.
        Pending,
        /// Its claim is bound.
        Bound,
        /// An attachment Pod holds it on the node.
        AttachedToNode,
        /// The launcher sees it.
        MountedToPod,
        /// The guest sees it.
        Ready,
        /// It is on its way out of the guest.
        Detaching,
        /// The launcher no longer sees it.
        UnMountedFromPod,
        /// The guest's memory is being written to it.
        MemoryDumpInProgress,
        /// The guest's memory has been written to it.
        MemoryDumpCompleted,
        /// The guest's memory could not be written to it.
        MemoryDumpFailed,
    }
}

open_enum! {
    /// Where a dump of the guest's memory stands.
    MemoryDumpPhase {
        /// The claim is being plugged.
        Associating,
        /// Memory is being written.
        InProgress,
        /// The claim is being unplugged.
        Unmounting,
        /// The dump is in the claim.
        Completed,
        /// The claim is being taken out of the virtual machine.
        Dissociating,
        /// The dump could not be made.
        Failed,
    }
}

open_enum! {
    /// Whether changes to a guest's disks are recorded, for backups to copy only those.
    ChangedBlockTrackingState {
        /// They will be from the next start on, or no longer.
        PendingRestart,
        /// Recording begins with this start.
        Initializing,
        /// They are recorded.
        Enabled,
        /// They are not recorded.
        Disabled,
        /// They should be recorded, and the cluster does not allow it.
        IncrementalBackupFeatureGateDisabled,
    }
}

open_enum! {
    /// What became of the request to give a migration up.
    MigrationAbortStatus {
        /// It was given up.
        Succeeded,
        /// It went on.
        Failed,
        /// It is being given up.
        Aborting,
    }
}

open_enum! {
    /// How memory moves.
    MigrationMode {
        /// It is copied while the guest runs on the source.
        PreCopy,
        /// The guest runs on the target and fetches what it misses.
        PostCopy,
        /// It is copied while the guest is paused.
        Paused,
    }
}

open_enum! {
    /// Which migrations go first when not all can run at once.
    MigrationPriority {
        /// A node is being emptied, or a launcher is out of date.
        SystemCritical = "system-critical",
        /// A user's change takes effect by migrating.
        UserTriggered = "user-triggered",
        /// The cluster is being balanced.
        SystemMaintenance = "system-maintenance",
    }
}
