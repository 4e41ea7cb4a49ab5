//! What a guest was told to be safe is there, whoever was killed.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use drive::{Access, Guest, LIMIT, poll};
use e2e::cluster::{Cluster, Component};
use e2e::manifest::Manifest;
use e2e::{launchers, processes};
use libtest_mimic::Trial;

use super::{claim, cluster, delete_claim, read, write};
use crate::guests::{the_only_qemu, virtctl};
use crate::trial;

/// Whoever is killed in a round.
const VICTIMS: [&str; 4] = ["QEMU", "launcher", "handler", "control plane"];
/// Rounds that are always played, and all of them.
const SOME: usize = VICTIMS.len();
const ALL: usize = 20;

pub(super) fn trials() -> Vec<Trial> {
    vec![
        trial("disk_outlives_its_guest_and_its_vm", outlives),
        trial("disk_file_has_what_was_synced_whoever_is_killed", || synced("Filesystem", SOME)),
        trial("fault_disk_file_has_what_was_synced_in_20_rounds", || synced("Filesystem", ALL)).with_ignored_flag(true),
        trial("fault_disk_device_has_what_was_synced_in_20_rounds", || synced("Block", ALL)).with_ignored_flag(true),
    ]
}

async fn outlives() -> Result<()> {
    let cluster = cluster().await?;
    claim(&cluster, "outlives-file", "64Mi", "Filesystem", "ReadWriteOnce").await?;
    claim(&cluster, "outlives-device", "64Mi", "Block", "ReadWriteOnce").await?;
    let manifest = Manifest::vm("disk-outlives", "Always").claim("a", "outlives-file").claim("b", "outlives-device");
    let mut guest = Guest::spawn(&cluster, manifest.json()).await?;
    guest.wait_to_boot().await?;
    let first = both(&mut guest, write).await?;

    virtctl(&cluster, &["stop", "disk-outlives"])?;
    guest.wait_for_status("Stopped", LIMIT).await?;
    virtctl(&cluster, &["start", "disk-outlives"])?;
    guest.reattach(&cluster)?;
    guest.wait_to_boot().await?;
    ensure!(both(&mut guest, read).await? == first, "after stop and start the disks have something else");

    let second = both(&mut guest, write).await?;
    guest.delete().await?;
    let mut guest = Guest::spawn(&cluster, manifest.json()).await?;
    guest.wait_to_boot().await?;
    ensure!(both(&mut guest, read).await? == second, "for another VM the disks have something else");
    guest.delete().await?;
    delete_claim(&cluster, "outlives-file").await?;
    delete_claim(&cluster, "outlives-device").await
}

/// The checksums of both disks, after they were written or read.
async fn both(guest: &mut Guest, work: impl AsyncFn(&mut Guest, &str, u32) -> Result<String>) -> Result<[String; 2]> {
    Ok([work(guest, "/dev/vda", 8).await?, work(guest, "/dev/vdb", 8).await?])
}

/// Blocks that the writer goes round.
const BLOCKS: u64 = 16;

/// Writes numbered blocks to the disk for ever, and says which are safe: `synced NUMBER .`
const WRITER: &str = "(i=0; while :; do i=$((i+1)); yes \"block $i\" | head -c 65536 >/tmp/b; \
                      dd if=/tmp/b of=/dev/vda bs=64k seek=$((i%16)) conv=fsync,notrunc 2>/dev/null && \
                      echo \"synced $i .\"; done) & true";

/// Says of each block which number it has, or that it is torn: `block BLOCK NUMBER .`
const READER: &str = "echo 3 >/proc/sys/vm/drop_caches; o=0; while [ $o -lt 16 ]; do \
                      dd if=/dev/vda of=/tmp/c bs=64k skip=$o count=1 2>/dev/null; n=$(head -n 1 /tmp/c | cut -c7-18); \
                      yes \"block $n\" | head -c 65536 | cmp -s - /tmp/c || n=torn; echo \"block $o $n .\"; o=$((o+1)); done";

async fn synced(mode: &str, rounds: usize) -> Result<()> {
    let mut cluster = cluster().await?;
    let name = format!("synced-{}", mode.to_lowercase());
    claim(&cluster, &name, "64Mi", mode, "ReadWriteOnce").await?;
    let manifest = Manifest::vm(&name, "Always").kernel_args("tick=0").on_node("n1").claim("data", &name);
    let mut guest = Guest::spawn(&cluster, manifest.json()).await?;
    guest.wait_to_boot().await?;
    for round in 0..rounds {
        let victim = VICTIMS[round % VICTIMS.len()];
        let safe =
            struck(&mut cluster, &mut guest, victim).await.with_context(|| format!("round {round}: {victim}"))?;
        let found = numbers(&guest.run_shell_command(READER).await?, "block");
        judge(&safe, &found).with_context(|| format!("round {round}: {victim}"))?;
        println!("{victim} killed: {} blocks were safe, and are", safe.len());
    }
    guest.delete().await?;
    delete_claim(&cluster, &name).await
}

/// Lets the guest write, kills the victim, and returns what was safe by then when the guest is there to be asked.
async fn struck(cluster: &mut Cluster, guest: &mut Guest, victim: &str) -> Result<BTreeMap<u64, u64>> {
    guest.run_shell_command(WRITER).await?;
    let enough = format!("synced {} ", BLOCKS + 4);
    guest.console.wait_for(&enough, 0, LIMIT).await.context("the writer is slow")?;
    let uid = instance_uid(guest).await?;
    let qemu = the_only_qemu(&guest.name)?;
    match victim {
        "QEMU" => processes::kill(&qemu)?,
        "launcher" => {
            let launcher = launchers::process_on(cluster, &guest.name, "n1").context("there is no launcher")?;
            processes::kill(&launcher)?;
        }
        "handler" => cluster.kill(Component::Handler("n1")).await?,
        _ => cluster.kill(Component::Controller).await?,
    }
    if matches!(victim, "QEMU" | "launcher") {
        let safe = safe(&guest.console.text());
        started_again(guest, &uid).await?;
        guest.reattach(cluster)?;
        guest.wait_to_boot().await?;
        return Ok(safe);
    }
    // The guest goes on. What it told before its console broke counts, too.
    let before = safe(&guest.console.text());
    poll("one QEMU", LIMIT, || async { the_only_qemu(&guest.name).map(drop).map_err(|err| err.to_string()) }).await?;
    back(cluster, guest).await?;
    let seen = guest.console.text().len();
    guest.console.wait_for("synced ", seen.saturating_sub(1), LIMIT).await.context("the guest does not go on")?;
    processes::kill(&the_only_qemu(&guest.name)?)?;
    let mut safe = safe(&guest.console.text());
    for (block, number) in before {
        let newest = safe.entry(block).or_default();
        *newest = number.max(*newest);
    }
    started_again(guest, &uid).await?;
    guest.reattach(cluster)?;
    guest.wait_to_boot().await?;
    Ok(safe)
}

/// The console is reached again, whoever had to come back for that.
async fn back(cluster: &Access, guest: &mut Guest) -> Result<()> {
    let begun = std::time::Instant::now();
    loop {
        guest.reattach(cluster)?;
        match guest.console.wait_for("synced ", 0, std::time::Duration::from_secs(10)).await {
            Ok(_) => return Ok(()),
            Err(err) if begun.elapsed() > LIMIT => return Err(err).context("the console is not reached again"),
            Err(_) => {}
        }
    }
}

async fn instance_uid(guest: &Guest) -> Result<String> {
    guest.instance().await?.and_then(|instance| instance.metadata.uid).context("the instance is gone")
}

async fn started_again(guest: &Guest, first: &str) -> Result<()> {
    guest
        .wait_for_instance("a new instance", LIMIT, |instance| match instance {
            Some(instance) if instance.metadata.uid.as_deref() != Some(first) && instance.is_running() => Ok(()),
            _ => Err("there is none that runs".to_owned()),
        })
        .await
}

/// The newest number that the writer said to be safe, of each block.
fn safe(console: &str) -> BTreeMap<u64, u64> {
    let mut safe = BTreeMap::new();
    for line in console.lines() {
        // A line that the end of the guest has cut off has no full stop.
        if let ["synced", number, "."] = line.trim().split(' ').collect::<Vec<_>>()[..]
            && let Ok(number) = number.parse::<u64>()
        {
            safe.insert(number % BLOCKS, number);
        }
    }
    safe
}

/// The number of each block; none for one that is torn.
fn numbers(printed: &str, word: &str) -> BTreeMap<u64, Option<u64>> {
    let mut found = BTreeMap::new();
    for line in printed.lines() {
        if let [first, block, number, "."] = line.trim().split(' ').collect::<Vec<_>>()[..]
            && first == word
            && let Ok(block) = block.parse()
        {
            found.insert(block, number.parse().ok());
        }
    }
    found
}

/// Each block has what was safe in it, or something newer. The one that was being written when the guest ended may be torn.
fn judge(safe: &BTreeMap<u64, u64>, found: &BTreeMap<u64, Option<u64>>) -> Result<()> {
    ensure!(found.len() == usize::try_from(BLOCKS)?, "the guest tells of other blocks than it wrote: {found:?}");
    let torn: Vec<&u64> = found.iter().filter(|(_, number)| number.is_none()).map(|(block, _)| block).collect();
    ensure!(torn.len() <= 1, "more than one block is torn: {torn:?}");
    for (block, number) in safe {
        let now = found.get(block).copied().flatten();
        ensure!(now.is_none_or(|now| now >= *number), "block {block} was safe as number {number} and is {now:?}");
    }
    Ok(())
}
