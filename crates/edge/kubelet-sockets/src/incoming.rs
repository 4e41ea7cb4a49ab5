//! The connections to a socket.

use std::io;
use std::os::unix::net::UnixListener;
use std::time::Duration;

use futures::{Stream, stream};
use tokio::net::UnixStream;

use crate::peer;

/// Pause after a connection could not be accepted, for example for lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Connections from root and the user we run as, and from nobody else. `server` is for the log.
pub fn connections(
    listener: UnixListener,
    server: &'static str,
) -> io::Result<impl Stream<Item = io::Result<UnixStream>> + Send> {
    let listener = tokio::net::UnixListener::from_std(listener)?;
    Ok(stream::unfold(listener, move |listener| async move {
        loop {
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(server, %error, "failed to accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            match peer::check(&stream) {
                Ok(()) => return Some((Ok(stream), listener)),
                Err(error) => tracing::warn!(server, %error, "a connection was refused"),
            }
        }
    }))
}
