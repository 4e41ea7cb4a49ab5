//! A private libvirt daemon in session mode: own namespaces, own files, gone with the test.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use test_support::namespaces::{missing, unshare};
use test_support::until;

/// Builds the daemon's world: a `/dev`, a user for the uid, writable `/run`. The shell stays as process 1 and reaps what
/// libvirt's probes leave behind.
const SCRIPT: &str = r#"
mkdir -p $D/run $D/home/libvirt
make_dev
mount -t tmpfs -o mode=755,size=1m run /run
add_qemu $D/home
cat > $D/home/libvirt/qemu.conf <<C
stdio_handler = "file"
security_driver = "none"
dynamic_ownership = 0
remember_owner = 0
namespaces = [ ]
cgroup_controllers = [ ]
C
printf 'log_outputs = "3:stderr"\n' > $D/home/libvirt/libvirtd.conf
chown -R 107:107 $D/run $D/home
export HOME=$D/home XDG_RUNTIME_DIR=$D/run XDG_CONFIG_HOME=$D/home XDG_CACHE_HOME=$D/home/.cache
setpriv --reuid 107 --regid 107 --clear-groups --no-new-privs libvirtd &
echo $! > $D/daemon.pid
while :; do wait || :; sleep 0.1; done
"#;

pub(crate) struct Daemon {
    dir: TempDir,
    namespace: Child,
}

impl Daemon {
    /// `None`, with a message, on a machine that cannot run one.
    pub(crate) fn start() -> Option<Daemon> {
        if let Some(missing) = missing(&["libvirtd", "qemu-system-x86_64"]) {
            test_support::skip(&missing);
            return None;
        }
        let dir = tempfile::Builder::new().prefix("lv").tempdir_in("/tmp").expect("a temporary directory");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(dir.path(), mode).expect("the daemon's user may enter its directory");
        let log = std::fs::File::create(dir.path().join("log")).expect("a log file");
        let namespace = unshare(SCRIPT, dir.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a second handle of the log"))
            .stderr(log)
            .spawn()
            .expect("unshare starts");
        let daemon = Daemon { dir, namespace };
        let listens = || std::os::unix::net::UnixStream::connect(daemon.socket()).is_ok();
        until(Duration::from_secs(60), "the daemon's socket", listens);
        Some(daemon)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.path().join("run/libvirt/libvirt-sock")
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Sends a signal to libvirtd itself, known by its pid in its own namespace.
    pub(crate) fn signal(&self, signal: &str) {
        let inner = std::fs::read_to_string(self.path().join("daemon.pid")).expect("the daemon's pid is recorded");
        // `unshare --fork` has exactly one child: process 1 of the namespace, whose namespace we enter.
        let unshare = self.namespace.id();
        let children = std::fs::read_to_string(format!("/proc/{unshare}/task/{unshare}/children")).expect("children");
        let init = children.split_whitespace().next().expect("unshare has a child");
        let status = Command::new("nsenter")
            .args(["--target", init, "--pid", "--mount", "kill", signal, inner.trim()])
            .status()
            .expect("nsenter starts");
        assert!(status.success(), "kill {signal} failed");
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the daemon's log:\n{}", std::fs::read_to_string(self.path().join("log")).unwrap_or_default());
        }
        // Ends the namespace's process 1 and with it everything inside; mounts go with the mount namespace.
        let _ = self.namespace.kill();
        let _ = self.namespace.wait();
    }
}
