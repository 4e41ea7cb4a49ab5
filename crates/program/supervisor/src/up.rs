//! `ferrovirt up`: the embedded cluster, in the foreground or detached.

use std::fs::OpenOptions;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use terminal::Progress;
use terminal::signals;

use crate::cluster::layout::{DEFAULT_DATA_DIR, Layout};
use crate::cluster::lock::Lock;
use crate::cluster::{Cluster, Options, preflight};
use crate::guests;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Number of nodes; an existing cluster can only grow [default: 1, or the current number]
    #[arg(long)]
    nodes: Option<u8>,
    /// Data directory of the cluster
    #[arg(long, env = "FERROVIRT_DATA_DIR", default_value = DEFAULT_DATA_DIR)]
    data_dir: PathBuf,
    /// Port of the API server on 127.0.0.1; 0 picks a free port [default: 6443, or the previous one]
    #[arg(long)]
    port: Option<u16>,
    /// Run in the background; return when the cluster is ready
    #[arg(long)]
    detach: bool,
    /// Import the test guest's images from this directory (made by `make guest`)
    #[arg(long, value_name = "DIR")]
    import_guest: Option<PathBuf>,
}

/// The line with which a detached supervisor reports that it is ready.
pub const READY: &str = "ready";

pub(crate) async fn run(args: Args) -> Result<()> {
    preflight::check(&args.data_dir)?;
    let layout = Layout::new(std::path::absolute(&args.data_dir).context("cannot resolve --data-dir")?);
    if args.detach {
        return detach(&args, &layout);
    }
    let mut progress = Progress::default();
    if let Some(dir) = &args.import_guest {
        guests::import(&layout, dir)?;
    }
    let options = Options { layout: layout.clone(), nodes: args.nodes, port: args.port, hold_starts: false };
    let mut cluster = tokio::select! {
        cluster = Cluster::start(options, &mut progress) => cluster?,
        () = signals::terminated() => bail!("interrupted during start; run `ferrovirt down` to clean up"),
    };
    progress.done("cluster ready");
    eprintln!("export KUBECONFIG={}", layout.kubeconfig().display());
    tell_starter();
    tokio::select! {
        () = signals::terminated() => {}
        err = cluster.failed() => {
            cluster.stop().await;
            return Err(err);
        }
    }
    let running = guests::running(&cluster.admin).await;
    cluster.stop().await;
    eprintln!("{}", farewell(running, layout.root()));
    Ok(())
}

fn farewell(running: Option<usize>, root: &Path) -> String {
    let guests = match running {
        Some(0) => return "the cluster has stopped; no guest was running".to_owned(),
        Some(1) => "1 guest keeps running".to_owned(),
        Some(count) => format!("{count} guests keep running"),
        None => "guests, if any, keep running".to_owned(),
    };
    let flag = match root == Path::new(DEFAULT_DATA_DIR) {
        true => String::new(),
        false => format!(" --data-dir {}", root.display()),
    };
    format!(
        "the cluster has stopped; {guests}: `ferrovirt up{flag}` takes them over again, `ferrovirt down{flag}` shuts them down"
    )
}

/// Environment variable with the descriptor of the ready pipe for a detached supervisor.
pub const READY_FD: &str = "FERROVIRT_READY_FD";

fn tell_starter() {
    let Some(fd) = std::env::var(READY_FD).ok().and_then(|fd| fd.parse::<u32>().ok()) else { return };
    // The parent may have exited; the cluster runs all the same.
    if let Ok(mut pipe) = OpenOptions::new().write(true).open(format!("/proc/self/fd/{fd}")) {
        let _ = writeln!(pipe, "{READY}");
    }
}

/// Starts the supervisor in a new session, shows its progress, and returns when it is ready.
fn detach(args: &Args, layout: &Layout) -> Result<()> {
    std::fs::create_dir_all(layout.logs()).with_context(|| format!("cannot make {}", layout.logs().display()))?;
    if Lock::is_held(layout) {
        bail!("a cluster is already running on {}; `ferrovirt status` shows it", layout.root().display());
    }
    let log_path = layout.logs().join("up.log");
    let log = OpenOptions::new().create(true).append(true).open(&log_path).context("cannot open the log")?;
    let (read, write) = std::io::pipe().context("cannot make a pipe")?;
    let exe = std::env::current_exe().context("cannot find this program's own file")?;
    let mut command = std::process::Command::new(exe);
    command.arg("up").arg("--data-dir").arg(layout.root());
    for (flag, value) in [("--nodes", args.nodes.map(u16::from)), ("--port", args.port)] {
        if let Some(value) = value {
            command.args([flag, &value.to_string()]);
        }
    }
    if let Some(dir) = &args.import_guest {
        command.arg("--import-guest").arg(dir);
    }
    // Pass the pipe as standard output: descriptor 1 is always inherited.
    command.env(READY_FD, "1").stdin(Stdio::null()).stdout(Stdio::from(write)).stderr(Stdio::from(log));
    // SAFETY: setsid is async-signal-safe and does not affect the parent.
    unsafe {
        command.pre_exec(|| rustix::process::setsid().map(|_| ()).map_err(Into::into));
    }
    let mut child = command.spawn().context("cannot start the supervisor")?;
    drop(command);
    let ready = BufReader::new(read).lines().map_while(Result::ok).any(|line| line == READY);
    if ready {
        eprintln!("cluster ready, running as process {}; log: {}", child.id(), log_path.display());
        eprintln!("export KUBECONFIG={}", layout.kubeconfig().display());
        return Ok(());
    }
    let status = child.wait().context("cannot wait for the supervisor")?;
    let last = std::fs::read_to_string(&log_path).unwrap_or_default();
    let reason = last.lines().rev().find(|line| line.starts_with("error: ")).unwrap_or("see the log").to_owned();
    bail!("the cluster did not start ({status}): {}; log: {}", reason.trim_start_matches("error: "), log_path.display())
}
