//! A source's and a target's proxy joined over the loopback, with sockets of the test in the two Pods.

use std::net::Ipv4Addr;
use std::path::Path;

use role_tls::{Identity, NODE_AGENT, NODE_AGENT_CLIENT, NodeCheck, node_uri};
use test_support::{Authority, Pair};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::*;

const LIMIT: Duration = Duration::from_secs(20);

/// What a program with this common name makes of its peers.
fn peers(authority: &Authority, common_name: &str, trusts: &Authority) -> Peers {
    peers_of(authority, common_name, trusts, "n1")
}

fn peers_of(authority: &Authority, common_name: &str, trusts: &Authority, node: &str) -> Peers {
    let Pair { cert, key } = authority.issue_with_uris(common_name, &[], &[node_uri(node)]);
    Peers::new(Identity::from_pem(trusts.pem(), &cert, &key).unwrap().into(), NodeCheck::Required)
}

/// What both sides of the migration go by. Both nodes of these tests call themselves `n1`.
fn bond() -> Bond {
    Bond { migration: "migration-1".to_owned(), peer: Some("n1".to_owned()), encrypted: true }
}

fn pod_uid(text: &str) -> PodUid {
    PodUid::new(text).unwrap()
}

fn vmi() -> VmiUid {
    VmiUid::new("vmi").unwrap()
}

/// Two nodes in one process: both have their Pods below the same directory.
struct Setup {
    dir: tempfile::TempDir,
    source: Proxies,
    target: Proxies,
}

impl Setup {
    fn new(source: Peers, target: Peers) -> Setup {
        let dir = tempfile::tempdir().unwrap();
        for pod in ["source", "target"] {
            for name in ["public/migrationproxy", "libvirt-runtime"] {
                std::fs::create_dir_all(dir.path().join(volume(&pod_uid(pod), name))).unwrap();
            }
        }
        let pods = Arc::new(Root::open(dir.path()).unwrap());
        Setup { source: Proxies::new(pods.clone(), source), target: Proxies::new(pods, target), dir }
    }

    fn agents() -> Setup {
        let authority = Authority::new();
        Setup::new(peers(&authority, NODE_AGENT, &authority), peers(&authority, NODE_AGENT, &authority))
    }

    async fn open(&self) {
        self.open_with(bond(), bond()).await;
    }

    async fn open_with(&self, source: Bond, target: Bond) {
        let here = Ipv4Addr::LOCALHOST.into();
        let endpoint = self.target.listen(&pod_uid("target"), &vmi(), here, target).await.unwrap();
        assert_eq!(
            endpoint.ports.values().copied().collect::<std::collections::BTreeSet<_>>(),
            [0, 49152, 49153].into()
        );
        self.source.dial(&pod_uid("source"), &vmi(), &endpoint, source).await.unwrap();
    }

    /// Whether something sent in the source's Pod arrives in the target's.
    async fn passes(&self) -> bool {
        let listener = self.listen(Channel::Memory);
        let mut inner = self.connect(Channel::Memory).await;
        let _ = inner.write_all(b"guest").await;
        let arrives = async { read(&mut accepted(&listener).await, 5).await == b"guest" };
        let refused = async { rest(&mut inner).await.is_empty() };
        tokio::select! {
            arrived = arrives => arrived,
            ended = refused => !ended,
        }
    }

    /// A listener in the target's Pod. The paths are too long for socket addresses, as on a node.
    fn listen(&self, channel: Channel) -> UnixListener {
        let path = match channel {
            Channel::Libvirt => volume(&pod_uid("target"), "libvirt-runtime").join("libvirt-sock"),
            Channel::Memory | Channel::Disks => socket_path(&pod_uid("target"), &vmi(), channel),
        };
        let listener = Root::open(self.dir.path()).unwrap().bind_unix(path).unwrap();
        listener.set_nonblocking(true).unwrap();
        UnixListener::from_std(listener).unwrap()
    }

    async fn connect(&self, channel: Channel) -> UnixStream {
        let path = socket_path(&pod_uid("source"), &vmi(), channel);
        connect(&Root::open(self.dir.path()).unwrap(), path).await.unwrap()
    }
}

async fn accepted(listener: &UnixListener) -> UnixStream {
    timeout(LIMIT, listener.accept()).await.unwrap().unwrap().0
}

async fn read(stream: &mut UnixStream, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    timeout(LIMIT, stream.read_exact(&mut bytes)).await.unwrap().unwrap();
    bytes
}

/// What is left to read until the other side ends.
async fn rest(stream: &mut UnixStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = timeout(LIMIT, stream.read_to_end(&mut bytes)).await.expect("the stream ends");
    bytes
}

#[tokio::test]
async fn every_channel_leads_to_its_own_socket() {
    let setup = Setup::agents();
    setup.open().await;
    for channel in Channel::ALL {
        let listener = setup.listen(channel);
        let mut inner = setup.connect(channel).await;
        inner.write_all(&channel.number().to_be_bytes()).await.unwrap();
        let mut outer = accepted(&listener).await;
        assert_eq!(read(&mut outer, 2).await, channel.number().to_be_bytes());
        outer.write_all(b"back").await.unwrap();
        assert_eq!(read(&mut inner, 4).await, b"back");
    }
}

#[tokio::test]
async fn one_direction_may_end_while_the_other_goes_on() {
    let setup = Setup::agents();
    setup.open().await;
    let listener = setup.listen(Channel::Memory);
    let mut inner = setup.connect(Channel::Memory).await;
    inner.write_all(b"all").await.unwrap();
    inner.shutdown().await.unwrap();
    let mut outer = accepted(&listener).await;
    assert_eq!(rest(&mut outer).await, b"all");
    outer.write_all(b"received").await.unwrap();
    drop(outer);
    assert_eq!(rest(&mut inner).await, b"received");
}

/// QEMU tells its channels apart by the order in which they come.
#[tokio::test(flavor = "multi_thread")]
async fn many_connections_of_a_channel_arrive_in_their_order_and_do_not_mix() {
    let setup = Setup::agents();
    setup.open().await;
    let listener = setup.listen(Channel::Memory);
    let mut pairs = Vec::new();
    for number in 0..16u8 {
        let mut inner = setup.connect(Channel::Memory).await;
        inner.write_all(&[number; 3]).await.unwrap();
        pairs.push(inner);
    }
    for (number, inner) in (0..).zip(&mut pairs) {
        let mut outer = accepted(&listener).await;
        assert_eq!(read(&mut outer, 3).await, [number; 3]);
        outer.write_all(&[number]).await.unwrap();
        assert_eq!(read(inner, 1).await, [number]);
    }
}

#[tokio::test]
async fn a_slow_reader_slows_its_writer() {
    let setup = Setup::agents();
    setup.open().await;
    let listener = setup.listen(Channel::Memory);
    let mut inner = setup.connect(Channel::Memory).await;
    inner.write_all(b"x").await.unwrap();
    let mut outer = accepted(&listener).await;
    let block = vec![7u8; 1 << 20];
    let mut written = 0u64;
    // Until nothing more is taken: buffers of kernel and proxies are bounded.
    while let Ok(length) = timeout(Duration::from_millis(500), inner.write(&block)).await {
        written += length.unwrap() as u64;
        assert!(written < 256 << 20, "the proxy stores what nobody reads");
    }
    drop(inner);
    assert_eq!(rest(&mut outer).await.len() as u64, written + 1, "and nothing is lost");
}

#[tokio::test]
async fn a_socket_that_is_about_to_appear_is_waited_for() {
    let setup = Setup::agents();
    setup.open().await;
    let mut inner = setup.connect(Channel::Disks).await;
    inner.write_all(b"early").await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let listener = setup.listen(Channel::Disks);
    assert_eq!(read(&mut accepted(&listener).await, 5).await, b"early");
}

#[tokio::test]
async fn a_closed_side_ends_what_goes_through_it() {
    for close_source in [true, false] {
        let setup = Setup::agents();
        setup.open().await;
        let listener = setup.listen(Channel::Memory);
        let mut inner = setup.connect(Channel::Memory).await;
        inner.write_all(b"x").await.unwrap();
        let mut outer = accepted(&listener).await;
        read(&mut outer, 1).await;
        if close_source {
            setup.source.close(&pod_uid("source"), Side::Source);
        } else {
            setup.target.close(&pod_uid("target"), Side::Target);
        }
        rest(&mut inner).await;
        rest(&mut outer).await;
        assert_eq!(setup.source.endpoint(&pod_uid("source"), Side::Source).is_none(), close_source);
    }
}

#[tokio::test]
async fn only_node_agents_of_this_cluster_talk_to_each_other() {
    let (ours, other) = (Authority::new(), Authority::new());
    let agent = || peers(&ours, NODE_AGENT, &ours);
    let client = NODE_AGENT_CLIENT;
    for (name, source, target) in [
        ("a source of another cluster", peers(&other, NODE_AGENT, &ours), agent()),
        ("a target of another cluster", agent(), peers(&other, NODE_AGENT, &ours)),
        ("another component as the source", peers(&ours, client, &ours), agent()),
        ("another component as the target", agent(), peers(&ours, client, &ours)),
    ] {
        let setup = Setup::new(source, target);
        setup.open().await;
        let listener = setup.listen(Channel::Libvirt);
        let mut inner = setup.connect(Channel::Libvirt).await;
        let _ = inner.write_all(b"let me in").await;
        assert_eq!(rest(&mut inner).await, b"", "{name}");
        let nobody = timeout(Duration::from_millis(200), listener.accept()).await;
        assert!(nobody.is_err(), "{name} reached libvirt");
    }
}

#[tokio::test]
async fn only_the_two_sides_of_one_migration_are_joined() {
    let other = || Bond { migration: "migration-2".to_owned(), ..bond() };
    let elsewhere = || Bond { peer: Some("n2".to_owned()), ..bond() };
    let open = |bond: Bond| Bond { encrypted: false, ..bond };
    for (name, source, target, expected) in [
        ("the two sides", bond(), bond(), true),
        ("the two sides without encryption", open(bond()), open(bond()), true),
        ("a source of another migration", other(), bond(), false),
        ("a source of another migration without encryption", open(other()), open(bond()), false),
        ("a target of another node", elsewhere(), bond(), false),
        ("a target of another node without encryption", open(elsewhere()), open(bond()), false),
        ("a source of another node", bond(), elsewhere(), false),
        ("a source of another node without encryption", open(bond()), open(elsewhere()), false),
        ("a source that does not encrypt", open(bond()), bond(), false),
        ("a source that encrypts without need", bond(), open(bond()), true),
    ] {
        let setup = Setup::agents();
        setup.open_with(source, target).await;
        assert_eq!(setup.passes().await, expected, "{name}");
    }
}

#[tokio::test]
async fn without_encryption_a_stranger_reaches_nothing() {
    let setup = Setup::agents();
    let here = Ipv4Addr::LOCALHOST.into();
    let open = Bond { encrypted: false, ..bond() };
    let endpoint = setup.target.listen(&pod_uid("target"), &vmi(), here, open).await.unwrap();
    let listener = setup.listen(Channel::Libvirt);
    let port = endpoint.ports.iter().find(|(_, channel)| **channel == 0).unwrap().0.parse::<u16>().unwrap();
    for words in [&b"\x20\x00\x80\x86 libvirt's protocol"[..], b"fv-tick1\x0bmigration-1", &[b'x'; 200]] {
        let mut stranger = tokio::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
        stranger.write_all(words).await.unwrap();
        let mut answer = Vec::new();
        let _ = timeout(LIMIT, stranger.read_to_end(&mut answer)).await.expect("the connection ends");
        assert_eq!(answer, b"", "{words:?}");
    }
    assert!(timeout(Duration::from_millis(200), listener.accept()).await.is_err(), "a stranger reached libvirt");
}

#[tokio::test]
async fn strangers_who_say_nothing_delay_no_migration() {
    for encrypted in [true, false] {
        let setup = Setup::agents();
        let here = Ipv4Addr::LOCALHOST.into();
        let bond = || Bond { encrypted, ..bond() };
        let endpoint = setup.target.listen(&pod_uid("target"), &vmi(), here, bond()).await.unwrap();
        let mut silent = Vec::new();
        for port in endpoint.ports.keys() {
            let to = (Ipv4Addr::LOCALHOST, port.parse::<u16>().unwrap());
            for number in 0..=arrivals::WAITING_PER_ADDRESS {
                let mut stranger = tokio::net::TcpStream::connect(to).await.unwrap();
                // Some begin a handshake and do not finish it.
                stranger.write_all([&b""[..], b"\x16", b"fv-data1"][number % 3]).await.unwrap();
                silent.push(stranger);
            }
        }
        setup.source.dial(&pod_uid("source"), &vmi(), &endpoint, bond()).await.unwrap();
        let passes = timeout(Duration::from_secs(5), setup.passes()).await;
        assert!(passes.expect("it waits for nobody"), "encrypted: {encrypted}");
        drop(silent);
    }
}

#[tokio::test]
async fn a_node_agent_that_stops_opens_nothing_and_waits_for_what_is_open() {
    let setup = Setup::agents();
    setup.open().await;
    let drained = setup.target.drain(LIMIT);
    tokio::pin!(drained);
    assert!(timeout(Duration::from_millis(100), &mut drained).await.is_err(), "one migration is in progress");
    let refused = setup.target.listen(&pod_uid("other"), &vmi(), Ipv4Addr::LOCALHOST.into(), bond()).await;
    assert!(matches!(refused, Err(ProxyError::Closing)), "{refused:?}");
    setup.target.close(&pod_uid("target"), Side::Target);
    timeout(LIMIT, drained).await.expect("the last migration has ended");
    timeout(LIMIT, setup.source.drain(Duration::ZERO)).await.expect("nobody waits for ever");
}

#[tokio::test]
async fn nonsense_in_the_vmi_is_refused() {
    let setup = Setup::agents();
    let endpoint = |address: &str, port: &str, channel: i64| Endpoint {
        address: address.to_owned(),
        ports: [(port.to_owned(), channel)].into(),
    };
    for bad in [
        endpoint("nowhere", "1", 0),
        endpoint("127.0.0.1", "99999", 0),
        endpoint("127.0.0.1", "../../x", 0),
        endpoint("127.0.0.1", "1", 22),
    ] {
        assert!(setup.source.dial(&pod_uid("source"), &vmi(), &bad, bond()).await.is_err(), "{bad:?}");
    }
    assert!(Path::new(setup.dir.path()).exists());
}
