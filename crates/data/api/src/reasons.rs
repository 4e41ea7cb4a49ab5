//! Reasons of conditions and events: one word each, which scripts and dashboards match on.

/// An object was created.
pub const SUCCESSFUL_CREATE: &str = "SuccessfulCreate";
/// An object could not be created.
pub const FAILED_CREATE: &str = "FailedCreate";
/// An object was deleted.
pub const SUCCESSFUL_DELETE: &str = "SuccessfulDelete";
/// An object could not be deleted.
pub const FAILED_DELETE: &str = "FailedDelete";
/// A launcher Pod's metadata could not be patched.
pub const FAILED_POD_PATCH: &str = "FailedPodPatch";
/// The template cannot make a valid Pod.
pub const FAILED_CREATE_VALIDATION: &str = "FailedCreateValidation";
/// Pinned CPUs were asked for and the Pod did not get its guarantee.
pub const FAILED_GUARANTEE_RESOURCES: &str = "FailedGuaranteeResources";
/// A claim does not exist.
pub const FAILED_PVC_NOT_FOUND: &str = "FailedPvcNotFound";
/// An image cannot be pulled.
pub const ERR_IMAGE_PULL: &str = "ErrImagePull";
/// Pulling an image is retried later.
pub const IMAGE_PULL_BACK_OFF: &str = "ImagePullBackOff";
/// No node fits.
pub const UNSCHEDULABLE: &str = "Unschedulable";
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
/// The guest is paused (launcher Pod's readiness gate).
pub const PAUSED: &str = "Paused";
/// The guest is not paused (launcher Pod's readiness gate).
pub const NOT_PAUSED: &str = "NotPaused";
/// The guest is paused because a user asked for it.
pub const PAUSED_BY_USER: &str = "PausedByUser";
/// The guest is paused because a disk failed.
pub const PAUSED_IO_ERROR: &str = "PausedIOError";
/// The instance failed because its node stopped answering.
pub const NODE_UNRESPONSIVE: &str = "NodeUnresponsive";
/// Somebody asked the launcher Pod to leave its node.
pub const EVICTION_REQUESTED: &str = "EvictionRequested";
