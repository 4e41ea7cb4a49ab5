//! Persistent tap devices, created with the tun driver's ioctls: rtnetlink cannot create them.

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use netplan::TapOptions;
use rtnetlink::packet_core::Nla;
use rtnetlink::packet_route::link::{InfoData, InfoKind, InfoTun, LinkInfo, LinkMessage};
use rustix::fs::{Mode, OFlags};

use crate::blocking::infos;

/// `linux/if_link.h`, attributes of a tun device.
const IFLA_TUN_OWNER: u16 = 1;
const IFLA_TUN_GROUP: u16 = 2;
const IFLA_TUN_MULTI_QUEUE: u16 = 7;

/// Virtio-net headers are always enabled: QEMU uses them if available and works without.
pub(crate) fn create(name: &str, options: &TapOptions) -> io::Result<()> {
    let tun = rustix::fs::open("/dev/net/tun", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let mut flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    if options.queues > 1 {
        flags |= libc::IFF_MULTI_QUEUE;
    }
    attach(&tun, name, flags)?;
    // Until it is persistent, the device is removed with this descriptor, also if a step in between fails.
    set(&tun, libc::TUNSETOWNER, options.owner)?;
    set(&tun, libc::TUNSETGROUP, options.group)?;
    set(&tun, libc::TUNSETPERSIST, 1)
}

fn attach(tun: &OwnedFd, name: &str, flags: libc::c_int) -> io::Result<()> {
    // SAFETY: all-zero bytes are a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.is_empty() || name.len() >= request.ifr_name.len() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a link name has 1 to 15 bytes"));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = flags as libc::c_short;
    // SAFETY: TUNSETIFF reads and writes one ifreq, which `request` is, and the descriptor is open.
    let rc = unsafe { libc::ioctl(tun.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn set(tun: &OwnedFd, request: libc::Ioctl, value: u32) -> io::Result<()> {
    // SAFETY: these requests take their argument by value and touch no memory of ours.
    let rc = unsafe { libc::ioctl(tun.as_raw_fd(), request, libc::c_ulong::from(value)) };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The properties of a tap device, to check whether an existing one can be used.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Description {
    tun: bool,
    owner: Option<u32>,
    group: Option<u32>,
    multi_queue: bool,
}

impl Description {
    pub(crate) fn wanted(options: &TapOptions) -> Self {
        let TapOptions { owner, group, queues } = *options;
        Description { tun: true, owner: Some(owner), group: Some(group), multi_queue: queues > 1 }
    }

    pub(crate) fn of(link: &LinkMessage) -> Self {
        let mut seen = Description { tun: false, owner: None, group: None, multi_queue: false };
        for info in infos(link) {
            match info {
                LinkInfo::Kind(InfoKind::Tun) => seen.tun = true,
                LinkInfo::Data(InfoData::Tun(attributes)) => attributes.iter().for_each(|a| seen.read(a)),
                _ => {}
            }
        }
        seen
    }

    fn read(&mut self, attribute: &InfoTun) {
        let mut value = vec![0; attribute.value_len()];
        attribute.emit_value(&mut value);
        let number = || value.as_slice().try_into().ok().map(u32::from_ne_bytes);
        match attribute.kind() {
            IFLA_TUN_OWNER => self.owner = number(),
            IFLA_TUN_GROUP => self.group = number(),
            IFLA_TUN_MULTI_QUEUE => self.multi_queue = value.first() == Some(&1),
            _ => {}
        }
    }
}

impl fmt::Display for Description {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.tun {
            return f.write_str("no tap device");
        }
        let queues = if self.multi_queue { "a multi-queue" } else { "a single-queue" };
        let id = |id: Option<u32>| id.map_or_else(|| "anyone".to_string(), |id| id.to_string());
        write!(f, "{queues} tap device of user {} and group {}", id(self.owner), id(self.group))
    }
}
