//! Live migration from inside the two launchers.
//!
//! The source launcher drives libvirt's migration protocol on both daemons; it reaches the target's through a socket
//! that virt-handler provides. The target launcher only prepares and watches.
//!
//! [`transfer`] decides which side may run the guest, and when; this module executes its commands.

mod mark;
mod plan;
mod recovery;
mod source;
mod steps;
mod target;

pub(crate) use source::Source;
pub(crate) use target::Target;

use std::path::{Path, PathBuf};

use launcher_contract::{Channel, sockets};

/// The migration sockets of a VMI, in the directory shared with virt-handler.
#[derive(Debug, Clone)]
pub(crate) struct Sockets {
    dir: PathBuf,
    vmi_uid: String,
}

impl Sockets {
    pub(crate) fn new(share_dir: &Path, vmi_uid: &str) -> Sockets {
        Sockets { dir: share_dir.join(sockets::MIGRATIONS), vmi_uid: vmi_uid.to_owned() }
    }

    fn dir(&self) -> &Path {
        &self.dir
    }

    /// The socket of the target's libvirt.
    fn libvirt(&self) -> PathBuf {
        self.channel(Channel::Libvirt)
    }

    /// The source's QEMU connects to this path; the target's QEMU listens on the same path in its own Pod.
    fn channel(&self, channel: Channel) -> PathBuf {
        self.dir.join(channel.socket(&self.vmi_uid))
    }

    /// The monitor of the target's QEMU that only this launcher uses.
    fn recovery_monitor(&self) -> PathBuf {
        self.dir.join(sockets::RECOVERY_MONITOR)
    }

    fn uri(&self, channel: Channel) -> String {
        format!("unix://{}", self.channel(channel).display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_have_the_names_that_node_agents_know() {
        let sockets = Sockets::new(Path::new("/var/run/kubevirt"), "u-1");
        assert_eq!(sockets.libvirt(), Path::new("/var/run/kubevirt/migrationproxy/u-1-source.sock"));
        assert_eq!(sockets.uri(Channel::Memory), "unix:///var/run/kubevirt/migrationproxy/u-1-49152-source.sock");
        assert_eq!(
            sockets.channel(Channel::Disks),
            Path::new("/var/run/kubevirt/migrationproxy/u-1-49153-source.sock")
        );
    }
}
