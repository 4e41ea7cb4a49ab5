//! Migrations: starting, following and canceling them.

mod progress;

use std::collections::BTreeSet;
use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use anyhow::{Context as _, bail};
use api::labels;
use api::v1::{VirtualMachineInstance, VirtualMachineInstanceMigration};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use serde_json::{Map, Value, json};
use waits::migration::{Standing, standing};

pub use progress::Progress;

use crate::api_error;
use crate::args::{DryRunArgs, MigrateArgs, PauseArgs, Target};
use crate::connect::{ConnectArgs, Session};
use crate::lifecycle::options;
use crate::subresource::{self, Kind};

/// Polling interval of a followed migration.
const LOOK: Duration = Duration::from_millis(250);

pub(crate) async fn migrate(connect: &ConnectArgs, args: MigrateArgs) -> anyhow::Result<()> {
    let session = connect.connect().await?;
    let name = &args.name;
    let doing = || format!("migrating VirtualMachine {name}");
    let mut options = options(args.dry_run);
    if !args.added_node_selector.is_empty() {
        let selector: Map<String, Value> =
            args.added_node_selector.into_iter().map(|(key, value)| (key, json!(value))).collect();
        options.insert("addedNodeSelector".into(), Value::Object(selector));
    }
    // The response does not name the migration: it is the one that did not exist before.
    let before: BTreeSet<String> = match args.wait {
        true => of_instance(&session, name).await?.into_iter().filter_map(|one| one.metadata.uid).collect(),
        false => BTreeSet::new(),
    };
    let path = subresource::path(Kind::VirtualMachine, &session.namespace, name, "migrate");
    let asked = subresource::put(&session, &path, &Value::Object(options)).await;
    asked.map_err(|error| api_error(error, &session.server)).with_context(doing)?;
    println!("VM {name} was scheduled to migrate");
    if !args.wait || args.dry_run {
        return Ok(());
    }
    let is_new =
        |one: &VirtualMachineInstanceMigration| one.metadata.uid.as_ref().is_some_and(|uid| !before.contains(uid));
    let made = of_instance(&session, name).await?.into_iter().find(is_new);
    let made = made.and_then(|migration| migration.metadata.name).context("the migration is gone already")?;
    follow(&session, &made).await.with_context(doing)
}

/// Shows the progress of a migration until it is over.
async fn follow(session: &Session, migration: &str) -> anyhow::Result<()> {
    let started = tokio::time::Instant::now();
    let mut line = Line::default();
    loop {
        let Some(seen) = Followed::look(session, migration).await? else {
            line.end();
            bail!("migration {migration} was deleted");
        };
        let seconds = started.elapsed().as_secs_f64();
        match standing(&seen.migration, seen.vmi.as_ref(), seen.target.as_ref()) {
            Standing::Succeeded { source, target } => {
                line.end();
                println!("the guest moved from {source} to {target} in {seconds:.1} s");
                return Ok(());
            }
            Standing::Failed { why } => {
                line.end();
                bail!("migration {migration} failed: {why}");
            }
            Standing::Moving { source, target, .. } => {
                let phase = shown_phase(&seen.migration);
                line.show(&match seen.progress(session).await {
                    Some(progress) => format!("{phase}: {progress}"),
                    None => format!("{phase}: migrating from {source} to {target}"),
                });
            }
            Standing::Waiting(wait) => {
                let phase = shown_phase(&seen.migration);
                let unblock = wait.unblock.map(|unblock| format!(" ({unblock})")).unwrap_or_default();
                line.show(&format!("{phase}: {}{unblock}", wait.what));
            }
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn shown_phase(migration: &VirtualMachineInstanceMigration) -> String {
    migration.phase().map_or_else(|| "New".to_owned(), ToString::to_string)
}

/// A single line that is overwritten on a terminal; otherwise one line per message.
#[derive(Default)]
struct Line {
    shown: String,
}

impl Line {
    fn show(&mut self, text: &str) {
        if self.shown == text {
            return;
        }
        match std::io::stderr().is_terminal() {
            true => eprint!("\r\x1b[K{text}"),
            false => eprintln!("{text}"),
        }
        // Failing to show a line must not stop the command.
        let _ = std::io::stderr().flush();
        self.shown = text.to_owned();
    }

    fn end(&mut self) {
        if !self.shown.is_empty() && std::io::stderr().is_terminal() {
            eprintln!();
        }
    }
}

/// A migration with its related objects, at one moment.
pub struct Followed {
    pub migration: VirtualMachineInstanceMigration,
    pub vmi: Option<VirtualMachineInstance>,
    /// The target Pod, if there is one.
    pub target: Option<Pod>,
}

impl Followed {
    /// Reads the objects; `None` if there is no such migration.
    pub async fn look(session: &Session, name: &str) -> anyhow::Result<Option<Self>> {
        let migrations: Api<VirtualMachineInstanceMigration> =
            Api::namespaced(session.client.clone(), &session.namespace);
        let failed = |error| api_error(error, &session.server);
        let Some(migration) = migrations.get_opt(name).await.map_err(failed)? else { return Ok(None) };
        let vmis: Api<VirtualMachineInstance> = Api::namespaced(session.client.clone(), &session.namespace);
        let vmi = vmis.get_opt(migration.spec.vmi_name.as_deref().unwrap_or_default()).await.map_err(failed)?;
        let target = target_pod(session, &migration).await?;
        Ok(Some(Self { migration, vmi, target }))
    }

    /// The progress reported by the source node; `None` if it cannot be read, which is not an error.
    pub async fn progress(&self, session: &Session) -> Option<Progress> {
        let name = self.migration.spec.vmi_name.as_deref()?;
        let path = subresource::path(Kind::VirtualMachineInstance, &session.namespace, name, "migrationprogress");
        let told = subresource::get(session, &path).await.ok()?;
        serde_json::from_str::<Progress>(&told).ok().filter(Progress::has_begun)
    }
}

async fn target_pod(session: &Session, migration: &VirtualMachineInstanceMigration) -> anyhow::Result<Option<Pod>> {
    let Some(uid) = migration.metadata.uid.as_deref() else { return Ok(None) };
    let pods: Api<Pod> = Api::namespaced(session.client.clone(), &session.namespace);
    let selector = format!("{}={uid},{}={}", labels::MIGRATION_JOB_UID, labels::APP, labels::app::LAUNCHER);
    let found = pods.list(&ListParams::default().labels(&selector)).await;
    let found = found.map_err(|error| api_error(error, &session.server))?;
    Ok(found.items.into_iter().next())
}

/// The migrations of a VMI, newest first.
pub async fn of_instance(session: &Session, name: &str) -> anyhow::Result<Vec<VirtualMachineInstanceMigration>> {
    let migrations: Api<VirtualMachineInstanceMigration> = Api::namespaced(session.client.clone(), &session.namespace);
    let selector = format!("{}={name}", labels::VMI_NAME);
    let found = migrations.list(&ListParams::default().labels(&selector)).await;
    let mut found = found.map_err(|error| api_error(error, &session.server))?.items;
    found.sort_by_key(|migration| {
        std::cmp::Reverse((
            migration.metadata.creation_timestamp.as_ref().map(|time| time.0),
            migration.metadata.name.clone(),
        ))
    });
    Ok(found)
}

pub(crate) async fn cancel(connect: &ConnectArgs, args: DryRunArgs) -> anyhow::Result<()> {
    let session = connect.connect().await?;
    let name = &args.name;
    let under_way = of_instance(&session, name).await?.into_iter().find(|migration| !migration.is_final());
    let Some(migration) = under_way.and_then(|migration| migration.metadata.name) else {
        bail!("found no migration of {name} to cancel");
    };
    if args.dry_run {
        println!("Dry Run execution");
    }
    let migrations: Api<VirtualMachineInstanceMigration> = Api::namespaced(session.client.clone(), &session.namespace);
    let params = DeleteParams { dry_run: args.dry_run, ..DeleteParams::default() };
    let deleted = migrations.delete(&migration, &params).await;
    deleted
        .map_err(|error| api_error(error, &session.server))
        .with_context(|| format!("canceling migration {migration} of VirtualMachine {name}"))?;
    println!("VM {name} was scheduled to migrate-cancel");
    Ok(())
}

pub(crate) async fn cancel_evacuation(connect: &ConnectArgs, args: PauseArgs) -> anyhow::Result<()> {
    let session = connect.connect().await?;
    let PauseArgs { target, name, dry_run } = args;
    let (kind, shown) = match target {
        Target::Vm => (Kind::VirtualMachine, "VM"),
        Target::Vmi => (Kind::VirtualMachineInstance, "VMI"),
    };
    let doing = || format!("canceling the evacuation of {shown} {name}");
    let vmis: Api<VirtualMachineInstance> = Api::namespaced(session.client.clone(), &session.namespace);
    let vmi = vmis.get(&name).await.map_err(|error| api_error(error, &session.server)).with_context(doing)?;
    let status = vmi.status.unwrap_or_default();
    // The node to be evacuated, which may not be the one the guest runs on by now.
    let node = status.evacuation_node_name.filter(|node| !node.is_empty()).or(status.node_name);
    let Some(node) = node.filter(|node| !node.is_empty()) else { bail!("VMI {name} runs on no node") };
    call_off(&session, kind, &name, &node, options(dry_run)).await.with_context(doing)?;
    println!("{shown} {name} was canceled evacuation");
    Ok(())
}

/// Cancels the evacuation of a VMI from `node`.
pub async fn unmark(session: &Session, name: &str, node: &str) -> anyhow::Result<()> {
    call_off(session, Kind::VirtualMachineInstance, name, node, Map::new()).await
}

async fn call_off(
    session: &Session,
    kind: Kind,
    name: &str,
    node: &str,
    mut options: Map<String, Value>,
) -> anyhow::Result<()> {
    options.insert("evacuationNodeName".into(), json!(node));
    let path = subresource::path(kind, &session.namespace, name, "evacuate/cancel");
    let asked = subresource::put(session, &path, &Value::Object(options)).await;
    asked.map_err(|error| api_error(error, &session.server))
}
