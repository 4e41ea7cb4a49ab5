//! `uncordon`: marks a node as schedulable, and cancels evacuations of it that have not started.

use std::process::ExitCode;

use anyhow::Context as _;
use api::v1::{VirtualMachineInstance, VirtualMachineInstanceMigration};
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams};
use plan::evacuation::can_be_called_off;
use virtctl::connect::{ConnectArgs, Session};
use virtctl::migration;

use super::drain::{cordon, in_namespace};
use super::errors::server_error;

/// Mark a node as schedulable, and cancel evacuations from it that have not started
///
/// A guest whose memory is being copied keeps moving; the others stay where they are.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    connect: ConnectArgs,
    /// Name of the node
    node: String,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let session = args.connect.connect().await?;
    let failed = |error| server_error(error, &session.server);
    cordon(&session, &args.node, false).await?;
    let vmis: Api<VirtualMachineInstance> = Api::all(session.client.clone());
    let (mut stay, mut go) = (0, 0);
    for vmi in vmis.list(&ListParams::default()).await.map_err(failed)?.items {
        let marked = vmi.status.as_ref().and_then(|status| status.evacuation_node_name.as_deref());
        if marked != Some(args.node.as_str()) {
            continue;
        }
        let session = in_namespace(&session, &vmi.namespace().unwrap_or_default());
        match call_off(&session, &vmi.name_any(), &args.node).await? {
            true => stay += 1,
            false => go += 1,
        }
    }
    println!("node {} uncordoned; {stay} evacuations canceled, {go} guests still migrating", args.node);
    Ok(ExitCode::SUCCESS)
}

/// Whether the guest stays. The mark is removed first. A controller that has not seen that may create another
/// migration, which ends before it starts: the migration controller checks the mark then, and again before it hands the
/// guest to the nodes.
async fn call_off(session: &Session, name: &str, node: &str) -> anyhow::Result<bool> {
    if under_way(session, name).await?.iter().any(|migration| !can_be_called_off(migration, node)) {
        return Ok(false);
    }
    migration::unmark(session, name, node).await.with_context(|| doing(session, name))?;
    withdraw(session, name, node).await
}

/// Deletes what was to migrate the guest, and returns whether it stays.
async fn withdraw(session: &Session, name: &str, node: &str) -> anyhow::Result<bool> {
    let migrations: Api<VirtualMachineInstanceMigration> = Api::namespaced(session.client.clone(), &session.namespace);
    let mut stays = true;
    for migration in under_way(session, name).await? {
        if !can_be_called_off(&migration, node) {
            stays = false;
            continue;
        }
        match migrations.delete(&migration.name_any(), &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            deleted => {
                deleted.map_err(|error| server_error(error, &session.server)).with_context(|| doing(session, name))?;
            }
        }
    }
    Ok(stays)
}

async fn under_way(session: &Session, name: &str) -> anyhow::Result<Vec<VirtualMachineInstanceMigration>> {
    Ok(migration::of_instance(session, name).await?.into_iter().filter(|one| !one.is_final()).collect())
}

fn doing(session: &Session, name: &str) -> String {
    format!("canceling the evacuation of VMI {}/{name}", session.namespace)
}
