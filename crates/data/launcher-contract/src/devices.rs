//! Devices of a node that a launcher opens. Its Pod requests them as extended resources.

/// Domain of the resources.
pub const NAMESPACE: &str = "devices.kubevirt.io";

/// Where the kubelet looks for device plugins, unless it has another root directory.
pub const KUBELET_PLUGINS: &str = "/var/lib/kubelet/device-plugins";

/// A device node and the resource that grants it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// The last part of the resource's name.
    pub name: &'static str,
    /// Its path below `/dev`, the same on the node and in the container.
    pub node: &'static str,
}

/// Hardware virtualization.
pub const KVM: Device = Device { name: "kvm", node: "kvm" };
/// Tap devices.
pub const TUN: Device = Device { name: "tun", node: "net/tun" };
/// Networking in the node's kernel.
pub const VHOST_NET: Device = Device { name: "vhost-net", node: "vhost-net" };
/// Sockets between the guest and the node.
pub const VHOST_VSOCK: Device = Device { name: "vhost-vsock", node: "vhost-vsock" };

/// All of them.
pub const ALL: [Device; 4] = [KVM, TUN, VHOST_NET, VHOST_VSOCK];

impl Device {
    /// The resource in a container's limits.
    pub fn resource(&self) -> String {
        resource(self.name)
    }

    /// Its path on the node and in the container.
    pub fn path(&self) -> String {
        format!("/dev/{}", self.node)
    }
}

/// The resource that stands for the device with this name.
pub fn resource(name: &str) -> String {
    format!("{NAMESPACE}/{name}")
}
