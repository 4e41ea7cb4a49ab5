//! What virt-handler and virt-launcher say to each other: JSON over HTTP/1.1 on the launcher's Unix socket.
//!
//! The launcher pushes nothing. The handler long-polls one state document that carries a sequence number, so an answer
//! that got lost is simply asked for again, and a handler that starts anew needs no replay. Commands are idempotent and
//! name the VMI's UID: a launcher refuses what is meant for another one.
//!
//! | request | body | answer |
//! |---|---|---|
//! | `GET /v1/info` | | [`types::Info`] |
//! | `GET /v1/state?after=SEQ&wait=SECS` | | [`types::LauncherState`], at once if its `seq` differs from SEQ |
//! | `PUT /v1/sync` | [`types::SyncRequest`] | `{}` once the domain is defined and started |
//! | `PUT /v1/{pause,unpause,reset,softreboot,shutdown,kill,delete}` | [`types::CommandRequest`] | `{}` |
//! | `PUT /v1/prepare-target` | [`migration::PrepareTargetRequest`] | `{}` once the guest may come |
//! | `PUT /v1/migrate` | [`migration::MigrateRequest`] | `{}` once the transfer has begun |
//! | `PUT /v1/settle-migration` | [`migration::SettleRequest`] | `{}` |
//! | `PUT /v1/{abort-migration,finalize-target}` | [`migration::MigrationRequest`] | `{}` |
//! | `POST /v1/agent` | [`types::AgentRequest`] | [`types::AgentReply`] |
//!
//! A refusal is a 4xx or 5xx with [`types::Refusal`].
//!
//! A launcher whose guest has ended leaves its state in the file [`LAST_STATE`] as well: a handler that was away until
//! the launcher had ended reads there how the guest did.

mod client;
pub mod migration;
pub mod types;

pub use client::{Client, Error};

/// The file beside the launcher's socket that holds its last [`types::LauncherState`], once the guest has ended.
pub const LAST_STATE: &str = "last-state.json";
