//! The private libvirt daemon: its configuration and supervision.
//!
//! It runs in session mode, as the launcher's own user and without privileges. It may die or hang at any time: QEMU is
//! not its child, and a restarted daemon reconnects to the running guest.
//!
//! ```text
//!   start ──► running ──exit──► pause (0 or 1 s) ──► start
//!                └── connection says "hung" ──► SIGKILL ──► exit
//! ```

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use launcher_contract::{sockets, variables};
use parking_lot::Mutex;
use rustix::process::Signal;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::unix::pipe;
use tokio::time::Instant;

use crate::children::{Children, Handle};

/// A daemon that exits sooner than this after its start is restarted with a delay.
const SHORT_LIFE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_secs(1);

/// The daemon's directories, by their XDG names.
#[derive(Debug, Clone)]
pub(crate) struct Dirs {
    pub(crate) config: PathBuf,
    pub(crate) runtime: PathBuf,
}

impl Dirs {
    pub(crate) fn socket(&self) -> PathBuf {
        self.runtime.join("libvirt").join(sockets::LIBVIRT)
    }

    /// Where libvirt writes the PID of a domain's QEMU.
    pub(crate) fn pid_file(&self, domain: &str) -> PathBuf {
        self.runtime.join("libvirt/qemu/run").join(format!("{domain}.pid"))
    }
}

/// Configuration of the QEMU driver. Ownership, namespaces, cgroups and labels are handled by the Pod; QEMU's output
/// goes to a file because there is no virtlogd.
const QEMU_CONF: &str = r#"stdio_handler = "file"
security_driver = "none"
dynamic_ownership = 0
remember_owner = 0
namespaces = [ ]
cgroup_controllers = [ ]
vnc_listen = "127.0.0.1"
vnc_tls = 0
vnc_sasl = 0
"#;

/// Maximum number of concurrent calls per client. With the default of 5, a guest agent that does not answer could block
/// the call that kills the guest.
const MAX_CLIENT_REQUESTS: u32 = 20;

/// Writes the daemon's configuration. `host_uuid` must differ between launchers: libvirt refuses to migrate between two
/// daemons with the same one, and all launchers of a machine would read the same UUID from the firmware.
pub(crate) fn configure(dirs: &Dirs, host_uuid: uuid::Uuid) -> io::Result<()> {
    let config = dirs.config.join("libvirt");
    fs::create_dir_all(&config)?;
    fs::create_dir_all(dirs.runtime.join("libvirt"))?;
    fs::write(config.join("qemu.conf"), QEMU_CONF)?;
    let daemon = format!(
        "listen_tls = 0\nlisten_tcp = 0\nauth_unix_rw = \"none\"\nauth_unix_ro = \"none\"\n\
         unix_sock_rw_perms = \"0700\"\nlog_outputs = \"3:stderr\"\nmax_client_requests = {MAX_CLIENT_REQUESTS}\n\
         host_uuid = \"{host_uuid}\"\n"
    );
    fs::write(config.join("libvirtd.conf"), daemon)
}

/// The supervised daemon.
#[derive(Clone, Default)]
pub(crate) struct Libvirtd(Arc<Mutex<Option<Handle>>>);

impl Libvirtd {
    /// Kills a daemon that no longer answers; the supervisor restarts it.
    pub(crate) fn kill(&self) {
        self.signal(Signal::KILL);
    }

    pub(crate) fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    fn signal(&self, signal: Signal) {
        if let Some(handle) = &*self.0.lock() {
            handle.signal(signal);
        }
    }

    /// Runs the daemon for ever, restarting it when it exits.
    pub(crate) async fn supervise(self, children: Children, dirs: Dirs) {
        loop {
            let started = Instant::now();
            match children.spawn(&mut command(&dirs)) {
                Ok(mut child) => {
                    if let Some(stderr) = child.stderr.take() {
                        tokio::spawn(pass_on(stderr));
                    }
                    *self.0.lock() = Some(child.handle());
                    let status = child.wait().await;
                    tracing::warn!(%status, "libvirtd exited; restarting it");
                }
                Err(error) => tracing::error!(%error, "cannot start libvirtd"),
            }
            if started.elapsed() < SHORT_LIFE {
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

fn command(dirs: &Dirs) -> Command {
    let mut command = Command::new(find("libvirtd"));
    command
        .arg("--config")
        .arg(dirs.config.join("libvirt/libvirtd.conf"))
        .env_clear()
        .env("PATH", SEARCH_PATH)
        .env("HOME", &dirs.config)
        .env(variables::XDG_CONFIG_HOME, &dirs.config)
        .env(variables::XDG_CACHE_HOME, dirs.config.join(".cache"))
        .env(variables::XDG_RUNTIME_DIR, &dirs.runtime)
        .stdin(Stdio::null())
        .stderr(Stdio::piped());
    command
}

/// libvirt functions that log an error at every start about things a container lacks and a guest does not need: D-Bus,
/// firmware tables, host devices, dnsmasq. In the log they would look like the cause of any failure.
const HARMLESS: [&str; 11] = [
    "virGDBusGetSystemBus",
    "virGDBusGetSessionBus",
    "networkStateInitialize",
    "dnsmasqCapsNewFromBinary",
    "udevGetDMIData",
    "virNetDevSendEthtoolIoctl",
    "virHostCPUGetCPUID",
    "virSecurityManagerNew",
    "qemuDomainObjTaintMsg",
    "virNetSocketReadWire",
    "qemuAgentIO",
];
const LINE_MAX: u64 = 4096;

/// Forwards the daemon's stderr to the launcher's log.
async fn pass_on(stderr: OwnedFd) {
    let pipe = match pipe::Receiver::from_owned_fd(stderr) {
        Ok(pipe) => pipe,
        Err(error) => return tracing::warn!(%error, "cannot read libvirtd's messages"),
    };
    let mut reader = BufReader::with_capacity(1024, pipe);
    let mut line = Vec::new();
    // A longer line is split; libvirt quotes text written by others.
    while let Ok(1..) = (&mut reader).take(LINE_MAX).read_until(b'\n', &mut line).await {
        let text = String::from_utf8_lossy(&line);
        if !is_harmless(&text) {
            tracing::warn!("libvirtd: {}", text.trim_end());
        }
        line.clear();
    }
}

/// Line format: `TIME: THREAD: LEVEL : FUNCTION:LINE : TEXT`; the startup banner has level `info`.
fn is_harmless(line: &str) -> bool {
    let mut parts = line.split(" : ");
    let level = parts.next().and_then(|start| start.rsplit(' ').next()).unwrap_or_default();
    let function = parts.next().and_then(|function| function.split(':').next()).unwrap_or_default();
    level == "info" || HARMLESS.contains(&function) || line.trim().is_empty()
}

/// Search path for QEMU and its helpers, whatever the launcher's own PATH is.
const SEARCH_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

fn find(program: &str) -> PathBuf {
    let candidates = SEARCH_PATH.split(':').map(|dir| Path::new(dir).join(program));
    candidates.into_iter().find(|path| path.exists()).unwrap_or_else(|| PathBuf::from(program))
}

#[cfg(test)]
mod tests {
    use super::is_harmless;

    #[test]
    fn only_the_known_noise_is_left_out() {
        for (line, harmless) in [
            ("2026-11-15 23:39:07.589+0000: 79: info : libvirt version: 9.0.0", true),
            (
                "2026-11-15 23:39:07.690+0000: 82: error : virNetDevSendEthtoolIoctl:3034 : ethtool ioctl error on ifb0",
                true,
            ),
            ("2026-11-15 23:39:07.690+0000: 82: error : qemuProcessReportLogError:1900 : internal error: gone", false),
            ("2026-11-15 23:39:07.690+0000: 82: error : x:1 : virGDBusGetSystemBus", false),
            ("(process:56): GLib-GObject-CRITICAL **: something", false),
            ("\n", true),
            ("", true),
        ] {
            assert_eq!(is_harmless(line), harmless, "{line:?}");
        }
    }
}
