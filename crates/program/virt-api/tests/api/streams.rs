//! Streams, end to end: a WebSocket client, the router, and a node agent or a port behind it.

use crate::support::agent::BANNER;
use crate::support::cluster::Cluster;
use crate::support::{PATIENCE, Server, pki::Pki, vm, vmi};
use futures::{SinkExt, StreamExt};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Bytes, Message};

fn running() -> Cluster {
    let interfaces = json!([{ "ipAddress": "10.244.1.7" }]);
    let cluster = Cluster::default().vmi(json!({ "phase": "Running", "interfaces": interfaces })).annotated_node();
    cluster.vm(json!({ "runStrategy": "Always", "template": {} }), json!({ "created": true }))
}

/// The next message that carries something; pings are the keep-alive's business.
async fn next(stream: &mut WebSocketStream<TcpStream>) -> Option<Message> {
    loop {
        match timeout(PATIENCE, stream.next()).await.expect("the stream goes on or ends")? {
            Ok(Message::Ping(_)) => {}
            Ok(message) => return Some(message),
            Err(_) => return None,
        }
    }
}

async fn send(stream: &mut WebSocketStream<TcpStream>, bytes: &'static [u8]) {
    stream.send(Message::Binary(Bytes::from_static(bytes))).await.expect("the stream takes bytes");
}

fn binary(bytes: &'static [u8]) -> Option<Message> {
    Some(Message::Binary(Bytes::from_static(bytes)))
}

#[tokio::test]
async fn the_console_carries_bytes_both_ways_from_the_very_first() {
    let (server, agent) = Server::with_agent(running()).await;
    let mut console = server.open(&vmi("console")).await.expect("the console opens");
    assert_eq!(next(&mut console).await, binary(BANNER));
    for line in [&b"root\n"[..], b"\x00\xff", &[7; 100_000]] {
        console.send(Message::Binary(Bytes::copy_from_slice(line))).await.unwrap();
        assert_eq!(next(&mut console).await, Some(Message::Binary(Bytes::copy_from_slice(line))));
    }
    assert_eq!(agent.seen(), ["GET /v1/namespaces/ns/virtualmachineinstances/vm/console"]);
}

#[tokio::test]
async fn pings_travel_end_to_end() {
    let (server, _agent) = Server::with_agent(running()).await;
    let mut console = server.open(&vmi("console")).await.expect("the console opens");
    assert_eq!(next(&mut console).await, binary(BANNER));
    console.send(Message::Ping(Bytes::from_static(b"there?"))).await.unwrap();
    assert_eq!(next(&mut console).await, Some(Message::Pong(Bytes::from_static(b"there?"))));
}

#[tokio::test]
async fn a_stream_the_agent_ends_ends_for_the_client() {
    let (server, _agent) = Server::with_agent(running()).await;
    let mut console = server.open(&vmi("console")).await.expect("the console opens");
    assert_eq!(next(&mut console).await, binary(BANNER));
    send(&mut console, b"quit").await;
    assert!(matches!(next(&mut console).await, None | Some(Message::Close(_))));
}

#[tokio::test]
async fn the_servers_end_ends_streams() {
    let (server, _agent) = Server::with_agent(running()).await;
    let mut console = server.open(&vmi("console")).await.expect("the console opens");
    assert_eq!(next(&mut console).await, binary(BANNER));
    server.shutdown.cancel();
    assert_eq!(next(&mut console).await, None);
}

#[tokio::test]
async fn the_display_passes_on_whether_a_session_is_to_be_kept() {
    let (server, agent) = Server::with_agent(running()).await;
    for (query, passed) in [("", false), ("?preserveSession=true", true), ("?preserveSession=perhaps", false)] {
        let mut display = server.open(&vmi(&format!("vnc{query}"))).await.expect("the display opens");
        assert_eq!(next(&mut display).await, binary(BANNER));
        let path = format!("GET /v1/namespaces/ns/virtualmachineinstances/vm/vnc?preserveSession={passed}");
        assert_eq!(agent.seen().last(), Some(&path));
    }
}

#[tokio::test]
async fn what_prevents_a_stream_is_an_ordinary_answer() {
    let scheduled = Cluster::default().vmi(json!({ "phase": "Scheduled" })).annotated_node();
    let (server, agent) = Server::with_agent(scheduled).await;
    let answer = server.open(&vmi("console")).await.expect_err("the console is refused");
    assert_eq!(answer.status(), 400);
    let status: serde_json::Value = serde_json::from_slice(answer.body().as_ref().unwrap()).unwrap();
    assert_eq!(status["message"], "VMI is not running");
    assert_eq!(agent.seen(), Vec::<String>::new());

    let (server, agent) = Server::with_agent(running()).await;
    agent.answers.lock().insert("vnc".to_owned(), (503, "somebody else watches".to_owned()));
    let answer = server.open(&vmi("vnc")).await.expect_err("the display is refused");
    assert_eq!(answer.status(), 500);
    let status: serde_json::Value = serde_json::from_slice(answer.body().as_ref().unwrap()).unwrap();
    assert_eq!(status["message"], "Internal error occurred: somebody else watches");
}

#[tokio::test]
async fn a_stream_asked_for_without_an_upgrade_is_a_bad_request() {
    let (server, agent) = Server::with_agent(running()).await;
    assert_eq!(server.request("GET", &vmi("console"), "").await.0, 400);
    assert_eq!(agent.seen(), Vec::<String>::new());
}

/// A port of the guest.
async fn guest_port() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").await.unwrap()
}

#[tokio::test]
async fn a_forwarded_port_carries_bytes_both_ways_and_says_when_it_ends() {
    let guest = guest_port().await;
    let server = Server::start(running(), &Pki::new(), guest.local_addr().unwrap()).await;
    for path in [vmi("portforward/22"), vm("portforward/22/tcp")] {
        let mut client = server.open(&path).await.expect("the port is forwarded");
        let (mut port, _) = timeout(PATIENCE, guest.accept()).await.unwrap().unwrap();
        send(&mut client, b"hello").await;
        client.send(Message::text("not for the port")).await.unwrap();
        send(&mut client, b" there").await;
        let mut heard = [0; 11];
        timeout(PATIENCE, port.read_exact(&mut heard)).await.unwrap().unwrap();
        assert_eq!(&heard, b"hello there");
        port.write_all(b"good day").await.unwrap();
        assert_eq!(next(&mut client).await, binary(b"good day"));
        drop(port);
        match next(&mut client).await {
            Some(Message::Close(Some(frame))) => assert_eq!(frame.code, CloseCode::Normal),
            other => panic!("expected a normal close, got {other:?}"),
        }
    }
    let wanted = server.dialer.wanted.lock().clone();
    assert_eq!(wanted, vec!["10.244.1.7:22".parse().unwrap(); 2]);
}

#[tokio::test]
async fn a_client_that_closes_ends_the_connection_to_the_port() {
    let guest = guest_port().await;
    let server = Server::start(running(), &Pki::new(), guest.local_addr().unwrap()).await;
    let mut client = server.open(&vmi("portforward/22")).await.expect("the port is forwarded");
    let (mut port, _) = timeout(PATIENCE, guest.accept()).await.unwrap().unwrap();
    client.close(None).await.unwrap();
    let mut rest = Vec::new();
    timeout(PATIENCE, port.read_to_end(&mut rest)).await.expect("the port's connection ends").unwrap();
    assert_eq!(rest, b"");
}

#[tokio::test]
async fn idle_ports_are_kept_open_by_pings() {
    let guest = guest_port().await;
    let server = Server::start(running(), &Pki::new(), guest.local_addr().unwrap()).await;
    let mut client = server.open(&vmi("portforward/22")).await.expect("the port is forwarded");
    let ping = timeout(PATIENCE, client.next()).await.unwrap().unwrap().unwrap();
    assert_eq!(ping, Message::Ping(Bytes::from_static(b"keep alive")));
}

#[tokio::test]
async fn datagrams_stay_datagrams() {
    let guest = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let server = Server::start(running(), &Pki::new(), guest.local_addr().unwrap()).await;
    let mut client = server.open(&vmi("portforward/53/udp")).await.expect("the port is forwarded");
    send(&mut client, b"one").await;
    send(&mut client, b"two").await;
    let mut buffer = [0; 64];
    for expected in [&b"one"[..], b"two"] {
        let (n, from) = timeout(PATIENCE, guest.recv_from(&mut buffer)).await.unwrap().unwrap();
        assert_eq!(&buffer[..n], expected);
        guest.send_to(&buffer[..n], from).await.unwrap();
    }
    assert_eq!(next(&mut client).await, binary(b"one"));
    assert_eq!(next(&mut client).await, binary(b"two"));
}

#[tokio::test]
async fn a_port_nobody_listens_on_is_an_ordinary_answer() {
    let closed = guest_port().await.local_addr().unwrap();
    let server = Server::start(running(), &Pki::new(), closed).await;
    let answer = server.open(&vmi("portforward/22")).await.expect_err("nobody listens");
    assert_eq!(answer.status(), 500);
}
