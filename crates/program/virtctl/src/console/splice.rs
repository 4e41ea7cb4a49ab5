//! Copies between a stream and the user until one side closes.

use bytes::Bytes;
use futures::{SinkExt as _, StreamExt as _};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::{Error, Message};

/// Ctrl+].
const ESCAPE: u8 = 0x1d;

/// How the session ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// The user, with the escape key, or by closing the output.
    Detached,
    /// A signal of this number.
    Signal(u8),
    /// The server.
    Closed,
    /// The server, for this reason.
    Expelled(String),
}

/// Copies until the escape byte in the input, the end of the stream, or a termination signal. EOF of the input does not
/// end it: the guest's output may still be wanted.
pub(super) async fn run<S, W>(
    stream: WebSocketStream<S>,
    mut input: mpsc::Receiver<Vec<u8>>,
    mut output: W,
) -> anyhow::Result<Ended>
where
    S: AsyncRead + AsyncWrite + Unpin,
    W: AsyncWrite + Unpin,
{
    let (mut to_guest, mut from_guest) = stream.split();
    let mut signals = Signals::new()?;
    let mut input_open = true;
    loop {
        tokio::select! {
            number = signals.next() => return Ok(Ended::Signal(number)),
            typed = input.recv(), if input_open => {
                let Some(typed) = typed else {
                    input_open = false;
                    continue;
                };
                let (text, escaped) = up_to_escape(typed);
                if !text.is_empty() && to_guest.send(Message::Binary(text)).await.is_err() {
                    return Ok(Ended::Closed);
                }
                if escaped {
                    // Best effort: the session is over either way.
                    let _ = to_guest.close().await;
                    return Ok(Ended::Detached);
                }
            }
            message = from_guest.next() => match message {
                Some(Ok(message @ (Message::Binary(_) | Message::Text(_)))) => {
                    if write(&mut output, &message.into_data()).await.is_err() {
                        return Ok(Ended::Detached);
                    }
                }
                None => return Ok(Ended::Closed),
                Some(Ok(Message::Close(frame))) => {
                    let reason = crate::subresource::expulsion(frame);
                    return Ok(reason.map_or(Ended::Closed, Ended::Expelled));
                }
                Some(Err(error)) if peer_is_gone(&error) => return Ok(Ended::Closed),
                Some(Err(error)) => return Err(anyhow::Error::new(error).context("the connection to the console broke")),
                Some(Ok(_)) => {} // pings are answered by the WebSocket layer
            },
        }
    }
}

/// Whether the error only means that the peer is gone: a dying server skips the closing handshake.
fn peer_is_gone(error: &Error) -> bool {
    use tokio_tungstenite::tungstenite::error::ProtocolError::ResetWithoutClosingHandshake;
    matches!(
        error,
        Error::ConnectionClosed | Error::AlreadyClosed | Error::Io(_) | Error::Protocol(ResetWithoutClosingHandshake)
    )
}

async fn write(output: &mut (impl AsyncWrite + Unpin), data: &[u8]) -> std::io::Result<()> {
    output.write_all(data).await?;
    output.flush().await
}

/// The input before the escape byte, and whether there was one.
fn up_to_escape(mut typed: Vec<u8>) -> (Bytes, bool) {
    let escape = typed.iter().position(|byte| *byte == ESCAPE);
    if let Some(position) = escape {
        typed.truncate(position);
    }
    (typed.into(), escape.is_some())
}

/// Termination signals; the terminal has to be restored first.
struct Signals([(u8, Signal); 4]);

impl Signals {
    fn new() -> std::io::Result<Self> {
        let listen = |kind: SignalKind| Ok::<_, std::io::Error>((kind.as_raw_value() as u8, signal(kind)?));
        Ok(Signals([
            listen(SignalKind::interrupt())?,
            listen(SignalKind::terminate())?,
            listen(SignalKind::hangup())?,
            listen(SignalKind::quit())?,
        ]))
    }

    async fn next(&mut self) -> u8 {
        let [a, b, c, d] = &mut self.0;
        tokio::select! {
            _ = a.1.recv() => a.0,
            _ = b.1.recv() => b.0,
            _ = c.1.recv() => c.0,
            _ = d.1.recv() => d.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::DuplexStream;
    use tokio_tungstenite::tungstenite::protocol::Role;

    async fn pair() -> (WebSocketStream<DuplexStream>, WebSocketStream<DuplexStream>) {
        let (near, far) = tokio::io::duplex(4096);
        (
            WebSocketStream::from_raw_socket(near, Role::Client, None).await,
            WebSocketStream::from_raw_socket(far, Role::Server, None).await,
        )
    }

    #[tokio::test]
    async fn what_is_typed_before_the_escape_reaches_the_guest() {
        let (near, mut far) = pair().await;
        let (keys, input) = mpsc::channel(4);
        keys.send(b"root\n".to_vec()).await.unwrap();
        keys.send(b"ls\n\x1dnever sent".to_vec()).await.unwrap();
        let guest = tokio::spawn(async move {
            let mut seen = Vec::new();
            while let Some(Ok(message)) = far.next().await {
                if let Message::Binary(data) = message {
                    seen.extend_from_slice(&data);
                }
            }
            seen
        });
        assert_eq!(run(near, input, tokio::io::sink()).await.unwrap(), Ended::Detached);
        assert_eq!(guest.await.unwrap(), b"root\nls\n");
    }

    #[tokio::test]
    async fn output_goes_on_after_the_input_has_ended() {
        let (near, mut far) = pair().await;
        let (keys, input) = mpsc::channel(1);
        drop(keys);
        let guest = tokio::spawn(async move {
            tokio::task::yield_now().await;
            far.send(Message::Binary(Bytes::from_static(b"GUEST-UP\n"))).await.unwrap();
            far.send(Message::Ping(Bytes::new())).await.unwrap();
            far.close(None).await.unwrap();
        });
        let mut output = Vec::new();
        assert_eq!(run(near, input, &mut output).await.unwrap(), Ended::Closed);
        assert_eq!(output, b"GUEST-UP\n");
        guest.await.unwrap();
    }

    #[tokio::test]
    async fn whoever_is_pushed_out_learns_why() {
        use tokio_tungstenite::tungstenite::protocol::frame::CloseFrame;
        for (code, ended) in
            [(4409, Ended::Expelled("another client took over".into())), (1000, Ended::Closed), (1001, Ended::Closed)]
        {
            let (near, mut far) = pair().await;
            let (_keys, input) = mpsc::channel(1);
            let frame = CloseFrame { code: code.into(), reason: "another client took over".into() };
            far.send(Message::Close(Some(frame))).await.unwrap();
            assert_eq!(run(near, input, tokio::io::sink()).await.unwrap(), ended, "{code}");
        }
    }

    #[tokio::test]
    async fn a_server_that_vanishes_is_a_closed_console() {
        let (near, far) = pair().await;
        let (_keys, input) = mpsc::channel(1);
        drop(far);
        assert_eq!(run(near, input, tokio::io::sink()).await.unwrap(), Ended::Closed);
    }

    #[tokio::test]
    async fn a_reader_that_leaves_ends_the_session() {
        let (near, mut far) = pair().await;
        let (_keys, input) = mpsc::channel(1);
        let (output, reader) = tokio::io::duplex(16);
        drop(reader);
        far.send(Message::Binary(Bytes::from_static(b"x"))).await.unwrap();
        assert_eq!(run(near, input, output).await.unwrap(), Ended::Detached);
    }
}
