//! A container's worth of namespaces around one real launcher, in the directory of a Pod.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;

use launcher_contract::types::LauncherState;
use launcher_rpc::Client;
use parking_lot::Mutex;
use test_support::namespaces;

/// What the Pod runner would have prepared; then this program as process 1 of its own.
const SCRIPT: &str = r#"
V="$P/volumes/kubernetes.io~empty-dir"
mkdir -p $D/run $D/kernel/boot
for v in private public sockets libvirt-runtime ephemeral-disks; do mkdir -p "$V/$v"; chown 107:107 "$V/$v"; done
make_pod $IP
cp $E $D/run/virt-launcher
mount --bind $D/run /run
cp $G/vmlinuz $G/initrd.gz $D/kernel/boot/
mkdir -p /run/kubevirt-kernel-boot /run/kubevirt-private /run/kubevirt /run/libvirt /run/kubevirt-ephemeral-disks
mount --bind $D/kernel /run/kubevirt-kernel-boot; mount -o remount,bind,ro /run/kubevirt-kernel-boot
mount --bind "$V/private" /run/kubevirt-private; mount --bind "$V/public" /run/kubevirt
mkdir -p /run/kubevirt/sockets; mount --bind "$V/sockets" /run/kubevirt/sockets
mount --bind "$V/libvirt-runtime" /run/libvirt; mount --bind "$V/ephemeral-disks" /run/kubevirt-ephemeral-disks
chown 107:107 /run
exec_launcher /run/virt-launcher --name testvm --namespace default --uid $VMI_UID --qemu-timeout 240s --grace-period-seconds 10 --image-volume --allow-emulation
"#;

/// Why the tests cannot run here.
pub(crate) fn missing() -> Option<String> {
    namespaces::missing(&["libvirtd", "qemu-system-x86_64", "qemu-img", "ip", "nft"])
        .or_else(|| namespaces::missing_of_guest(&["vmlinuz", "initrd.gz"]))
}

/// A launcher's Pod on a node. Everything in it ends with it.
pub(crate) struct Pod {
    pub(crate) uid: String,
    pub(crate) name: String,
    pub(crate) node: String,
    vmi_uid: String,
    dir: PathBuf,
    scratch: tempfile::TempDir,
    namespace: Child,
}

impl Pod {
    pub(crate) fn start(pods: &Path, node: &str, number: u32, vmi_uid: &str) -> Pod {
        let uid = format!("0b0e7c3a-0000-4000-8000-{number:012}");
        let name = format!("virt-launcher-testvm-{number}");
        let dir = pods.join(&uid);
        std::fs::create_dir_all(&dir).unwrap();
        let scratch = tempfile::Builder::new().prefix("vm").tempdir_in("/tmp").unwrap();
        let log = std::fs::File::create(scratch.path().join("log")).unwrap();
        let namespace = namespaces::unshare(SCRIPT, scratch.path())
            .env("P", &dir)
            .env("E", std::env::current_exe().unwrap())
            .env("G", namespaces::guest_dir())
            .env("VMI_UID", vmi_uid)
            .env("POD", &name)
            .env("IP", format!("10.244.1.{}", 6 + number))
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        Pod { uid, name, node: node.to_owned(), vmi_uid: vmi_uid.to_owned(), dir, scratch, namespace }
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.scratch.path().join("log")).unwrap_or_default()
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.namespace.try_wait().unwrap().is_some()
    }

    /// Process 1 of the namespace, as this side of it calls it.
    fn init(&self) -> Option<i32> {
        let unshare = self.namespace.id();
        let children = std::fs::read_to_string(format!("/proc/{unshare}/task/{unshare}/children")).ok()?;
        children.split_whitespace().next()?.parse().ok()
    }

    /// Ends process 1 of the namespace, and with it everything inside. It does not end with `unshare`: the kernel forgets
    /// that wish when a process changes its user.
    pub(crate) fn kill(&mut self) {
        if let Some(init) = self.init().and_then(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process(init, rustix::process::Signal::KILL);
        }
        let _ = self.namespace.kill();
        let _ = self.namespace.wait();
    }

    fn volume(&self, name: &str) -> hostfs::beneath::Root {
        hostfs::beneath::Root::open(self.dir.join("volumes/kubernetes.io~empty-dir").join(name)).unwrap()
    }

    /// The launcher's state, asked past the agent; none if it does not answer.
    pub(crate) async fn state(&self) -> Option<LauncherState> {
        let stream = self.volume("sockets").connect_unix("launcher-sock").ok()?;
        stream.set_nonblocking(true).ok()?;
        let stream = Arc::new(Mutex::new(Some(stream)));
        let client = Client::new(move || {
            let stream = stream.lock().take();
            Box::pin(async move {
                let stream = stream.ok_or_else(|| std::io::Error::other("used"))?;
                tokio::net::UnixStream::from_std(stream)
            })
        });
        client.state(None, std::time::Duration::ZERO).await.ok()
    }

    /// Whether a QEMU is in this Pod whose vCPUs may run: it exists, and its domain is not known to stand still.
    pub(crate) fn runs_a_guest(&self) -> bool {
        tokio::task::block_in_place(|| {
            let state = tokio::runtime::Handle::current().block_on(self.state());
            let status = state.and_then(|state| state.domain).map(|domain| domain.status);
            status == Some(launcher_contract::types::DomainStatus::Running)
        })
    }

    /// Attaches to the guest's serial line.
    pub(crate) fn serial(&self) -> Option<Serial> {
        let stream = self.volume("private").connect_unix(format!("{}/virt-serial0", self.vmi_uid)).ok()?;
        let text = Arc::new(Mutex::new(String::new()));
        let sink = text.clone();
        let mut reader = stream.try_clone().unwrap();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = reader.read(&mut buffer) {
                sink.lock().push_str(&String::from_utf8_lossy(&buffer[..length]));
            }
        });
        Some(Serial { stream, text })
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- {} on {} ---\n{}", self.name, self.node, self.log());
        }
        self.kill();
    }
}

pub(crate) struct Serial {
    stream: std::os::unix::net::UnixStream,
    text: Arc<Mutex<String>>,
}

impl Serial {
    fn ticks(&self) -> Vec<u64> {
        let text = self.text.lock();
        let tick = |line: &str| line.trim().strip_prefix("tick ")?.split(' ').next()?.parse().ok();
        text.lines().filter_map(tick).collect()
    }

    pub(crate) fn first(&self) -> Option<u64> {
        self.ticks().first().copied()
    }

    pub(crate) fn last(&self) -> Option<u64> {
        self.ticks().last().copied()
    }
}

impl Drop for Serial {
    fn drop(&mut self) {
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }
}
