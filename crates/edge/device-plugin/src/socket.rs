//! Sockets in the kubelet's directory.

use std::io;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use devices::{Identity, Socket};
use hostfs::beneath::{OFlags, Root, descriptor_path};
use rustix::fs::{AtFlags, FileType, Mode, Stat, StatxFlags};
use tokio::net::UnixStream;

use crate::error::Error;

/// A socket that we made. As long as we listen, no other file gets its inode, even after it was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Made {
    file_system: u64,
    inode: u64,
}

fn made(stat: &Stat) -> Made {
    Made { file_system: stat.st_dev, inode: stat.st_ino }
}

/// The directory. It is opened for each use: the kubelet may have made another one.
#[derive(Clone, Debug)]
pub(crate) struct Directory(pub(crate) PathBuf);

impl Directory {
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Listens, in place of a socket that a predecessor left behind.
    pub(crate) fn listen(&self, name: &str) -> Result<(UnixListener, Made), Error> {
        let root = Root::open(&self.0)?;
        let listener = root.bind_unix(name)?;
        let failed =
            |doing| move |err: rustix::io::Errno| Error::Socket { doing, path: self.path(name), err: err.into() };
        rustix::fs::chmodat(&root, name, Mode::from_raw_mode(0o600), AtFlags::empty())
            .map_err(failed("restrict the permissions of"))?;
        let stat = rustix::fs::statat(&root, name, AtFlags::SYMLINK_NOFOLLOW).map_err(failed("look up"))?;
        listener.set_nonblocking(true).map_err(|err| Error::Socket { doing: "use", path: self.path(name), err })?;
        Ok((listener, made(&stat)))
    }

    /// What has become of the socket that we made.
    pub(crate) async fn state(&self, name: &str, own: Made) -> Socket {
        match self.stat(name) {
            None => Socket::Gone,
            Some(stat) if made(&stat) == own => Socket::InPlace,
            Some(_) => match self.connect(name).await {
                Ok(_) => Socket::Taken,
                Err(_) => Socket::Gone,
            },
        }
    }

    /// Removes our socket, unless it is gone or another process has replaced it.
    pub(crate) fn remove(&self, name: &str, own: Made) -> Result<(), Error> {
        match self.stat(name) {
            Some(stat) if made(&stat) == own => Ok(Root::open(&self.0)?.remove(name)?),
            _ => Ok(()),
        }
    }

    /// The socket of this name, if there is one. It has no device number; the time it was made takes that place, because
    /// the socket of the next kubelet may get the same inode.
    pub(crate) fn identity(&self, name: &str) -> Option<Identity> {
        let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
        let stat = rustix::fs::statx(rustix::fs::CWD, self.path(name), AtFlags::SYMLINK_NOFOLLOW, wanted).ok()?;
        let is_socket = FileType::from_raw_mode(stat.stx_mode.into()) == FileType::Socket;
        let born = stat.stx_btime.tv_sec.wrapping_mul(1_000_000_000).wrapping_add(stat.stx_btime.tv_nsec.into());
        is_socket.then_some(Identity {
            file_system: u64::from(stat.stx_dev_major) << 32 | u64::from(stat.stx_dev_minor),
            inode: stat.stx_ino,
            device: born.cast_unsigned(),
        })
    }

    /// Connects without blocking, also where the path is longer than a socket address.
    pub(crate) async fn connect(&self, name: &str) -> io::Result<UnixStream> {
        let file = Root::open(&self.0)
            .and_then(|root| root.open_file(name, OFlags::PATH | OFlags::CLOEXEC))
            .map_err(io::Error::other)?;
        UnixStream::connect(descriptor_path(&file)).await
    }

    fn stat(&self, name: &str) -> Option<Stat> {
        let path: &Path = &self.path(name);
        rustix::fs::statat(rustix::fs::CWD, path, AtFlags::SYMLINK_NOFOLLOW).ok()
    }
}
