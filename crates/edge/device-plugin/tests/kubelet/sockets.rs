//! The sockets themselves: names, paths, permissions, predecessors and successors.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::time::Duration;

use test_support::eventually;

use super::{Kubelet, Node, healthy, home, kvm_and_tun, sockets};

#[tokio::test]
async fn only_their_owner_may_use_the_sockets() {
    let node = Node::start(kvm_and_tun());
    let kubelet = node.kubelet();
    healthy(&kubelet, "kvm").await;
    let mode = fs::metadata(node.dir().join("kubevirt-kvm.sock")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    node.stop().await;
}

#[tokio::test]
async fn a_socket_left_behind_is_replaced() {
    let home = home();
    let dir = home.path().join("plugins");
    drop(UnixListener::bind(dir.join("kubevirt-tun.sock")).unwrap());
    let _kept = UnixListener::bind(dir.join("other.sock")).unwrap();
    let node = Node::start_in(home, dir.clone(), dir.clone(), kvm_and_tun());
    eventually("kvm is there", async || dir.join("kubevirt-kvm.sock").exists()).await;
    eventually("tun answers", async || super::fake::dial(dir.join("kubevirt-tun.sock")).await.is_ok()).await;
    let home = node.stop().await;
    assert_eq!(sockets(&home.path().join("plugins")), ["other.sock"], "only our own sockets are removed");
}

#[tokio::test]
async fn a_newer_process_keeps_the_socket_that_it_took_over() {
    let node = Node::start(kvm_and_tun());
    let kubelet = node.kubelet();
    healthy(&kubelet, "tun").await;
    let path = node.dir().join("kubevirt-tun.sock");
    fs::remove_file(&path).unwrap();
    let newer = UnixListener::bind(node.dir().join("new.sock")).unwrap();
    fs::rename(node.dir().join("new.sock"), &path).unwrap();
    let taken = fs::metadata(&path).unwrap().ino();
    tokio::time::sleep(Duration::from_millis(400)).await; // twenty looks
    assert_eq!(fs::metadata(&path).unwrap().ino(), taken, "the plugin took its place back");

    // It dies: then its socket is as good as gone.
    drop(newer);
    eventually("the plugin serves again", async || super::fake::dial(path.clone()).await.is_ok()).await;
    eventually("and registers", async || kubelet.known("tun").watched).await;
    node.stop().await;
}

#[tokio::test]
async fn the_end_leaves_the_socket_of_a_newer_process() {
    let node = Node::start(kvm_and_tun());
    let kubelet = node.kubelet();
    healthy(&kubelet, "tun").await;
    let path = node.dir().join("kubevirt-tun.sock");
    let newer = UnixListener::bind(node.dir().join("new.sock")).unwrap();
    fs::rename(node.dir().join("new.sock"), &path).unwrap();
    let home = node.stop().await;
    assert_eq!(sockets(&home.path().join("plugins")), ["kubelet.sock", "kubevirt-tun.sock"]);
    drop(newer);
}

#[tokio::test]
async fn a_directory_that_is_made_later_is_found() {
    let home = home();
    let dir = home.path().join("later");
    let node = Node::start_in(home, dir.clone(), dir.clone(), kvm_and_tun());
    fs::create_dir(&dir).unwrap();
    let kubelet = Kubelet::start(&dir);
    healthy(&kubelet, "kvm").await;
    // And another one in its place.
    drop(kubelet);
    fs::remove_dir_all(&dir).unwrap();
    fs::create_dir(&dir).unwrap();
    let kubelet = Kubelet::start(&dir);
    healthy(&kubelet, "kvm").await;
    node.stop().await;
}

#[tokio::test]
async fn a_directory_may_be_deep_here_as_long_as_the_kubelet_reaches_it() {
    let home = home();
    let deep = home.path().join("d".repeat(100)).join("e".repeat(100));
    fs::create_dir_all(&deep).unwrap();
    let short = home.path().join("short");
    symlink(&deep, &short).unwrap();
    let node = Node::start_in(home, deep, short.clone(), kvm_and_tun());
    let kubelet = Kubelet::start(&short);
    healthy(&kubelet, "kvm").await;
    node.stop().await;
}

#[tokio::test]
async fn a_directory_too_deep_for_the_kubelet_is_an_error() {
    let deep = PathBuf::from("/").join("k".repeat(90));
    let home = home();
    let dir = home.path().join("plugins");
    let node = Node::start_in(home, dir.clone(), deep.clone(), kvm_and_tun());
    let error = node.serving.await.unwrap().unwrap_err().to_string();
    assert!(error.starts_with(&format!("the kubelet cannot reach device plugins in {}", deep.display())), "{error}");
    assert!(error.contains("may have 60 bytes"), "{error}");
    assert!(sockets(&dir).is_empty());
}
