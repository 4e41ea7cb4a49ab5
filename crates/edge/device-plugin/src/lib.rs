//! Device plugins of a node, over the kubelet's device plugin API v1beta1.
//!
//! ```text
//!   serve ─► one task per Plugin: look at sockets and device nodes, devices::decide, act
//!              ├── server    gRPC on DIR/kubevirt-NAME.sock: ListAndWatch, Allocate
//!              ├── kubelet   Register on DIR/kubelet.sock
//!              └── nodes     device nodes: are they there, do they work
//! ```
//!
//! Sockets and device nodes are polled. A second more or less does not matter to either, and unlike inotify a look
//! cannot miss an event, run out of watches or lose a directory that is replaced.

mod error;
mod kubelet;
mod nodes;
mod plugin;
mod server;
mod socket;
#[doc(hidden)]
#[allow(clippy::all, clippy::pedantic, clippy::unwrap_used, unreachable_pub, reason = "generated")]
pub mod v1beta1;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use devices::{Change, Plugin, SOCKET_NAME_MAX};
use kubelet_sockets::PATH_MAX;
use launcher_contract::devices::KUBELET_PLUGINS;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

pub use error::Error;

/// Runs a virtual CPU, or says why that is not possible; may block for seconds.
pub type KvmProbe = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// Settings of [`serve`].
#[derive(Clone)]
pub struct Config {
    /// The kubelet's directory of plugins, as this process sees it.
    pub dir: PathBuf,
    /// The same directory as the kubelet sees it: it connects to plugins by that path.
    pub kubelet_dir: PathBuf,
    /// Where the node's `/dev` is: `/`, if it is mounted at `/dev`.
    pub root: PathBuf,
    /// Time between two looks at sockets and device nodes.
    pub interval: Duration,
    /// Decides whether KVM works. It is called again when `/dev/kvm` is replaced, and every minute while it does not.
    pub kvm: KvmProbe,
    /// Told the names of the plugins that the kubelet has registered and watches; see [`devices::initialized`].
    pub registered: watch::Sender<BTreeSet<String>>,
}

impl Config {
    /// The settings of a node agent that has the node's `/dev` and the kubelet's directory at their usual paths.
    pub fn new(kvm: KvmProbe) -> Config {
        Config {
            dir: KUBELET_PLUGINS.into(),
            kubelet_dir: KUBELET_PLUGINS.into(),
            root: "/".into(),
            interval: Duration::from_secs(1),
            kvm,
            registered: watch::Sender::new(BTreeSet::new()),
        }
    }
}

/// Serves the wanted plugins until `shutdown`, and follows their changes. On return no socket is left behind.
///
/// A kubelet that is absent, restarts, or refuses a plugin is not an error: the plugin tries again. The only error is
/// a directory whose sockets the kubelet could never reach.
pub async fn serve(
    config: Config,
    mut wanted: watch::Receiver<Vec<Plugin>>,
    shutdown: CancellationToken,
) -> Result<(), Error> {
    check_length(&config)?;
    let mut running: BTreeMap<String, Running> = BTreeMap::new();
    loop {
        let target = wanted.borrow_and_update().clone();
        follow(&config, &mut running, &target).await;
        let changed = async {
            if wanted.changed().await.is_err() {
                std::future::pending::<()>().await; // the caller wants these for good
            }
        };
        if shutdown.run_until_cancelled(changed).await.is_none() {
            break;
        }
    }
    stop(running.into_values()).await;
    Ok(())
}

/// The kubelet connects by path, so a directory that is too deep is of no use, however well we could listen there.
fn check_length(config: &Config) -> Result<(), Error> {
    let longest = config.kubelet_dir.as_os_str().len() + 1 + SOCKET_NAME_MAX;
    if longest > PATH_MAX {
        let room = PATH_MAX - 1 - SOCKET_NAME_MAX;
        return Err(Error::TooLong { dir: config.kubelet_dir.clone(), room });
    }
    Ok(())
}

/// The task of a plugin.
struct Running {
    plugin: Plugin,
    /// Stops it also when the future of [`serve`] is dropped.
    stop: DropGuard,
    task: JoinHandle<()>,
}

/// Brings the running plugins to the wanted ones.
async fn follow(config: &Config, running: &mut BTreeMap<String, Running>, wanted: &[Plugin]) {
    let served: Vec<Plugin> = running.values().map(|running| running.plugin.clone()).collect();
    let (mut gone, mut new) = (vec![], vec![]);
    for change in devices::changes(&served, wanted) {
        match change {
            Change::Stop { name } => gone.extend(running.remove(&name)),
            Change::Start(plugin) => new.push(plugin),
        }
    }
    // First: a plugin that changes has one socket only.
    stop(gone).await;
    for plugin in new {
        let stop = CancellationToken::new();
        let task = tokio::spawn(plugin::run(config.clone(), plugin.clone(), stop.clone()));
        running.insert(plugin.name.clone(), Running { plugin, stop: stop.drop_guard(), task });
    }
}

/// Stops plugins, all at the same time.
async fn stop(plugins: impl IntoIterator<Item = Running>) {
    let stopping = plugins.into_iter().map(|Running { plugin, stop, task }| {
        drop(stop);
        async move {
            if let Err(error) = task.await {
                tracing::error!(plugin = plugin.name, %error, "the device plugin ended early");
            }
        }
    });
    futures::future::join_all(stopping).await;
}
