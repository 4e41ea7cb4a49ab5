//! `ferrovirt up` killed with -9 at points of a start and of a stop, and started again.
//!
//! Whatever the point: the guest runs exactly once, its counter goes on, and the object tells the truth.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use api::v1::{VirtualMachine, VirtualMachineInstance};
use drive::{Embedded, Guest, LIMIT, poll};
use e2e::manifest::Manifest;
use e2e::processes;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use libtest_mimic::Trial;

use crate::embedded;
use crate::guests::{no_gap, the_only_qemu, virtctl};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        embedded("faults_supervisor_killed_at_six_points_of_a_start", killed_while_starting),
        embedded("faults_supervisor_killed_at_six_points_of_a_stop", killed_while_stopping),
    ]
}

/// What is seen of one VM at a moment.
struct Seen {
    vm: Option<VirtualMachine>,
    instance: Option<VirtualMachineInstance>,
    pod: Option<Pod>,
}

impl Seen {
    async fn look(client: &kube::Client, name: &str) -> Result<Self> {
        let pods: Api<Pod> = Api::default_namespaced(client.clone());
        let launchers = pods.list(&ListParams::default().labels("kubevirt.io=virt-launcher")).await?;
        let of_vm = |pod: &Pod| {
            pod.metadata.annotations.as_ref().and_then(|all| all.get("kubevirt.io/domain")).map(String::as_str)
                == Some(name)
        };
        Ok(Self {
            vm: Api::default_namespaced(client.clone()).get_opt(name).await?,
            instance: Api::default_namespaced(client.clone()).get_opt(name).await?,
            pod: launchers.items.into_iter().find(of_vm),
        })
    }

    fn phase(&self) -> String {
        let status = self.instance.as_ref().and_then(|instance| instance.status.as_ref());
        status.and_then(|status| status.phase.as_ref()).map(ToString::to_string).unwrap_or_default()
    }
}

/// A point of a start or a stop, and how to recognise that it has been reached.
type Point = (&'static str, fn(&Seen) -> bool);

const START: &[Point] = &[
    ("the VM is stored", |seen| seen.vm.is_some()),
    ("the instance exists", |seen| seen.instance.is_some()),
    ("the Pod exists", |seen| seen.pod.is_some()),
    ("the launcher runs", |seen| pod_phase(seen) == "Running" || seen.phase() == "Running"),
    ("the instance is handed over", |seen| matches!(seen.phase().as_str(), "Scheduled" | "Running")),
    ("QEMU runs", |seen| seen.phase() == "Running"),
];

const STOP: &[Point] = &[
    ("the stop is asked for", |_| true),
    ("the instance is being deleted", |seen| {
        deleting(seen.instance.as_ref().map(|i| &i.metadata)) || seen.instance.is_none()
    }),
    ("the Pod is being deleted", |seen| deleting(seen.pod.as_ref().map(|p| &p.metadata)) || seen.pod.is_none()),
    ("the instance is final", |seen| seen.instance.as_ref().is_none_or(VirtualMachineInstance::is_final)),
    ("the Pod is gone", |seen| seen.pod.is_none()),
    ("the instance is gone", |seen| seen.instance.is_none()),
];

fn pod_phase(seen: &Seen) -> String {
    seen.pod.as_ref().and_then(|pod| pod.status.as_ref()).and_then(|status| status.phase.clone()).unwrap_or_default()
}

fn deleting(meta: Option<&k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta>) -> bool {
    meta.is_some_and(|meta| meta.deletion_timestamp.is_some())
}

async fn wait_for_point(cluster: &Embedded, name: &str, (what, reached): &Point) -> Result<()> {
    let client = cluster.client().await?;
    let started = std::time::Instant::now();
    loop {
        if reached(&Seen::look(&client, name).await?) {
            return Ok(());
        }
        if started.elapsed() > LIMIT {
            bail!("never saw that {what}");
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn killed_while_starting() -> Result<()> {
    let mut cluster = one_node("start").await?;
    for (index, point) in START.iter().enumerate() {
        start_round(&mut cluster, index, point).await.with_context(|| format!("killed when {}", point.0))?;
    }
    cluster.down().await
}

async fn start_round(cluster: &mut Embedded, index: usize, point: &Point) -> Result<()> {
    let name = format!("start-{index}");
    let manifest = Manifest::vm(&name, "Always");
    let guest = Guest::spawn(cluster, manifest.json()).await?;
    wait_for_point(cluster, &name, point).await?;
    drop(guest);
    cluster.kill()?;
    let before = processes::qemus_of(&name);
    cluster.up().await?;
    let mut guest = Guest::attach(cluster, &name).await?;
    guest.wait_for_phase("Running", LIMIT).await?;
    let qemu = the_only_qemu(&name)?;
    ensure!(before.iter().all(|old| *old == qemu), "the guest was started twice");
    guest.console.wait_for("tick 3 ", 0, drive::BOOT_LIMIT).await?;
    ensure!(guest.run_shell_command("echo there").await? == "there", "the guest does not answer");
    no_gap(&guest.console.text())?;
    ensure!(the_only_qemu(&name)? == qemu, "the guest was started anew");
    guest.delete().await
}

async fn killed_while_stopping() -> Result<()> {
    let mut cluster = one_node("stop").await?;
    let guest = Guest::spawn(&cluster, Manifest::vm("stops", "Always").json()).await?;
    guest.wait_to_boot().await?;
    drop(guest);
    for point in STOP {
        stop_round(&mut cluster, point).await.with_context(|| format!("killed when {}", point.0))?;
    }
    cluster.down().await
}

async fn stop_round(cluster: &mut Embedded, point: &Point) -> Result<()> {
    virtctl(cluster, &["stop", "stops"])?;
    wait_for_point(cluster, "stops", point).await?;
    cluster.kill()?;
    cluster.up().await?;
    let guest = Guest::attach(cluster, "stops").await?;
    guest.wait_for_status("Stopped", LIMIT).await?;
    poll("the end of QEMU", Duration::from_secs(5), || async {
        match processes::qemus_of("stops").len() {
            0 => Ok(()),
            left => Err(format!("{left} still run")),
        }
    })
    .await?;
    guest
        .wait_for_instance("no instance", LIMIT, |instance| match instance {
            None => Ok(()),
            Some(_) => Err("a stopped VM still has one".to_owned()),
        })
        .await?;
    virtctl(cluster, &["start", "stops"])?;
    guest.wait_for_phase("Running", LIMIT).await?;
    the_only_qemu("stops")?;
    // The last console wins: the one that waited for this start must not take it from the one that reads it.
    drop(guest);
    let again = Guest::attach(cluster, "stops").await?;
    again.console.wait_for("tick 2 ", 0, drive::BOOT_LIMIT).await.map(|_| ())
}

async fn one_node(tag: &str) -> Result<Embedded> {
    let dir = std::path::PathBuf::from(format!("/tmp/fv-{tag}-{}", std::process::id()));
    Embedded::start(&e2e::program()?, &dir, 1, Some(&e2e::guest_dir()?)).await
}
