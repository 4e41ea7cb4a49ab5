//! The node processes: one `ferrovirt node` per node, in the node's netns.
//!
//! A node process holds the read end of a pipe whose write end belongs to the supervisor: when the supervisor dies,
//! however it dies, the node sees EOF and exits too. The Pods keep running without both.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use hostfs::process::ProcessId;
use machinery::identity::NODE_GROUP_PREFIX;
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;

use super::fabric;
use super::identities::{HANDLER_SERVER_NAME, HANDLER_USER};
use super::kubeconfig;
use super::layout::Layout;
use super::pki::{Pki, Subject};
use super::record::{FABRIC_ADDRESS, FABRIC_API_PORT, NodeRecord, Record};

/// Minimum restart delay of a node that keeps dying.
const RESTART_DELAY: Duration = Duration::from_secs(1);
/// Stop timeout; node processes hold no guests, so they are killed afterwards.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// File names below a node's directory.
pub mod files {
    pub const RUNNER_KUBECONFIG: &str = "kubeconfig";
    pub const HANDLER_KUBECONFIG: &str = "handler.kubeconfig";
    pub const CA: &str = "ca.crt";
    pub const HANDLER_CERT: &str = "handler.crt";
    pub const HANDLER_KEY: &str = "handler.key";
}

/// Writes each node's credentials.
pub fn write_credentials(layout: &Layout, record: &Record, pki: &Pki) -> Result<()> {
    let url = format!("https://{FABRIC_ADDRESS}:{FABRIC_API_PORT}");
    for node in &record.nodes {
        let dir = layout.node(&node.name);
        for made in [&dir, &layout.pods(&node.name), &layout.handler_private(&node.name), &layout.logs()] {
            std::fs::create_dir_all(made).with_context(|| format!("cannot make {}", made.display()))?;
        }
        let runner = Subject {
            common_name: &format!("system:node:{}", node.name),
            organization: Some("system:nodes"),
            serves: &[],
        };
        let handler = Subject {
            common_name: HANDLER_USER,
            organization: Some(&format!("{NODE_GROUP_PREFIX}{}", node.name)),
            serves: &[],
        };
        for (name, subject, file) in [
            (format!("node-{}", node.name), &runner, files::RUNNER_KUBECONFIG),
            (format!("handler-{}", node.name), &handler, files::HANDLER_KUBECONFIG),
        ] {
            let document = kubeconfig::document(&url, pki.ca_pem(), &pki.pair(&name, subject)?);
            kubeconfig::write(&dir.join(file), &document)?;
        }
        let (address, uri) = (node.address().to_string(), role_tls::node_uri(&node.name));
        let server = Subject {
            common_name: HANDLER_SERVER_NAME,
            organization: None,
            serves: &[address.as_str(), HANDLER_SERVER_NAME, uri.as_str()],
        };
        // Another name than before certificates named their node: those are not taken any more.
        let pair = pki.pair(&format!("virt-handler-{}", node.name), &server)?;
        for (file, text, mode) in [
            (files::CA, pki.ca_pem(), 0o644),
            (files::HANDLER_CERT, pair.cert.as_str(), 0o644),
            (files::HANDLER_KEY, pair.key.as_str(), 0o600),
        ] {
            let path = dir.join(file);
            hostfs::atomic::write_mode(&path, text.as_bytes(), mode)
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
    Ok(())
}

/// Kills node processes that a killed supervisor left behind, identified by PID and start time.
pub fn end_leftovers(record: &mut Record) -> Result<()> {
    for node in &mut record.nodes {
        if let Some(process) = node.process.take() {
            end(&process).with_context(|| format!("node {} (process {}) does not exit", node.name, process.pid))?;
        }
    }
    Ok(())
}

fn end(process: &ProcessId) -> Result<()> {
    for signal in [rustix::process::Signal::TERM, rustix::process::Signal::KILL] {
        if !process.alive() {
            return Ok(());
        }
        process.signal(signal)?;
        if process.wait_gone(END_TIMEOUT)? {
            return Ok(());
        }
    }
    bail!("still running after SIGKILL")
}

/// The running node processes and the pipes that tie them to the supervisor.
#[derive(Debug)]
pub struct NodeProcesses {
    monitors: Vec<tokio::task::JoinHandle<()>>,
    failures: tokio::sync::mpsc::Receiver<(String, String)>,
    stop: CancellationToken,
}

impl NodeProcesses {
    pub fn start(layout: &Layout, record: &mut Record, shutdown: &CancellationToken) -> Result<Self> {
        let (report, failures) = tokio::sync::mpsc::channel(16);
        let stop = shutdown.child_token();
        let mut monitors = Vec::new();
        for index in 0..record.nodes.len() {
            let node = record.nodes[index].clone();
            let running = Running::spawn(layout, &node)?;
            record.nodes[index].process = running.id;
            record.save(layout)?;
            monitors.push(tokio::spawn(monitor(layout.clone(), node, running, report.clone(), stop.clone())));
        }
        Ok(Self { monitors, failures, stop })
    }

    /// Resolves when a node process has died by itself, with the node's name and the reason.
    pub async fn failed(&mut self) -> (String, String) {
        match self.failures.recv().await {
            Some(failure) => failure,
            None => std::future::pending().await,
        }
    }

    pub async fn stop(&mut self) {
        self.stop.cancel();
        for monitor in self.monitors.drain(..) {
            // A monitor that panicked has nothing left to stop: its pipe was closed with it.
            let _ = monitor.await;
        }
    }
}

struct Running {
    child: Child,
    id: Option<ProcessId>,
    /// Closed to make the node exit.
    control: Option<OwnedFd>,
}

impl Running {
    fn spawn(layout: &Layout, node: &NodeRecord) -> Result<Self> {
        let exe = std::env::current_exe().context("cannot find this program's own file")?;
        let netns = fabric::namespace(layout, &node.name)?;
        let log = open_log(layout, &node.name)?;
        let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).context("cannot make a pipe")?;
        let mut command = std::process::Command::new(exe);
        command
            .args(["node", "--name", &node.name, "--index", &node.index.to_string(), "--data-dir"])
            .arg(layout.root())
            .stdin(Stdio::from(read))
            .stdout(Stdio::from(log.try_clone().context("cannot duplicate the log's descriptor")?))
            .stderr(Stdio::from(log))
            // Not in the terminal's foreground process group: Ctrl-C is for the supervisor, which then stops the nodes.
            .process_group(0);
        // SAFETY: only setns runs between fork and exec, which is async-signal-safe; the descriptor outlives the call.
        unsafe {
            command.pre_exec(move || match libc::setns(netns.as_raw_fd(), libc::CLONE_NEWNET) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            });
        }
        let child = Command::from(command).spawn().with_context(|| format!("cannot start node {}", node.name))?;
        let id = child.id().and_then(|pid| ProcessId::of(pid.cast_signed()).ok());
        Ok(Self { child, id, control: Some(write) })
    }
}

fn open_log(layout: &Layout, node: &str) -> Result<File> {
    let path = layout.logs().join(format!("node-{node}.log"));
    OpenOptions::new().create(true).append(true).open(&path).with_context(|| format!("cannot open {}", path.display()))
}

/// Keeps one node running until it is told to stop.
async fn monitor(
    layout: Layout,
    node: NodeRecord,
    mut running: Running,
    report: tokio::sync::mpsc::Sender<(String, String)>,
    stop: CancellationToken,
) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return leave(running).await,
            status = running.child.wait() => {
                let how = status.map_or_else(|err| err.to_string(), |status| status.to_string());
                tracing::warn!(node = node.name, how, "node process exited; restarting it");
                // Nobody receives this after startup; then the restart below is all that happens.
                let _ = report.try_send((node.name.clone(), how));
            }
        }
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(RESTART_DELAY) => {}
            }
            match Running::spawn(&layout, &node) {
                Ok(next) => {
                    running = next;
                    break;
                }
                Err(err) => tracing::error!(node = node.name, error = format!("{err:#}"), "node does not start"),
            }
        }
        if let Err(err) = remember(&layout, &node.name, running.id) {
            tracing::error!(node = node.name, error = format!("{err:#}"), "the cluster record could not be updated");
        }
    }
}

fn remember(layout: &Layout, node: &str, id: Option<ProcessId>) -> Result<()> {
    let mut record = Record::load(layout)?.unwrap_or_default();
    if let Some(entry) = record.nodes.iter_mut().find(|entry| entry.name == node) {
        entry.process = id;
    }
    record.save(layout)
}

async fn leave(mut running: Running) {
    drop(running.control.take());
    if tokio::time::timeout(END_TIMEOUT, running.child.wait()).await.is_err() {
        // It holds no guests: killing it loses nothing.
        let _ = running.child.kill().await;
    }
}
