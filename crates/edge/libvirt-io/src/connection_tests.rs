use proptest::prelude::*;
use tokio::io::DuplexStream;

use super::*;
use crate::error::ErrorCode;

const KEEPALIVE: Keepalive = Keepalive { interval: Duration::from_secs(5), count: 2 };

/// The daemon's end of the connection, driven by the test.
struct Daemon {
    stream: DuplexStream,
    buffer: BytesMut,
}

impl Daemon {
    async fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = Frame::decode(&mut self.buffer).expect("the client speaks the protocol") {
                return Some(frame);
            }
            if self.stream.read_buf(&mut self.buffer).await.expect("reading from the client") == 0 {
                return None;
            }
        }
    }

    async fn send(&mut self, frame: &Frame) {
        self.stream.write_all(&frame.encode().unwrap()).await.expect("writing to the client");
    }

    async fn reply(&mut self, call: &Frame, status: Status, body: Encoder) {
        let body = body.finish().into();
        self.send(&Frame { kind: Kind::Reply, status, body, ..call.clone() }).await;
    }

    async fn answer_handshake(&mut self) {
        for expected in [66, 60, 1, 316, 316, 316, 316] {
            let call = self.next().await.expect("a call of the handshake");
            assert_eq!(call.procedure, expected);
            let body = match expected {
                66 => Encoder::default().u32(1).u32(0),
                1 => Encoder::default(),
                _ => Encoder::default().i32(1),
            };
            self.reply(&call, Status::Ok, body).await;
        }
    }
}

async fn pair() -> (Connection, Daemon) {
    let (ours, theirs) = tokio::io::duplex(64 << 10);
    let mut daemon = Daemon { stream: theirs, buffer: BytesMut::new() };
    let open = Connection::over(ours, "qemu:///session", KEEPALIVE);
    let (connection, ()) = tokio::join!(open, daemon.answer_handshake());
    (connection.expect("the handshake succeeds"), daemon)
}

fn no_domain() -> Encoder {
    let start = Encoder::default().i32(42).i32(10).optional_string(Some("Domain not found")).i32(2);
    start.u32(0).u32(0).u32(0).u32(0).i32(-1).i32(-1).u32(0)
}

#[tokio::test]
async fn replies_reach_their_callers_in_any_order() {
    let (connection, mut daemon) = pair().await;
    let first = tokio::spawn({
        let connection = connection.clone();
        async move { connection.lib_version().await }
    });
    let one = daemon.next().await.unwrap();
    let second = tokio::spawn({
        let connection = connection.clone();
        async move { connection.lookup_by_name("x").await }
    });
    let two = daemon.next().await.unwrap();
    daemon.reply(&two, Status::Error, no_domain()).await;
    daemon.reply(&one, Status::Ok, Encoder::default().u32(0).u32(9_000_000)).await;
    assert!(second.await.unwrap().unwrap().is_none());
    assert_eq!(first.await.unwrap().unwrap(), (9, 0, 0));
}

#[tokio::test]
async fn a_daemon_error_keeps_its_code_and_message() {
    let (connection, mut daemon) = pair().await;
    let call = async { connection.define_xml("<domain/>", 0).await };
    let serve = async {
        let call = daemon.next().await.unwrap();
        daemon.reply(&call, Status::Error, no_domain()).await;
    };
    let (result, ()) = tokio::join!(call, serve);
    let error = result.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::NoDomain));
    assert_eq!(std::error::Error::source(&error).unwrap().to_string(), "Domain not found");
}

#[tokio::test]
async fn a_given_up_call_does_not_confuse_the_next_one() {
    let (connection, mut daemon) = pair().await;
    let given_up = tokio::time::timeout(Duration::from_millis(20), connection.lib_version()).await;
    assert!(given_up.is_err());
    let late = daemon.next().await.unwrap();
    daemon.reply(&late, Status::Ok, Encoder::default().u32(0).u32(1)).await;
    let serve = async {
        let call = daemon.next().await.unwrap();
        daemon.reply(&call, Status::Ok, Encoder::default().u32(0).u32(9_000_001)).await;
    };
    let (version, ()) = tokio::join!(connection.lib_version(), serve);
    assert_eq!(version.unwrap(), (9, 0, 1));
}

#[tokio::test]
async fn a_garbled_reply_fails_the_call_and_not_the_connection() {
    let (connection, mut daemon) = pair().await;
    for body in [Encoder::default(), Encoder::default().u32(0), Encoder::default().u32(0).u32(1).u32(2)] {
        let serve = async {
            let call = daemon.next().await.unwrap();
            daemon.reply(&call, Status::Ok, body).await;
        };
        let (version, ()) = tokio::join!(connection.lib_version(), serve);
        assert!(matches!(version, Err(Error::Garbled { .. })));
    }
}

#[tokio::test]
async fn garbage_on_the_wire_ends_the_connection_for_every_caller() {
    let (connection, mut daemon) = pair().await;
    let waiting = connection.lib_version();
    let garbage = async {
        daemon.next().await.unwrap();
        daemon.stream.write_all(&[0xff; 64]).await.unwrap();
    };
    let (result, ()) = tokio::join!(waiting, garbage);
    assert!(matches!(result, Err(Error::Closed { source: CloseReason::Protocol(_), .. })));
    assert!(matches!(connection.lib_version().await, Err(Error::Closed { .. })));
    assert!(matches!(connection.closed().await, CloseReason::Protocol(_)));
    assert!(connection.events().recv().await.is_none());
}

#[tokio::test]
async fn a_daemon_that_goes_away_ends_events_and_calls() {
    let (connection, daemon) = pair().await;
    let mut events = connection.events();
    drop(daemon);
    assert!(matches!(connection.closed().await, CloseReason::Peer | CloseReason::Io(_)));
    assert!(events.recv().await.is_none());
}

#[tokio::test]
async fn dropping_the_last_handle_closes_the_socket() {
    let (connection, mut daemon) = pair().await;
    let clone = connection.clone();
    drop(connection);
    drop(clone);
    assert!(daemon.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_silent_daemon_is_pinged_and_then_given_up() {
    let (connection, mut daemon) = pair().await;
    let started = Instant::now();
    let reason = connection.closed().await;
    assert!(matches!(reason, CloseReason::KeepaliveTimeout { seconds: 15 }), "{reason:?}");
    assert_eq!((Instant::now() - started).as_secs(), 15);
    for _ in 0..KEEPALIVE.count {
        let ping = daemon.next().await.unwrap();
        assert_eq!((ping.program, ping.procedure), (KEEPALIVE_PROGRAM, KEEPALIVE_PING));
    }
}

#[tokio::test(start_paused = true)]
async fn a_daemon_that_answers_pings_is_kept() {
    let (connection, mut daemon) = pair().await;
    let answer = async {
        for _ in 0..20 {
            let ping = daemon.next().await.unwrap();
            assert_eq!(ping.procedure, KEEPALIVE_PING);
            daemon.send(&Frame { procedure: KEEPALIVE_PONG, ..ping }).await;
        }
    };
    tokio::select! {
        () = answer => {}
        reason = connection.closed() => panic!("closed: {reason}"),
    }
}

#[tokio::test]
async fn the_daemons_own_pings_are_answered() {
    let (_connection, mut daemon) = pair().await;
    let ping = Frame {
        program: KEEPALIVE_PROGRAM,
        procedure: KEEPALIVE_PING,
        kind: Kind::Event,
        serial: 0,
        status: Status::Ok,
        body: Bytes::new(),
    };
    daemon.send(&ping).await;
    assert_eq!(daemon.next().await.unwrap(), Frame { procedure: KEEPALIVE_PONG, ..ping });
}

#[tokio::test]
async fn a_daemon_that_wants_authentication_is_refused() {
    let (ours, theirs) = tokio::io::duplex(4096);
    let mut daemon = Daemon { stream: theirs, buffer: BytesMut::new() };
    let serve = async {
        let call = daemon.next().await.unwrap();
        daemon.reply(&call, Status::Ok, Encoder::default().u32(1).u32(2)).await;
    };
    let (result, ()) = tokio::join!(Connection::over(ours, "qemu:///session", KEEPALIVE), serve);
    assert!(matches!(result.err(), Some(Error::Authentication(2))));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn no_stream_of_bytes_makes_the_client_panic_or_hang(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (connection, mut daemon) = pair().await;
            let call = connection.lib_version();
            let noise = async {
                let call = daemon.next().await.unwrap();
                daemon.send(&Frame { kind: Kind::Reply, body: bytes.clone().into(), ..call }).await;
                let _ = daemon.stream.write_all(&bytes).await;
                drop(daemon);
            };
            let (_, ()) = tokio::join!(call, noise);
            connection.closed().await;
        });
    }
}
