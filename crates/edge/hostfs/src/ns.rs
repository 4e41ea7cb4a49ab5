//! Namespaces: network namespaces that outlive their processes, and running code inside one.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::OFlags;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space, unshare_unsafe};

pub use rustix::thread::UnshareFlags as Kinds;

use crate::error::{Context, Error, Result, absent_is_fine, invalid};
use crate::mounts;

/// Moves the calling thread into new namespaces. Call it on a dedicated thread or before there are others, since the
/// threads of a runtime are shared.
pub fn unshare(kinds: Kinds) -> Result<()> {
    if kinds.contains(Kinds::FILES) {
        return Err(invalid(
            "unshare",
            "the descriptor table",
            "descriptors of other threads would lose their meaning",
        ));
    }
    // SAFETY: the descriptor table stays shared; unsharing it is the only thing that could invalidate descriptors in
    // use.
    unsafe { unshare_unsafe(kinds) }.map_err(|e| Error::new("unshare", format_args!("{kinds:?}"), e))
}

/// Creates a netns that is kept by a bind mount at `path`, with its loopback down. If one exists already, it is opened
/// unchanged.
pub fn create_netns(path: impl AsRef<Path>) -> Result<OwnedFd> {
    let path = path.as_ref();
    match open_netns(path) {
        // A plain file: the mount point of an interrupted attempt, or of an earlier boot.
        Err(e) if e.is_not_found() || e.kind() == io::ErrorKind::InvalidInput => {}
        other => return other,
    }
    File::options().create(true).append(true).open(path).doing("make mount point", path)?;
    on_fresh_thread(|| {
        unshare(Kinds::NEWNET)?;
        mounts::bind("/proc/thread-self/ns/net", path)
    })??;
    open_netns(path)
}

/// Bind-mounts the netns of a running process at `path`, if the mount there got lost.
pub fn keep_netns_of(pid: i32, path: impl AsRef<Path>) -> Result<OwnedFd> {
    let path = path.as_ref();
    File::options().create(true).append(true).open(path).doing("make mount point", path)?;
    mounts::bind(format!("/proc/{pid}/ns/net"), path)?;
    open_netns(path)
}

/// Opens the netns kept at `path`.
pub fn open_netns(path: impl AsRef<Path>) -> Result<OwnedFd> {
    let path = path.as_ref();
    let fd = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, rustix::fs::Mode::empty())
        .doing("open network namespace", path)?;
    if !is_network(&fd) {
        return Err(invalid("open network namespace", path, "the file is not a network namespace"));
    }
    Ok(fd)
}

/// Removes the mount that keeps the netns, and its file; succeeds if absent. The netns itself is freed with its last
/// process.
pub fn remove_netns(path: impl AsRef<Path>) -> Result<()> {
    let path = path.as_ref();
    mounts::umount_all_below(path)?;
    absent_is_fine(fs::remove_file(path).doing("remove", path))
}

/// Whether two namespaces, given by `/proc/<pid>/ns/*` or mount paths, are the same.
pub fn same(a: impl AsRef<Path>, b: impl AsRef<Path>) -> Result<bool> {
    let [a, b] = [a.as_ref(), b.as_ref()].map(|p| fs::metadata(p).doing("look at namespace", p));
    let (a, b) = (a?, b?);
    Ok((a.dev(), a.ino()) == (b.dev(), b.ino()))
}

/// Moves the calling thread into the netns. For processes that stay there; otherwise use [`run_in_netns`].
pub fn enter_netns(ns: impl AsFd) -> Result<()> {
    move_into_link_name_space(ns.as_fd(), Some(LinkNameSpaceType::Network))
        .map_err(|e| Error::new("enter", "the network namespace", e))
}

/// Runs `f` inside a netns, on a dedicated thread. Sockets that `f` returns stay in that netns.
pub fn run_in_netns<T: Send>(ns: impl AsFd, f: impl FnOnce() -> T + Send) -> Result<T> {
    let ns = ns.as_fd();
    on_fresh_thread(|| enter_netns(ns).map(|()| f()))?
}

fn on_fresh_thread<T: Send>(f: impl FnOnce() -> T + Send) -> Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("netns".into())
            .spawn_scoped(scope, f)
            .map_err(|e| Error::new("start", "a thread for a network namespace", e))?;
        thread.join().map_err(|panic| std::panic::resume_unwind(panic))
    })
}

/// Asks the kernel for the type of a namespace file.
fn is_network(ns: &OwnedFd) -> bool {
    const NS_GET_NSTYPE: libc::Ioctl = 0xb703;
    // SAFETY: the request takes no argument and only reads; on a file that is not a namespace it fails.
    unsafe { libc::ioctl(ns.as_raw_fd(), NS_GET_NSTYPE) == libc::CLONE_NEWNET }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::path::PathBuf;

    struct Kept(PathBuf);

    impl Drop for Kept {
        fn drop(&mut self) {
            remove_netns(&self.0).unwrap();
        }
    }

    fn links() -> String {
        fs::read_to_string("/proc/thread-self/net/dev").unwrap()
    }

    #[test]
    fn a_kept_namespace_is_new_once_and_the_same_afterwards() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("net");
        let kept = Kept(path.clone());
        let first = create_netns(&path).unwrap();
        assert!(!same(&path, "/proc/self/ns/net").unwrap());
        let inside = fs::metadata(&path).unwrap().ino();
        create_netns(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().ino(), inside);

        let here = run_in_netns(&first, || fs::metadata("/proc/thread-self/ns/net").unwrap().ino()).unwrap();
        assert_eq!(here, inside);
        assert!(run_in_netns(&first, links).unwrap().contains("lo:"));
        drop(kept);
        remove_netns(&path).unwrap();
        assert!(!path.exists());
        assert!(open_netns(&path).unwrap_err().is_not_found());
    }

    #[test]
    fn a_mount_point_left_by_a_crash_is_used_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("net");
        fs::write(&path, "").unwrap();
        let _kept = Kept(path.clone());
        create_netns(&path).unwrap();
        assert!(!same(&path, "/proc/self/ns/net").unwrap());
    }

    #[test]
    fn sockets_stay_in_the_namespace_they_were_made_in() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("net");
        let _kept = Kept(path.clone());
        let ns = create_netns(&path).unwrap();
        // Loopback is down in a new netns: only the wildcard address can be bound.
        let listener = run_in_netns(&ns, || TcpListener::bind("0.0.0.0:0")).unwrap().unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_err());
    }

    #[test]
    fn the_callers_thread_stays_where_it_is_also_when_the_code_panics() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("net");
        let _kept = Kept(path.clone());
        let ns = create_netns(&path).unwrap();
        let panicked = std::panic::catch_unwind(|| run_in_netns(&ns, || panic!("inside")));
        assert!(panicked.is_err());
        assert!(same("/proc/thread-self/ns/net", "/proc/self/ns/net").unwrap());
    }
}
