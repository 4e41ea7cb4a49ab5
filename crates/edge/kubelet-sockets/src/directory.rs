//! Sockets in a directory.

use std::io;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use hostfs::beneath::{OFlags, Root, descriptor_path};
use rustix::fs::{AtFlags, Mode, Stat};
use tokio::net::UnixStream;

use crate::Error;

/// A socket that we made. As long as we listen, no other file gets its inode, even after it was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Made {
    file_system: u64,
    inode: u64,
}

fn made_of(stat: &Stat) -> Made {
    Made { file_system: stat.st_dev, inode: stat.st_ino }
}

/// What is at the place of a socket that we made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    Nothing,
    Ours,
    Another,
}

/// The directory. It is opened for each use: the kubelet may have made another one.
#[derive(Clone, Debug)]
pub struct Directory(pub PathBuf);

impl Directory {
    /// For messages, and for peers.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Listens, in place of a socket that a predecessor left behind.
    pub fn listen(&self, name: &str) -> Result<(UnixListener, Made), Error> {
        let root = Root::open(&self.0)?;
        let listener = root.bind_unix(name)?;
        let failed =
            |doing| move |err: rustix::io::Errno| Error::Socket { doing, path: self.path(name), err: err.into() };
        rustix::fs::chmodat(&root, name, Mode::from_raw_mode(0o600), AtFlags::empty())
            .map_err(failed("restrict the permissions of"))?;
        let stat = rustix::fs::statat(&root, name, AtFlags::SYMLINK_NOFOLLOW).map_err(failed("look up"))?;
        listener.set_nonblocking(true).map_err(|err| Error::Socket { doing: "use", path: self.path(name), err })?;
        Ok((listener, made_of(&stat)))
    }

    /// Removes our socket, unless it is gone or another process has replaced it.
    pub fn remove(&self, name: &str, own: Made) -> Result<(), Error> {
        match self.stat(name) {
            Some(stat) if made_of(&stat) == own => Ok(Root::open(&self.0)?.remove(name)?),
            _ => Ok(()),
        }
    }

    /// Connects without blocking, also where the path is longer than a socket address.
    pub async fn connect(&self, name: &str) -> io::Result<UnixStream> {
        let file = Root::open(&self.0)
            .and_then(|root| root.open_file(name, OFlags::PATH | OFlags::CLOEXEC))
            .map_err(io::Error::other)?;
        UnixStream::connect(descriptor_path(&file)).await
    }

    /// Whether a socket that we made is still there.
    pub fn holds(&self, name: &str, own: Made) -> Holds {
        match self.stat(name) {
            None => Holds::Nothing,
            Some(stat) if made_of(&stat) == own => Holds::Ours,
            Some(_) => Holds::Another,
        }
    }

    fn stat(&self, name: &str) -> Option<Stat> {
        let path: &Path = &self.path(name);
        rustix::fs::statat(rustix::fs::CWD, path, AtFlags::SYMLINK_NOFOLLOW).ok()
    }
}
