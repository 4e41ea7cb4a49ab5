//! Both proxies over loopback between two plain directories in place of Pods, to measure what the proxies cost.

use std::io;
use std::net::Ipv4Addr;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;

use hostfs::beneath::Root;
use launcher_contract::{Channel, USER};
use role_tls::{NodeCheck, Source};

use super::{Bond, Peers, Proxies, migrations, socket_path};
use crate::uid::{PodUid, VmiUid};

/// Both proxies of one migration. Dropping it closes them.
pub struct Way {
    pods: Arc<Root>,
    source: PodUid,
    target: PodUid,
    vmi: VmiUid,
    _proxies: (Proxies, Proxies),
}

impl Way {
    /// Opens both ends below `directory`, with one virt-handler certificate for both.
    pub async fn open(directory: &Path, identity: Source, encrypted: bool) -> io::Result<Way> {
        let pod = |text: &str| PodUid::new(text).map_err(io::Error::other);
        let (source, target, vmi) = (pod("source")?, pod("target")?, VmiUid::new("vmi").map_err(io::Error::other)?);
        let pods = Arc::new(Root::open(directory).map_err(io::Error::other)?);
        for one in [&source, &target] {
            pods.mkdir_all(migrations(one), 0o750, USER, USER).map_err(io::Error::other)?;
        }
        let peers = Peers::new(identity, NodeCheck::IfNamed);
        let bond = Bond { migration: "migration".to_owned(), peer: None, encrypted };
        let (there, here) = (Proxies::new(pods.clone(), peers.clone()), Proxies::new(pods.clone(), peers));
        let endpoint = there.listen(&target, &vmi, Ipv4Addr::LOCALHOST.into(), bond.clone()).await;
        let endpoint = endpoint.map_err(io::Error::other)?;
        here.dial(&source, &vmi, &endpoint, bond).await.map_err(io::Error::other)?;
        Ok(Way { pods, source, target, vmi, _proxies: (here, there) })
    }

    /// Listens like the target's QEMU.
    pub fn listen(&self) -> io::Result<UnixListener> {
        self.pods.bind_unix(socket_path(&self.target, &self.vmi, Channel::Memory)).map_err(io::Error::other)
    }

    /// Connects like the source's QEMU.
    pub fn connect(&self) -> io::Result<UnixStream> {
        self.pods.connect_unix(socket_path(&self.source, &self.vmi, Channel::Memory)).map_err(io::Error::other)
    }
}
