//! Starting, stopping, pausing: one request each.

use anyhow::Context as _;
use api::v1::{RunStrategy, VirtualMachine};
use kube::Api;
use serde_json::{Map, Value, json};

use crate::api_error;
use crate::args::{NameArgs, PauseArgs, StartArgs, StopArgs, Target};
use crate::connect::{ConnectArgs, Session};
use crate::subresource::{self, Kind};

pub(crate) async fn start(connect: &ConnectArgs, args: StartArgs) -> anyhow::Result<()> {
    let session = connect.connect().await?;
    let mut options = options(args.dry_run);
    if args.paused {
        options.insert("paused".into(), true.into());
    }
    vm_operation(&session, &args.name, "start", options)
        .await
        .with_context(|| format!("starting VirtualMachine {}", args.name))?;
    println!("VM {} was scheduled to start", args.name);
    Ok(())
}

pub(crate) async fn stop(connect: &ConnectArgs, args: StopArgs) -> anyhow::Result<()> {
    let session = connect.connect().await?;
    let mut options = options(args.dry_run);
    if let Some(seconds) = args.grace_period {
        options.insert("gracePeriod".into(), seconds.into());
    }
    vm_operation(&session, &args.name, "stop", options)
        .await
        .with_context(|| format!("stopping VirtualMachine {}", args.name))?;
    println!("VM {} was scheduled to stop", args.name);
    Ok(())
}

pub(crate) async fn restart(connect: &ConnectArgs, args: StopArgs) -> anyhow::Result<()> {
    let session = connect.connect().await?;
    let mut options = options(args.dry_run);
    if let Some(seconds) = args.grace_period {
        options.insert("gracePeriodSeconds".into(), seconds.into());
    }
    vm_operation(&session, &args.name, "restart", options)
        .await
        .with_context(|| format!("restarting VirtualMachine {}", args.name))?;
    println!("VM {} was scheduled to restart", args.name);
    Ok(())
}

/// The two directions of `pause`.
#[derive(Clone, Copy)]
pub(crate) enum Pause {
    Pause,
    Unpause,
}

impl Pause {
    fn operation(self) -> &'static str {
        match self {
            Pause::Pause => "pause",
            Pause::Unpause => "unpause",
        }
    }

    fn doing(self) -> &'static str {
        match self {
            Pause::Pause => "pausing",
            Pause::Unpause => "unpausing",
        }
    }
}

pub(crate) async fn pause(connect: &ConnectArgs, direction: Pause, args: PauseArgs) -> anyhow::Result<()> {
    let session = connect.connect().await?;
    let PauseArgs { target, name, dry_run } = args;
    let what = || format!("{} VirtualMachineInstance {name}", direction.doing());
    // A VirtualMachine is paused through its instance, which has the same name; a missing one is told apart.
    let vm = match target {
        Target::Vm => Some(virtual_machine(&session, &name).await.with_context(what)?),
        Target::Vmi => None,
    };
    let path = subresource::path(Kind::VirtualMachineInstance, &session.namespace, &name, direction.operation());
    let result = subresource::put(&session, &path, &Value::Object(options(dry_run))).await;
    match (result, vm) {
        (Err(kube::Error::Api(status)), Some(vm)) if status.code == 404 => {
            let why = match vm.run_strategy() {
                Ok(RunStrategy::Halted) => "VirtualMachine is not set to run".to_owned(),
                _ => status.message,
            };
            Err(anyhow::anyhow!(why)).with_context(what)
        }
        (result, _) => result.map_err(|error| api_error(error, &session.server)).with_context(what),
    }?;
    println!("VMI {name} was scheduled to {}", direction.operation());
    Ok(())
}

pub(crate) async fn soft_reboot(connect: &ConnectArgs, args: NameArgs) -> anyhow::Result<()> {
    let session = connect.connect().await?;
    let path = subresource::path(Kind::VirtualMachineInstance, &session.namespace, &args.name, "softreboot");
    subresource::put(&session, &path, &json!({}))
        .await
        .map_err(|error| api_error(error, &session.server))
        .with_context(|| format!("soft-rebooting VirtualMachineInstance {}", args.name))?;
    println!("VMI {} was scheduled to soft-reboot", args.name);
    Ok(())
}

async fn virtual_machine(session: &Session, name: &str) -> anyhow::Result<VirtualMachine> {
    let vms: Api<VirtualMachine> = Api::namespaced(session.client.clone(), &session.namespace);
    vms.get(name).await.map_err(|error| api_error(error, &session.server))
}

async fn vm_operation(
    session: &Session,
    name: &str,
    operation: &str,
    options: Map<String, Value>,
) -> anyhow::Result<()> {
    let path = subresource::path(Kind::VirtualMachine, &session.namespace, name, operation);
    subresource::put(session, &path, &Value::Object(options)).await.map_err(|error| api_error(error, &session.server))
}

/// The options every operation has.
pub(crate) fn options(dry_run: bool) -> Map<String, Value> {
    let mut options = Map::new();
    if dry_run {
        println!("Dry Run execution");
        options.insert("dryRun".into(), json!(["All"]));
    }
    options
}
