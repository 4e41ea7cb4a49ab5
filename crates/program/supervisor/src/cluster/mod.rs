//! The embedded cluster: one supervisor with the API server and the controllers, and one process per node.
//!
//! ```text
//! up ── lock ── PKI ── fabric ── API server ── controllers ── node processes ── Pod shims ── virt-launcher ── QEMU
//!       └──────────── dies and returns at any time ────────────────────────┘   └─── outlive everything above ───┘
//! ```
//!
//! [`Cluster::start`] is the whole startup, used by `up` and, with VM starts held back, by `down`.

pub mod bootstrap;
pub mod dialer;
pub mod fabric;
pub mod identities;
mod identity;
mod imports;
pub mod kubeconfig;
pub mod layout;
pub mod lock;
pub mod nodes;
pub mod pki;
pub mod preflight;
pub mod record;
pub mod storage;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use api::config::{ClusterConfig, DEFAULT_INSTALL_NAMESPACE};
use api::v1::Empty;
use hostfs::process::ProcessId;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use self::dialer::FabricDialer;
use self::layout::Layout;
use self::lock::Lock;
use self::pki::{Pki, Subject};
use self::record::{FABRIC_ADDRESS, FABRIC_API_PORT, Record};
use crate::pulls;
use terminal::Progress;

/// Startup options of a cluster.
#[derive(Clone, Debug)]
pub struct Options {
    pub layout: Layout,
    /// Minimum number of nodes; `None` keeps the recorded ones.
    pub nodes: Option<u8>,
    /// Port on the host's loopback: `None` keeps the recorded one, 0 lets the kernel choose.
    pub port: Option<u16>,
    /// Start no VMs: the cluster is only brought up to be drained.
    pub hold_starts: bool,
}

/// The port if neither the user nor an earlier start chose one.
const DEFAULT_PORT: u16 = 6443;

/// A running supervisor.
pub struct Cluster {
    pub layout: Layout,
    pub record: Record,
    /// A client with admin rights.
    pub admin: kube::Client,
    shutdown: CancellationToken,
    tasks: JoinSet<(&'static str, Result<()>)>,
    nodes: nodes::NodeProcesses,
    // Dropped last: a second supervisor may start as soon as it is released.
    _lock: Lock,
}

impl Cluster {
    /// Starts everything and returns when all nodes are ready.
    pub async fn start(options: Options, progress: &mut Progress) -> Result<Self> {
        let layout = options.layout.clone();
        std::fs::create_dir_all(layout.run()).with_context(|| format!("cannot make {}", layout.run().display()))?;
        let lock = Lock::take(&layout)?;
        let mut record = Record::load(&layout)?.unwrap_or_default();
        nodes::end_leftovers(&mut record).context("cannot end node processes of an earlier supervisor")?;
        match options.nodes {
            Some(count) => record.grow_to(count)?,
            None if record.nodes.is_empty() => record.grow_to(1)?,
            None => {}
        }
        let listener = listen(options.port, record.api_port)?;
        record.api_port = listener.local_addr().context("cannot read the listener's address")?.port();
        let uploads = imports::listen(record.upload_port)?;
        record.upload_port = uploads.local_addr().context("cannot read the listener's address")?.port();
        record.supervisor = ProcessId::current().ok();
        record.save(&layout)?;

        let shutdown = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let started = serve(&layout, &record, listener, uploads, &options, &shutdown, &mut tasks, progress).await;
        let (admin, kvm) = match started {
            Ok(started) => started,
            Err(err) => {
                shutdown.cancel();
                return Err(err);
            }
        };
        if let Err(reason) = &kvm {
            progress.done(format!("guests run under software emulation: {reason}"));
        }
        let nodes = nodes::NodeProcesses::start(&layout, &mut record, &shutdown)?;
        let mut cluster = Self { layout, record, admin, shutdown, tasks, nodes, _lock: lock };
        let settled = match cluster.wait_for_nodes(progress).await {
            Ok(()) => bootstrap::settled(&cluster.admin).await,
            waited => waited,
        };
        if let Err(err) = settled {
            cluster.stop().await;
            return Err(err);
        }
        Ok(cluster)
    }

    /// Resolves when a part of the supervisor has failed, with the reason.
    pub async fn failed(&mut self) -> anyhow::Error {
        match self.tasks.join_next().await {
            Some(Ok((name, Ok(())))) => anyhow::anyhow!("{name} ended unexpectedly"),
            Some(Ok((name, Err(err)))) => err.context(format!("{name} failed")),
            Some(Err(err)) => anyhow::Error::new(err).context("a part of the supervisor panicked"),
            None => std::future::pending().await,
        }
    }

    /// Stops the supervisor and the node processes. Pods and their guests keep running.
    pub async fn stop(mut self) {
        self.nodes.stop().await;
        self.shutdown.cancel();
        while let Some(ended) = self.tasks.join_next().await {
            if let Ok((name, Err(err))) = ended {
                tracing::warn!(error = format!("{err:#}"), "{name} did not stop cleanly");
            }
        }
        for node in &mut self.record.nodes {
            node.process = None;
        }
        self.record.supervisor = None;
        if let Err(err) = self.record.save(&self.layout) {
            tracing::warn!(error = format!("{err:#}"), "the cluster record could not be updated");
        }
    }

    async fn wait_for_nodes(&mut self, progress: &mut Progress) -> Result<()> {
        let names: Vec<String> = self.record.nodes.iter().map(|node| node.name.clone()).collect();
        let ready = bootstrap::nodes_ready(self.admin.clone(), names, progress);
        tokio::select! {
            result = ready => result,
            (name, err) = self.nodes.failed() => bail!("node {name} does not start: {err}; see {}", self.layout.logs().display()),
        }
    }
}

fn listen(wanted: Option<u16>, recorded: u16) -> Result<TcpListener> {
    let port = wanted.unwrap_or(if recorded == 0 { DEFAULT_PORT } else { recorded });
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    TcpListener::bind(address).with_context(|| {
        format!("cannot listen on {address}; something else uses the port: choose another with --port, or 0 for any")
    })
}

/// Starts the API server, the controllers and the subresource API, each in its own task.
async fn serve(
    layout: &Layout,
    record: &Record,
    loopback: TcpListener,
    uploads: TcpListener,
    options: &Options,
    shutdown: &CancellationToken,
    tasks: &mut JoinSet<(&'static str, Result<()>)>,
    progress: &mut Progress,
) -> Result<(kube::Client, Result<(), String>)> {
    // The probe takes seconds where KVM hangs; meanwhile the network and the server start.
    let finding = layout.kvm_finding();
    let kvm = tokio::task::spawn_blocking(move || hostfs::kvm::usable_since_boot(&finding));
    let pooled = layout.clone();
    let engine = tokio::task::spawn_blocking(move || storage::open(&pooled));
    let pki = Pki::open(&layout.pki())?;
    let fabric = fabric::ensure(layout, &record.nodes)?;
    progress.done(format!("network for {} node(s)", record.nodes.len()));
    let dialer = FabricDialer::new(fabric);

    let pair = pki.pair(
        "apiserver",
        &Subject { common_name: "kube-apiserver", organization: None, serves: identities::API_SERVER_NAMES },
    )?;
    let images = layout.images();
    let pins = virt_api::PinImages(Box::new(move |reference| pod_runner::images::pinned(&images, reference)));
    let admission = Arc::<virt_api::Admission>::default();
    let tokens = imports::tokens(layout)?;
    let importer = import_controller::Hooks { tokens: tokens.clone() };
    let server = embedded::Server::open(embedded::Config {
        store_path: layout.store(),
        client_ca_pem: pki.ca_pem().to_owned(),
        cert_pem: pair.cert,
        key_pem: pair.key,
        hooks: vec![Arc::new(pins), admission.clone(), Arc::new(importer)],
        system: bootstrap::system(),
    })
    .await
    .context("cannot open the API server's store")?;
    server.bootstrap().await.context("cannot create the initial objects")?;
    server.grant(&bootstrap::programs()).await.context("cannot write the roles of the cluster's programs")?;

    let url = format!("https://127.0.0.1:{}", record.api_port);
    let identity = |name: &str, subject: &Subject<'_>| -> Result<serde_json::Value> {
        Ok(kubeconfig::document(&url, pki.ca_pem(), &pki.pair(name, subject)?))
    };
    let admin_document = identity("admin", &identities::ADMIN)?;
    kubeconfig::write(&layout.kubeconfig(), &admin_document)?;
    nodes::write_credentials(layout, record, &pki)?;

    let api_client = kubeconfig::client(identity("virt-api", &identities::API)?).await?;
    let handler_pair = pki.pair("virt-api-handler-client", &identities::HANDLER_CLIENT)?;
    let handler_tls = role_tls::Identity::from_pem(pki.ca_pem(), &handler_pair.cert, &handler_pair.key)
        .and_then(|identity| identity.node_client(role_tls::NODE_AGENT, role_tls::NodeCheck::Required))
        .context("cannot set up TLS for virt-handler")?;
    server.mount_subresources(virt_api::router(virt_api::State {
        client: api_client.clone(),
        dialer: Arc::new(dialer.clone()),
        handler_tls: virt_api::fixed(handler_tls),
        namespace: DEFAULT_INSTALL_NAMESPACE.to_owned(),
        version: virt_api::Version::of_this_build(),
        shutdown: shutdown.clone(),
    }));
    let on_fabric = dialer
        .listen(SocketAddr::from((FABRIC_ADDRESS, FABRIC_API_PORT)))
        .context("cannot listen on the nodes' network")?;
    for listener in [loopback, on_fabric] {
        let (server, stop) = (server.clone(), shutdown.clone());
        tasks.spawn(async move { ("the API server", server.serve(listener, stop).await.map_err(Into::into)) });
    }
    progress.done(format!("API server at {url}"));

    let (listener, place, stop) = (pulls::listen(layout)?, layout.clone(), shutdown.clone());
    tasks.spawn(async move { ("the image puller", pulls::serve(place, listener, stop).await) });

    let admin = kubeconfig::client(admin_document).await?;
    let kvm = kvm.await.context("the KVM probe panicked")?;
    bootstrap::kubevirt(&admin, kvm.is_ok()).await?;
    bootstrap::forget_nodes(&admin).await?;
    let engine = engine.await.context("opening the pool of volumes panicked")??;
    storage::make_classes(&admin).await?;
    bootstrap::follow_configuration(api_client, admin.clone(), admission, shutdown.clone(), tasks).await?;

    let volumes = kubeconfig::client(identity("volume-controller", &identities::VOLUMES)?).await?;
    let config = volume_controller::Config { client: volumes, engine: engine.clone() };
    let stop = shutdown.clone();
    tasks.spawn(
        async move { ("the volume controller", volume_controller::run(config, stop).await.map_err(Into::into)) },
    );

    let importer = kubeconfig::client(identity("importer", &identities::IMPORTER)?).await?;
    let config = imports::config(layout, &pki, importer, engine, tokens, uploads)?;
    let stop = shutdown.clone();
    tasks.spawn(async move { ("the importer", import_controller::run(config, stop).await.map_err(Into::into)) });

    let scheduler = kubeconfig::client(identity("scheduler", &identities::SCHEDULER)?).await?;
    let stop = shutdown.clone();
    tasks.spawn(async move { ("the scheduler", embedded::scheduler::run(scheduler, stop).await.map_err(Into::into)) });

    let controller = kubeconfig::client(identity("virt-controller", &identities::CONTROLLER)?).await?;
    let config = virt_controller::Config {
        base: base_configuration(),
        install_namespace: DEFAULT_INSTALL_NAMESPACE.to_owned(),
        hold_starts: options.hold_starts,
        ..virt_controller::Config::new(controller, identity::launcher_image())
    };
    let stop = shutdown.clone();
    tasks.spawn(async move { ("virt-controller", virt_controller::run(config, stop).await.map_err(Into::into)) });
    Ok((admin, kvm))
}

/// Base configuration of the controllers: the Pod runner supports no sidecars, so consoles are not logged unless
/// requested, and launchers get no SELinux label that a migrated guest would have to keep.
fn base_configuration() -> ClusterConfig {
    let mut base = ClusterConfig { launcher_image: identity::launcher_image(), ..ClusterConfig::default() };
    let options = base.configuration.virtual_machine_options.get_or_insert_default();
    options.disable_serial_console_log = Some(Empty::default());
    base.configuration.migrations.get_or_insert_default().match_selinux_level_on_migration = Some(false);
    base
}
