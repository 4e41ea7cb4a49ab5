//! One connection: calls multiplexed by serial number, events, keepalive, and a common close reason.
//!
//! ```text
//!            open()                         first failure
//!   socket ─────────► Open ──────────────────────────────────────────► Closed(reason)
//!                      │  reader: reply → pending[serial], event → subscribers, ping → pong
//!                      │  keepalive: silent for interval × count  ──► KeepaliveTimeout
//!                      └─ last handle dropped: tasks aborted, socket closed
//! ```

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use parking_lot::{Mutex, MutexGuard};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use crate::error::{CloseReason, Error, RemoteError};
use crate::event::Event;
use crate::frame::{Frame, Kind, Status};
use crate::proc::{self, KEEPALIVE_PING, KEEPALIVE_PONG, KEEPALIVE_PROGRAM, Procedure, REMOTE_PROGRAM};
use crate::xdr::{DecodeError, Decoder, Encoder, STRING_MAX};

/// Events a slow receiver may lag behind before it gets [`Event::Missed`].
const EVENT_BACKLOG: usize = 256;

/// Detects a silent daemon: it is pinged after `interval` without traffic, and after `count` unanswered pings the
/// connection is closed.
#[derive(Debug, Clone, Copy)]
pub struct Keepalive {
    pub interval: Duration,
    pub count: u32,
}

/// An open connection to a libvirt daemon. Clones share it.
#[derive(Clone)]
pub struct Connection {
    shared: Arc<Shared>,
    _tasks: Arc<[AbortOnDropHandle<()>; 3]>,
}

/// The events of a connection since [`Connection::events`] was called.
pub struct Events(broadcast::Receiver<Event>);

impl Events {
    /// The next event; `None` once the connection is closed and everything before that was delivered.
    pub async fn recv(&mut self) -> Option<Event> {
        match self.0.recv().await {
            Ok(event) => Some(event),
            Err(broadcast::error::RecvError::Lagged(_)) => Some(Event::Missed),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}

struct Shared {
    state: Mutex<State>,
    serial: AtomicU32,
    /// Unbounded, but each caller waits for its reply before the next call, so it holds a frame per caller at most.
    outgoing: mpsc::UnboundedSender<Bytes>,
    closed: watch::Sender<Option<CloseReason>>,
}

enum State {
    Open {
        pending: HashMap<u32, oneshot::Sender<Frame>>,
        events: broadcast::Sender<Event>,
        /// When the daemon was last heard from, and the unanswered pings since.
        heard: Instant,
        unanswered: u32,
    },
    Closed(CloseReason),
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing under the lock can panic halfway through a change.
        self.state.lock()
    }

    /// Closes the connection for all callers; the first reason is kept.
    fn close(&self, reason: CloseReason) {
        let mut state = self.state();
        if matches!(*state, State::Open { .. }) {
            tracing::debug!(%reason, "libvirt connection closed");
            // Dropping the pending senders wakes every caller, dropping the event sender ends every subscription.
            *state = State::Closed(reason.clone());
            drop(state);
            self.closed.send_replace(Some(reason));
        }
    }

    fn send(&self, frame: &Frame) -> Result<(), crate::frame::TooLarge> {
        // Ignore an error: if the writer has ended, the connection is closed.
        let _ = self.outgoing.send(frame.encode()?);
        Ok(())
    }

    fn keepalive(&self, procedure: u32) {
        let frame = Frame {
            program: KEEPALIVE_PROGRAM,
            procedure,
            kind: Kind::Event,
            serial: 0,
            status: Status::Ok,
            body: Bytes::new(),
        };
        let _ = self.send(&frame);
    }

    fn receive(&self, frame: Frame) -> Result<(), DecodeError> {
        let mut guard = self.state();
        let State::Open { pending, events, heard, unanswered } = &mut *guard else { return Ok(()) };
        *heard = Instant::now();
        *unanswered = 0;
        match (frame.program, frame.kind) {
            (KEEPALIVE_PROGRAM, Kind::Event) if frame.procedure == KEEPALIVE_PING => self.keepalive(KEEPALIVE_PONG),
            (KEEPALIVE_PROGRAM, Kind::Event) => {}
            (_, Kind::Reply) => match pending.remove(&frame.serial) {
                Some(caller) => drop(caller.send(frame)),
                None => tracing::debug!(serial = frame.serial, "reply to a call that was given up"),
            },
            (REMOTE_PROGRAM, Kind::Event) => {
                if let Some(event) = Event::decode(frame.procedure, &frame.body)? {
                    let _ = events.send(event);
                }
            }
            (_, Kind::Event) => {}
            (_, Kind::Call) => return Err(DecodeError::BadValue { what: "a message from a server", value: 0 }),
        }
        Ok(())
    }

    fn register(&self, serial: u32, call: &'static str) -> Result<oneshot::Receiver<Frame>, Error> {
        let (sender, receiver) = oneshot::channel();
        match &mut *self.state() {
            State::Open { pending, .. } => pending.insert(serial, sender),
            State::Closed(reason) => return Err(Error::Closed { call, source: reason.clone() }),
        };
        Ok(receiver)
    }

    fn close_reason(&self) -> CloseReason {
        match &*self.state() {
            State::Closed(reason) => reason.clone(),
            State::Open { .. } => CloseReason::Peer,
        }
    }
}

/// Removes the call from the pending list when its caller stops waiting.
struct Waiting<'a> {
    shared: &'a Shared,
    serial: u32,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let State::Open { pending, .. } = &mut *self.shared.state() {
            pending.remove(&self.serial);
        }
    }
}

impl Connection {
    /// Connects to the daemon's socket at `path` and opens `uri` there.
    pub async fn connect(path: &Path, uri: &str, keepalive: Keepalive) -> Result<Connection, Error> {
        let stream =
            UnixStream::connect(path).await.map_err(|source| Error::Connect { path: path.to_owned(), source })?;
        Self::over(stream, uri, keepalive).await
    }

    /// Opens `uri` over a stream that is already connected.
    pub async fn over<S>(stream: S, uri: &str, keepalive: Keepalive) -> Result<Connection, Error>
    where
        S: AsyncRead + AsyncWrite + Send + 'static,
    {
        let (reader, writer) = tokio::io::split(stream);
        let (outgoing, frames) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            state: Mutex::new(State::Open {
                pending: HashMap::new(),
                events: broadcast::Sender::new(EVENT_BACKLOG),
                heard: Instant::now(),
                unanswered: 0,
            }),
            serial: AtomicU32::new(0),
            outgoing,
            closed: watch::Sender::new(None),
        });
        let tasks = [
            tokio::spawn(read(reader, shared.clone())),
            tokio::spawn(write(writer, frames, shared.clone())),
            tokio::spawn(watch_silence(keepalive, shared.clone())),
        ];
        let connection = Connection { shared, _tasks: Arc::new(tasks.map(AbortOnDropHandle::new)) };
        connection.handshake(uri).await?;
        Ok(connection)
    }

    /// A daemon without keepalive support would not answer pings, and the connection would be closed for no reason;
    /// every daemon since 2011 supports it.
    async fn handshake(&self, uri: &str) -> Result<(), Error> {
        let methods = self.call(proc::AUTH_LIST, Encoder::default(), |r| r.list(Decoder::u32)).await?;
        if let Some(&method) = methods.first().filter(|_| !methods.contains(&0)) {
            return Err(Error::Authentication(method));
        }
        let keepalive = Encoder::default().i32(proc::FEATURE_PROGRAM_KEEPALIVE);
        self.call(proc::CONNECT_SUPPORTS_FEATURE, keepalive, |reply| reply.i32()).await?;
        self.call(proc::CONNECT_OPEN, Encoder::default().optional_string(Some(uri)).u32(0), |_| Ok(())).await?;
        for event in [
            proc::EVENT_ID_LIFECYCLE,
            proc::EVENT_ID_AGENT_LIFECYCLE,
            proc::EVENT_ID_DEVICE_REMOVED,
            proc::EVENT_ID_DEVICE_REMOVAL_FAILED,
        ] {
            // No domain: events of all domains.
            let arguments = Encoder::default().i32(event).u32(0);
            self.call(proc::CONNECT_DOMAIN_EVENT_CALLBACK_REGISTER_ANY, arguments, |reply| reply.i32()).await?;
        }
        Ok(())
    }

    /// Events of all domains, from now on.
    pub fn events(&self) -> Events {
        match &*self.shared.state() {
            State::Open { events, .. } => Events(events.subscribe()),
            State::Closed(_) => Events(broadcast::Sender::new(1).subscribe()),
        }
    }

    /// Resolves when the connection has closed.
    pub async fn closed(&self) -> CloseReason {
        let mut closed = self.shared.closed.subscribe();
        match closed.wait_for(Option::is_some).await {
            Ok(reason) => reason.clone().unwrap_or(CloseReason::Peer),
            Err(_) => CloseReason::Peer,
        }
    }

    pub(crate) async fn call<T>(
        &self,
        procedure: Procedure,
        arguments: Encoder,
        read: impl FnOnce(&mut Decoder<'_>) -> Result<T, DecodeError>,
    ) -> Result<T, Error> {
        let call = procedure.name;
        let body = arguments.finish();
        if body.len() > STRING_MAX {
            return Err(Error::TooLarge { call });
        }
        let serial = self.shared.serial.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let reply = self.shared.register(serial, call)?;
        let _waiting = Waiting { shared: &self.shared, serial };
        let frame = Frame {
            program: procedure.program,
            procedure: procedure.number,
            kind: Kind::Call,
            serial,
            status: Status::Ok,
            body: body.into(),
        };
        self.shared.send(&frame).map_err(|_| Error::TooLarge { call })?;
        let reply = reply.await.map_err(|_| Error::Closed { call, source: self.shared.close_reason() })?;
        let garbled = |error: DecodeError| Error::Garbled { call, detail: error.to_string() };
        if (reply.program, reply.procedure) != (procedure.program, procedure.number) {
            return Err(Error::Garbled { call, detail: format!("it is an answer to procedure {}", reply.procedure) });
        }
        match reply.status {
            Status::Error => {
                let source = RemoteError::decode(&reply.body).map_err(garbled)?;
                Err(Error::Remote { call, source })
            }
            Status::Ok => {
                let mut reader = Decoder::new(&reply.body);
                let value = read(&mut reader).map_err(garbled)?;
                reader.finish().map_err(garbled)?;
                Ok(value)
            }
        }
    }
}

async fn read(mut socket: impl AsyncRead + Unpin, shared: Arc<Shared>) {
    let mut buffer = BytesMut::new();
    let reason = loop {
        let frame = match Frame::decode(&mut buffer) {
            Ok(frame) => frame,
            Err(error) => break CloseReason::Protocol(error.to_string()),
        };
        if let Some(frame) = frame {
            if let Err(error) = shared.receive(frame) {
                break CloseReason::Protocol(error.to_string());
            }
            continue;
        }
        match socket.read_buf(&mut buffer).await {
            Ok(0) => break CloseReason::Peer,
            Ok(_) => {}
            Err(error) => break CloseReason::Io(Arc::new(error)),
        }
    };
    shared.close(reason);
}

async fn write(mut socket: impl AsyncWrite + Unpin, mut frames: mpsc::UnboundedReceiver<Bytes>, shared: Arc<Shared>) {
    while let Some(frame) = frames.recv().await {
        if let Err(error) = socket.write_all(&frame).await {
            shared.close(CloseReason::Io(Arc::new(error)));
            return;
        }
    }
}

async fn watch_silence(keepalive: Keepalive, shared: Arc<Shared>) {
    let mut wake = Instant::now() + keepalive.interval;
    loop {
        tokio::time::sleep_until(wake).await;
        let now = Instant::now();
        {
            let mut state = shared.state();
            let State::Open { heard, unanswered, .. } = &mut *state else { return };
            let due = *heard + keepalive.interval * (*unanswered + 1);
            if now < due {
                wake = due;
                continue;
            }
            if *unanswered < keepalive.count {
                *unanswered += 1;
                drop(state);
                shared.keepalive(KEEPALIVE_PING);
                wake = now + keepalive.interval;
                continue;
            }
        }
        let silence = keepalive.interval * (keepalive.count + 1);
        shared.close(CloseReason::KeepaliveTimeout { seconds: silence.as_secs() });
        return;
    }
}

#[cfg(test)]
#[path = "connection_tests.rs"]
mod tests;
