//! Serial console and VNC as WebSockets, from `virtctl` through virt-api and virt-handler to QEMU's socket.

/// The subprotocol of all streams: bytes in binary frames.
pub const SUBPROTOCOL: &str = "plain.kubevirt.io";
