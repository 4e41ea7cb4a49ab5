//! Guests that move, and what of them has to be the same afterwards.

use std::path::Path;
use std::pin::pin;

use anyhow::{Context as _, Result, bail, ensure};
use drive::{Access, ClientPod, Guest, LIMIT, Witness, poll};
use e2e::cluster::Cluster;
use e2e::manifest::Manifest;
use futures::future::Either;
use kube::api::DeleteParams;
use libtest_mimic::Trial;
use serde_json::json;

use super::stage::{count, restless, went_on};
use super::{cluster, migrate, movable, other, policy, state};
use crate::trial;

pub(super) fn trials() -> Vec<Trial> {
    vec![
        trial("migration_there_and_back_ten_times_keeps_count_and_disks_and_leaves_nothing", there_and_back),
        trial("migration_leaves_open_connections_unanswered_and_new_ones_reach_the_guest", connections),
        trial("migration_follows_the_policy_that_matches_best", follows_policy),
    ]
}

/// There and back, each.
const ROUNDS: usize = 10;

/// What the guest reads from its disks: past its own cache, from what the target has.
const LOOK: &str = "echo 3 > /proc/sys/vm/drop_caches; for disk in /dev/vd?; do dd if=$disk bs=4096 count=64 2>/dev/null | \
                    md5sum | cut -c1-32; done | tr '\\n' ' '";

/// Writes something new into every disk.
fn write(what: &str) -> String {
    format!(
        "for disk in /dev/vd?; do echo {what}-$disk | dd of=$disk bs=4096 seek=3 conv=notrunc 2>/dev/null; done; sync; \
         echo written"
    )
}

async fn there_and_back() -> Result<()> {
    let cluster = cluster().await?;
    let data = "#cloud-config\nruncmd:\n  - echo seen-$((40+2)) > /run/from-cloud-init\n";
    let manifest = Manifest::vm("roams", "Always").user_data(data).empty_disk("32Mi").container_disk();
    let mut guest = movable(&cluster, &manifest).await?;
    let mut disks = written(&mut guest, "before").await?;
    let client = ClientPod::start(&cluster, other(&guest.node().await?)).await?;
    reached(&cluster, &client, &guest).await?;
    let witness = Witness::start(&cluster, client, "roams").await?;
    let mut held = None;
    for round in 1..=ROUNDS {
        for way in ["there", "back"] {
            migrate(&cluster, &guest).await.with_context(|| format!("{way}, round {round}"))?;
            // To ask the guest itself takes as long as to move it.
            if round == 1 || round == ROUNDS {
                guest.reattach(&cluster)?;
                let after = sums(&guest.run_shell_command(LOOK).await?);
                ensure!(disks == after, "{way}, round {round}: the disks were {disks:?} and are {after:?}");
                let memory = guest.run_shell_command("cat /run/from-cloud-init").await?;
                ensure!(memory == "seen-42", "{way}, round {round}: memory is lost: {memory}");
                disks = written(&mut guest, &format!("{way}-{round}")).await?;
            }
        }
        // What is opened once and kept, like a connection to the other node, is open by now.
        let held = *held.get_or_insert(sockets(&cluster)?);
        if round == ROUNDS {
            closed(&cluster, held).await?;
        }
    }
    let (testimony, client) = witness.finish().await?;
    testimony.check()?;
    println!("{testimony}");
    client.delete().await?;
    guest.delete().await?;
    nothing_left(&cluster, "roams").await
}

/// Writes to the disks, and tells what is on them then.
async fn written(guest: &mut Guest, what: &str) -> Result<Vec<String>> {
    ensure!(guest.run_shell_command(&write(what)).await?.contains("written"), "the guest cannot write to its disks");
    let found = sums(&guest.run_shell_command(LOOK).await?);
    ensure!(found.len() == 3, "the guest has other disks than expected: {found:?}");
    Ok(found)
}

/// The checksums in what the guest printed; its counter may have written in between.
fn sums(printed: &str) -> Vec<String> {
    let is_sum = |word: &&str| word.len() == 32 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    printed.split_whitespace().filter(is_sum).map(str::to_owned).collect()
}

/// Sockets that the node agents hold.
fn sockets(cluster: &Cluster) -> Result<usize> {
    let of = |pid: i32| {
        let files = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        let targets = files.filter_map(|file| std::fs::read_link(file.path()).ok());
        targets.filter(|target| target.to_string_lossy().starts_with("socket:")).count()
    };
    Ok(cluster.agents()?.into_iter().map(|(_, process)| of(process.pid)).sum())
}

/// The node agents hold about as many sockets as before: 18 migrations would have left more than this.
async fn closed(cluster: &Cluster, before: usize) -> Result<()> {
    poll("the node agents to close what they used", LIMIT, || async {
        match sockets(cluster).map_err(|err| err.to_string())? {
            now if now <= before + ROUNDS => Ok(()),
            now => Err(format!("they hold {now} sockets and held {before}")),
        }
    })
    .await
}

/// No process, Pod directory or socket of the guest is left.
async fn nothing_left(cluster: &Access, name: &str) -> Result<()> {
    poll("nothing to be left of the guest", LIMIT, || async {
        let mut left = vec![];
        for program in ["qemu-system-x86", "virt-launcher"] {
            let found = e2e::processes::find(program, name);
            left.extend(found.iter().map(|process| format!("{program} {}", process.pid)));
        }
        for node in ["n1", "n2"] {
            sockets_below(&cluster.pods(node), &mut left);
        }
        if left.is_empty() { Ok(()) } else { Err(left.join(", ")) }
    })
    .await
}

/// Socket files of migrations in a directory tree.
fn sockets_below(dir: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let Ok(kind) = entry.file_type() else { continue };
        if kind.is_dir() {
            sockets_below(&entry.path(), found);
        } else if entry.file_name().to_string_lossy().ends_with("-source.sock") {
            found.push(entry.path().display().to_string());
        }
    }
}

async fn reached(cluster: &Access, client: &ClientPod, guest: &Guest) -> Result<()> {
    let address = guest.address().await?;
    poll("an answer", LIMIT, || async { client.ping(cluster, &address).await.map(drop).map_err(|err| err.to_string()) })
        .await
}

/// Holds a connection to the guest's SSH server, and sends a little on it all the time.
const HOLD: &str = "exec 3<>/dev/tcp/$0/22; while printf x >&3; do sleep 0.5; done";

/// Bytes on the client's connection to the guest's SSH server that nobody has acknowledged; nothing if there is no such
/// connection.
async fn unanswered(cluster: &Access, client: &ClientPod) -> Result<Option<u64>> {
    let output = client.exec(cluster, &["cat", "/proc/net/tcp"]).await?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let rows = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    // Local address, remote address, state (01 is established), queues: all in hexadecimal digits.
    let held = rows.into_iter().find(|row| matches!(row.as_slice(), [_, _, to, "01", ..] if to.ends_with(":0016")));
    let Some(queues) = held.and_then(|row| row.get(4).map(|queues| (*queues).to_owned())) else { return Ok(None) };
    let sent = queues.split(':').next().unwrap_or_default();
    u64::from_str_radix(sent, 16).map(Some).with_context(|| format!("no length in `{queues}`"))
}

/// With masquerade the guest's address is its Pod's: who is connected to it stays with the old Pod.
async fn connections() -> Result<()> {
    let cluster = cluster().await?;
    let mut guest = restless(&cluster).await?;
    let before = count(&cluster, &mut guest).await?;
    let client = ClientPod::start(&cluster, other(&guest.node().await?)).await?;
    reached(&cluster, &client, &guest).await?;
    let address = guest.address().await?;
    let command = ["bash", "-c", HOLD, &address];
    let held = client.exec(&cluster, &command);
    let moved = moved_while_connected(&cluster, &client, &guest);
    match futures::future::select(pin!(moved), pin!(held)).await {
        // The Pod's end is the end of what holds the connection.
        Either::Left((outcome, _)) => outcome?,
        Either::Right((output, _)) => bail!("the connection ended: {:?}", output?),
    }
    let body = client.http(&cluster, &format!("http://{}/cgi-bin/tick", guest.address().await?)).await?;
    ensure!(!body.is_empty(), "the guest does not answer at its new address");
    client.delete().await?;
    went_on(&cluster, &mut guest, before).await
}

async fn moved_while_connected(cluster: &Access, client: &ClientPod, guest: &Guest) -> Result<()> {
    let address = guest.address().await?;
    let look = || async { unanswered(cluster, client).await.map_err(|err| format!("{err:#}")) };
    poll("a connection that is answered", LIMIT, || async {
        match look().await? {
            Some(0) => Ok(()),
            other => Err(format!("{other:?} bytes are not")),
        }
    })
    .await?;
    migrate(cluster, guest).await?;
    // The target's node writes it after it has said that the guest is there.
    poll("the guest to have another address", LIMIT, || async {
        let now = guest.address().await.map_err(|err| format!("{err:#}"))?;
        if now == address { Err(format!("it has kept {address}")) } else { Ok(()) }
    })
    .await?;
    // Nobody resets it either: more and more is not answered.
    poll("a connection that is not answered", LIMIT, || async {
        match look().await? {
            Some(bytes) if bytes >= 8 => Ok(()),
            other => Err(format!("{other:?} bytes are not")),
        }
    })
    .await
}

async fn follows_policy() -> Result<()> {
    let cluster = cluster().await?;
    let guest = restless(&cluster).await?;
    policy(&cluster, "loose", &guest.name, json!({"bandwidthPerMigration": "64Mi"})).await?;
    let policies: kube::Api<api::migrations::MigrationPolicy> = kube::Api::all(cluster.client().await?);
    let both = json!({"metadata": {"name": "strict"}, "spec": {"maxDowntimeMs": null, "allowAutoConverge": true,
        "selectors": {"virtualMachineInstanceSelector": {"app": guest.name, "tier": "test"}}}});
    policies.create(&Default::default(), &serde_json::from_value(both)?).await.context("cannot create a policy")?;
    policy(&cluster, "other", "somebody-else", json!({"allowPostCopy": true})).await?;
    migrate(&cluster, &guest).await?;
    let seen = state(&guest).await?;
    ensure!(seen.migration_policy_name.as_deref() == Some("strict"), "the policy is {:?}", seen.migration_policy_name);
    let config = seen.migration_configuration.context("the configuration is not told")?;
    ensure!(config.allow_auto_converge == Some(true) && config.allow_post_copy != Some(true), "{config:?}");
    policies.delete("strict", &DeleteParams::default()).await?;
    migrate(&cluster, &guest).await.context("under the looser policy")?;
    let seen = state(&guest).await?;
    ensure!(seen.migration_policy_name.as_deref() == Some("loose"), "the policy is {:?}", seen.migration_policy_name);
    Ok(())
}
