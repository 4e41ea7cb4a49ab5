//! Other ends than the kubelet. These need root, to be another user.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use test_support::eventually;

use super::{Node, healthy, kvm_and_tun};

const STRANGER: libc::c_long = 65_534;

/// Whether another user can be played here; says so if not.
fn can_be_another_user() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        test_support::skip("needs root to be another user");
    }
    root
}

/// Runs in a thread of another user: the plain system call changes the calling thread only.
fn as_stranger<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = std::thread::spawn(move || {
        // SAFETY: takes numbers only; the thread ends after the work.
        let changed = unsafe { libc::syscall(libc::SYS_setresuid, STRANGER, STRANGER, STRANGER) };
        assert_eq!(changed, 0);
        work()
    });
    thread.join().unwrap()
}

fn open_to_all(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_talks_to_no_other_user() {
    if !can_be_another_user() {
        return;
    }
    let node = Node::start(kvm_and_tun());
    let kubelet = node.kubelet();
    healthy(&kubelet, "tun").await;
    let path = node.dir().join("kubevirt-tun.sock");
    open_to_all(node.home.path());
    let refused = {
        let path = path.clone();
        tokio::task::spawn_blocking(|| as_stranger(move || UnixStream::connect(path).map(drop))).await.unwrap()
    };
    assert_eq!(refused.unwrap_err().kind(), std::io::ErrorKind::PermissionDenied);

    let kvm = node.dir().join("kubevirt-kvm.sock");
    let bytes = tokio::task::spawn_blocking(|| {
        // Between listening and the change of permissions anybody could get in.
        open_to_all(&kvm);
        as_stranger(move || hello(&kvm))
    });
    assert_eq!(bytes.await.unwrap(), Some(0), "the connection is closed without a word");
    let home = node.stop().await;
    let left = super::sockets(&home.path().join("plugins"));
    assert_eq!(left, ["kubelet.sock"], "a socket with other permissions is still ours");
}

/// Begins as an HTTP/2 client; returns how many bytes come back, or nothing if the socket is not there.
fn hello(path: &Path) -> Option<usize> {
    let mut stream = UnixStream::connect(path).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let _ = stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0");
    let mut answer = [0; 64];
    match stream.read(&mut answer) {
        Ok(bytes) => Some(bytes),
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => Some(0),
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_said_to_a_kubelet_of_another_user() {
    if !can_be_another_user() {
        return;
    }
    let node = Node::start(vec![kvm_and_tun().remove(1)]);
    open_to_all(node.home.path());
    open_to_all(&node.dir());
    let path = node.dir().join("kubelet.sock");
    let listener = as_stranger(move || UnixListener::bind(path).unwrap());
    let heard = tokio::task::spawn_blocking(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).map(|_| bytes)
    });
    assert_eq!(heard.await.unwrap().unwrap(), b"", "the plugin hangs up");
    assert!(node.registered.borrow().is_empty());

    // The real one is found all the same.
    let kubelet = node.kubelet();
    eventually("the kubelet knows tun", async || kubelet.known("tun").watched).await;
    node.stop().await;
}

#[tokio::test]
async fn a_kubelet_that_does_not_answer_is_given_up() {
    let node = Node::start(vec![kvm_and_tun().remove(1)]);
    let silent = tokio::net::UnixListener::bind(node.dir().join("kubelet.sock")).unwrap();
    let (first, _) = silent.accept().await.unwrap();
    // Another attempt comes only after the first was given up.
    let (second, _) = tokio::time::timeout(Duration::from_secs(30), silent.accept()).await.unwrap().unwrap();
    drop((first, second, silent));
    let kubelet = node.kubelet();
    healthy(&kubelet, "tun").await;
    node.stop().await;
}
