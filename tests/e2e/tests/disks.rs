//! Disks that outlive a guest: claims, imported images, disks that are plugged into a running guest.
//!
//! A guest of these scenarios boots its kernel directly, so that its first virtio disk is the one that the scenario is about.

mod imports;
mod plugging;
mod survival;
mod waiting;

use anyhow::{Context as _, Result, ensure};
use drive::{Access, Guest, LIMIT, poll};
use e2e::cluster::Cluster;
use e2e::manifest::Manifest;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use libtest_mimic::Trial;
use serde_json::json;
use tokio::sync::MappedMutexGuard;

use crate::guests::virtctl;
use crate::migrations::{migrate, movable};
use crate::trial;

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = vec![
        trial("disk_moves_with_its_guest", moves),
        trial("disk_that_one_node_may_use_keeps_its_guest_there", stays),
        trial("disk_grows_while_the_guest_writes", grows),
        trial("disk_that_is_ephemeral_forgets", forgets),
    ];
    trials.extend(survival::trials());
    trials.extend(imports::trials());
    trials.extend(plugging::trials());
    trials.extend(waiting::trials());
    trials
}

async fn cluster() -> Result<MappedMutexGuard<'static, Cluster>> {
    crate::cluster("disks").await
}

async fn claims(cluster: &Access) -> Result<Api<PersistentVolumeClaim>> {
    Ok(Api::default_namespaced(cluster.client().await?))
}

/// Makes a claim of the default class.
async fn claim(cluster: &Access, name: &str, size: &str, mode: &str, access: &str) -> Result<()> {
    let claim = json!({
        "metadata": {"name": name},
        "spec": {"accessModes": [access], "volumeMode": mode, "resources": {"requests": {"storage": size}}},
    });
    let claim = serde_json::from_value(claim)?;
    claims(cluster).await?.create(&PostParams::default(), &claim).await.with_context(|| format!("claim {name}"))?;
    Ok(())
}

/// Deletes a claim, and waits until its volume is gone, too.
async fn delete_claim(cluster: &Access, name: &str) -> Result<()> {
    let api = claims(cluster).await?;
    api.delete(name, &DeleteParams::default()).await.with_context(|| format!("deleting claim {name}"))?;
    let volumes: Api<PersistentVolume> = Api::all(cluster.client().await?);
    poll(&format!("the end of claim {name}"), LIMIT, || async {
        if api.get_opt(name).await.map_err(|err| err.to_string())?.is_some() {
            return Err("it is still there".to_owned());
        }
        let all = volumes.list(&ListParams::default()).await.map_err(|err| err.to_string())?;
        let of_claim = |volume: &PersistentVolume| {
            let claim = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
            claim.is_some_and(|claim| claim.name.as_deref() == Some(name))
        };
        if all.iter().any(of_claim) { Err("its volume is still there".to_owned()) } else { Ok(()) }
    })
    .await
}

/// Writes something new to a disk, and returns its checksum. When this returns, it is on the disk.
async fn write(guest: &mut Guest, disk: &str, megabytes: u32) -> Result<String> {
    let command = format!(
        "dd if=/dev/urandom of=/tmp/new bs=1M count={megabytes} 2>/dev/null; \
         dd if=/tmp/new of={disk} bs=1M conv=fsync,notrunc 2>/dev/null && md5sum </tmp/new; rm /tmp/new"
    );
    sum(&guest.run_shell_command(&command).await?)
}

/// The checksum of the disk's beginning, past the guest's cache.
async fn read(guest: &mut Guest, disk: &str, megabytes: u32) -> Result<String> {
    let command =
        format!("echo 3 >/proc/sys/vm/drop_caches; dd if={disk} bs=1M count={megabytes} 2>/dev/null | md5sum");
    sum(&guest.run_shell_command(&command).await?)
}

fn sum(printed: &str) -> Result<String> {
    let is_sum = |word: &&str| word.len() == 32 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    let found = printed.split_whitespace().find(is_sum);
    found.map(str::to_owned).with_context(|| format!("the guest printed no checksum: {printed}"))
}

/// The size of a disk, as the guest sees it.
async fn size(guest: &mut Guest, disk: &str) -> Result<u64> {
    let printed = guest.run_shell_command(&format!("blockdev --getsize64 {disk}")).await?;
    printed.trim().parse().with_context(|| format!("the guest says that {disk} has {printed} bytes"))
}

const MEBIBYTE: u64 = 1 << 20;

async fn moves() -> Result<()> {
    let cluster = cluster().await?;
    claim(&cluster, "disk-roams", "64Mi", "Filesystem", "ReadWriteMany").await?;
    claim(&cluster, "disk-roams-block", "64Mi", "Block", "ReadWriteMany").await?;
    let manifest = Manifest::vm("disk-roams", "Always").claim("data", "disk-roams").claim("raw", "disk-roams-block");
    let mut guest = movable(&cluster, &manifest).await?;
    for round in ["there", "back"] {
        let (file, device) = (write(&mut guest, "/dev/vda", 8).await?, write(&mut guest, "/dev/vdb", 8).await?);
        migrate(&cluster, &guest).await.with_context(|| round.to_owned())?;
        guest.reattach(&cluster)?;
        ensure!(read(&mut guest, "/dev/vda", 8).await? == file, "{round}: the file has something else");
        ensure!(read(&mut guest, "/dev/vdb", 8).await? == device, "{round}: the device has something else");
        write(&mut guest, "/dev/vda", 1).await.with_context(|| format!("{round}: the disk cannot be written to"))?;
    }
    guest.delete().await?;
    delete_claim(&cluster, "disk-roams").await?;
    delete_claim(&cluster, "disk-roams-block").await
}

/// A disk that one node may use at a time keeps its guest from moving, and the guest says so.
async fn stays() -> Result<()> {
    let cluster = cluster().await?;
    claim(&cluster, "stays", "64Mi", "Filesystem", "ReadWriteOnce").await?;
    let guest = Guest::spawn(&cluster, Manifest::vm("stays", "Always").claim("data", "stays").json()).await?;
    guest
        .wait_for_instance("to say that it cannot move", LIMIT, |instance| {
            let condition = instance.and_then(|instance| instance.condition("LiveMigratable"));
            match condition {
                Some(condition) if !condition.is_true() && condition.reason() == "DisksNotLiveMigratable" => {
                    let message = condition.message();
                    if message.contains("stays") { Ok(()) } else { Err(format!("it names no claim: {message}")) }
                }
                Some(condition) => Err(format!("{}: {}", condition.reason(), condition.message())),
                None => Err("virt-handler has not reported LiveMigratable yet".to_owned()),
            }
        })
        .await?;
    guest.delete().await?;
    delete_claim(&cluster, "stays").await
}

async fn grows() -> Result<()> {
    let cluster = cluster().await?;
    let disks = [("grows-file", "Filesystem", "/dev/vda"), ("grows-device", "Block", "/dev/vdb")];
    let mut manifest = Manifest::vm("grows", "Always");
    for (name, mode, _) in disks {
        claim(&cluster, name, "64Mi", mode, "ReadWriteMany").await?;
        manifest = manifest.claim(name, name);
    }
    let mut guest = Guest::spawn(&cluster, manifest.json()).await?;
    guest.wait_to_boot().await?;
    for (name, _, disk) in disks {
        let before = size(&mut guest, disk).await?;
        ensure!(before > 48 * MEBIBYTE && before <= 64 * MEBIBYTE, "{name}: 64 MiB give the guest {before} bytes");
        let written = write(&mut guest, disk, 4).await?;
        let writer = format!("dd if=/dev/zero of={disk} bs=64k seek=128 count=64 conv=fsync,notrunc 2>/dev/null");
        guest.run_shell_command(&format!("(while [ ! -e /tmp/enough ]; do {writer}; done) & true")).await?;
        let begun = std::time::Instant::now();
        let more = Patch::Merge(json!({"spec": {"resources": {"requests": {"storage": "128Mi"}}}}));
        claims(&cluster).await?.patch(name, &PatchParams::default(), &more).await.context("growing the claim")?;
        loop {
            let now = size(&mut guest, disk).await?;
            if now > 112 * MEBIBYTE && now <= 128 * MEBIBYTE {
                break;
            }
            ensure!(begun.elapsed() < LIMIT, "{name} has grown to 128 MiB, and the guest sees {now} bytes");
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
        println!("{name}: the guest saw its disk grow after {:.1} s", begun.elapsed().as_secs_f64());
        guest.run_shell_command("touch /tmp/enough; wait; rm /tmp/enough").await?;
        ensure!(read(&mut guest, disk, 4).await? == written, "{name} lost what was on it");
        let end = format!("dd if=/dev/urandom of={disk} bs=1M seek=110 count=1 conv=fsync,notrunc && echo kept");
        let told = guest.run_shell_command(&end).await?;
        ensure!(told.contains("kept"), "{name}: the guest cannot write to what has been added: {told}");
    }
    guest.delete().await?;
    for (name, ..) in disks {
        delete_claim(&cluster, name).await?;
    }
    Ok(())
}

async fn forgets() -> Result<()> {
    let cluster = cluster().await?;
    claim(&cluster, "forgets", "64Mi", "Filesystem", "ReadWriteMany").await?;
    let manifest = Manifest::vm("writes-first", "Always").claim("data", "forgets");
    let mut guest = Guest::spawn(&cluster, manifest.json()).await?;
    guest.wait_to_boot().await?;
    let kept = write(&mut guest, "/dev/vda", 4).await?;
    guest.delete().await?;

    let source = json!({"ephemeral": {"persistentVolumeClaim": {"claimName": "forgets"}}});
    let mut guest = Guest::spawn(&cluster, Manifest::vm("forgets", "Always").disk("data", source).json()).await?;
    guest.wait_to_boot().await?;
    ensure!(read(&mut guest, "/dev/vda", 4).await? == kept, "an ephemeral disk does not begin as its claim is");
    let other = write(&mut guest, "/dev/vda", 4).await?;
    ensure!(
        read(&mut guest, "/dev/vda", 4).await? == other,
        "an ephemeral disk does not keep what is written while it runs"
    );
    virtctl(&cluster, &["stop", "forgets"])?;
    guest.wait_for_status("Stopped", LIMIT).await?;
    virtctl(&cluster, &["start", "forgets"])?;
    guest.reattach(&cluster)?;
    guest.wait_to_boot().await?;
    ensure!(read(&mut guest, "/dev/vda", 4).await? == kept, "what was written to an ephemeral disk is in its claim");
    guest.delete().await?;
    delete_claim(&cluster, "forgets").await
}
