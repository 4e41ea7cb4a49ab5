//! Guests that move, and what of them has to be the same afterwards.

use anyhow::{Context as _, Result, ensure};
use e2e::manifest::Manifest;
use ferrovirt::drive::{ClientPod, Guest, LIMIT, Witness, poll};
use kube::api::DeleteParams;
use libtest_mimic::Trial;
use serde_json::json;

use super::{
    begin, busy, cluster, command, migrate, migrations, movable, other, phase, policy, slow_down, speed_up, state,
    wait_for,
};
use crate::trial;

pub(super) fn trials() -> Vec<Trial> {
    vec![
        trial("migration_there_and_back_keeps_count_and_disks", there_and_back),
        trial("migration_given_up_leaves_the_guest_where_it_was", given_up),
        trial("migration_follows_the_policy_that_matches_best", follows_policy),
    ]
}

/// What the guest reads from its disks: past its own cache, from what the target has.
const LOOK: &str = "echo 3 > /proc/sys/vm/drop_caches; for disk in /dev/vd?; do dd if=$disk bs=4096 count=64 2>/dev/null | \
                    md5sum | cut -c1-32; done | tr '\\n' ' '";
/// Writes into every disk that can be written to.
const WRITE: &str = "for disk in /dev/vd?; do echo moved-$disk | dd of=$disk bs=4096 seek=3 conv=notrunc 2>/dev/null; done; \
                     sync; echo written";

async fn there_and_back() -> Result<()> {
    let cluster = cluster().await?;
    let data = "#cloud-config\nruncmd:\n  - echo seen-$((40+2)) > /run/from-cloud-init\n";
    let manifest = Manifest::vm("roams", "Always").user_data(data).empty_disk("32Mi").container_disk();
    let mut guest = movable(&cluster, &manifest).await?;
    ensure!(guest.run_shell_command(WRITE).await?.contains("written"), "the guest cannot write to its disks");
    let before = sums(&guest.run_shell_command(LOOK).await?);
    ensure!(before.len() == 3, "the guest has other disks than expected: {before:?}");
    let client = ClientPod::start(&cluster, other(&guest.node().await?)).await?;
    reached(&cluster, &client, &guest).await?;
    let witness = Witness::start(&cluster, client, "roams").await?;
    for round in ["there", "back"] {
        migrate(&cluster, &guest).await.context(round)?;
        guest.reattach(&cluster)?;
        let after = sums(&guest.run_shell_command(LOOK).await?);
        ensure!(before == after, "{round}: the disks were {before:?} and are {after:?}");
        ensure!(guest.run_shell_command("cat /run/from-cloud-init").await? == "seen-42", "{round}: memory is lost");
    }
    let (testimony, client) = witness.finish().await?;
    testimony.check()?;
    println!("{testimony}");
    client.delete().await?;
    guest.delete().await
}

/// The checksums in what the guest printed; its counter may have written in between.
fn sums(printed: &str) -> Vec<String> {
    let is_sum = |word: &&str| word.len() == 32 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    printed.split_whitespace().filter(is_sum).map(str::to_owned).collect()
}

async fn reached(cluster: &ferrovirt::drive::Embedded, client: &ClientPod, guest: &Guest) -> Result<()> {
    let address = guest.address().await?;
    poll("an answer", LIMIT, || async { client.ping(cluster, &address).await.map(drop).map_err(|err| err.to_string()) })
        .await
}

async fn given_up() -> Result<()> {
    let cluster = cluster().await?;
    slow_down(&cluster, "stays").await?;
    let guest = movable(&cluster, &busy("stays")).await?;
    let (node, qemu) = (guest.node().await?, crate::guests::the_only_qemu("stays")?);
    begin(&cluster, &guest, "given-up", json!({})).await?;
    wait_for(&cluster, "given-up", &["Running"]).await?;
    command(&cluster, &["virtctl", "migrate-cancel", "stays"]).await?;
    let api = migrations(&cluster).await?;
    poll("the migration's end", LIMIT, || async {
        match api.get_opt("given-up").await.map_err(|err| err.to_string())? {
            None => Ok(()),
            Some(migration) => Err(format!("it is {}", phase(&migration))),
        }
    })
    .await?;
    let state = state(&guest).await?;
    ensure!(state.failed == Some(true), "the state does not tell: {state:?}");
    ensure!(state.abort_status.as_ref().map(ToString::to_string).as_deref() == Some("Succeeded"), "{state:?}");
    super::alone(&guest).await?;
    ensure!(crate::guests::the_only_qemu("stays")? == qemu, "the guest is in another QEMU");
    ensure!(guest.node().await? == node, "the guest has moved");
    speed_up(&cluster, "stays").await?;
    migrate(&cluster, &guest).await.context("the next one")?;
    guest.delete().await
}

async fn follows_policy() -> Result<()> {
    let cluster = cluster().await?;
    policy(&cluster, "loose", "chosen", json!({"bandwidthPerMigration": "64Mi"})).await?;
    let policies: kube::Api<api::migrations::MigrationPolicy> = kube::Api::all(cluster.client().await?);
    let both = json!({"metadata": {"name": "strict"}, "spec": {"maxDowntimeMs": null, "allowAutoConverge": true,
        "selectors": {"virtualMachineInstanceSelector": {"app": "chosen", "kubevirt.io/vm": "chosen"}}}});
    policies.create(&Default::default(), &serde_json::from_value(both)?).await.context("cannot create a policy")?;
    policy(&cluster, "other", "somebody-else", json!({"allowPostCopy": true})).await?;
    let guest = movable(&cluster, &Manifest::vm("chosen", "Always").template_label("kubevirt.io/vm", "chosen")).await?;
    migrate(&cluster, &guest).await?;
    let seen = state(&guest).await?;
    ensure!(seen.migration_policy_name.as_deref() == Some("strict"), "the policy is {:?}", seen.migration_policy_name);
    let config = seen.migration_configuration.context("the configuration is not told")?;
    ensure!(config.allow_auto_converge == Some(true) && config.allow_post_copy != Some(true), "{config:?}");
    policies.delete("strict", &DeleteParams::default()).await?;
    migrate(&cluster, &guest).await.context("under the looser policy")?;
    let seen = state(&guest).await?;
    ensure!(seen.migration_policy_name.as_deref() == Some("loose"), "the policy is {:?}", seen.migration_policy_name);
    guest.delete().await
}
