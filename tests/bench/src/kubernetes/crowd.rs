//! Many tiny guests at once on all three nodes: how long it takes, and what is asked of the API server for each.

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use api::v1::{VirtualMachine, VirtualMachineInstance};
use e2e::kubernetes::{CONTROL_PLANE, Kubernetes};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ListParams, PostParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Client, ResourceExt as _};

use super::requests::AuditLog;
use super::{processes, requests, tiny, within};

const VMS: usize = 50;
const LIMIT: Duration = Duration::from_secs(900);
/// What follows from a start, like the guest's address in its status, counts as well.
const AFTERMATH: Duration = Duration::from_secs(20);

pub(crate) async fn measure(kubernetes: &Kubernetes, audit: &mut AuditLog) -> Result<()> {
    let client = kubernetes.client().await?;
    open_control_plane(kubernetes, &client).await?;
    let before = processes::of_installation(&client).await?;
    audit.read()?;
    let started = Instant::now();
    let mut running = std::pin::pin!(within(LIMIT, "all guests run", all_running(&client)));
    let created = tokio::select! {
        created = create(&client) => created?,
        early = &mut running => early.and_then(|_| bail!("guests run that were not created"))?,
    };
    let created = created - started;
    let nodes = running.await?;
    let took = started.elapsed();
    tokio::time::sleep(AFTERMATH).await;
    let asked = audit.read()?;
    let after = processes::of_installation(&client).await?;

    let places: Vec<String> = nodes.iter().map(|(node, guests)| format!("{guests} on {node}")).collect();
    println!("\n{VMS} VMs at once: {}", places.join(", "));
    println!("all created                        {:7.2} s", created.as_secs_f64());
    println!("all Running                        {:7.2} s", took.as_secs_f64());
    let mut cpu = BTreeMap::<&str, f64>::new();
    for (before, after) in before.iter().zip(&after) {
        *cpu.entry(&after.app).or_default() += after.cpu.saturating_sub(before.cpu).as_secs_f64();
    }
    for (app, seconds) in cpu {
        println!("  CPU of {app:<24}{:9.1} ms per VM", seconds * 1000.0 / VMS as f64);
    }
    requests::print(&asked, VMS);
    Ok(())
}

/// Lets the third node run guests, too, and waits until each node's handler says that it can.
async fn open_control_plane(kubernetes: &Kubernetes, client: &Client) -> Result<()> {
    let taint = "node-role.kubernetes.io/control-plane:NoSchedule-";
    kubernetes.cluster().kubectl(&["taint", "node", CONTROL_PLANE, taint])?;
    let nodes: Api<Node> = Api::all(client.clone());
    let schedulable = ListParams::default().labels(&format!("{}=true", api::labels::SCHEDULABLE));
    within(Duration::from_secs(180), "three nodes can run guests", async {
        while nodes.list(&schedulable).await.context("cannot list nodes")?.items.len() < 3 {
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        Ok(())
    })
    .await?;
    // Its handler has just started; that is no part of what guests take.
    tokio::time::sleep(AFTERMATH).await;
    Ok(())
}

/// Creates all VMs, and tells when the last one was there.
async fn create(client: &Client) -> Result<Instant> {
    let vms: Api<VirtualMachine> = Api::default_namespaced(client.clone());
    let created = stream::iter(0..VMS).map(|number| {
        let (vms, vm) = (&vms, tiny::vm(&format!("crowd-{number}")));
        async move {
            let vm = serde_json::from_value(vm).context("a VM does not fit its kind")?;
            vms.create(&PostParams::default(), &vm).await.context("cannot create a VM").map(drop)
        }
    });
    created.buffer_unordered(VMS).try_collect::<Vec<()>>().await?;
    Ok(Instant::now())
}

/// Waits until all guests run, and tells how many each node has.
async fn all_running(client: &Client) -> Result<BTreeMap<String, usize>> {
    let instances: Api<VirtualMachineInstance> = Api::default_namespaced(client.clone());
    let mut seen = watcher(instances, watcher::Config::default()).default_backoff().applied_objects().boxed();
    let (mut running, mut nodes) = (HashSet::new(), BTreeMap::<String, usize>::new());
    while let Some(instance) = seen.next().await {
        // An error is followed by another attempt.
        let Ok(instance) = instance else { continue };
        let name = instance.name_any();
        let Some(status) = instance.status else { continue };
        match status.phase.map(|phase| phase.to_string()).as_deref() {
            Some("Running") if running.insert(name.clone()) => {
                *nodes.entry(status.node_name.unwrap_or_default()).or_default() += 1;
            }
            Some("Failed" | "Succeeded") => bail!("{name} has ended"),
            _ => {}
        }
        if running.len() == VMS {
            return Ok(nodes);
        }
    }
    bail!("the watch of instances ended")
}
