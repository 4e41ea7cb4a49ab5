//! The private libvirt daemon: its configuration, and keeping it alive.
//!
//! It runs in session mode, as the launcher's own user and without any privilege. It may die or hang at any time: QEMU is
//! not its child, and a new daemon finds the running guest again.
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

use launcher_contract::sockets;
use parking_lot::Mutex;
use rustix::process::Signal;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::unix::pipe;
use tokio::time::Instant;

use crate::children::{Children, Handle};

/// A daemon that ends sooner than this after its start is not started again at once.
const SHORT_LIFE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_secs(1);

/// Directories of the daemon, by their XDG names.
#[derive(Debug, Clone)]
pub(crate) struct Dirs {
    pub(crate) config: PathBuf,
    pub(crate) runtime: PathBuf,
}

impl Dirs {
    pub(crate) fn socket(&self) -> PathBuf {
        self.runtime.join("libvirt").join(sockets::LIBVIRT)
    }

    /// Where libvirt notes the pid of a domain's QEMU.
    pub(crate) fn pid_file(&self, domain: &str) -> PathBuf {
        self.runtime.join("libvirt/qemu/run").join(format!("{domain}.pid"))
    }
}

/// The driver's configuration. Ownership, namespaces, control groups and labels are the Pod's business; QEMU's output goes
/// to a file because there is no virtlogd here.
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

/// The daemon takes this many calls of one client at a time. The default of 5 would let a guest agent that does not
/// answer hold up the order to end the guest.
const MAX_CLIENT_REQUESTS: u32 = 20;

/// Writes the daemon's configuration. `host_uuid` must differ between launchers: libvirt refuses to migrate between two
/// daemons with the same one, and on one machine all would read the same from the firmware.
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

/// The daemon under supervision.
#[derive(Clone, Default)]
pub(crate) struct Libvirtd(Arc<Mutex<Option<Handle>>>);

impl Libvirtd {
    /// Ends a daemon that no longer answers; the supervision starts another one.
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

    /// Runs the daemon for ever.
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
        .env("XDG_CONFIG_HOME", &dirs.config)
        .env("XDG_CACHE_HOME", dirs.config.join(".cache"))
        .env("XDG_RUNTIME_DIR", &dirs.runtime)
        .stdin(Stdio::null())
        .stderr(Stdio::piped());
    command
}

/// Functions of libvirt that complain at every start about what a container does not have and a guest does not need:
/// a message bus, firmware tables, host devices, a DHCP program. In the log they would pass for the cause of whatever
/// went wrong.
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

/// Puts what the daemon says into the launcher's log.
async fn pass_on(stderr: OwnedFd) {
    let pipe = match pipe::Receiver::from_owned_fd(stderr) {
        Ok(pipe) => pipe,
        Err(error) => return tracing::warn!(%error, "cannot read libvirtd's messages"),
    };
    let mut reader = BufReader::with_capacity(1024, pipe);
    let mut line = Vec::new();
    // A longer line comes out in pieces; libvirt quotes what others have written.
    while let Ok(1..) = (&mut reader).take(LINE_MAX).read_until(b'\n', &mut line).await {
        let text = String::from_utf8_lossy(&line);
        if !is_harmless(&text) {
            tracing::warn!("libvirtd: {}", text.trim_end());
        }
        line.clear();
    }
}

/// A line reads `TIME: THREAD: LEVEL : FUNCTION:LINE : TEXT`; introductions have the level `info`.
fn is_harmless(line: &str) -> bool {
    let mut parts = line.split(" : ");
    let level = parts.next().and_then(|start| start.rsplit(' ').next()).unwrap_or_default();
    let function = parts.next().and_then(|function| function.split(':').next()).unwrap_or_default();
    level == "info" || HARMLESS.contains(&function) || line.trim().is_empty()
}

/// Where libvirt looks for QEMU and its helpers, whatever the launcher's own path is.
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
