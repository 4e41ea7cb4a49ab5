//! A cluster as a child process that is always removed afterwards.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use supervisor::cluster::kubeconfig;
use supervisor::cluster::layout::Layout;
use supervisor::up::{READY, READY_FD};

/// `ferrovirt up` with its own data directory.
#[derive(Debug)]
pub struct Embedded {
    exe: PathBuf,
    layout: Layout,
    supervisor: Option<Child>,
    nodes: u8,
}

/// The program and the directories of a cluster.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) exe: PathBuf,
    pub(super) layout: Layout,
}

impl Embedded {
    /// Starts a cluster and returns when it is ready. The path of the data directory must be short: Unix sockets live
    /// below it.
    pub async fn start(exe: &Path, data_dir: &Path, nodes: u8, guest: Option<&Path>) -> Result<Self> {
        let mut cluster = Self { exe: exe.to_owned(), layout: Layout::new(data_dir), supervisor: None, nodes };
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
        let mut command = Command::new(&self.exe);
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
            .with_context(|| format!("cannot start {}", self.exe.display()))?;
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

    pub fn exe(&self) -> &Path {
        &self.exe
    }

    /// Where the Pods of this cluster are, as an owned value.
    pub(super) fn place(&self) -> Place {
        Place { exe: self.exe.clone(), layout: self.layout.clone() }
    }

    /// A client with admin rights.
    pub async fn client(&self) -> Result<kube::Client> {
        kubeconfig::client_from_file(&self.layout.kubeconfig()).await
    }

    /// A command of the program, with this cluster's kubeconfig.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.exe);
        command.args(args).env("KUBECONFIG", self.layout.kubeconfig());
        command
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
        let mut command = Command::new(&self.exe);
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
