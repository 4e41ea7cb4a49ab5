//! The Pod's network as seen from inside by an unprivileged process: two ioctls that anyone may call.

use std::collections::BTreeMap;
use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

use netplan::{LinkName, MacAddr, PodLink, PodNet};

/// Looks up a link in this netns; `None` if it does not exist.
pub(crate) fn link(name: &str) -> io::Result<Option<PodLink>> {
    let socket = UdpSocket::bind(("127.0.0.1", 0)).or_else(|_| UdpSocket::bind(("0.0.0.0", 0)))?;
    let ask = |request: libc::c_ulong| -> io::Result<Option<libc::ifreq>> {
        // SAFETY: an all-zero ifreq is a valid value of this plain C struct.
        let mut ifreq: libc::ifreq = unsafe { std::mem::zeroed() };
        if name.len() >= ifreq.ifr_name.len() {
            return Ok(None);
        }
        for (to, from) in ifreq.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        // SAFETY: both requests read the name from the ifreq and write into it; it lives across the call.
        if unsafe { libc::ioctl(socket.as_raw_fd(), request as _, &raw mut ifreq) } == 0 {
            return Ok(Some(ifreq));
        }
        match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
            error => Err(error),
        }
    };
    let (Some(mtu), Some(address)) = (ask(libc::SIOCGIFMTU)?, ask(libc::SIOCGIFHWADDR)?) else { return Ok(None) };
    // SAFETY: after SIOCGIFMTU and SIOCGIFHWADDR these are the union members that the kernel has written.
    let (mtu, address) = unsafe { (mtu.ifr_ifru.ifru_mtu, address.ifr_ifru.ifru_hwaddr.sa_data) };
    let mut mac = [0; 6];
    for (to, from) in mac.iter_mut().zip(address) {
        *to = from as u8;
    }
    Ok(Some(PodLink { mtu: u32::try_from(mtu).unwrap_or_default(), mac: MacAddr(mac) }))
}

/// The Pod's networks as input for planning, with these links; or the first of them that is missing.
pub(crate) fn observe(names: Vec<LinkName>) -> io::Result<Result<PodNet, LinkName>> {
    let mut links = BTreeMap::new();
    for name in names {
        let Some(found) = link(&name)? else { return Ok(Err(name)) };
        links.insert(name, found);
    }
    let resolv_conf = match std::fs::read_to_string("/etc/resolv.conf") {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        other => other?,
    };
    let hostname = rustix::system::uname().nodename().to_string_lossy().into_owned();
    Ok(Ok(PodNet { links, resolv_conf, hostname }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_there_and_nonsense_is_not() {
        assert!(link("lo").unwrap().is_some_and(|lo| lo.mtu > 0));
        assert!(link("no-such-link").unwrap().is_none());
        assert!(link("a-name-much-too-long-for-a-link").unwrap().is_none());
    }
}
