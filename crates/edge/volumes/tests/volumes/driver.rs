//! The driver as the kubelet and Kubernetes' sidecars meet it.

use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tempfile::TempDir;
use test_support::eventually;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};
use volumeplan::DriverName;
use volumes::Engine;
use volumes::csi::registry::registration_client::RegistrationClient;
use volumes::csi::registry::{InfoRequest, RegistrationStatus};
use volumes::csi::v1::controller_client::ControllerClient;
use volumes::csi::v1::identity_client::IdentityClient;
use volumes::csi::v1::node_client::NodeClient;
use volumes::csi::v1::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume, access_mode::Mode};
use volumes::csi::v1::{
    CreateVolumeRequest, CreateVolumeResponse, DeleteVolumeRequest, GetCapacityRequest, ListVolumesRequest,
    NodeGetInfoRequest, ProbeRequest, Topology, TopologyRequirement, VolumeCapability,
};
use volumes::csi::{Config, DRIVER_NAME, Error, Registration, serve};

use crate::home;

struct Driver {
    dir: TempDir,
    shutdown: CancellationToken,
    serving: JoinHandle<Result<(), Error>>,
}

impl Driver {
    fn start() -> Driver {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("pool")).unwrap();
        std::fs::create_dir_all(dir.path().join("kubelet/plugins_registry")).unwrap();
        let engine = Arc::new(Engine::open(home::config(dir.path())).unwrap());
        let config = Config {
            name: DriverName::parse(DRIVER_NAME).unwrap(),
            version: "v1".to_owned(),
            endpoint: dir.path().join("csi.sock"),
            registration: Some(Registration {
                dir: dir.path().join("kubelet/plugins_registry"),
                endpoint: "/var/lib/kubelet/plugins/csi.ferrovirt.io/csi.sock".into(),
            }),
        };
        let shutdown = CancellationToken::new();
        let serving = tokio::spawn(serve(config, engine, shutdown.clone()));
        Driver { dir, shutdown, serving }
    }

    fn registration(&self) -> PathBuf {
        self.dir.path().join("kubelet/plugins_registry").join(format!("{DRIVER_NAME}-reg.sock"))
    }

    async fn channel(&self) -> Channel {
        let socket = self.dir.path().join("csi.sock");
        eventually("the driver's socket", async || socket.exists()).await;
        connect(&socket).await
    }

    async fn stop(self) {
        self.shutdown.cancel();
        tokio::time::timeout(Duration::from_secs(20), self.serving).await.unwrap().unwrap().unwrap();
        assert!(!self.dir.path().join("csi.sock").exists());
        assert!(!self.dir.path().join("kubelet/plugins_registry").read_dir().unwrap().any(|_| true));
    }
}

async fn connect(socket: &Path) -> Channel {
    let socket = socket.to_owned();
    let connector = tower::service_fn(move |_| {
        let socket = socket.clone();
        async move { tokio::net::UnixStream::connect(socket).await.map(TokioIo::new) }
    });
    Endpoint::from_static("http://localhost").connect_with_connector(connector).await.unwrap()
}

fn request(name: &str, access_type: AccessType, mode: Mode) -> CreateVolumeRequest {
    let capability =
        VolumeCapability { access_type: Some(access_type), access_mode: Some(AccessMode { mode: mode.into() }) };
    CreateVolumeRequest { name: name.to_owned(), volume_capabilities: vec![capability], ..Default::default() }
}

fn block(name: &str) -> CreateVolumeRequest {
    request(name, AccessType::Block(BlockVolume {}), Mode::SingleNodeWriter)
}

fn place(node: &str) -> Topology {
    Topology { segments: [(volumeplan::TOPOLOGY_KEY.to_owned(), node.to_owned())].into() }
}

#[tokio::test]
async fn the_kubelet_finds_registers_and_loses_the_driver() {
    let driver = Driver::start();
    let socket = driver.registration();
    eventually("the registration's socket", async || socket.exists()).await;
    let meta = std::fs::metadata(&socket).unwrap();
    assert!(meta.file_type().is_socket());
    assert_eq!(meta.permissions().mode() & 0o777, 0o600);
    let mut client = RegistrationClient::new(connect(&socket).await);
    let info = client.get_info(InfoRequest {}).await.unwrap().into_inner();
    assert_eq!((info.r#type.as_str(), info.name.as_str()), ("CSIPlugin", DRIVER_NAME));
    assert_eq!(info.endpoint, "/var/lib/kubelet/plugins/csi.ferrovirt.io/csi.sock");
    assert_eq!(info.supported_versions, ["1.0.0"]);
    for plugin_registered in [true, false] {
        let status = RegistrationStatus { plugin_registered, error: "why".to_owned() };
        client.notify_registration_status(status).await.unwrap();
    }
    // A kubelet that has lost its folder.
    std::fs::remove_file(&socket).unwrap();
    eventually("a new socket", async || socket.exists()).await;
    driver.stop().await;
}

/// The kubelet's plugin watcher calls the socket's path, escaped, the authority of its requests.
#[tokio::test]
async fn the_kubelet_may_name_the_socket_as_the_authority() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let driver = Driver::start();
    let socket = driver.registration();
    eventually("the registration's socket", async || socket.exists()).await;
    let frame = |kind: u8, flags: u8, stream: u8, payload: &[u8]| -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&length[1..], &[kind, flags, 0, 0, 0, stream], payload].concat()
    };
    let text = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    let request = [
        &b"\x83\x86\x44"[..],
        &text("/pluginregistration.Registration/GetInfo"),
        b"\x41",
        &text("%2Fvar%2Flib%2Fkubelet%2Fplugins_registry%2Fcsi.ferrovirt.io-reg.sock"),
        b"\x5f",
        &text("application/grpc"),
        b"\x40",
        &text("te"),
        &text("trailers"),
    ]
    .concat();
    let empty = |stream| frame(0, 1, stream, b"\0\0\0\0\0");
    let sent = [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        frame(4, 0, 0, b""),
        frame(1, 4, 1, &request),
        empty(1),
        // The second request refers to what the first one has put into the table.
        frame(1, 4, 3, b"\x83\x86\xc1\xc0\xbf\xbe"),
        empty(3),
    ]
    .concat();
    let mut stream = tokio::net::UnixStream::connect(&socket).await.unwrap();
    stream.write_all(&sent).await.unwrap();
    let mut received = Vec::new();
    let answers = |received: &[u8]| received.windows(9).filter(|part| *part == b"CSIPlugin").count();
    while answers(&received) < 2 {
        let read = tokio::time::timeout(Duration::from_secs(10), stream.read_buf(&mut received)).await;
        assert!(read.expect("an answer in time").unwrap() > 0, "the stream ended: {received:?}");
    }
    driver.stop().await;
}

#[tokio::test]
async fn a_driver_whose_registration_is_taken_over_leaves_it_alone() {
    let driver = Driver::start();
    let socket = driver.registration();
    eventually("the registration's socket", async || socket.exists()).await;
    std::fs::remove_file(&socket).unwrap();
    let other = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    tokio::time::sleep(Duration::from_secs(3)).await;
    driver.shutdown.cancel();
    driver.serving.await.unwrap().unwrap();
    assert!(socket.exists());
    drop(other);
}

#[tokio::test]
async fn a_volume_is_made_where_it_can_be_used() {
    let driver = Driver::start();
    let channel = driver.channel().await;
    let mut controller = ControllerClient::new(channel.clone());
    let mut create = async |request: CreateVolumeRequest| -> Result<CreateVolumeResponse, Code> {
        controller.create_volume(request).await.map(tonic::Response::into_inner).map_err(|status| status.code())
    };
    let here =
        TopologyRequirement { requisite: vec![place("node-2"), place("node-1")], preferred: vec![place("node-2")] };
    let made = create(CreateVolumeRequest { accessibility_requirements: Some(here), ..block("a") }).await.unwrap();
    let volume = made.volume.unwrap();
    assert_eq!(volume.accessible_topology, [place("node-1")]);
    assert_eq!(volume.capacity_bytes, 1 << 30);
    let elsewhere = TopologyRequirement { requisite: vec![place("node-2")], preferred: vec![] };
    let elsewhere = CreateVolumeRequest { accessibility_requirements: Some(elsewhere), ..block("b") };
    assert_eq!(create(elsewhere).await, Err(Code::ResourceExhausted));
    let shared = request("c", AccessType::Block(BlockVolume {}), Mode::MultiNodeMultiWriter);
    assert_eq!(create(shared).await, Err(Code::InvalidArgument));
    let formatted = MountVolume { fs_type: "ext4".to_owned(), ..Default::default() };
    let formatted = request("d", AccessType::Mount(formatted), Mode::SingleNodeWriter);
    assert_eq!(create(formatted).await, Err(Code::InvalidArgument));
    let unknown = CreateVolumeRequest { parameters: [("type".to_owned(), "ssd".to_owned())].into(), ..block("e") };
    assert_eq!(create(unknown).await, Err(Code::InvalidArgument));
    let metadata = [("csi.storage.k8s.io/pvc/name".to_owned(), "claim".to_owned())].into();
    assert!(create(CreateVolumeRequest { parameters: metadata, ..block("f") }).await.is_ok());

    let capacity = async |node: &str| {
        let request = GetCapacityRequest { accessible_topology: Some(place(node)), ..Default::default() };
        ControllerClient::new(channel.clone()).get_capacity(request).await.unwrap().into_inner().available_capacity
    };
    assert!(capacity("node-1").await > 0);
    assert_eq!(capacity("node-2").await, 0);
    let info = NodeClient::new(channel.clone()).node_get_info(NodeGetInfoRequest {}).await.unwrap().into_inner();
    assert_eq!((info.node_id.as_str(), info.accessible_topology), ("node-1", Some(place("node-1"))));
    let ready = IdentityClient::new(channel).probe(ProbeRequest {}).await.unwrap().into_inner().ready;
    assert!(ready.unwrap().value);
    driver.stop().await;
}

#[tokio::test]
async fn a_list_in_pages_names_each_volume_once() {
    let driver = Driver::start();
    let mut controller = ControllerClient::new(driver.channel().await);
    let mut made = Vec::new();
    for n in 0..7 {
        let volume = controller.create_volume(block(&format!("v{n}"))).await.unwrap().into_inner().volume.unwrap();
        made.push(volume.volume_id);
    }
    let mut found = Vec::new();
    let mut token = String::new();
    loop {
        let request = ListVolumesRequest { max_entries: 2, starting_token: token };
        let page = controller.list_volumes(request).await.unwrap().into_inner();
        found.extend(page.entries.into_iter().map(|entry| entry.volume.unwrap().volume_id));
        if found.len() == 2 {
            // The page's last entry goes before the next page is asked for.
            let volume_id = found[1].clone();
            controller.delete_volume(DeleteVolumeRequest { volume_id }).await.unwrap();
        }
        token = page.next_token;
        if token.is_empty() {
            break;
        }
    }
    made.sort();
    assert_eq!(found, made);
    let invalid = ListVolumesRequest { max_entries: 0, starting_token: "7".to_owned() };
    assert_eq!(controller.list_volumes(invalid).await.unwrap_err().code(), Code::Aborted);
    driver.stop().await;
}

#[tokio::test]
async fn an_endpoint_that_nobody_can_connect_to_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("pool")).unwrap();
    let engine = Arc::new(Engine::open(home::config(dir.path())).unwrap());
    for (endpoint, expected) in [
        (dir.path().join("x".repeat(107)), "may have 107 bytes"),
        (PathBuf::from("csi.sock"), "no path of a file"),
        (dir.path().join("absent/csi.sock"), "open directory"),
    ] {
        let name = DriverName::parse(DRIVER_NAME).unwrap();
        let config = Config { name, version: "v1".to_owned(), endpoint, registration: None };
        let error = serve(config, engine.clone(), CancellationToken::new()).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
