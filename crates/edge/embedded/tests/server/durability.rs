//! What was acknowledged is there after a crash, and versions never go back.
#![allow(clippy::unwrap_used)] // a test may fail this way

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use crate::common::{Authority, MASTERS, TestServer, client, eventually, load, save};
use embedded::{Server, StoreError};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams, PostParams};
use kube::{Client, ResourceExt as _};
use parking_lot::Mutex;
use serde_json::json;
use tokio_util::sync::CancellationToken;

const ROUNDS: usize = 50;
const WRITERS: usize = 8;
const DIR: &str = "EMBEDDED_TEST_DIR";

/// Not a test: the server that the test below kills. It listens and writes its port into a file.
#[test]
#[ignore = "run as a child process by the crash test"]
fn child_server() {
    let Some(dir) = std::env::var_os(DIR).map(PathBuf::from) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let authority = load(&dir);
        let server = Server::open(test_server::config(&authority, &dir, vec![])).await.unwrap();
        server.bootstrap().await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port().to_string();
        std::fs::write(dir.join("port.tmp"), port).unwrap();
        std::fs::rename(dir.join("port.tmp"), dir.join("port")).unwrap();
        server.serve(listener, CancellationToken::new()).await.unwrap();
    });
}

/// A child that does not outlive the test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _reaped = self.0.wait();
    }
}

async fn start(dir: &Path, authority: &Authority) -> (Killed, Client) {
    let _first_time = std::fs::remove_file(dir.join("port"));
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["durability::child_server", "--exact", "--ignored", "--nocapture"])
        .env(DIR, dir)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let child = Killed(child);
    let port = eventually("the server to listen", || async {
        std::fs::read_to_string(dir.join("port")).ok()?.parse::<u16>().ok()
    })
    .await;
    (child, client(authority, port, Some(&authority.issue("admin", &[MASTERS]))).await)
}

/// What a writer has been told is done: the count in its own object, and the version that carried it.
#[derive(Debug, Clone, Copy, Default)]
struct Acknowledged {
    count: u64,
    version: u64,
}

fn count_of(map: &ConfigMap) -> u64 {
    map.data.as_ref().and_then(|data| data.get("count")).map_or(0, |count| count.parse().unwrap())
}

fn version_of(map: &ConfigMap) -> u64 {
    map.resource_version().unwrap().parse().unwrap()
}

/// Counts up in its own object until the server is gone.
async fn write(client: Client, writer: usize, acknowledged: Arc<Mutex<Vec<Acknowledged>>>) {
    let api: Api<ConfigMap> = Api::default_namespaced(client);
    let name = format!("writer-{writer}");
    let mut current = match api.get_opt(&name).await {
        Ok(found) => found,
        Err(_) => return,
    };
    if let Some(found) = &current {
        // What has been read must not vanish either.
        acknowledged.lock()[writer] = Acknowledged { count: count_of(found), version: version_of(found) };
    }
    loop {
        let count = current.as_ref().map_or(0, count_of) + 1;
        let map = json!({"metadata": {"name": name}, "data": {"count": count.to_string()}});
        let map: ConfigMap = serde_json::from_value(map).unwrap();
        let written = match &current {
            None => api.create(&PostParams::default(), &map).await,
            Some(_) => api.replace(&name, &PostParams::default(), &map).await,
        };
        let Ok(written) = written else { return };
        acknowledged.lock()[writer] = Acknowledged { count, version: version_of(&written) };
        current = Some(written);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_survives_kill_9() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    save(&authority, dir.path());
    let acknowledged = Arc::new(Mutex::new(vec![Acknowledged::default(); WRITERS]));
    let mut highest = 0;
    for round in 0..=ROUNDS {
        let (mut child, client) = start(dir.path(), &authority).await;
        let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
        let list = api.list(&ListParams::default()).await.unwrap();
        let version: u64 = list.metadata.resource_version.unwrap().parse().unwrap();
        let known = acknowledged.lock().clone();
        for (writer, known) in known.iter().enumerate().filter(|(_, known)| known.count > 0) {
            let name = format!("writer-{writer}");
            let found = list.items.iter().find(|map| map.name_any() == name);
            let found = found.unwrap_or_else(|| panic!("round {round}: {name} is lost, it had {known:?}"));
            // At most the one write that was not answered may be there in addition.
            let count = count_of(found);
            assert!((known.count..=known.count + 1).contains(&count), "round {round}: {count} after {known:?}");
            assert!(version_of(found) >= known.version, "round {round}: {name} went back");
            highest = highest.max(known.version);
        }
        assert!(version >= highest, "round {round}: the store went back from {highest} to {version}");
        if round == ROUNDS {
            break;
        }
        let writers = (0..WRITERS).map(|writer| tokio::spawn(write(client.clone(), writer, acknowledged.clone())));
        let writers: Vec<_> = writers.collect();
        // A different moment every time, within a few commits.
        tokio::time::sleep(Duration::from_millis(40 + (round as u64 * 37) % 150)).await;
        child.0.kill().unwrap();
        child.0.wait().unwrap();
        for writer in writers {
            writer.await.unwrap();
        }
    }
    let total: u64 = acknowledged.lock().iter().map(|writer| writer.count).sum();
    assert!(total > ROUNDS as u64, "only {total} writes in {ROUNDS} rounds prove nothing");
}

/// Not a test: fills a small file system, which the test below mounts for it alone.
#[test]
#[ignore = "run in a mount namespace of its own by the full-disk test"]
fn child_on_a_small_disk() {
    let Some(dir) = std::env::var_os(DIR).map(PathBuf::from) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        std::fs::write(dir.join("ballast"), vec![0; 2 << 20]).unwrap();
        let server = TestServer::start_in(tempfile::tempdir_in(&dir).unwrap(), Authority::new()).await;
        let client = server.admin().await;
        let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
        let map = |index: usize| {
            let map = json!({"metadata": {"name": format!("m{index}")}, "data": {"k": "x".repeat(200 << 10)}});
            serde_json::from_value::<ConfigMap>(map).unwrap()
        };
        let mut written = 0;
        let refusal = loop {
            match api.create(&PostParams::default(), &map(written)).await {
                Ok(_) => written += 1,
                Err(err) => break crate::common::refusal(Err::<(), _>(err)),
            }
            assert!(written < 1000, "the disk is not small");
        };
        assert_eq!((refusal.0, refusal.1.as_str()), (507, "InsufficientStorage"));
        assert!(refusal.2.contains("no space left on the device"), "{}", refusal.2);
        assert!(written > 0);
        // Still there, still readable, still refusing.
        assert_eq!(api.list(&ListParams::default()).await.unwrap().items.len(), written);
        assert_eq!(crate::common::refusal(api.create(&PostParams::default(), &map(written)).await).0, 507);
        std::fs::remove_file(dir.join("ballast")).unwrap();
        api.create(&PostParams::default(), &map(written)).await.unwrap();
        let (dir, authority) = server.stop().await;
        let server = TestServer::start_in(dir, authority).await;
        let api: Api<ConfigMap> = Api::default_namespaced(server.admin().await);
        assert_eq!(api.list(&ListParams::default()).await.unwrap().items.len(), written + 1);
    });
    println!("the small disk was handled");
}

#[test]
fn a_full_disk_refuses_writes_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let script = r#"mount -t tmpfs -o size=8m tmpfs "$0" && exec "$1" "$2" --exact --ignored --nocapture"#;
    let child = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", script])
        .arg(dir.path())
        .arg(std::env::current_exe().unwrap())
        .arg("durability::child_on_a_small_disk")
        .env(DIR, dir.path())
        .output();
    let Ok(output) = child else { return test_support::skip("there is no unshare") };
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if err.contains("Operation not permitted") || err.contains("must be superuser") {
        return test_support::skip("a mount namespace needs privileges");
    }
    assert!(output.status.success() && out.contains("the small disk was handled"), "{out}{err}");
}

#[tokio::test]
async fn a_second_server_on_the_same_store_gets_one_clear_error() {
    let first = TestServer::start().await;
    let err = Server::open(test_server::config(&first.authority, first.dir(), vec![]))
        .await
        .err()
        .expect("the store is taken");
    assert!(matches!(err, embedded::Error::Store(StoreError::InUse { .. })), "{err}");
    assert!(err.to_string().contains("in use by another server"), "{err}");

    // In another process as well, and the first goes on.
    save(&first.authority, first.dir());
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["durability::child_server", "--exact", "--ignored", "--nocapture"])
        .env(DIR, first.dir())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let output = tokio::task::spawn_blocking(move || child.wait_with_output().unwrap()).await.unwrap();
    assert!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("InUse"), "{text}");
    let client = first.admin().await;
    assert!(client.apiserver_version().await.is_ok());

    let (dir, authority) = first.stop().await;
    let second = TestServer::start_in(dir, authority).await;
    second.stop().await;
}
