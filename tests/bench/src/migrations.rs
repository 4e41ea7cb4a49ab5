//! Live migration of an instance, beside `virsh migrate` of the same domain between two bare daemons.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use api::v1::{
    KubeVirt, VirtualMachineInstance, VirtualMachineInstanceMigration, VirtualMachineInstanceMigrationPhase as Phase,
};
use drive::{Embedded, Guest, LIMIT, poll};
use e2e::manifest::Manifest;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::runtime::wait::await_condition;
use launcher_contract::migration::{MigrationPhase, Progress};
use launcher_contract::sockets::LAST_STATE;
use launcher_contract::types::LauncherState;
use libvirt_io::{Connection, Keepalive, flags};
use serde_json::json;

use crate::median;
use crate::pair::{Over, Pair};

/// Moves that count, of each kind: as many there as back. One more before them fills caches.
const ROUNDS: usize = 10;
const MOVE_LIMIT: Duration = Duration::from_secs(180);
/// Before each move: for what ends after the last one, and for a changed configuration to be known.
const SETTLE: Duration = Duration::from_millis(1500);
/// The guest's memory at the target, and some more.
const ROOM: usize = 512 << 20;
/// How often the source's last words are looked for; they go with its Pod.
const LOOK: Duration = Duration::from_millis(20);

/// One move of a guest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Move {
    /// From the request to the word that it is done.
    pub(crate) wall: Duration,
    /// As libvirt measured it at the source, from its first step to its last.
    pub(crate) total: Duration,
    /// The guest stood still this long, by libvirt's account.
    pub(crate) downtime: Duration,
    pub(crate) bytes: u64,
}

pub(crate) async fn measure(cluster: &Embedded, guest_dir: &Path) -> Result<()> {
    compare(cluster, guest_dir, "idle", "").await?;
    compare(cluster, guest_dir, "busy", "dirty=64 rate=16").await
}

/// The moves of one guest, each kind of them in turn, so that a noisy minute hits all.
#[derive(Default)]
struct Moves {
    ours: Vec<Move>,
    ours_open: Vec<Move>,
    bare: Vec<Move>,
    bare_open: Vec<Move>,
}

async fn compare(cluster: &Embedded, guest_dir: &Path, name: &str, kernel_args: &str) -> Result<()> {
    let guest = Ours::start(cluster, name, kernel_args).await?;
    let qemu = e2e::processes::qemus_of(name).pop().context("the guest has no QEMU")?;
    let mut pair = Pair::start(name, &guest.xml().await?, guest_dir, qemu.pid).await?;
    let mut moves = Moves::default();
    for round in 0..=ROUNDS {
        let context = || format!("{name}, round {round}");
        encrypt(cluster, true).await?;
        let ours = guest.migrate(&format!("{name}-{round}")).await.with_context(context)?;
        let bare = pair.migrate(Over::Tls).await.with_context(context)?;
        encrypt(cluster, false).await?;
        let ours_open = guest.migrate(&format!("{name}-{round}-open")).await.with_context(context)?;
        let bare_open = pair.migrate(Over::Tcp).await.with_context(context)?;
        if std::env::var_os("BENCH_VERBOSE").is_some() {
            println!("  with TLS {ours:?}, virsh {bare:?}\n  without {ours_open:?}, virsh {bare_open:?}");
        }
        if round > 0 {
            moves.ours.push(ours);
            moves.ours_open.push(ours_open);
            moves.bare.push(bare);
            moves.bare_open.push(bare_open);
        }
    }
    drop(pair);
    guest.delete().await?;
    println!(
        "live migration, 256 MiB, {}: median of {ROUNDS}, {:.0} MB sent",
        if kernel_args.is_empty() { "idle" } else { kernel_args },
        middle(&moves.ours, |one| one.bytes as f64 / 1e6)
    );
    report("transfer, by libvirt", "aim ≤ 1.1", &moves, |one| one.total.as_secs_f64());
    report("downtime, by libvirt", "aim ≤ 1.2", &moves, |one| one.downtime.as_secs_f64());
    report("request → done", "", &moves, |one| one.wall.as_secs_f64());
    Ok(())
}

/// Whether the node agents encrypt what they carry.
async fn encrypt(cluster: &Embedded, wanted: bool) -> Result<()> {
    let kubevirts: Api<KubeVirt> = Api::namespaced(cluster.client().await?, "kubevirt");
    let patch = Patch::Merge(json!({"spec": {"configuration": {"migrations": {"disableTLS": !wanted}}}}));
    kubevirts.patch("kubevirt", &PatchParams::default(), &patch).await.context("cannot configure migrations")?;
    Ok(())
}

/// Rests, and has the machine own the memory that a move is about to take. A machine that is a guest itself gives free memory
/// back to its host after a moment, and has to ask for it page by page: whoever moved first after a rest would pay for that.
pub(crate) async fn settle() -> Result<()> {
    tokio::time::sleep(SETTLE).await;
    let touched = tokio::task::spawn_blocking(|| {
        let mut room = vec![0u8; ROOM];
        // Every page once, for the kernel to have to find it.
        room.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
        std::hint::black_box(&room).len()
    });
    ensure!(touched.await.context("cannot touch memory")? == ROOM, "memory is missing");
    Ok(())
}

fn middle(moves: &[Move], of: impl Fn(&Move) -> f64) -> f64 {
    median(moves.iter().map(of).collect())
}

fn report(what: &str, aim: &str, moves: &Moves, of: fn(&Move) -> f64) {
    for (kind, ours, bare) in [("TLS", &moves.ours, &moves.bare), ("no TLS", &moves.ours_open, &moves.bare_open)] {
        let (mine, theirs) = (middle(ours, of), middle(bare, of));
        let least = ours.iter().map(of).fold(f64::INFINITY, f64::min);
        let most = ours.iter().map(of).fold(0.0, f64::max);
        println!(
            "  {what:22} {kind:6} {mine:7.3} s ({least:.3} to {most:.3})   virsh {theirs:.3} s, ratio {:.2}   {aim}",
            mine / theirs
        );
    }
}

/// An instance of the embedded cluster.
struct Ours<'a> {
    cluster: &'a Embedded,
    name: String,
    vmis: Api<VirtualMachineInstance>,
    migrations: Api<VirtualMachineInstanceMigration>,
}

impl<'a> Ours<'a> {
    async fn start(cluster: &'a Embedded, name: &str, kernel_args: &str) -> Result<Self> {
        let client = cluster.client().await?;
        let (vmis, migrations) = (Api::default_namespaced(client.clone()), Api::default_namespaced(client));
        let manifest = Manifest::vm(name, "Always").kernel_args(kernel_args).memory("256Mi").no_network().instance();
        let guest = Guest::spawn(cluster, manifest.json()).await?;
        guest.wait_to_boot().await?;
        guest
            .wait_for_instance("to be movable", LIMIT, |instance| {
                let condition = instance.and_then(|instance| instance.condition("LiveMigratable"));
                match condition {
                    Some(condition) if condition.is_true() => Ok(()),
                    Some(condition) => Err(condition.message().to_owned()),
                    None => Err("virt-handler has not reported LiveMigratable yet".to_owned()),
                }
            })
            .await?;
        // The console goes with the guest's handle: nobody listens to the reference's either.
        Ok(Self { cluster, name: name.to_owned(), vmis, migrations })
    }

    async fn delete(&self) -> Result<()> {
        Guest::attach(self.cluster, &self.name).await?.delete().await
    }

    /// A volume of the Pod that has the guest. Pods that it has left may still be listed, also on the same node: their
    /// launchers have written down how it ended for them.
    async fn volume(&self, volume: &str) -> Result<PathBuf> {
        poll(&format!("{}: a Pod that has it", self.name), LIMIT, || async {
            let instance = self.vmis.get(&self.name).await.map_err(|err| err.to_string())?;
            let status = instance.status.unwrap_or_default();
            let here = status.active_pods.iter().filter(|(_, node)| status.node_name.as_ref() == Some(*node));
            let volumes = here
                .map(|(pod, node)| self.cluster.layout().pods(node).join(pod).join("volumes/kubernetes.io~empty-dir"));
            let holds = |volumes: &PathBuf| volumes.is_dir() && !volumes.join("sockets").join(LAST_STATE).exists();
            let mut holding: Vec<PathBuf> = volumes.filter(holds).collect();
            match holding.pop() {
                Some(only) if holding.is_empty() => Ok(only.join(volume)),
                _ => Err(format!("it has {:?}", status.active_pods)),
            }
        })
        .await
    }

    /// The domain as the launcher has defined it.
    async fn xml(&self) -> Result<String> {
        // The path is longer than a socket's may be, so it is connected to beneath its directory.
        let root = hostfs::beneath::Root::open(self.volume("libvirt-runtime").await?)?;
        let stream = root.connect_unix("libvirt-sock")?;
        stream.set_nonblocking(true)?;
        let stream = tokio::net::UnixStream::from_std(stream)?;
        let keepalive = Keepalive { interval: Duration::from_secs(5), count: 5 };
        let connection = Connection::over(stream, "qemu:///session", keepalive).await?;
        let domain = connection.lookup_by_name(&format!("default_{}", self.name)).await?;
        let domain = domain.context("the launcher has no domain")?;
        Ok(connection.xml_desc(&domain, flags::XML_INACTIVE).await?)
    }

    async fn migrate(&self, name: &str) -> Result<Move> {
        let last_words = self.volume("sockets").await?.join(LAST_STATE);
        settle().await?;
        let migration = serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"vmiName": self.name}}))?;
        let started = Instant::now();
        let created = self.migrations.create(&PostParams::default(), &migration).await;
        let uid = created.context("cannot create a migration")?.metadata.uid.context("the migration has no UID")?;
        let figures = tokio::spawn(figures(last_words, uid));
        let over = |migration: Option<&VirtualMachineInstanceMigration>| {
            let phase = migration.and_then(|migration| migration.status.as_ref()?.phase.as_ref());
            matches!(phase, Some(Phase::Succeeded | Phase::Failed))
        };
        let ended = tokio::time::timeout(MOVE_LIMIT, await_condition(self.migrations.clone(), name, over)).await;
        let wall = started.elapsed();
        let ended = ended.context("the migration does not end")?.context("cannot follow the migration")?;
        let status = ended.and_then(|migration| migration.status).unwrap_or_default();
        ensure!(matches!(status.phase, Some(Phase::Succeeded)), "the migration failed: {status:?}");
        let Progress { elapsed_ms, downtime_ms, data_processed, .. } = figures.await??;
        Ok(Move {
            wall,
            total: Duration::from_millis(elapsed_ms),
            downtime: Duration::from_millis(downtime_ms),
            bytes: data_processed,
        })
    }
}

/// What the source's launcher leaves behind about a migration: libvirt's account of it.
async fn figures(file: PathBuf, uid: String) -> Result<Progress> {
    let started = Instant::now();
    while started.elapsed() < MOVE_LIMIT {
        let told = tokio::fs::read(&file).await.unwrap_or_default();
        let state: LauncherState = serde_json::from_slice(&told).unwrap_or_default();
        match state.migration {
            Some(migration) if migration.uid == uid && migration.phase == MigrationPhase::Completed => {
                return Ok(migration.progress);
            }
            _ => tokio::time::sleep(LOOK).await,
        }
    }
    anyhow::bail!("the source's launcher left no figures")
}
