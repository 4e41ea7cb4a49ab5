//! The REST server as virt-api meets it, with fake sockets in place of launcher and QEMU.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use api::labels::NODE_NAME;
use api::v1::VirtualMachineInstance;
use futures::{SinkExt, StreamExt};
use http::StatusCode;
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::TokioIo;
use informer::{Informer, Ingest, Recorder};
use kube::runtime::watcher::Event;
use parking_lot::Mutex;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::json;
use test_support::{Authority, Pair, eventually};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixListener, UnixStream};
use tokio_rustls::client::TlsStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::agents::{Agents, Node};
use crate::config::CurrentConfig;
use crate::records::Records;
use crate::rest;

const CLIENT: &str = role_tls::NODE_AGENT_CLIENT;
const POD: &str = "pod-1";
const VMI: &str = "vmi-1";
const BASE: &str = "/v1/namespaces/default/virtualmachineinstances/testvm";

/// What the node agent shows to its peers.
fn agent(authority: &Authority) -> role_tls::Identity {
    let Pair { cert, key } = authority.issue(role_tls::NODE_AGENT, &[]);
    role_tls::Identity::from_pem(authority.pem(), &cert, &key).unwrap()
}

/// A node agent with one VMI, its launcher answering, served on a port of the loopback.
struct Setup {
    authority: Authority,
    address: SocketAddr,
    dir: tempfile::TempDir,
    cache: Ingest<VirtualMachineInstance>,
    /// What the API server says about `testvm`.
    stored: Arc<Mutex<VirtualMachineInstance>>,
    _stop: DropGuard,
}

impl Setup {
    async fn new() -> Self {
        let authority = Authority::new();
        let tls = rest::tls(agent(&authority).into());
        let dir = tempfile::tempdir().unwrap();
        for volume in ["sockets", "private/vmi-1"] {
            std::fs::create_dir_all(volumes(dir.path()).join(volume)).unwrap();
        }
        fake_launcher(&volumes(dir.path()).join("sockets/launcher-sock"));
        let shutdown = CancellationToken::new();
        let stored = Arc::new(Mutex::new(settled()));
        let (agents, cache) = agents(dir.path(), &authority, fake_api(stored.clone()).await, shutdown.clone());
        let listen = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listen.local_addr().unwrap();
        tokio::spawn(rest::serve(listen, tls, agents.clone(), shutdown.clone()));
        eventually("the launcher answers", async || agents.launcher_of(VMI).is_some()).await;
        Setup { authority, address, dir, cache, stored, _stop: shutdown.drop_guard() }
    }

    fn private(&self, socket: &str) -> PathBuf {
        volumes(self.dir.path()).join("private").join(VMI).join(socket)
    }

    async fn connect(&self, identity: Option<Pair>) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.authority.pem().as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let config = match identity {
            Some(Pair { cert, key }) => {
                let cert = CertificateDer::from_pem_slice(cert.as_bytes()).unwrap();
                builder
                    .with_client_auth_cert(vec![cert], PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap())
                    .unwrap()
            }
            None => builder.with_no_client_auth(),
        };
        let tcp = TcpStream::connect(self.address).await?;
        let name = ServerName::try_from("localhost").unwrap();
        tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, tcp).await
    }

    /// Sends a request as `identity`; an error is a connection that was refused.
    async fn request(
        &self,
        identity: Option<Pair>,
        method: &str,
        path: &str,
    ) -> Result<(StatusCode, String), Box<dyn std::error::Error>> {
        let stream = self.connect(identity).await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let request = http::Request::builder().method(method).uri(path).header("host", "localhost");
        let response = sender.send_request(request.body(Empty::<bytes::Bytes>::new())?).await?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        Ok((status, String::from_utf8_lossy(&body).into_owned()))
    }

    async fn virt_api(&self, method: &str, path: &str) -> (StatusCode, String) {
        self.request(Some(self.authority.issue(CLIENT, &[])), method, path).await.unwrap()
    }

    async fn websocket(
        &self,
        path: &str,
    ) -> tokio_tungstenite::tungstenite::Result<tokio_tungstenite::WebSocketStream<TlsStream<TcpStream>>> {
        let stream = self.connect(Some(self.authority.issue(CLIENT, &[]))).await.unwrap();
        let mut request = format!("ws://localhost{BASE}/{path}").into_client_request()?;
        request.headers_mut().insert("sec-websocket-protocol", "plain.kubevirt.io".parse().unwrap());
        let (socket, response) = tokio_tungstenite::client_async(request, stream).await?;
        assert_eq!(response.headers()["sec-websocket-protocol"], "plain.kubevirt.io");
        Ok(socket)
    }
}

fn volumes(pods: &Path) -> PathBuf {
    pods.join(POD).join("volumes/kubernetes.io~empty-dir")
}

/// Answers as a launcher whose guest runs; refuses to reset it.
fn fake_launcher(path: &Path) {
    let domain = json!({"name": "default_testvm", "uid": VMI, "status": "Running", "reason": "Booted"});
    let agent = json!({"version": "8.2", "hostname": "guest", "os": {"name": "Debian"}});
    let state = json!({"seq": 1, "domain": domain, "guest_agent": agent});
    let info = json!({"protocol": 1, "version": "test", "launcher_uid": VMI, "pod_name": "virt-launcher-testvm"});
    let refusal = json!({"code": "WrongState", "message": "not now"});
    let router = axum::Router::new()
        .route("/v1/info", axum::routing::get(async move || axum::Json(info)))
        .route("/v1/state", axum::routing::get(async move || axum::Json(state)))
        .route("/v1/pause", axum::routing::put(async || axum::Json(json!({}))))
        .route("/v1/reset", axum::routing::put(async move || (StatusCode::CONFLICT, axum::Json(refusal))));
    let listener = UnixListener::bind(path).unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
}

fn settled() -> VirtualMachineInstance {
    serde_json::from_value(json!({
        "metadata": {
            "namespace": "default", "name": "testvm", "uid": VMI, "resourceVersion": "1",
            "labels": {"kubevirt.io/nodeName": "node01"},
        },
        "spec": {}, "status": {"phase": "Running", "nodeName": "node01", "activePods": {POD: "node01"}},
    }))
    .unwrap()
}

/// An API server that knows one VMI, and takes nothing.
async fn fake_api(stored: Arc<Mutex<VirtualMachineInstance>>) -> http::Uri {
    let get = async move |axum::extract::Path(name): axum::extract::Path<String>| {
        let not_found = json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404});
        match name.as_str() {
            "testvm" => (StatusCode::OK, axum::Json(json!(*stored.lock()))),
            _ => (StatusCode::NOT_FOUND, axum::Json(not_found)),
        }
    };
    let vmi = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances/{name}";
    let router = axum::Router::new().route(vmi, axum::routing::get(get));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    format!("http://{address}").parse().unwrap()
}

/// The agents of a node that has one settled VMI, and what fills their cache.
fn agents(
    dir: &Path,
    authority: &Authority,
    api: http::Uri,
    shutdown: CancellationToken,
) -> (Agents, Ingest<VirtualMachineInstance>) {
    let (vmis, mut ingest) = Informer::<VirtualMachineInstance>::new().detached();
    for event in [Event::Init, Event::InitApply(settled()), Event::InitDone] {
        ingest.apply(event);
    }
    let (incoming, _) = Informer::<VirtualMachineInstance>::new().detached();
    let pods = Arc::new(hostfs::beneath::Root::open(dir).unwrap());
    let client = kube::Client::try_from(kube::Config::new(api)).unwrap();
    let node = Node {
        name: "node01".to_string(),
        proxies: Arc::new(crate::proxy::Proxies::new(
            pods.clone(),
            crate::proxy::Peers::new(agent(authority).into(), role_tls::NodeCheck::IfNamed),
        )),
        address: std::net::Ipv4Addr::LOCALHOST.into(),
        incoming,
        pods,
        records: Records::open(&dir.join("handler")).unwrap(),
        vmis,
        config: CurrentConfig::default(),
        recorder: Recorder::start(client.clone(), "virt-handler", "node01", shutdown.clone()),
        client,
        kvm: Ok(()),
        owns_devices: false,
        tasks: TaskTracker::new(),
    };
    (Agents::start(node, shutdown), ingest)
}

#[tokio::test]
async fn only_virt_api_is_let_in() {
    let setup = Setup::new().await;
    assert_eq!(setup.virt_api("GET", "/healthz").await, (StatusCode::OK, "ok".to_string()));
    assert!(setup.request(None, "GET", "/healthz").await.is_err(), "without a certificate");
    let other = setup.authority.issue("system:serviceaccount:kubevirt:kubevirt-controller", &[]);
    assert!(setup.request(Some(other), "GET", "/healthz").await.is_err(), "with another component's certificate");
    let stranger = Authority::new().issue(CLIENT, &[]);
    assert!(setup.request(Some(stranger), "GET", "/healthz").await.is_err(), "with another authority's certificate");
}

#[tokio::test]
async fn commands_reach_the_launcher_and_its_words_come_back() {
    let setup = Setup::new().await;
    assert_eq!(setup.virt_api("PUT", &format!("{BASE}/pause")).await.0, StatusCode::ACCEPTED);
    let (status, text) = setup.virt_api("PUT", &format!("{BASE}/reset")).await;
    assert_eq!((status, text.as_str()), (StatusCode::INTERNAL_SERVER_ERROR, "the launcher refused reset: not now"));
    let (status, text) = setup.virt_api("GET", &format!("{BASE}/guestosinfo")).await;
    let info: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(status, StatusCode::OK);
    assert_eq!(info, json!({"guestAgentVersion": "8.2", "hostname": "guest", "os": {"name": "Debian"}}));
    let elsewhere = "/v1/namespaces/default/virtualmachineinstances/other/pause";
    assert_eq!(setup.virt_api("PUT", elsewhere).await.0, StatusCode::NOT_FOUND);
}

/// A guest has come, and the watch has not told yet.
#[tokio::test]
async fn what_the_cache_lacks_is_looked_up() {
    let mut setup = Setup::new().await;
    setup.cache.apply(Event::Delete(settled()));
    assert_eq!(setup.virt_api("PUT", &format!("{BASE}/pause")).await.0, StatusCode::ACCEPTED);
    setup.stored.lock().metadata.labels.as_mut().unwrap().insert(NODE_NAME.into(), "node02".into());
    let (status, text) = setup.virt_api("PUT", &format!("{BASE}/pause")).await;
    assert_eq!((status, text.as_str()), (StatusCode::NOT_FOUND, "VMI default/testvm is not on this node"));
}

/// Accepts one connection after the other, as QEMU does, and lets the test speak for the guest.
async fn guest(listener: &UnixListener) -> UnixStream {
    tokio::time::timeout(Duration::from_secs(10), listener.accept()).await.unwrap().unwrap().0
}

async fn receive(
    socket: &mut (impl StreamExt<Item = tokio_tungstenite::tungstenite::Result<Message>> + Unpin),
) -> Message {
    tokio::time::timeout(Duration::from_secs(10), socket.next()).await.unwrap().unwrap().unwrap()
}

#[tokio::test]
async fn the_console_carries_bytes_both_ways() {
    let setup = Setup::new().await;
    let listener = UnixListener::bind(setup.private("virt-serial0")).unwrap();
    let mut client = setup.websocket("console").await.unwrap();
    let mut guest = guest(&listener).await;

    guest.write_all(b"login: \xff").await.unwrap();
    assert_eq!(receive(&mut client).await, Message::binary(&b"login: \xff"[..]));
    client.send(Message::binary(&b"root\n"[..])).await.unwrap();
    let mut line = [0; 5];
    guest.read_exact(&mut line).await.unwrap();
    assert_eq!(&line, b"root\n");

    drop(guest);
    assert!(
        matches!(receive(&mut client).await, Message::Close(Some(frame)) if frame.reason == "the guest closed the connection")
    );
}

#[tokio::test]
async fn a_second_client_takes_over() {
    let setup = Setup::new().await;
    let listener = UnixListener::bind(setup.private("virt-vnc")).unwrap();
    let mut first = setup.websocket("vnc").await.unwrap();
    let mut old = guest(&listener).await;

    let refused = setup.websocket("vnc?preserveSession=true").await.unwrap_err();
    assert!(refused.to_string().contains("503"), "{refused}");

    let mut second = setup.websocket("vnc?preserveSession=false").await.unwrap();
    let Message::Close(Some(goodbye)) = receive(&mut first).await else { panic!("the first client is not closed") };
    assert_eq!((u16::from(goodbye.code), goodbye.reason.as_str()), (4409, "another client took over"));
    assert_eq!(old.read(&mut [0; 1]).await.unwrap(), 0, "QEMU sees the first client leave");
    let mut new = guest(&listener).await;
    new.write_all(b"RFB").await.unwrap();
    assert_eq!(receive(&mut second).await, Message::binary(&b"RFB"[..]));

    second.close(None).await.unwrap();
    assert_eq!(new.read(&mut [0; 1]).await.unwrap(), 0, "QEMU sees the second client leave");
    setup.websocket("vnc?preserveSession=true").await.expect("nobody is connected any more");
}

#[tokio::test]
async fn a_socket_that_is_not_there_is_an_ordinary_answer() {
    let setup = Setup::new().await;
    let refused = setup.websocket("console").await.unwrap_err();
    assert!(refused.to_string().contains("500"), "{refused}");
    let target = setup.dir.path().join("elsewhere");
    let listener = UnixListener::bind(&target).unwrap();
    std::os::unix::fs::symlink(&target, setup.private("virt-serial0")).unwrap();
    assert!(setup.websocket("console").await.is_err(), "a link is not followed");
    assert!(tokio::time::timeout(Duration::from_millis(50), listener.accept()).await.is_err());
}
