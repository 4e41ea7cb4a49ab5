//! The contract between virt-launcher and its peers: virt-handler, which sends it commands, `render`, which writes its
//! Pod and command line, and `domain`, which writes the XML of its guest.
//!
//! | module | what both sides must agree on |
//! |---|---|
//! | [`types`], [`migration`] | the JSON documents on the launcher's socket |
//! | [`routes`] | the requests that carry them |
//! | [`paths`] | directories inside the launcher's container, and the Pod's volumes behind them |
//! | [`sockets`] | names of sockets and files in those directories |
//! | [`channel`] | what travels between two launchers during a migration |
//! | [`devices`] | the node's devices that a launcher opens, and the resources that grant them |
//! | [`disks`] | how large disk images on claims are |
//! | [`flags`], [`variables`] | the launcher's command line and environment |
//! | [`seccomp`] | the system calls that a launcher may make |
//! | [`streams`] | the WebSocket protocol of serial console and VNC |
//!
//! The launcher pushes nothing. virt-handler long-polls one state document with a sequence number, so it simply asks
//! again if a response is lost, and needs no replay after a restart. Commands are idempotent and name the VMI's UID: a
//! launcher rejects commands for another VMI.

pub mod channel;
pub mod devices;
pub mod disks;
pub mod flags;
pub mod migration;
pub mod paths;
pub mod routes;
pub mod seccomp;
pub mod sockets;
pub mod streams;
pub mod types;
pub mod variables;

pub use channel::Channel;

machinery::uid! {
    /// The UID of a VirtualMachineInstance.
    pub VmiUid
}

machinery::uid! {
    /// The UID of a VirtualMachineInstanceMigration.
    pub MigrationUid
}

/// User and group of the launcher and of QEMU; they own the files that QEMU opens.
pub const USER: u32 = 107;

/// The port of virt-handler, where virt-api reaches the launchers of a node: console, VNC, pause and more.
pub const HANDLER_PORT: u16 = 8186;
