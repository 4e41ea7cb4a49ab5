//! Guests on one healthy cluster of two nodes.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use drive::{Access, ClientPod, Guest, LIMIT, poll};
use e2e::cluster::Cluster;
use e2e::manifest::Manifest;
use e2e::processes;
use libtest_mimic::Trial;
use tokio::sync::MappedMutexGuard;

use crate::trial;

/// The object tells the truth this soon after something happened to the guest.
const TRUTH: Duration = Duration::from_secs(5);

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("guest_boots_and_is_reached_from_the_other_node", boots_and_is_reached),
        trial("guest_two_vms_talk_across_nodes", two_vms_talk),
        trial("guest_sees_its_cloud_init_user_data", sees_user_data),
        trial("guest_boots_from_a_container_disk", boots_from_container_disk),
        trial("guest_that_powers_off_succeeds_and_always_starts_it_again", powers_off_always),
        trial("guest_that_powers_off_stays_off_with_rerun_on_failure", powers_off_rerun),
        trial("guest_that_panics_fails_and_rerun_on_failure_starts_it_again", panics_rerun),
        trial("guest_that_ignores_shutdown_is_ended_after_its_grace_period", ignores_shutdown),
        trial("guest_whose_qemu_is_killed_fails_and_always_starts_it_again", qemu_killed),
        trial("guest_does_not_notice_that_libvirtd_is_killed", libvirtd_killed),
        trial("guest_is_paused_and_resumed", paused),
        trial("guest_is_stopped_started_and_restarted_as_its_user_asks", at_command),
    ]
}

/// The cluster of these scenarios.
pub(crate) async fn cluster() -> Result<MappedMutexGuard<'static, Cluster>> {
    crate::cluster("e2e").await
}

async fn boots_and_is_reached() -> Result<()> {
    let cluster = cluster().await?;
    let mut guest = Guest::spawn(&cluster, Manifest::vm("reached", "Always").on_node("n1").json()).await?;
    guest.wait_to_boot().await?;
    ensure!(guest.run_shell_command("uname -s").await? == "Linux", "the guest's shell does not answer");
    let (address, client) = (guest.address().await?, ClientPod::start(&cluster, "n2").await?);
    poll("ping", LIMIT, || async { client.ping(&cluster, &address).await.map_err(|err| err.to_string()) }).await?;
    let first = counter(&cluster, &client, &address).await?;
    poll("the counter to go on", LIMIT, || async {
        let now = counter(&cluster, &client, &address).await.map_err(|err| err.to_string())?;
        if now > first { Ok(()) } else { Err(format!("it stands at {now}")) }
    })
    .await?;
    emulation_is_said(&guest).await?;
    client.delete().await?;
    guest.delete().await
}

/// A guest that runs without hardware virtualization says so.
async fn emulation_is_said(guest: &Guest) -> Result<()> {
    let Err(reason) = hostfs::kvm::usable() else { return Ok(()) };
    let instance = guest.instance().await?.context("the instance is gone")?;
    let condition = instance.condition("SoftwareEmulation").context("no condition tells of the emulation")?;
    ensure!(condition.is_true(), "the condition is {}", condition.status);
    let message = condition.message.clone().unwrap_or_default();
    ensure!(!message.is_empty(), "the condition does not say why ({reason})");
    Ok(())
}

/// The guest's own count of seconds.
pub(crate) async fn counter(cluster: &Access, client: &ClientPod, address: &str) -> Result<u64> {
    let body = client.http(cluster, &format!("http://{address}/cgi-bin/tick")).await?;
    body.split_whitespace().next().and_then(|word| word.parse().ok()).with_context(|| format!("no counter in `{body}`"))
}

async fn two_vms_talk() -> Result<()> {
    let cluster = cluster().await?;
    let mut left = Guest::spawn(&cluster, Manifest::vm("left", "Always").on_node("n1").json()).await?;
    let right = Guest::spawn(&cluster, Manifest::vm("right", "Always").on_node("n2").json()).await?;
    left.wait_to_boot().await?;
    right.wait_to_boot().await?;
    let address = right.address().await?;
    ensure!(left.node().await? != right.node().await?, "both guests are on one node");
    let answer = left.run_shell_command(&format!("wget -q -O - http://{address}/cgi-bin/tick | head -n 1")).await?;
    ensure!(answer.trim().parse::<u64>().is_ok(), "the other guest answered `{answer}`");
    left.delete().await?;
    right.delete().await
}

async fn sees_user_data() -> Result<()> {
    let cluster = cluster().await?;
    let data = "#cloud-config\nruncmd:\n  - echo seen-$((40+2)) > /run/from-cloud-init\n";
    let mut guest = Guest::spawn(&cluster, Manifest::vm("cloudy", "Always").user_data(data).json()).await?;
    guest.wait_to_boot().await?;
    ensure!(guest.run_shell_command("hostname").await? == "cloudy", "the host name is not the machine's");
    let seen = guest.run_shell_command("cat /run/from-cloud-init").await?;
    ensure!(seen == "seen-42", "the user data's command left `{seen}`");
    guest.delete().await
}

async fn boots_from_container_disk() -> Result<()> {
    let cluster = cluster().await?;
    let path = e2e::workspace().join("examples/vmi-containerdisk.yaml");
    let output = cluster.command(&["apply", "-f"]).arg(&path).output().context("cannot run apply")?;
    ensure!(output.status.success(), "apply failed: {}", String::from_utf8_lossy(&output.stderr));
    let mut guest = Guest::attach(&cluster, "containerdisk").await?;
    guest.wait_to_boot().await?;
    let disks = guest.run_shell_command("ls /dev | grep -c '^vd[a-z]$'").await?;
    ensure!(disks.trim() == "2", "the guest sees {disks} disks");
    guest.delete().await
}

async fn powers_off_always() -> Result<()> {
    let cluster = cluster().await?;
    let mut guest = Guest::spawn(&cluster, Manifest::vm("off-always", "Always").json()).await?;
    guest.wait_to_boot().await?;
    let first = uid(&guest).await?;
    power_off(&mut guest).await?;
    wait_for_another(&guest, &first).await?;
    guest.reattach(&cluster)?;
    guest.wait_to_boot().await?;
    guest.delete().await
}

async fn powers_off_rerun() -> Result<()> {
    let cluster = cluster().await?;
    let mut guest = Guest::spawn(&cluster, Manifest::vm("off-rerun", "RerunOnFailure").json()).await?;
    guest.wait_to_boot().await?;
    power_off(&mut guest).await?;
    guest.wait_for_status("Stopped", LIMIT).await?;
    // It must not come back: a second start would show within the time that the first one took.
    tokio::time::sleep(Duration::from_secs(3)).await;
    ensure!(processes::qemus_of("off-rerun").is_empty(), "it was started again");
    guest.delete().await
}

async fn power_off(guest: &mut Guest) -> Result<()> {
    // The shell does not answer a power-off: only the typing is awaited.
    guest.run_shell_command("true").await?;
    guest.console.send("poweroff -f\n")
}

async fn panics_rerun() -> Result<()> {
    let cluster = cluster().await?;
    let manifest = Manifest::vm("panics", "RerunOnFailure").panic_device();
    let mut guest = Guest::spawn(&cluster, manifest.json()).await?;
    guest.wait_to_boot().await?;
    let first = uid(&guest).await?;
    guest.run_shell_command("true").await?;
    guest.console.send("echo c > /proc/sysrq-trigger\n")?;
    wait_for_another(&guest, &first).await?;
    guest.delete().await
}

async fn ignores_shutdown() -> Result<()> {
    let cluster = cluster().await?;
    let manifest = Manifest::vm("stubborn", "Manual").kernel_args("ignore-acpi=1").grace_period(4).instance();
    let guest = Guest::spawn(&cluster, manifest.json()).await?;
    guest.wait_to_boot().await?;
    let started = std::time::Instant::now();
    guest.delete().await?;
    ensure!(started.elapsed() >= Duration::from_secs(4), "it was ended before its grace period");
    ensure!(processes::qemus_of("stubborn").is_empty(), "its QEMU still runs");
    Ok(())
}

async fn qemu_killed() -> Result<()> {
    let cluster = cluster().await?;
    let bare = Manifest::vm("killed-bare", "Always").instance();
    let guest = Guest::spawn(&cluster, bare.json()).await?;
    guest.wait_to_boot().await?;
    processes::kill(&the_only_qemu("killed-bare")?)?;
    guest.wait_for_phase("Failed", TRUTH).await?;
    guest.delete().await?;
    let guest = Guest::spawn(&cluster, Manifest::vm("killed-vm", "Always").json()).await?;
    guest.wait_to_boot().await?;
    let first = uid(&guest).await?;
    processes::kill(&the_only_qemu("killed-vm")?)?;
    wait_for_another(&guest, &first).await?;
    guest.delete().await
}

async fn libvirtd_killed() -> Result<()> {
    let cluster = cluster().await?;
    let mut guest = Guest::spawn(&cluster, Manifest::vm("steady", "Always").json()).await?;
    guest.wait_to_boot().await?;
    let qemu = the_only_qemu("steady")?;
    let libvirtd = processes::libvirtd_beside(&qemu)?;
    processes::kill(&libvirtd)?;
    poll("libvirtd's return", LIMIT, || async {
        match processes::libvirtd_beside(&qemu) {
            Ok(next) if next != libvirtd => Ok(()),
            _ => Err("there is none yet".to_owned()),
        }
    })
    .await?;
    ensure!(the_only_qemu("steady")? == qemu, "QEMU was started anew");
    ensure!(guest.run_shell_command("echo alive").await? == "alive", "the guest does not answer");
    guest.console.wait_for("tick 6 ", 0, LIMIT).await?;
    no_gap(&guest.console.text())?;
    // The state is followed again: a guest that now powers off is noticed.
    let first = uid(&guest).await?;
    guest.console.send("poweroff -f\n")?;
    wait_for_another(&guest, &first).await?;
    guest.delete().await
}

async fn paused() -> Result<()> {
    let cluster = cluster().await?;
    let guest = Guest::spawn(&cluster, Manifest::vm("sleepy", "Always").json()).await?;
    guest.wait_to_boot().await?;
    virtctl(&cluster, &["pause", "vm", "sleepy"])?;
    guest.wait_for_status("Paused", LIMIT).await?;
    let stands = guest.console.position();
    tokio::time::sleep(Duration::from_secs(3)).await;
    ensure!(guest.console.position() == stands, "a paused guest goes on counting");
    virtctl(&cluster, &["unpause", "vm", "sleepy"])?;
    guest.wait_for_status("Running", LIMIT).await?;
    guest.console.wait_for("tick ", stands, LIMIT).await?;
    guest.delete().await
}

async fn at_command() -> Result<()> {
    let cluster = cluster().await?;
    let mut guest = Guest::spawn(&cluster, Manifest::vm("obeys", "Always").json()).await?;
    guest.wait_to_boot().await?;
    virtctl(&cluster, &["stop", "obeys"])?;
    guest.wait_for_status("Stopped", LIMIT).await?;
    ensure!(processes::qemus_of("obeys").is_empty(), "a stopped VM still runs");
    virtctl(&cluster, &["start", "obeys"])?;
    guest.wait_for_status("Running", LIMIT).await?;
    guest.reattach(&cluster)?;
    guest.wait_to_boot().await?;
    let (first, qemu) = (uid(&guest).await?, the_only_qemu("obeys")?);
    virtctl(&cluster, &["restart", "obeys"])?;
    wait_for_another(&guest, &first).await?;
    ensure!(the_only_qemu("obeys")? != qemu, "it is in the same QEMU");
    guest.reattach(&cluster)?;
    guest.wait_to_boot().await?;
    guest.delete().await
}

pub(crate) fn virtctl(cluster: &Access, args: &[&str]) -> Result<()> {
    let output = cluster.command(&["virtctl"]).args(args).output().context("cannot run virtctl")?;
    ensure!(output.status.success(), "virtctl {args:?} failed: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

pub(crate) fn the_only_qemu(guest: &str) -> Result<hostfs::process::ProcessId> {
    match processes::qemus_of(guest).as_slice() {
        [one] => Ok(*one),
        others => bail!("{} QEMU processes run for {guest}", others.len()),
    }
}

async fn uid(guest: &Guest) -> Result<String> {
    guest.instance().await?.and_then(|instance| instance.metadata.uid).context("the instance is gone")
}

/// Waits for a running instance with another UID than `first`.
async fn wait_for_another(guest: &Guest, first: &str) -> Result<()> {
    guest
        .wait_for_instance("a new instance", LIMIT, |instance| match instance {
            Some(instance) if instance.metadata.uid.as_deref() != Some(first) && instance.is_running() => Ok(()),
            Some(instance) => Err(format!(
                "instance {:?} in phase {:?}",
                instance.metadata.uid,
                instance.status.as_ref().and_then(|s| s.phase.as_ref())
            )),
            None => Err("there is none".to_owned()),
        })
        .await
}

/// The counter's marks on a console follow each other without a gap or a repeat. They may stand anywhere in a line: what a
/// shell prints comes in between.
pub(crate) fn no_gap(console: &str) -> Result<()> {
    let ticks: Vec<u64> = console
        .split("tick ")
        .skip(1)
        .filter_map(|rest| rest.split_once(' ').and_then(|(number, _)| number.parse().ok()))
        .collect();
    ensure!(ticks.len() > 1, "the console shows {} ticks", ticks.len());
    match ticks.windows(2).find(|pair| pair[1] != pair[0] + 1) {
        None => Ok(()),
        Some(pair) => bail!("the counter went from {} to {}", pair[0], pair[1]),
    }
}
