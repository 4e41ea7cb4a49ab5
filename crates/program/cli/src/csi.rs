//! `ferrovirt csi`: the volume engine as a CSI driver.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use install::names::host;
use terminal::signals;
use tokio_util::sync::CancellationToken;
use volumeplan::{DriverName, NodeName, Reach};
use volumes::csi::{self, DRIVER_NAME, REGISTRY, Registration};
use volumes::{Config, Engine};

/// Default verbosity, in klog's levels.
const VERBOSITY: u64 = 2;

/// Run the CSI driver: volumes, snapshots and clones on local files
///
/// It needs root, a directory for the pool (on XFS or btrfs, snapshots and clones take no time and no space) and the
/// kubelet's directory at the path that the kubelet has it at, with mount propagation. When it exits, Pods keep their
/// volumes. docs/storage.md shows how to run it with Kubernetes' provisioner, snapshotter and resizer.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Unix socket to serve CSI on
    #[arg(long, default_value = "unix:///csi/csi.sock", value_name = "URL")]
    endpoint: String,
    /// Name of the node
    #[arg(long, env = "NODE_NAME", value_name = "NAME", value_parser = NodeName::parse)]
    node_id: NodeName,
    /// Directory for volumes and snapshots
    #[arg(long, value_name = "DIR")]
    pool: PathBuf,
    /// The pool is one directory that all nodes see at this path: volumes can be used on every node, and by several
    #[arg(long)]
    shared: bool,
    /// The kubelet's root directory; volumes are mounted only below it
    #[arg(long, default_value = host::KUBELET_ROOT, value_name = "DIR")]
    kubelet_dir: PathBuf,
    /// Name of the driver, as StorageClasses call it
    #[arg(long, default_value = DRIVER_NAME, value_name = "NAME", value_parser = DriverName::parse)]
    driver_name: DriverName,
    /// The endpoint's path as the kubelet sees it [default: KUBELET_DIR/plugins/DRIVER_NAME/csi.sock]
    #[arg(long, value_name = "PATH", conflicts_with = "no_register")]
    kubelet_endpoint: Option<PathBuf>,
    /// Do not register with the kubelet
    #[arg(long)]
    no_register: bool,
    /// Log verbosity: 0 to 2 logs state changes, 3 to 5 each decision, 6 and above everything
    #[arg(long = "v", default_value_t = VERBOSITY, value_name = "NUMBER")]
    verbosity: u64,
}

pub async fn run(args: Args) -> Result<ExitCode> {
    terminal::log::at_verbosity(args.verbosity);
    let (engine, settings) = settings(&args)?;
    let pool = args.pool.clone();
    // Clearing up after a crash may take a while, and it blocks.
    let opened =
        tokio::task::spawn_blocking(move || Engine::open(engine)).await.context("opening the pool ended early")?;
    let engine = opened.with_context(|| format!("cannot open the pool {}", pool.display()))?;
    let shutdown = CancellationToken::new();
    let serving = csi::serve(settings, Arc::new(engine), shutdown.clone());
    tokio::pin!(serving);
    tokio::select! {
        result = &mut serving => result?,
        () = signals::terminated() => {
            tracing::info!("shutting down; Pods keep their volumes");
            shutdown.cancel();
            serving.await?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn settings(args: &Args) -> Result<(Config, csi::Config)> {
    let endpoint = endpoint(&args.endpoint)?;
    for (flag, dir) in [("--pool", &args.pool), ("--kubelet-dir", &args.kubelet_dir)] {
        if !dir.is_absolute() || !dir.is_dir() {
            bail!("{flag} {}: not an absolute path of an existing directory", dir.display());
        }
    }
    if !rustix::process::geteuid().is_root() {
        bail!("the CSI driver needs root to mount volumes and attach loop devices");
    }
    let registration = (!args.no_register).then(|| Registration {
        dir: args.kubelet_dir.join(REGISTRY),
        endpoint: match &args.kubelet_endpoint {
            Some(path) => path.clone(),
            None => kubelet_endpoint(&endpoint, &args.kubelet_dir, &args.driver_name),
        },
    });
    let config = Config { kubelet_dir: args.kubelet_dir.clone(), ..Config::local(&args.pool, args.node_id.clone()) };
    let config = if args.shared { Config { reach: Reach::Shared, ..config } } else { config };
    let version = env!("CARGO_PKG_VERSION").to_owned();
    Ok((config, csi::Config { name: args.driver_name.clone(), version, endpoint, registration }))
}

/// The path in the endpoint's URL.
fn endpoint(url: &str) -> Result<PathBuf> {
    let path = Path::new(url.strip_prefix("unix://").unwrap_or(url));
    if !path.is_absolute() {
        bail!("--endpoint {url}: not the URL of a Unix socket; write unix:///csi/csi.sock");
    }
    Ok(path.to_owned())
}

/// Where the kubelet finds the endpoint: at the same path, if that is in its own directory; a container usually has the
/// driver's folder there mounted somewhere else.
fn kubelet_endpoint(endpoint: &Path, kubelet_dir: &Path, name: &DriverName) -> PathBuf {
    match endpoint.starts_with(kubelet_dir) {
        true => endpoint.to_owned(),
        false => kubelet_dir.join("plugins").join(name.as_str()).join("csi.sock"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_a_unix_socket() {
        assert_eq!(endpoint("unix:///csi/csi.sock").unwrap(), Path::new("/csi/csi.sock"));
        assert_eq!(endpoint("/csi/csi.sock").unwrap(), Path::new("/csi/csi.sock"));
        for bad in ["", "tcp://127.0.0.1:1", "unix://csi.sock", "csi.sock"] {
            assert!(endpoint(bad).unwrap_err().to_string().contains("unix:///csi/csi.sock"), "{bad}");
        }
    }

    #[test]
    fn the_kubelet_is_told_a_path_of_its_own() {
        let (dir, name) = (Path::new("/var/lib/kubelet"), DriverName::parse("csi.example").unwrap());
        let own = "/var/lib/kubelet/plugins/csi.example/csi.sock";
        assert_eq!(kubelet_endpoint(Path::new("/csi/csi.sock"), dir, &name), Path::new(own));
        let other = Path::new("/var/lib/kubelet/x.sock");
        assert_eq!(kubelet_endpoint(other, dir, &name), other);
    }
}
