//! UIDs that are used as file and directory names on the node.

pub(crate) use machinery::uid::PodUid;

machinery::uid! {
    /// The UID of a VirtualMachineInstance.
    pub(crate) VmiUid
}
