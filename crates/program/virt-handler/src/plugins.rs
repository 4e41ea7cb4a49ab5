//! The node's device plugins: which ones the configuration asks for, and whether the kubelet knows them.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use api::config::ClusterConfig;
use devices::{Node, Plugin};
use hostfs::cgroup::Hierarchies;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::config::{CurrentConfig, Kubelet};
use crate::error::chain;

/// Serves the plugins until `shutdown`. `ready` follows whether the kubelet knows all of them.
pub(crate) async fn serve(
    kubelet: Kubelet,
    kvm_finding: PathBuf,
    config: CurrentConfig,
    ready: watch::Sender<bool>,
    shutdown: CancellationToken,
) -> Result<(), device_plugin::Error> {
    let node = Node { cgroup_v2: uses_cgroup_v2(), max_devices: kubelet.max_devices };
    let (registered, known) = watch::channel(BTreeSet::new());
    let (wanted, following) = watch::channel(devices::plugins(node, &config.subscribe().borrow()));
    let settings = device_plugin::Config {
        dir: kubelet.device_plugins,
        kubelet_dir: kubelet.device_plugins_on_node,
        root: kubelet.node_root,
        registered,
        ..device_plugin::Config::new(Arc::new(move || hostfs::kvm::usable_since_boot(&kvm_finding)))
    };
    let serving = device_plugin::serve(settings, following, shutdown);
    let following = follow(node, config.subscribe(), known, wanted, ready);
    tokio::select! {
        served = serving => served,
        () = following => Ok(()),
    }
}

/// Passes changes of the configuration on, for ever.
async fn follow(
    node: Node,
    mut configs: watch::Receiver<ClusterConfig>,
    mut known: watch::Receiver<BTreeSet<String>>,
    wanted: watch::Sender<Vec<Plugin>>,
    ready: watch::Sender<bool>,
) {
    loop {
        let plugins = devices::plugins(node, &configs.borrow_and_update());
        let complete = devices::initialized(&plugins, &known.borrow_and_update());
        wanted.send_if_modified(|old| replace(old, plugins));
        ready.send_if_modified(|old| replace(old, complete));
        tokio::select! {
            () = changed(&mut configs) => {}
            () = changed(&mut known) => {}
        }
    }
}

fn replace<T: PartialEq>(old: &mut T, new: T) -> bool {
    let differs = *old != new;
    *old = new;
    differs
}

/// The next change; never, if the sender is gone.
pub(crate) async fn changed<T>(receiver: &mut watch::Receiver<T>) {
    if receiver.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Container runtimes use version 2 for devices unless version 1 has controllers.
fn uses_cgroup_v2() -> bool {
    match Hierarchies::detect() {
        Ok(found) => found.is_unified(),
        Err(error) => {
            tracing::warn!(error = chain(&error), "failed to detect the cgroup version; assuming 2");
            true
        }
    }
}
