//! Commands and queries that are forwarded to the launcher.

use api::v1::VirtualMachineInstanceGuestOSInfo;
use axum::Json;
use axum::extract::{Path, State};
use http::StatusCode;
use launcher_contract::migration::{MigrationMode, Progress};
use launcher_contract::types::{Command, GuestAgent};
use serde::Serialize;

use super::{Refusal, Server};
use crate::error::chain;

type Target = Path<(String, String)>;

pub(super) async fn pause(State(server): State<Server>, target: Target) -> Result<StatusCode, Refusal> {
    server.command(target, Command::Pause).await
}

pub(super) async fn unpause(State(server): State<Server>, target: Target) -> Result<StatusCode, Refusal> {
    server.command(target, Command::Unpause).await
}

pub(super) async fn soft_reboot(State(server): State<Server>, target: Target) -> Result<StatusCode, Refusal> {
    server.command(target, Command::SoftReboot).await
}

pub(super) async fn reset(State(server): State<Server>, target: Target) -> Result<StatusCode, Refusal> {
    server.command(target, Command::Reset).await
}

impl Server {
    async fn command(&self, Path((namespace, name)): Target, command: Command) -> Result<StatusCode, Refusal> {
        let target = self.target(&namespace, &name).await?;
        match target.launcher.command(command).await {
            Ok(()) => {
                tracing::info!(%namespace, %name, ?command, "executed");
                Ok(StatusCode::ACCEPTED)
            }
            Err(error) => Err(Refusal(StatusCode::INTERNAL_SERVER_ERROR, chain(&error))),
        }
    }
}

/// Guest agent information in KubeVirt's format.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct GuestInfo {
    #[serde(skip_serializing_if = "Option::is_none")]
    guest_agent_version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hostname: Option<String>,
    os: VirtualMachineInstanceGuestOSInfo,
}

/// From the launcher's last report; empty if the guest agent does not answer.
pub(super) async fn guest_os_info(
    State(server): State<Server>,
    Path((namespace, name)): Target,
) -> Result<Json<GuestInfo>, Refusal> {
    let target = server.target(&namespace, &name).await?;
    let GuestAgent { version, hostname, os, interfaces: _ } = target.launcher.report().guest_agent.unwrap_or_default();
    Ok(Json(GuestInfo { guest_agent_version: version, hostname, os: os.unwrap_or_default() }))
}

/// Progress of the guest's migration, from the launcher's last report.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct MigrationProgress {
    /// `PreCopy`, `PostCopy` or `Paused`.
    mode: &'static str,
    data_total: u64,
    data_processed: u64,
    data_remaining: u64,
    dirty_rate: u64,
    bandwidth: u64,
    iteration: u64,
    expected_downtime: u64,
    throttle_percent: u64,
    elapsed_ms: u64,
}

/// All zero for a guest that is not being migrated.
pub(super) async fn migration_progress(
    State(server): State<Server>,
    Path((namespace, name)): Target,
) -> Result<Json<MigrationProgress>, Refusal> {
    let target = server.target(&namespace, &name).await?;
    let Some(migration) = target.launcher.report().migration else { return Ok(Json(MigrationProgress::default())) };
    let Progress {
        data_total,
        data_processed,
        data_remaining,
        dirty_rate,
        bandwidth,
        iterations,
        downtime_ms,
        throttle_percent,
        elapsed_ms,
    } = migration.progress;
    let mode = match migration.mode {
        MigrationMode::PreCopy => "PreCopy",
        MigrationMode::PostCopy => "PostCopy",
        MigrationMode::Paused => "Paused",
        MigrationMode::Unknown => "",
    };
    Ok(Json(MigrationProgress {
        mode,
        data_total,
        data_processed,
        data_remaining,
        dirty_rate,
        bandwidth,
        iteration: iterations,
        expected_downtime: downtime_ms,
        throttle_percent,
        elapsed_ms,
    }))
}
