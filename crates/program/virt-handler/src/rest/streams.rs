//! Serial console and VNC: a WebSocket connected to one of QEMU's sockets.
//!
//! QEMU serves one client at a time, so a new client replaces the old one. The old connection is closed first:
//! otherwise QEMU would keep the new one waiting.

use std::collections::HashMap;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket, WebSocketUpgrade, close_code};
use axum::extract::{Path, Query, State};
use axum::response::Response;
use futures::{SinkExt, StreamExt};
use http::StatusCode;
use launcher_contract::sockets;
use launcher_contract::streams::SUBPROTOCOL;
use parking_lot::{Mutex, MutexGuard};
use serde::Deserialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{Refusal, Server};

/// Maximum size of a client's frame.
const MAX_FRAME: usize = 1 << 20;
const BUFFER: usize = 32 << 10;
/// The close code for a replaced client: from the private range, ending in HTTP's 409 (conflict). Clients only show the
/// reason if the code is not that of a normal closure.
const TAKEN_OVER: u16 = 4409;
/// How long to wait for the replaced client to let go.
const HANDOVER: Duration = Duration::from_secs(2);
/// Timeout for sending the close frame, and for its answer.
const GOODBYE: Duration = Duration::from_secs(1);

pub(super) async fn console(
    State(server): State<Server>,
    Path((namespace, name)): Path<(String, String)>,
    upgrade: WebSocketUpgrade,
) -> Result<Response, Refusal> {
    server.stream(&namespace, &name, sockets::SERIAL, false, upgrade).await
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct VncQuery {
    /// Refuse the connection instead of replacing the current client.
    #[serde(default)]
    preserve_session: bool,
}

pub(super) async fn vnc(
    State(server): State<Server>,
    Path((namespace, name)): Path<(String, String)>,
    Query(query): Query<VncQuery>,
    upgrade: WebSocketUpgrade,
) -> Result<Response, Refusal> {
    server.stream(&namespace, &name, sockets::VNC, query.preserve_session, upgrade).await
}

impl Server {
    async fn stream(
        &self,
        namespace: &str,
        name: &str,
        socket: &'static str,
        preserve: bool,
        upgrade: WebSocketUpgrade,
    ) -> Result<Response, Refusal> {
        let target = self.target(namespace, name).await?;
        let uid = target.vmi.metadata.uid.clone().unwrap_or_default();
        let Some(session) = self.sessions.take((uid, socket), preserve).await else {
            return Err(Refusal(StatusCode::SERVICE_UNAVAILABLE, "another client is already connected".to_string()));
        };
        // Dialled before the WebSocket handshake, so that a failure is still an ordinary HTTP error.
        let qemu = target.launcher.connect_private(socket).await.map_err(|error| {
            Refusal(StatusCode::INTERNAL_SERVER_ERROR, format!("cannot connect to the guest's {socket}: {error}"))
        })?;
        let shutdown = self.shutdown.clone();
        let join = async move |client| {
            tokio::select! {
                () = join(client, qemu, session) => {}
                () = shutdown.cancelled() => {}
            }
        };
        Ok(upgrade.protocols([SUBPROTOCOL]).max_frame_size(MAX_FRAME).max_message_size(MAX_FRAME).on_upgrade(join))
    }
}

/// Copies bytes both ways until one side closes or another client takes over.
async fn join(client: WebSocket, qemu: UnixStream, session: Session) {
    let (mut to_client, mut from_client) = client.split();
    let (mut from_qemu, mut to_qemu) = qemu.into_split();
    let upwards = async {
        let mut buffer = vec![0; BUFFER];
        while let Ok(length @ 1..) = from_qemu.read(&mut buffer).await {
            if to_client.send(Message::Binary(Bytes::copy_from_slice(&buffer[..length]))).await.is_err() {
                return;
            }
        }
    };
    let downwards = async {
        while let Some(Ok(message)) = from_client.next().await {
            let bytes = match message {
                Message::Binary(bytes) => bytes,
                Message::Text(text) => text.into(),
                Message::Ping(_) | Message::Pong(_) => continue,
                Message::Close(_) => return,
            };
            if to_qemu.write_all(&bytes).await.is_err() {
                return;
            }
        }
    };
    let (code, reason) = tokio::select! {
        () = upwards => (close_code::NORMAL, "the guest closed the connection"),
        () = downwards => (close_code::NORMAL, "closed by the client"),
        () = session.stop.cancelled() => (TAKEN_OVER, "another client took over"),
    };
    let frame = CloseFrame { code, reason: Utf8Bytes::from_static(reason) };
    // The next client waits for this one to finish; a client that does not read must not delay it.
    let _ = tokio::time::timeout(GOODBYE, to_client.send(Message::Close(Some(frame)))).await;
    drop((from_qemu, to_qemu, session));
    // Wait for the client's answer: input that arrives on a closed connection would reset it, and the close reason
    // would be lost.
    let answer = async { while let Some(Ok(_)) = from_client.next().await {} };
    let _ = tokio::time::timeout(GOODBYE, answer).await;
}

type Endpoint = (String, &'static str);

/// The current client of each socket of each VMI.
#[derive(Default)]
pub(crate) struct Sessions {
    current: Mutex<HashMap<Endpoint, Current>>,
}

struct Current {
    stop: CancellationToken,
    /// Cancelled when the session has released QEMU's socket.
    ended: CancellationToken,
}

/// The right to be connected; others revoke it by canceling `stop`.
pub(crate) struct Session {
    stop: CancellationToken,
    /// Tells the next client that this session is over.
    _ended: DropGuard,
}

impl Sessions {
    fn lock(&self) -> MutexGuard<'_, HashMap<Endpoint, Current>> {
        self.current.lock()
    }

    /// Replaces the current client, or returns `None` if that one is to be preserved.
    async fn take(&self, endpoint: Endpoint, preserve: bool) -> Option<Session> {
        let (stop, ended) = (CancellationToken::new(), CancellationToken::new());
        let before = {
            let mut current = self.lock();
            current.retain(|_, session| !session.ended.is_cancelled());
            if preserve && current.contains_key(&endpoint) {
                return None;
            }
            current.insert(endpoint, Current { stop: stop.clone(), ended: ended.clone() })
        };
        if let Some(Current { stop, ended }) = before {
            stop.cancel();
            let _ = tokio::time::timeout(HANDOVER, ended.cancelled()).await;
        }
        Some(Session { stop, _ended: ended.drop_guard() })
    }
}
