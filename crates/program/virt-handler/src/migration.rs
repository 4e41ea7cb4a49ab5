//! Executes the state machine's actions for migrations.

use std::net::IpAddr;

use api::v1::{MigrationConfiguration, VirtualMachineInstance};
use launcher_contract::types::{RefusalCode, SyncOptions};
use launcher_rpc::Error as RpcError;
use vmstate::Action;

use crate::agent::{Failed, refused, transient};
use crate::agents::Node;
use crate::launcher::Launcher;
use crate::proxy::{Bond, ProxyError, Side};
use crate::records::GhostRecord;
use crate::uid::{MigrationUid, PodUid, VmiUid};

pub use api::nad::MIGRATION_LINK;

/// Executes a migration action.
pub(crate) async fn act(
    node: &Node,
    record: &GhostRecord,
    vmi: Option<&VirtualMachineInstance>,
    launcher: &Launcher,
    options: &SyncOptions,
    action: Action,
) -> Result<(), Failed> {
    if action == Action::CloseProxies {
        close(node, &record.pod_uid);
        return Ok(());
    }
    let vmi = vmi.ok_or_else(|| Failed { message: "the VMI is gone".to_owned(), critical: false })?;
    let (client, vmi_uid) = (&launcher.client, &record.vmi_uid);
    let of = |uid: String| MigrationUid::new(uid).map_err(|error| transient(&error));
    let key = record.vmi_key();
    let told = match action {
        Action::OpenTargetProxy => {
            let configuration = configuration(node, vmi);
            let address = own_address(node, &configuration).await;
            let key = socket_key(vmi, &record.vmi_uid)?;
            let bond = bond(vmi, Side::Target, &configuration)?;
            let opened = node.proxies.listen(&record.pod_uid, &key, address, bond).await;
            return opened.map(drop).map_err(not_opened);
        }
        Action::OpenSourceProxy(target) => {
            let bond = bond(vmi, Side::Source, &configuration(node, vmi))?;
            return node.proxies.dial(&record.pod_uid, &record.vmi_uid, &target, bond).await.map_err(not_opened);
        }
        Action::PrepareTarget { uid } => {
            tracing::info!(vmi = %key, migration = uid, "preparing for the guest");
            client.prepare_target(vmi, &of(uid)?, options).await
        }
        Action::Migrate { uid } => {
            let gates = |name: &str| node.config.gate(name);
            let options = vmstate::migration::options(vmi, &configuration(node, vmi), gates, cpus());
            tracing::info!(vmi = %key, migration = uid, ?options, "starting migration");
            client.migrate(vmi_uid, &of(uid)?, &options, vmstate::migration::destination(vmi)).await
        }
        Action::AbortMigration { uid, because } => {
            tracing::info!(vmi = %key, migration = uid, because, "aborting migration");
            client.abort_migration(vmi_uid, &of(uid)?).await
        }
        Action::SettleMigration { uid, target_runs, because } => {
            tracing::warn!(vmi = %key, migration = uid, target_runs, because, "reporting the outcome to the source");
            client.settle_migration(vmi_uid, &of(uid)?, target_runs).await
        }
        Action::FinalizeTarget { uid } => client.finalize_target(vmi_uid, &of(uid)?).await,
        other => {
            let message = format!("{other:?} is not about a migration");
            return Err(Failed { message, critical: true });
        }
    };
    launcher.refresh().await;
    told.map_err(explain)
}

/// The source names the sockets that QEMU opens at the target, after its own VMI.
fn socket_key(vmi: &VirtualMachineInstance, own: &VmiUid) -> Result<VmiUid, Failed> {
    match vmstate::migration::sender_uid(vmi) {
        Some(uid) => VmiUid::new(uid).map_err(|error| transient(&error)),
        None => Ok(own.clone()),
    }
}

/// Closes all proxies of the launcher.
pub(crate) fn close(node: &Node, pod_uid: &PodUid) {
    node.proxies.close(pod_uid, Side::Source);
    node.proxies.close(pod_uid, Side::Target);
}

/// A launcher in the wrong state cannot recover for this migration, so that is critical.
fn explain(error: RpcError) -> Failed {
    let wrong_state = error.refusal() == Some(RefusalCode::WrongState);
    let Failed { message, critical } = refused(error);
    Failed { message, critical: critical || wrong_state }
}

fn not_opened(error: ProxyError) -> Failed {
    let critical = matches!(error, ProxyError::BadAddress(_) | ProxyError::BadPort { .. });
    Failed { critical, ..transient(&error) }
}

/// The configuration resolved when this migration was handed off, or else the cluster's defaults.
fn configuration(node: &Node, vmi: &VirtualMachineInstance) -> MigrationConfiguration {
    let state = vmi.status.as_ref().and_then(|status| status.migration_state.as_ref());
    state.and_then(|state| state.migration_configuration.clone()).unwrap_or_else(|| node.config.migrations())
}

/// What the two sides of the migration know each other by.
fn bond(vmi: &VirtualMachineInstance, side: Side, configuration: &MigrationConfiguration) -> Result<Bond, Failed> {
    let state = vmi.status.as_ref().and_then(|status| status.migration_state.as_ref());
    let state = state.ok_or_else(|| Failed { message: "the VMI has no migration".to_owned(), critical: false })?;
    let (source, target) = (state.source_state.as_ref(), state.target_state.as_ref());
    // Each side goes by a migration of its own, if there are two VMIs: both know the sender's.
    let senders = source.filter(|_| state.between().is_some()).and_then(|source| source.migration_uid.clone());
    let peer = match side {
        Side::Source => state.target_node.clone().or_else(|| target.and_then(|target| target.node.clone())),
        Side::Target => state.source_node.clone().or_else(|| source.and_then(|source| source.node.clone())),
    };
    Ok(Bond {
        migration: senders.or_else(|| state.migration_uid.clone()).unwrap_or_default(),
        peer: peer.filter(|node| !node.is_empty()),
        encrypted: configuration.disable_tls != Some(true),
    })
}

fn cpus() -> u32 {
    std::thread::available_parallelism().map_or(1, |count| u32::try_from(count.get()).unwrap_or(u32::MAX))
}

/// The address to publish: on the migration network if there is one, otherwise the node's own.
async fn own_address(node: &Node, configuration: &MigrationConfiguration) -> IpAddr {
    let dedicated = configuration.network.as_deref().is_some_and(|network| !network.is_empty());
    if !dedicated && !node.address.is_unspecified() {
        return node.address;
    }
    let observed = match tokio::task::spawn_blocking(netlink::observe).await {
        Ok(Ok(observed)) => observed,
        _ => return node.address,
    };
    let usable = |link: &netplan::ObservedLink| {
        let addresses = link.addresses.iter().map(|net| net.addr());
        addresses.into_iter().find(|address| !address.is_loopback() && !is_link_local(address))
    };
    let of_migrations = observed.link(MIGRATION_LINK).filter(|_| dedicated).and_then(usable);
    if dedicated && of_migrations.is_none() {
        tracing::warn!(link = MIGRATION_LINK, "migration network not found; using the node's network");
    }
    // If virt-handler listens on all addresses, it publishes that of the first link that has one.
    let own = || match node.address.is_unspecified() {
        true => observed.links.iter().find_map(usable).unwrap_or(node.address),
        false => node.address,
    };
    of_migrations.unwrap_or_else(own)
}

fn is_link_local(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}
