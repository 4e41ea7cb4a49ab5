//! `virtctl explain`: the chain of objects behind a guest or a migration, and the step it waits at.

use std::process::ExitCode;

use anyhow::bail;
use api::annotations;
use api::v1::{VirtualMachine, VirtualMachineInstance};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use serde::de::DeserializeOwned;
use waits::story::{self, Chain};

use crate::api_error;
use crate::args::{ExplainArgs, ExplainTarget};
use crate::connect::{ConnectArgs, Session};
use crate::migration::{self, Followed};
use terminal::output::print;

pub(crate) async fn run(connect: &ConnectArgs, args: ExplainArgs) -> anyhow::Result<ExitCode> {
    let session = connect.connect().await?;
    let chain = match args.target {
        ExplainTarget::Vm | ExplainTarget::Vmi => of_guest(&session, &args.name).await?,
        ExplainTarget::Migration => of_migration(&session, &args.name).await?,
    };
    print(&story::tell(&chain, Timestamp::now()))?;
    Ok(ExitCode::SUCCESS)
}

async fn of_guest(session: &Session, name: &str) -> anyhow::Result<Chain> {
    let vm: Option<VirtualMachine> = find(session, name).await?;
    let vmi: Option<VirtualMachineInstance> = find(session, name).await?;
    if vm.is_none() && vmi.is_none() {
        bail!("there is no VirtualMachine and no VirtualMachineInstance {name} in namespace {}", session.namespace);
    }
    // A finished migration does not explain what the guest waits for.
    let under_way = migration::of_instance(session, name).await?.into_iter().find(|one| !one.is_final());
    let followed = match under_way.and_then(|migration| migration.metadata.name) {
        Some(migration) => Followed::look(session, &migration).await?,
        None => None,
    };
    let (migration, target) = followed.map_or((None, None), |seen| (Some(seen.migration), seen.target));
    let pod = launcher(session, name, vmi.as_ref(), target.as_ref()).await?;
    Ok(Chain { name: name.to_owned(), vm, vmi, pod, migration, target })
}

async fn of_migration(session: &Session, name: &str) -> anyhow::Result<Chain> {
    let Some(Followed { migration, vmi, target }) = Followed::look(session, name).await? else {
        bail!("there is no VirtualMachineInstanceMigration {name} in namespace {}", session.namespace);
    };
    let guest = migration.spec.vmi_name.clone().unwrap_or_default();
    let vm: Option<VirtualMachine> = find(session, &guest).await?;
    let pod = launcher(session, &guest, vmi.as_ref(), target.as_ref()).await?;
    Ok(Chain { name: guest, vm, vmi, pod, migration: Some(migration), target })
}

async fn find<K>(session: &Session, name: &str) -> anyhow::Result<Option<K>>
where
    K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    K: Clone + std::fmt::Debug + DeserializeOwned,
{
    let api: Api<K> = Api::namespaced(session.client.clone(), &session.namespace);
    api.get_opt(name).await.map_err(|error| api_error(error, &session.server))
}

/// The Pod in which the guest runs or will start: the one on the VMI's node, or the only one.
async fn launcher(
    session: &Session,
    name: &str,
    vmi: Option<&VirtualMachineInstance>,
    target: Option<&Pod>,
) -> anyhow::Result<Option<Pod>> {
    let pods: Api<Pod> = Api::namespaced(session.client.clone(), &session.namespace);
    let found = pods.list(&ListParams::default().labels("kubevirt.io=virt-launcher")).await;
    let found = found.map_err(|error| api_error(error, &session.server))?;
    let node = vmi.and_then(|vmi| vmi.status.as_ref()).and_then(|status| status.node_name.as_deref());
    let of_guest = |pod: &Pod| {
        let domain = pod.metadata.annotations.as_ref().and_then(|all| all.get(annotations::DOMAIN));
        let is_target = target.is_some_and(|target| target.metadata.uid == pod.metadata.uid);
        domain.is_some_and(|domain| domain == name) && !is_target
    };
    let here = |pod: &Pod| node.is_some() && pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == node;
    let mut candidates: Vec<Pod> = found.items.into_iter().filter(of_guest).collect();
    candidates
        .sort_by_key(|pod| std::cmp::Reverse((here(pod), pod.metadata.creation_timestamp.as_ref().map(|time| time.0))));
    Ok(candidates.into_iter().next())
}
