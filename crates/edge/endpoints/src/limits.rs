//! Limits of listeners that anybody on the network can reach: how many connections there are, and how long a client may
//! take to say what it wants.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper_util::rt::TokioTimer;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How long a client may take for its handshake and for the head of a request.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// Maximum size of the head of a request.
const HEAD: usize = 64 * 1024;

/// Accepts connections until `end`. Serves at most `room` of them at a time as tasks of `connections`; more are closed.
pub async fn accept<F>(
    listener: &TcpListener,
    room: usize,
    connections: &TaskTracker,
    end: &CancellationToken,
    serve: impl Fn(TcpStream, SocketAddr) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let places = Arc::new(Semaphore::new(room));
    let mut is_full = false;
    while let Some(accepted) = end.run_until_cancelled(listener.accept()).await {
        let (stream, from) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Most likely out of descriptors; give others time to close theirs.
                tracing::warn!(%error, "failed to accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let Ok(place) = places.clone().try_acquire_owned() else {
            // Once: whoever opens that many connections does not stop there.
            if !std::mem::replace(&mut is_full, true) {
                tracing::warn!(%from, "refusing connections: {room} are open");
            }
            continue;
        };
        is_full = false;
        let served = serve(stream, from);
        connections.spawn(async move {
            let _place = place;
            served.await;
        });
    }
}

/// An HTTP/1 server whose clients may take [`PATIENCE`] for the head of each request.
pub fn http() -> http1::Builder {
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(PATIENCE).max_buf_size(HEAD);
    server
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::{Request, Response};
    use hyper::body::Incoming;
    use hyper::service::service_fn;
    use hyper_util::rt::TokioIo;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";

    /// A server with room for this many; also what ends it.
    async fn server(room: usize) -> (SocketAddr, CancellationToken) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, end) = (listener.local_addr().unwrap(), CancellationToken::new());
        let stop = end.clone();
        tokio::spawn(async move {
            let serve = |stream, _| async move {
                let answer = async |_: Request<Incoming>| Ok::<_, Infallible>(Response::new("here".to_owned()));
                let _ = http().serve_connection(TokioIo::new(stream), service_fn(answer)).await;
            };
            accept(&listener, room, &TaskTracker::new(), &stop, serve).await;
        });
        (address, end)
    }

    /// Sends what a client has to say, and returns all that the server answers until it closes the connection.
    async fn answer(client: &mut TcpStream, words: &[u8]) -> String {
        let mut answer = Vec::new();
        let _ = client.write_all(words).await;
        let _ = client.read_to_end(&mut answer).await;
        String::from_utf8(answer).unwrap()
    }

    #[tokio::test]
    async fn a_client_that_says_nothing_is_left() {
        let (address, _end) = server(4).await;
        tokio::time::pause();
        for words in [&b""[..], b"GET / HTTP/1.1\r\n", &REQUEST[..REQUEST.len() - 1]] {
            let before = tokio::time::Instant::now();
            let mut client = TcpStream::connect(address).await.unwrap();
            assert_eq!(answer(&mut client, words).await, "", "{words:?}");
            assert!(before.elapsed() >= PATIENCE, "{words:?}");
        }
        // One that has had its answer may not stay for ever either.
        let mut client = TcpStream::connect(address).await.unwrap();
        assert!(answer(&mut client, REQUEST).await.ends_with("here"));
    }

    #[tokio::test]
    async fn there_is_room_for_so_many_and_again_when_one_leaves() {
        let (address, end) = server(1).await;
        let mut first = TcpStream::connect(address).await.unwrap();
        first.write_all(REQUEST).await.unwrap();
        assert!(first.read_u8().await.is_ok(), "the first is served");
        let mut second = TcpStream::connect(address).await.unwrap();
        assert_eq!(answer(&mut second, REQUEST).await, "");
        drop(first);
        let ask = REQUEST.strip_suffix(b"\r\n").unwrap();
        let ask = [ask, b"Connection: close\r\n\r\n"].concat();
        let served = async {
            loop {
                let mut third = TcpStream::connect(address).await.unwrap();
                if answer(&mut third, &ask).await.ends_with("here") {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), served).await.expect("its place is free again");
        end.cancel();
    }
}
