//! Port forwarding between a WebSocket and a port of the guest.
//!
//! Each read from the port becomes one binary frame, each binary frame one write (one datagram for UDP). A ping every
//! second keeps idle connections open through proxies; a client that is silent for a minute is considered gone.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt, StreamExt};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout_at};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role};
use tokio_util::sync::CancellationToken;

/// Maximum payload of a frame to the client.
const FRAME: usize = 32 * 1024;
const PING_EVERY: Duration = Duration::from_secs(1);
const PING: &[u8] = b"keep alive";
/// Clients answer pings; one that has not for this long is considered gone.
const SILENCE: Duration = Duration::from_secs(60);

/// The guest's port.
pub(crate) enum Port {
    Tcp(TcpStream),
    Udp(UdpSocket),
}

enum Reader {
    Tcp(OwnedReadHalf),
    Udp(Arc<UdpSocket>),
}

enum Writer {
    Tcp(OwnedWriteHalf),
    Udp(Arc<UdpSocket>),
}

impl Port {
    fn split(self) -> (Reader, Writer) {
        match self {
            Port::Tcp(stream) => {
                let (read, write) = stream.into_split();
                (Reader::Tcp(read), Writer::Tcp(write))
            }
            Port::Udp(socket) => {
                let socket = Arc::new(socket);
                (Reader::Udp(socket.clone()), Writer::Udp(socket))
            }
        }
    }
}

impl Reader {
    /// Reads some bytes; `None` at the end of a TCP stream. An empty datagram is not an end.
    async fn read(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match self {
            Reader::Tcp(stream) => Ok(match stream.read(buffer).await? {
                0 => None,
                n => Some(n),
            }),
            Reader::Udp(socket) => socket.recv(buffer).await.map(Some),
        }
    }
}

impl Writer {
    async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Writer::Tcp(stream) => stream.write_all(bytes).await,
            Writer::Udp(socket) => socket.send(bytes).await.map(drop),
        }
    }
}

/// Forwards until the client, the port or the server closes.
pub(crate) async fn forward<S>(client: S, port: Port, shutdown: &CancellationToken)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (to_client, from_client) = WebSocketStream::from_raw_socket(client, Role::Server, None).await.split();
    let (reader, writer) = port.split();
    let mut to_client = Down { reader, to_client };
    // Independent directions: if they waited for each other, two full buffers would deadlock.
    tokio::select! {
        () = to_client.run() => {}
        () = up(from_client, writer) => {}
        () = shutdown.cancelled() => {}
    }
    let frame = CloseFrame { code: CloseCode::Normal, reason: "".into() };
    // The client may already be gone.
    let _ = tokio::time::timeout(PING_EVERY, to_client.to_client.send(Message::Close(Some(frame)))).await;
}

/// Port to client, interleaved with pings.
struct Down<S> {
    reader: Reader,
    to_client: SplitSink<WebSocketStream<S>, Message>,
}

impl<S> Down<S>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    async fn run(&mut self) {
        let mut buffer = vec![0; FRAME];
        let mut pings = interval(PING_EVERY);
        pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let message = tokio::select! {
                read = self.reader.read(&mut buffer) => match read {
                    Ok(Some(n)) => Message::Binary(Bytes::copy_from_slice(&buffer[..n])),
                    Ok(None) => return,
                    Err(error) => {
                        tracing::debug!(%error, "a forwarded port broke");
                        return;
                    }
                },
                _ = pings.tick() => Message::Ping(Bytes::from_static(PING)),
            };
            if self.to_client.send(message).await.is_err() {
                return;
            }
        }
    }
}

/// Client to port, until the client closes or times out.
async fn up<S>(mut from_client: SplitStream<WebSocketStream<S>>, mut writer: Writer)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut deadline = Instant::now() + SILENCE;
    while let Ok(Some(Ok(message))) = timeout_at(deadline, from_client.next()).await {
        match message {
            Message::Binary(bytes) => {
                if let Err(error) = writer.write(&bytes).await {
                    tracing::debug!(%error, "a forwarded port broke");
                    return;
                }
            }
            Message::Pong(_) => deadline = Instant::now() + SILENCE,
            Message::Close(_) => return,
            Message::Text(_) | Message::Ping(_) | Message::Frame(_) => {}
        }
    }
}
