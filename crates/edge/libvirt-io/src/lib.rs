//! libvirt's RPC protocol, directly over the daemon's Unix socket.
//!
//! The launcher needs some thirty calls, lifecycle events and detection of a hung daemon. libvirt's C library brings
//! its own event loop and blocking calls; this client is a few tasks on the caller's runtime instead, so a slow call
//! never blocks another one and the program stays a static binary.
//!
//! ```text
//!   caller ──call──► pending[serial] + frame ──► writer task ──► socket ──► libvirtd
//!   caller ◄──────── pending[serial] ◄────────── reader task ◄── socket ◄── libvirtd
//!   events() ◄────── broadcast ◄──────────────── reader task
//!                    keepalive task: pings an idle peer, ends the connection when it stays silent
//! ```
//!
//! - [`Connection`] is cheap to clone; the socket closes when the last clone is dropped.
//! - Every failure of the transport ends the connection once, for all callers, with one [`CloseReason`].
//! - Whatever the daemon sends is checked before it is used: frames, strings and arrays have limits, and a reply that
//!   does not parse is an error. Nothing here trusts a length it was told.

mod calls;
mod connection;
mod error;
mod event;
mod frame;
mod migrate;
mod proc;
mod types;
mod xdr;

pub use connection::{Connection, Events, Keepalive};
pub use error::{CloseReason, Error, ErrorCode, RemoteError};
pub use event::{AgentState, Event, Lifecycle};
pub use migrate::{Begun, Cookie, JobKind, JobStats, Params, Prepared, Value};
pub use types::{BlockInfo, DiskError, Domain, DomainInfo, Reason, State, flags};
