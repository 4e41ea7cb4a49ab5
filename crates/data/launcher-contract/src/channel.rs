//! The connections between the two launchers of a migration.
//!
//! Each channel is a socket in the source's Pod, a TCP port of the target's virt-handler and a socket in the target's
//! Pod. The VMI's status maps ports to channel numbers, which are KubeVirt's.

/// One connection of a migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Channel {
    /// The source's launcher talks to the target's libvirtd.
    Libvirt,
    /// QEMU sends memory and device state.
    Memory,
    /// QEMU copies disks that are not shared.
    Disks,
}

impl Channel {
    pub const ALL: [Channel; 3] = [Channel::Libvirt, Channel::Memory, Channel::Disks];

    /// The number in `targetDirectMigrationNodePorts`.
    pub const fn number(self) -> u16 {
        match self {
            Channel::Libvirt => 0,
            Channel::Memory => 49152,
            Channel::Disks => 49153,
        }
    }

    /// `None` for an unknown number.
    pub fn from_number(number: i64) -> Option<Channel> {
        Channel::ALL.into_iter().find(|channel| i64::from(channel.number()) == number)
    }

    /// The name of its socket in [`MIGRATIONS`](crate::sockets::MIGRATIONS). QEMU uses the same name in both Pods; the
    /// target's libvirtd listens on its [own socket](crate::sockets::LIBVIRT).
    pub fn socket(self, vmi_uid: &str) -> String {
        match self {
            Channel::Libvirt => format!("{vmi_uid}-source.sock"),
            Channel::Memory | Channel::Disks => format!("{vmi_uid}-{}-source.sock", self.number()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_have_kubevirts_numbers_and_names() {
        let all = Channel::ALL.map(|channel| (channel.number(), channel.socket("u")));
        let expected = [(0, "u-source.sock"), (49152, "u-49152-source.sock"), (49153, "u-49153-source.sock")];
        assert_eq!(all, expected.map(|(number, name)| (number, name.to_owned())));
        for channel in Channel::ALL {
            assert_eq!(Channel::from_number(channel.number().into()), Some(channel));
        }
        assert_eq!(Channel::from_number(49154), None);
        assert_eq!(Channel::from_number(-1), None);
    }
}
