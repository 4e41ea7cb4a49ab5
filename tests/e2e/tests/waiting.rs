//! Machines that cannot run, or not yet, and say why; and what else a user is told.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use api::v1::{KubeVirt, VirtualMachineInstance};
use drive::{Guest, LIMIT, poll};
use e2e::cluster::Cluster;
use e2e::manifest::Manifest;
use kube::api::{Api, Patch, PatchParams};
use libtest_mimic::Trial;
use serde_json::json;

use crate::guests::cluster;
use crate::trial;

/// "Within seconds", on a machine that has other things to do.
const SECONDS: Duration = Duration::from_secs(20);
const PCI_TOPOLOGY: &str = "kubevirt.io/pci-topology-version";

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("vm_whose_launcher_ends_at_once_backs_off_within_seconds", launcher_ends),
        trial("vm_that_asks_for_a_million_cpus_is_unschedulable", million_cpus),
        trial("vm_waits_for_its_image_and_starts_when_that_is_imported", waits_for_image),
        trial("console_that_is_taken_over_says_so_and_fails", taken_over),
        trial("guest_gets_its_pci_topology_annotation_back", pci_topology),
        trial("kubevirt_object_is_available_and_follows_its_generation", kubevirt_object),
    ]
}

async fn launcher_ends() -> Result<()> {
    let cluster = cluster().await?;
    let crashes = Manifest::vm("crashes", "Always");
    let crashes = crashes.template_annotation("kubevirt.io/func-test-virt-launcher-fail-fast", "");
    let guest = Guest::spawn(&cluster, crashes.json()).await?;
    guest.wait_for_status("CrashLoopBackOff", SECONDS).await?;
    guest.delete().await
}

async fn million_cpus() -> Result<()> {
    let cluster = cluster().await?;
    let guest = Guest::spawn(&cluster, Manifest::vm("million", "Always").sockets(1_000_000).json()).await?;
    guest.wait_for_status("ErrorUnschedulable", SECONDS).await?;
    guest.delete().await
}

async fn waits_for_image() -> Result<()> {
    let cluster = cluster().await?;
    let reference = "example.com/later:1";
    let guest = Guest::spawn(&cluster, Manifest::vm("later", "Always").kernel_image(reference).json()).await?;
    // They alternate: each attempt fails, and is followed by a pause. The kubelet fails with the image as a volume first, and
    // says of the container with the same image only that it is put off.
    let shown: &[&str] = match &*cluster {
        Cluster::Embedded(_) => &["ErrImagePull", "ImagePullBackOff", "ErrImagePull"],
        Cluster::Kubernetes(_) => &["ImagePullBackOff"],
    };
    for status in shown {
        guest.wait_for_status(status, LIMIT).await?;
    }
    cluster.import_kernel(reference)?;
    guest.wait_to_boot().await?;
    guest.delete().await
}

/// Both virtctls say it: ours and KubeVirt's.
async fn taken_over() -> Result<()> {
    let cluster = cluster().await?;
    let mut guest = Guest::spawn(&cluster, Manifest::vm("wanted", "Always").json()).await?;
    guest.wait_to_boot().await?;
    let ours = cluster.command(&["virtctl", "console", "wanted"]);
    let upstream = e2e::upstream_virtctl(cluster.kubeconfig(), &["console", "wanted"])?;
    for (whose, console) in [("ours", Some(ours)), ("KubeVirt's", upstream)] {
        let Some(mut console) = console else { continue };
        let mut first = console.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let input = first.stdin.take(); // one that ends would end the console
        // It has pushed out the guest's own connection, and is pushed out in its turn.
        tokio::time::sleep(Duration::from_secs(3)).await;
        guest.reattach(&cluster)?;
        let output = tokio::task::spawn_blocking(move || first.wait_with_output()).await??;
        drop(input);
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(!output.status.success(), "{whose} succeeded and said: {said}");
        ensure!(said.contains("another client took over"), "{whose} said: {said}");
    }
    guest.delete().await
}

async fn pci_topology() -> Result<()> {
    let cluster = cluster().await?;
    let guest = Guest::spawn(&cluster, Manifest::vm("layout", "Always").json()).await?;
    guest.wait_to_boot().await?;
    let vmis: Api<VirtualMachineInstance> = Api::namespaced(cluster.client().await?, "default");
    let without = json!({"metadata": {"annotations": {PCI_TOPOLOGY: null}}});
    vmis.patch("layout", &PatchParams::default(), &Patch::Merge(without)).await?;
    let back = |vmi: Option<&VirtualMachineInstance>| {
        let annotations = vmi.and_then(|vmi| vmi.metadata.annotations.as_ref());
        match annotations.and_then(|all| all.get(PCI_TOPOLOGY)).map(String::as_str) {
            Some("v3") => Ok(()),
            other => Err(format!("the annotation is {other:?}")),
        }
    };
    guest.wait_for_instance("the annotation", SECONDS, back).await?;
    guest.delete().await
}

async fn kubevirt_object() -> Result<()> {
    let cluster = cluster().await?;
    let kubevirts: Api<KubeVirt> = Api::namespaced(cluster.client().await?, "kubevirt");
    let status = kubevirts.get("kubevirt").await?.status.context("it has no status")?;
    for (type_, holds) in [("Created", true), ("Available", true), ("Progressing", false), ("Degraded", false)] {
        let condition = api::conditions::find(&status.conditions, type_).with_context(|| format!("no {type_}"))?;
        ensure!(condition.is_true() == holds && condition.is_false() != holds, "{type_} is {}", condition.status);
    }
    ensure!(status.phase.is_some_and(|phase| phase.as_str() == "Deployed"), "it is not deployed");
    let change = json!({"spec": {"configuration": {"developerConfiguration": {"cpuAllocationRatio": 11}}}});
    let changed = kubevirts.patch("kubevirt", &PatchParams::default(), &Patch::Merge(change)).await?;
    poll("observedGeneration to follow", SECONDS, || async {
        let now = kubevirts.get("kubevirt").await.map_err(|err| err.to_string())?;
        match now.status.and_then(|status| status.observed_generation) {
            seen if seen == changed.metadata.generation => Ok(()),
            seen => Err(format!("it is {seen:?}, and the generation {:?}", changed.metadata.generation)),
        }
    })
    .await?;
    let back = json!({"spec": {"configuration": {"developerConfiguration": {"cpuAllocationRatio": null}}}});
    kubevirts.patch("kubevirt", &PatchParams::default(), &Patch::Merge(back)).await?;
    Ok(())
}
