//! Network namespaces with servers and clients in them.
#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

use netlink::blocking::Links;
use netplan::Route;
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};

/// A network namespace that lives as long as the descriptor.
pub(crate) struct NetNs(pub(crate) std::fs::File);

impl NetNs {
    pub(crate) fn new() -> rustix::io::Result<Self> {
        let made = std::thread::spawn(|| {
            // SAFETY: only the network namespace of this thread changes; no file descriptors or memory are unshared.
            unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }?;
            Ok(NetNs(std::fs::File::open("/proc/thread-self/ns/net").unwrap()))
        });
        made.join().unwrap()
    }

    pub(crate) fn run<T: Send>(&self, what: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
                what()
            });
            thread.join().expect("work in the namespace failed")
        })
    }
}

pub(crate) fn address(link: &str, net: &str) {
    let mut links = Links::new().unwrap();
    links.add_address(link, net.parse().unwrap()).unwrap();
    links.set_up(link).unwrap();
    links.set_up("lo").unwrap();
}

pub(crate) fn default_route(gateway: Ipv4Addr) {
    let route = Route { destination: "0.0.0.0/0".parse().unwrap(), gateway: Some(gateway.into()), link: None };
    Links::new().unwrap().add_route(&route).unwrap();
}

/// As many new ones; none for a user who may not make any.
pub(crate) fn spaces<const N: usize>() -> Option<[NetNs; N]> {
    let mut all = Vec::new();
    for _ in 0..N {
        match NetNs::new() {
            Ok(space) => all.push(space),
            Err(err) => {
                test_support::skip(&format!("cannot make a network namespace ({err}); run as root"));
                return None;
            }
        }
    }
    all.try_into().ok()
}

/// Answers every connection with the address it came from.
pub(crate) fn serve(netns: &NetNs, port: u16) {
    let listener = netns.run(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let peer = stream.peer_addr().unwrap().ip();
            write!(stream, "{peer}").unwrap();
        }
    });
}

pub(crate) fn ask(netns: &NetNs, address: &str) -> std::io::Result<String> {
    let address: SocketAddr = address.parse().unwrap();
    netns.run(|| {
        let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    })
}
