//! Requests on the launcher's socket: JSON over HTTP/1.1.
//!
//! | request | body | answer |
//! |---|---|---|
//! | `GET` [`INFO`] | | [`Info`](crate::types::Info) |
//! | `GET` [`STATE`]`?after=SEQ&wait=SECS` | | [`LauncherState`](crate::types::LauncherState), at once if its `seq` is not SEQ |
//! | `PUT` [`SYNC`] | [`SyncRequest`](crate::types::SyncRequest) | `{}` once the domain is defined and started |
//! | `PUT` [`Command::path`](crate::types::Command::path) | [`CommandRequest`](crate::types::CommandRequest) | `{}` |
//! | `PUT` [`PREPARE_TARGET`] | [`PrepareTargetRequest`](crate::migration::PrepareTargetRequest) | `{}` once the guest may come |
//! | `PUT` [`MIGRATE`] | [`MigrateRequest`](crate::migration::MigrateRequest) | `{}` once the transfer has begun |
//! | `PUT` [`SETTLE_MIGRATION`] | [`SettleRequest`](crate::migration::SettleRequest) | `{}` |
//! | `PUT` [`ABORT_MIGRATION`], [`FINALIZE_TARGET`] | [`MigrationRequest`](crate::migration::MigrationRequest) | `{}` |
//! | `PUT` [`MEMORY_DUMP`] | [`MemoryDumpRequest`](crate::types::MemoryDumpRequest) | `{}` once the dump has begun |
//! | `POST` [`AGENT`] | [`AgentRequest`](crate::types::AgentRequest) | [`AgentReply`](crate::types::AgentReply) |
//!
//! A refusal is a 4xx or 5xx with a [`Refusal`](crate::types::Refusal).

pub const INFO: &str = "/v1/info";
pub const STATE: &str = "/v1/state";
pub const SYNC: &str = "/v1/sync";
pub const PREPARE_TARGET: &str = "/v1/prepare-target";
pub const MIGRATE: &str = "/v1/migrate";
pub const SETTLE_MIGRATION: &str = "/v1/settle-migration";
pub const ABORT_MIGRATION: &str = "/v1/abort-migration";
pub const FINALIZE_TARGET: &str = "/v1/finalize-target";
pub const MEMORY_DUMP: &str = "/v1/memory-dump";
pub const AGENT: &str = "/v1/agent";
