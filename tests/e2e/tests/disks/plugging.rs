//! Disks that come and go while the guest runs.

use anyhow::{Context as _, Result, ensure};
use drive::{Access, Guest, LIMIT, poll};
use e2e::manifest::Manifest;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use libtest_mimic::Trial;

use super::{claim, cluster, delete_claim, read, write};
use crate::guests::virtctl;
use crate::migrations::{migrate, movable};
use crate::trial;

pub(super) fn trials() -> Vec<Trial> {
    vec![
        trial("disk_is_plugged_and_unplugged_five_times_over", five),
        trial("disk_that_is_plugged_persistently_is_there_after_a_restart", persists),
    ]
}

const FIVE: [(&str, &str); 5] =
    [("p1", "Filesystem"), ("p2", "Block"), ("p3", "Filesystem"), ("p4", "Block"), ("p5", "Filesystem")];

async fn five() -> Result<()> {
    let cluster = cluster().await?;
    for (name, mode) in FIVE {
        claim(&cluster, name, "32Mi", mode, "ReadWriteMany").await?;
    }
    let mut guest = movable(&cluster, &Manifest::vm("plugged", "Always")).await?;
    let mut sums = vec![];
    for (count, (name, _)) in FIVE.into_iter().enumerate() {
        let begun = std::time::Instant::now();
        virtctl(&cluster, &["addvolume", "plugged", &format!("--volume-name={name}"), &format!("--serial={name}")])?;
        let disk = disk_of(&mut guest, name).await?;
        println!("{name}: the guest saw it after {:.1} s", begun.elapsed().as_secs_f64());
        sums.push((name, write(&mut guest, &disk, 2).await?));
        let others = guest.run_shell_command("ls /sys/block | grep -c '^sd'").await?;
        ensure!(others.trim() == (count + 1).to_string(), "{name} is one of {others} disks");
        ready(&guest, name).await?;
    }
    guest
        .wait_for_instance("to be movable with its disks", LIMIT, |instance| {
            match instance.and_then(|instance| instance.condition("LiveMigratable")) {
                Some(condition) if condition.is_true() => Ok(()),
                Some(condition) => Err(format!("{}: {}", condition.reason(), condition.message())),
                None => Err("no condition".to_owned()),
            }
        })
        .await?;
    migrate(&cluster, &guest).await.context("with five disks")?;
    guest.reattach(&cluster)?;
    for (name, sum) in &sums {
        let disk = disk_of(&mut guest, name).await?;
        ensure!(read(&mut guest, &disk, 2).await? == *sum, "{name} has something else after the migration");
    }
    for (name, _) in FIVE {
        virtctl(&cluster, &["removevolume", "plugged", &format!("--volume-name={name}")])?;
        gone(&mut guest, name).await?;
    }
    no_attachments(&cluster).await?;
    guest.delete().await?;
    for (name, _) in FIVE {
        delete_claim(&cluster, name).await?;
    }
    Ok(())
}

async fn persists() -> Result<()> {
    let cluster = cluster().await?;
    claim(&cluster, "lasting", "32Mi", "Filesystem", "ReadWriteMany").await?;
    let mut guest = movable(&cluster, &Manifest::vm("lasts", "Always")).await?;
    virtctl(&cluster, &["addvolume", "lasts", "--volume-name=lasting", "--serial=lasting", "--persist"])?;
    let disk = disk_of(&mut guest, "lasting").await?;
    let sum = write(&mut guest, &disk, 2).await?;
    virtctl(&cluster, &["stop", "lasts"])?;
    guest.wait_for_status("Stopped", LIMIT).await?;
    virtctl(&cluster, &["start", "lasts"])?;
    guest.reattach(&cluster)?;
    guest.wait_to_boot().await?;
    let disk = disk_of(&mut guest, "lasting").await?;
    ensure!(read(&mut guest, &disk, 2).await? == sum, "the disk has something else after a restart");
    virtctl(&cluster, &["removevolume", "lasts", "--volume-name=lasting", "--persist"])?;
    gone(&mut guest, "lasting").await?;
    guest.delete().await?;
    delete_claim(&cluster, "lasting").await
}

/// The SCSI disk with this serial number, once the guest sees it.
async fn disk_of(guest: &mut Guest, serial: &str) -> Result<String> {
    let look = format!(
        "for d in /sys/block/sd*; do [ -e $d/device/vpd_pg80 ] && grep -q {serial} $d/device/vpd_pg80 && \
         echo found-/dev/${{d##*/}}; done"
    );
    let begun = std::time::Instant::now();
    loop {
        let printed = guest.run_shell_command(&look).await?;
        if let Some(disk) = printed.lines().find_map(|line| line.trim().strip_prefix("found-")) {
            return Ok(disk.to_owned());
        }
        ensure!(begun.elapsed() < LIMIT, "the guest sees no disk {serial}: {}", status(guest).await?);
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}

async fn gone(guest: &mut Guest, volume: &str) -> Result<()> {
    guest
        .wait_for_instance(&format!("{volume} to go"), LIMIT, |instance| {
            let status = instance.and_then(|instance| instance.status.as_ref());
            let left = status.is_some_and(|status| status.volume_status.iter().any(|one| one.name == volume));
            if left { Err("it is still in the status".to_owned()) } else { Ok(()) }
        })
        .await
}

async fn ready(guest: &Guest, volume: &str) -> Result<()> {
    guest
        .wait_for_instance(&format!("{volume} to be ready"), LIMIT, |instance| {
            let status = instance.and_then(|instance| instance.status.as_ref());
            let found = status.and_then(|status| status.volume_status.iter().find(|one| one.name == volume));
            match found {
                Some(found) if found.phase.as_ref().is_some_and(|phase| phase.to_string() == "Ready") => Ok(()),
                found => Err(format!("{found:?}")),
            }
        })
        .await
}

async fn status(guest: &Guest) -> Result<String> {
    let status = guest.instance().await?.and_then(|instance| instance.status);
    Ok(serde_json::to_string(&status.map(|status| status.volume_status))?)
}

/// No Pod is left that held a volume for a guest.
async fn no_attachments(cluster: &Access) -> Result<()> {
    let pods: Api<Pod> = Api::default_namespaced(cluster.client().await?);
    poll("the end of the attachment Pods", LIMIT, || async {
        let found = pods.list(&ListParams::default().labels("kubevirt.io=hotplug-disk")).await;
        match found.map_err(|err| err.to_string())?.items.len() {
            0 => Ok(()),
            count => Err(format!("{count} are there")),
        }
    })
    .await
}
