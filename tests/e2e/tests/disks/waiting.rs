//! A disk that cannot be had: the objects say why within seconds, and the guest starts when it can.

use std::time::Duration;

use anyhow::{Result, ensure};
use drive::{Access, Guest, poll};
use e2e::manifest::Manifest;
use libtest_mimic::Trial;

use super::{claim, cluster, delete_claim};
use crate::trial;

/// Whatever is wrong is said this soon.
const SOON: Duration = Duration::from_secs(20);

pub(super) fn trials() -> Vec<Trial> {
    vec![
        trial("disk_of_a_claim_that_is_not_there_is_waited_for", not_there),
        trial("disk_in_use_on_another_node_is_waited_for", in_use),
    ]
}

async fn not_there() -> Result<()> {
    let cluster = cluster().await?;
    let guest = Guest::spawn(&cluster, Manifest::vm("early", "Always").claim("data", "late").json()).await?;
    guest.wait_for_status("ErrorPvcNotFound", SOON).await?;
    says(&cluster, "early", &["late"]).await?;
    claim(&cluster, "late", "64Mi", "Filesystem", "ReadWriteOnce").await?;
    guest.wait_to_boot().await?;
    guest.delete().await?;
    delete_claim(&cluster, "late").await
}

async fn in_use() -> Result<()> {
    let cluster = cluster().await?;
    claim(&cluster, "one-user", "64Mi", "Filesystem", "ReadWriteOnce").await?;
    let manifest = |name: &str, node: &str| Manifest::vm(name, "Always").on_node(node).claim("data", "one-user");
    let first = Guest::spawn(&cluster, manifest("has-it", "n1").json()).await?;
    first.wait_to_boot().await?;
    let second = Guest::spawn(&cluster, manifest("wants-it", "n2").json()).await?;
    says(&cluster, "wants-it", &["one-user", "n1"]).await?;
    ensure!(e2e::processes::qemus_of("wants-it").is_empty(), "two nodes use a claim that one may use");
    first.delete().await?;
    second.wait_to_boot().await?;
    second.delete().await?;
    delete_claim(&cluster, "one-user").await
}

/// `virtctl explain` names what a VM waits for.
async fn says(cluster: &Access, vm: &str, words: &[&str]) -> Result<()> {
    poll(&format!("{vm} to say why it waits"), SOON, || async {
        let mut command = cluster.command(&["virtctl", "explain", "vm", vm]);
        let output = tokio::task::spawn_blocking(move || command.output()).await.map_err(|err| err.to_string())?;
        let output = output.map_err(|err| err.to_string())?;
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        if words.iter().all(|word| told.contains(word)) { Ok(()) } else { Err(format!("it says: {told}")) }
    })
    .await
}
