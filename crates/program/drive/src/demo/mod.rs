//! `ferrovirt demo`: shows the whole chain once and leaves nothing behind.

mod bare;
mod moving;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use parking_lot::Mutex;

use crate::timeline::{HandOff, Timeline};
use crate::{BOOT_LIMIT, ClientPod, Console, Embedded, Guest, LIMIT, Snapshot, poll, watch_start};
use supervisor::cluster::preflight;
use terminal::Progress;
use terminal::signals;

pub use bare::{BareStart, bare_start};
use moving::Moved;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Directory of the test guest (made by `make guest`)
    #[arg(long, value_name = "DIR", default_value = "build/guest")]
    guest: PathBuf,
    /// Manifest of the VM to boot [default: the one of examples/vm.yaml]
    #[arg(long, value_name = "FILE")]
    manifest: Option<PathBuf>,
}

/// The manifest that users meet first; the demo shows that very file.
const MANIFEST: &str = include_str!("../../../../../examples/vm.yaml");
const NODES: u8 = 2;

pub async fn run(args: Args) -> Result<()> {
    // Unix sockets live below the data directory and their paths are limited in length, so it is created in /tmp
    // itself.
    let dir = PathBuf::from(format!("/tmp/fv-demo-{}", std::process::id()));
    preflight::check(&dir)?;
    if !args.guest.join("kernel").is_dir() {
        bail!("there is no test guest in {}; build it with `make guest`", args.guest.display());
    }
    let before = Snapshot::take()?;
    let result = tokio::select! {
        // Install signal handlers before anything is created.
        biased;
        () = signals::terminated() => Err(anyhow::anyhow!("interrupted; cleaned up")),
        result = show(&args, &dir) => result,
    };
    // `show` owns the cluster, so it is gone by now, however it ended.
    std::fs::remove_dir_all(&dir).or_else(|err| match err.kind() {
        std::io::ErrorKind::NotFound => Ok(()),
        _ => Err(err),
    })?;
    let left = before.nothing_left(Duration::from_secs(10)).await;
    if let (Err(_), Err(left)) = (&result, &left) {
        eprintln!("error: {left:#}");
    }
    result?;
    left?;
    println!("nothing is left: no process, namespace, mount, link, nft table, cgroup");
    Ok(())
}

async fn show(args: &Args, dir: &Path) -> Result<()> {
    let exe = std::env::current_exe().context("cannot find this program's own file")?;
    let mut progress = Progress::default();
    progress.waiting("two nodes to start");
    let mut cluster = Embedded::start(&exe, dir, NODES, Some(&args.guest)).await?;
    progress.done("two nodes are ready");
    let (mut guest, timeline) = first_boot(args, &cluster, &mut progress).await?;
    let client = reach_from_other_node(&cluster, &guest, &mut progress).await?;
    let moved = moving::live_migrate(&cluster, &mut guest, client, &mut progress).await?;
    stop_and_start(&cluster, guest, &mut progress).await?;
    progress.waiting("the VM's deletion");
    run_cli(&cluster, &["delete", "vm", "demo", "--wait"])?;
    progress.done("VM deleted");
    progress.waiting("a bare libvirt start of the same guest");
    let bare = bare_start(&args.guest).await?;
    progress.done("the same guest started by bare libvirt");
    progress.waiting("the cluster to be removed");
    cluster.down().await?;
    progress.done("cluster removed");
    report(&timeline, &moved, &bare);
    Ok(())
}

async fn first_boot(args: &Args, cluster: &Embedded, progress: &mut Progress) -> Result<(Guest, Timeline)> {
    let manifest = match &args.manifest {
        Some(path) => path.clone(),
        None => {
            let path = cluster.layout().root().join("vm.yaml");
            std::fs::write(&path, MANIFEST).with_context(|| format!("cannot write {}", path.display()))?;
            path
        }
    };
    let timeline = Arc::new(Mutex::new(Timeline::starting_now()));
    let watch = watch_start(cluster.client().await?, "demo", timeline.clone()).await?;
    *timeline.lock() = Timeline::starting_now();
    let path = manifest.to_str().context("the manifest's path is not valid UTF-8")?;
    run_cli(cluster, &["apply", "-f", path])?;
    timeline.lock().mark(HandOff::Accepted);
    progress.done("VM `demo` applied; its console:");
    let seen = timeline.clone();
    let on_line = move |line: &str| {
        println!("    guest | {line}");
        if line.contains(crate::FIRST_LINE) {
            seen.lock().mark(HandOff::UserSpace);
        }
        if line.contains(crate::UP_LINE) {
            seen.lock().mark(HandOff::GuestUp);
        }
    };
    let console = Console::attach(cluster, "default", "demo", Some(Box::new(on_line)))?;
    console.wait_for(crate::UP_LINE, 0, BOOT_LIMIT).await?;
    // One more tick on the screen shows that the guest continues.
    tokio::time::sleep(Duration::from_secs(1)).await;
    drop(console);
    watch.abort();
    progress.done("the guest is up");
    let guest = Guest::attach(cluster, "demo").await?;
    let timeline = timeline.lock().clone();
    Ok((guest, timeline))
}

async fn reach_from_other_node(cluster: &Embedded, guest: &Guest, progress: &mut Progress) -> Result<ClientPod> {
    let (node, address) = (guest.node().await?, guest.address().await?);
    let other = if node == "n1" { "n2" } else { "n1" };
    let client = ClientPod::start(cluster, other).await?;
    let time = poll("an answer to ping", LIMIT, || async {
        client.ping(cluster, &address).await.map_err(|err| err.to_string())
    })
    .await?;
    progress.done(format!("ping from a Pod on {other} to the guest on {node} ({address}): {time}"));
    let url = format!("http://{address}/cgi-bin/tick");
    let tick =
        poll("an answer to HTTP", LIMIT, || async { client.http(cluster, &url).await.map_err(|err| err.to_string()) })
            .await?;
    progress
        .done(format!("HTTP from {other}: the guest's counter stands at {}", tick.lines().next().unwrap_or_default()));
    Ok(client)
}

async fn stop_and_start(cluster: &Embedded, guest: Guest, progress: &mut Progress) -> Result<()> {
    let started = Instant::now();
    run_cli(cluster, &["virtctl", "stop", "demo"])?;
    guest.wait_for_status("Stopped", LIMIT).await?;
    progress.done(format!("stopped gracefully in {:.1} s", started.elapsed().as_secs_f64()));
    drop(guest);
    let started = Instant::now();
    run_cli(cluster, &["virtctl", "start", "demo"])?;
    let again = Guest::attach(cluster, "demo").await?;
    again.wait_to_boot().await?;
    progress.done(format!("started again, up after {:.1} s", started.elapsed().as_secs_f64()));
    Ok(())
}

fn run_cli(cluster: &Embedded, args: &[&str]) -> Result<()> {
    let output = cluster.command(args).output().with_context(|| format!("cannot run ferrovirt {}", args.join(" ")))?;
    if !output.status.success() {
        bail!("ferrovirt {} failed: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

fn report(timeline: &Timeline, moved: &Moved, bare: &BareStart) {
    println!("\nlive migration, hand-off by hand-off:\n{}{}", moved.timeline, moved.testimony);
    println!("\nfrom the request to a running guest, hand-off by hand-off:\n{timeline}");
    if let Some(total) = timeline.until(HandOff::UserSpace) {
        let seconds = total.as_secs_f64();
        println!("request → first line of user space     {seconds:7.3} s");
        for (what, reference) in [("with its libvirtd", bare.total()), ("daemon already up", bare.guest)] {
            let theirs = reference.as_secs_f64();
            println!("bare libvirt, same guest, {what}  {theirs:7.3} s   ratio {:.2}", seconds / theirs);
        }
    }
}
