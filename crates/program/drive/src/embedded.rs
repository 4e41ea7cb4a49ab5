//! A cluster as a child process that is always removed afterwards.

use std::io::{BufRead as _, BufReader};
use std::ops::Deref;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use supervisor::cluster::layout::Layout;
use supervisor::up::{READY, READY_FD};

use super::{Access, Nodes, PodPlace};

/// `ferrovirt up` with its own data directory.
#[derive(Debug)]
pub struct Embedded {
    access: Access,
    layout: Layout,
    supervisor: Option<Child>,
    nodes: u8,
}

/// Its Pods are below its data directory.
#[derive(Debug)]
struct EmbeddedNodes {
    exe: PathBuf,
    layout: Layout,
}

impl Nodes for EmbeddedNodes {
    fn pods(&self, node: &str) -> PathBuf {
        self.layout.pods(node)
    }

    fn client_spec(&self) -> Value {
        json!({"containers": [{"name": "client", "image": "ferrovirt.io/host", "command": ["sleep", "infinity"]}]})
    }

    fn run_in_pod(&self, pod: &PodPlace, argv: &[String]) -> Result<Output> {
        Ok(pod_runner::exec_in_pod(&self.exe, &self.pods(&pod.node), &pod.uid, "client", argv)?)
    }
}

impl Deref for Embedded {
    type Target = Access;

    fn deref(&self) -> &Access {
        &self.access
    }
}

impl Embedded {
    /// Starts a cluster and returns when it is ready. The path of the data directory must be short: Unix sockets live
    /// below it.
    pub async fn start(exe: &Path, data_dir: &Path, nodes: u8, guest: Option<&Path>) -> Result<Self> {
        let layout = Layout::new(data_dir);
        let below = Arc::new(EmbeddedNodes { exe: exe.to_owned(), layout: layout.clone() });
        let access = Access::new(exe.to_owned(), layout.kubeconfig(), below);
        let mut cluster = Self { access, layout, supervisor: None, nodes };
        if let Some(guest) = guest {
            supervisor::guests::import(&cluster.layout, guest)?;
        }
        cluster.up().await?;
        Ok(cluster)
    }

    /// Restarts the supervisor after it was stopped or killed.
    pub async fn up(&mut self) -> Result<()> {
        let log = self.layout.root().join("up.log");
        std::fs::create_dir_all(self.layout.root())
            .with_context(|| format!("cannot make {}", self.layout.root().display()))?;
        let stderr = std::fs::File::options().create(true).append(true).open(&log).context("cannot open a log")?;
        let mut command = Command::new(self.exe());
        command.args(["up", "--nodes", &self.nodes.to_string(), "--data-dir"]).arg(self.layout.root());
        if supervisor::cluster::record::Record::load(&self.layout)?.is_none() {
            command.args(["--port", "0"]);
        }
        let mut child = command
            .env(READY_FD, "1")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {}", self.exe().display()))?;
        let stdout = child.stdout.take().context("the supervisor has no standard output")?;
        self.supervisor = Some(child);
        let ready = tokio::task::spawn_blocking(move || {
            BufReader::new(stdout).lines().map_while(Result::ok).any(|line| line == READY)
        })
        .await
        .context("the reader of the supervisor's output panicked")?;
        if !ready {
            let text = std::fs::read_to_string(&log).unwrap_or_default();
            let tail: Vec<&str> = text.lines().rev().take(5).collect();
            bail!("the cluster did not start: {}", tail.into_iter().rev().collect::<Vec<_>>().join(" | "));
        }
        Ok(())
    }

    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Kills the supervisor, like a crash.
    pub fn kill(&mut self) -> Result<()> {
        self.end(Signal::KILL)
    }

    /// Stops the supervisor, like a service manager.
    pub fn terminate(&mut self) -> Result<()> {
        self.end(Signal::TERM)
    }

    fn end(&mut self, signal: Signal) -> Result<()> {
        let Some(mut child) = self.supervisor.take() else { return Ok(()) };
        let pid = Pid::from_raw(child.id().cast_signed()).context("the supervisor has no pid")?;
        // The child has not been reaped, so its PID cannot have been reused.
        kill_process(pid, signal).context("cannot signal the supervisor")?;
        child.wait().context("cannot wait for the supervisor")?;
        Ok(())
    }

    /// Shuts everything down and removes the data directory.
    pub async fn down(&mut self) -> Result<()> {
        self.take_away(&["--purge"]).await
    }

    async fn take_away(&mut self, flags: &[&str]) -> Result<()> {
        let mut command = self.down_command(flags);
        let output = tokio::task::spawn_blocking(move || command.output())
            .await
            .context("the thread that runs `down` panicked")?
            .context("cannot run `down`")?;
        if let Some(mut child) = self.supervisor.take() {
            child.wait().context("cannot wait for the supervisor")?;
        }
        if !output.status.success() {
            bail!("`down` failed: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(())
    }

    fn down_command(&self, flags: &[&str]) -> Command {
        let mut command = Command::new(self.exe());
        // Not in the foreground process group: interrupting the caller must not interrupt its cleanup.
        command.arg("down").args(flags).arg("--data-dir").arg(self.layout.root()).stdin(Stdio::null()).process_group(0);
        command
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        // The supervisor first, which may still be starting: then it creates nothing more.
        if let Err(err) = self.terminate() {
            eprintln!("cannot end the supervisor: {err:#}");
        }
        if !self.layout.record().exists() {
            return;
        }
        match self.down_command(&["--force", "--purge"]).output() {
            Ok(output) if output.status.success() => {}
            Ok(output) => eprintln!("cleaning up failed: {}", String::from_utf8_lossy(&output.stderr)),
            Err(err) => eprintln!("cleaning up failed: {err}"),
        }
    }
}
