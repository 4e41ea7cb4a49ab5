//! csi-sanity against our driver: file system and block volumes, on a file system with reflinks and on one without, on
//! one node and shared.

#![allow(clippy::unwrap_used, reason = "the helpers of a test may panic like the test itself")]

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;

use libtest_mimic::{Arguments, Failed, Trial};
use tempfile::TempDir;
use test_support::xfs::{Xfs, detach_loops};
use tokio_util::sync::CancellationToken;
use volumeplan::{DriverName, NodeName, Reach};
use volumes::csi::{self, DRIVER_NAME, serve};
use volumes::{Config, Engine};

const UNTESTED: &str = "the CSI driver is not judged by csi-sanity";

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // Each waits for the disk most of the time.
    arguments.test_threads = Some(1);
    let sanity = match ready() {
        Ok(Some(sanity)) => sanity,
        Ok(None) => return ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let trial = |name: &str, access: &'static str, xfs: bool, shared: bool| {
        let sanity = sanity.clone();
        Trial::test(name, move || judge(&sanity, access, xfs, shared))
    };
    let trials = vec![
        trial("file_system_volumes_without_reflinks_are_sane", "mount", false, false),
        trial("block_volumes_without_reflinks_are_sane", "block", false, false),
        trial("file_system_volumes_with_reflinks_are_sane", "mount", true, false),
        trial("block_volumes_with_reflinks_are_sane", "block", true, false),
        trial("block_volumes_of_a_shared_pool_are_sane", "block", false, true),
    ];
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// The judge's program, once this process has mounts of its own; `None` if nothing can be tested here.
fn ready() -> Result<Option<PathBuf>, String> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: {UNTESTED}: it needs root for mounts and loop devices");
        return test_support::try_skip("csi-sanity needs root").map(|()| None);
    }
    let Some(folder) = peers::build_or_skip("csi-sanity", UNTESTED)? else { return Ok(None) };
    // Nothing that a failed test leaves mounted outlives it.
    hostfs::ns::unshare(hostfs::ns::Kinds::NEWNS).map_err(|error| error.to_string())?;
    hostfs::mounts::make_private_recursive("/").map_err(|error| error.to_string())?;
    Ok(Some(folder.join("csi-sanity")))
}

/// A directory whose loop devices go with it.
struct Home(TempDir);

impl Drop for Home {
    fn drop(&mut self) {
        detach_loops(self.0.path());
    }
}

fn judge(sanity: &Path, access: &str, xfs: bool, shared: bool) -> Result<(), Failed> {
    let home = Home(tempfile::tempdir()?);
    let path = home.0.path();
    let _xfs = if xfs { Some(Xfs::mount(path, "pool", 20 << 30)?) } else { None };
    let pool = path.join("pool");
    std::fs::create_dir_all(&pool)?;
    let node = NodeName::parse("node-1")?;
    let config = Config { kubelet_dir: path.to_owned(), ..Config::local(&pool, node) };
    let config = if shared { Config { reach: Reach::Shared, ..config } } else { config };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let shutdown = CancellationToken::new();
    let settings = csi::Config {
        name: DriverName::parse(DRIVER_NAME)?,
        version: "test".to_owned(),
        endpoint: path.join("csi.sock"),
        registration: None,
    };
    let engine = Arc::new(Engine::open(config)?);
    let serving = runtime.spawn(serve(settings, engine, shutdown.clone()));
    let told = run(sanity, path, access);
    shutdown.cancel();
    runtime.block_on(serving)??;
    told?;
    // What the judge deletes is gone.
    for folder in ["volumes", "snapshots", "work"] {
        let left = std::fs::read_dir(pool.join(folder))?.count();
        if left > 0 {
            return Err(format!("{left} entries are left in {folder}").into());
        }
    }
    Ok(())
}

/// How many of its checks apply to what we offer. Left out are attaching, staging, health, modification and groups.
const JUDGED: u32 = 63;

/// Runs the judge, and shows what it has to say if it finds fault.
fn run(sanity: &Path, home: &Path, access: &str) -> Result<(), Failed> {
    let output = Command::new(sanity)
        .arg(format!("--csi.endpoint=unix://{}", home.join("csi.sock").display()))
        .arg(format!("--csi.mountdir={}", home.join("mount").display()))
        .arg(format!("--csi.stagingdir={}", home.join("staging").display()))
        .arg(format!("--csi.testvolumeaccesstype={access}"))
        .args(["--csi.testvolumesize=1073741824", "--csi.testvolumeexpandsize=2147483648", "--ginkgo.no-color"])
        .current_dir(home)
        .stdin(Stdio::null())
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let summary = text.lines().filter(|line| line.starts_with("Ran ") || line.contains(" Passed |"));
    eprintln!("csi-sanity, {access}: {}", summary.collect::<Vec<_>>().join(" "));
    // What is not offered is not judged: a capability that is lost would pass unnoticed.
    let judged = text.split_once("Ran ").and_then(|(_, rest)| rest.split(' ').next()?.parse::<u32>().ok());
    if output.status.success() && text.contains("SUCCESS!") && judged.is_some_and(|judged| judged >= JUDGED) {
        return Ok(());
    }
    Err(format!("{}\n{text}\n{}", output.status, String::from_utf8_lossy(&output.stderr)).into())
}
