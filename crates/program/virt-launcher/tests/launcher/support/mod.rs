//! A container's worth of namespaces around one launcher, and what a test asks of it from outside.

use std::cell::RefCell;
use std::future::Future;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::v1::VirtualMachineInstance;
use launcher_contract::VmiUid;
use launcher_contract::types::{Command as Rpc, DomainStatus, LauncherState, SyncOptions};
use launcher_rpc::{Client, Error};
use parking_lot::Mutex;
use serde_json::Value;
use tempfile::TempDir;
use test_support::namespaces;

pub(crate) const UID: &str = "7c0f2ba0-8f0c-4f0e-9d2e-3f5d3a1c0001";
/// Generous: the machine may be busy with other builds.
const LIMIT: Duration = Duration::from_secs(180);

/// What a container runtime and virt-handler would have prepared; then this program as process 1 of its own.
const SCRIPT: &str = r#"
mkdir -p $D/run $D/images/kernel/boot $D/images/disk/disk $D/images/disk/bad
make_pod 10.244.1.7
chown 107:107 $D/run
mount --bind $D/run /run
cp $G/vmlinuz $G/initrd.gz $D/images/kernel/boot/
cp $G/containerdisk/disk/disk.qcow2 $D/images/disk/disk/disk.qcow2
qemu-img create -q -f qcow2 -u -b /etc/passwd -F raw $D/images/disk/bad/backed.qcow2 1M
ln -s /etc/passwd $D/images/disk/bad/link.img
mkdir -p /run/kubevirt-kernel-boot /run/kubevirt-image-volume/disk_0
mount --bind $D/images/kernel /run/kubevirt-kernel-boot; mount -o remount,bind,ro /run/kubevirt-kernel-boot
mount --bind $D/images/disk /run/kubevirt-image-volume/disk_0; mount -o remount,bind,ro /run/kubevirt-image-volume/disk_0
for d in kubevirt kubevirt/sockets kubevirt-private kubevirt-private/backend-storage-meta libvirt kubevirt-ephemeral-disks; do mkdir -p /run/$d; chown 107:107 /run/$d; done
ip link add k6t-eth0 address 02:00:00:00:00:00 mtu 1450 type bridge
ip addr add 10.0.2.1/24 dev k6t-eth0; ip link set k6t-eth0 up
ip tuntap add tap0 mode tap vnet_hdr user 107 group 107
ip link set tap0 mtu 1450 master k6t-eth0; ip link set tap0 up
C=/run/kubevirt-private/vmi-disks; mkdir $C; eval "$SETUP"
exec_launcher $E --name vm --namespace default --uid $VMI_UID --qemu-timeout $TIMEOUT --grace-period-seconds 10 --image-volume --allow-emulation
"#;

pub(crate) fn vmi_uid() -> VmiUid {
    VmiUid::new(UID).unwrap()
}

/// Why the tests cannot run here.
pub(crate) fn missing() -> Option<String> {
    namespaces::missing(&["libvirtd", "qemu-system-x86_64", "qemu-img", "nsenter", "ip"])
        .or_else(|| namespaces::missing_of_guest(&["vmlinuz", "initrd.gz", "containerdisk/disk/disk.qcow2"]))
}

/// The VMI of a test: booted from a kernel, or from a container disk.
pub(crate) fn vmi(kind: &str) -> VirtualMachineInstance {
    vmi_with(kind, "")
}

/// The same, with more words on the kernel's command line.
pub(crate) fn vmi_with(kind: &str, arguments: &str) -> VirtualMachineInstance {
    let kernel = serde_json::json!({ "kernelBoot": {
        "kernelArgs": format!("console=ttyS0 quiet no_timer_check tick=1 {arguments}"),
        "container": { "image": "guest", "kernelPath": "/boot/vmlinuz", "initrdPath": "/boot/initrd.gz" },
    }});
    let scratch = serde_json::json!({ "name": "root", "emptyDisk": { "capacity": "64Mi" } });
    let image = serde_json::json!({ "name": "root", "containerDisk": { "image": "guest" } });
    let (firmware, root) = if kind == "kernel" { (Some(kernel), scratch) } else { (None, image) };
    serde_json::from_value(serde_json::json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
        "metadata": { "name": "vm", "namespace": "default", "uid": UID },
        "spec": {
            "domain": {
                "memory": { "guest": "256Mi" },
                "firmware": firmware,
                "devices": {
                    "rng": {},
                    "disks": [{ "name": "root", "disk": { "bus": "virtio" } }, { "name": "seed", "disk": { "bus": "virtio" } }],
                    "interfaces": [{ "name": "default", "masquerade": {} }],
                },
            },
            "networks": [{ "name": "default", "pod": {} }],
            "volumes": [root, { "name": "seed", "cloudInitNoCloud": { "userData": "#!/bin/sh\necho printed by user-data\n" } }],
        },
    }))
    .expect("a VMI")
}

/// Adds a volume and its disk. `claim` is what the status says about the claim behind it.
pub(crate) fn add_disk(vmi: &mut VirtualMachineInstance, name: &str, source: Value, claim: Value) {
    let mut volume = source;
    volume["name"] = name.into();
    vmi.spec.volumes.push(serde_json::from_value(volume).expect("a volume"));
    let disk = serde_json::json!({ "name": name, "disk": { "bus": "virtio" } });
    vmi.spec.domain.devices.disks.push(serde_json::from_value(disk).expect("a disk"));
    if !claim.is_null() {
        let status = serde_json::json!({ "name": name, "target": "", "persistentVolumeClaimInfo": claim });
        vmi.status_mut().volume_status.push(serde_json::from_value(status).expect("a status"));
    }
}

/// What the guest runs when it is up.
pub(crate) fn set_script(vmi: &mut VirtualMachineInstance, script: &str) {
    let seed =
        serde_json::json!({ "name": "seed", "cloudInitNoCloud": { "userData": format!("#!/bin/sh\n{script}") } });
    vmi.spec.volumes[1] = serde_json::from_value(seed).expect("a volume");
}

pub(crate) struct Launcher {
    dir: TempDir,
    namespace: RefCell<Child>,
    runtime: tokio::runtime::Runtime,
    client: Client,
}

impl Launcher {
    pub(crate) fn start(qemu_timeout: &str) -> Launcher {
        Launcher::named("pod", qemu_timeout)
    }

    /// Launchers of one guest differ in their Pods' names.
    pub(crate) fn named(pod: &str, qemu_timeout: &str) -> Launcher {
        Launcher::with(pod, qemu_timeout, "")
    }

    /// `setup` is run as root in the launcher's namespaces before it starts; `$C` is the directory of claims.
    pub(crate) fn with(pod: &str, qemu_timeout: &str, setup: &str) -> Launcher {
        let dir = tempfile::Builder::new().prefix("vl").tempdir_in("/tmp").expect("a temporary directory");
        std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("chmod");
        let log = std::fs::File::create(dir.path().join("log")).expect("a log file");
        // The user of the launcher may not enter the directory this program was built in.
        let program = dir.path().join("virt-launcher");
        std::fs::copy(std::env::current_exe().expect("our own path"), &program).expect("a copy of this program");
        let namespace = namespaces::unshare(SCRIPT, dir.path())
            .env("E", &program)
            .env("G", namespaces::guest_dir())
            .env("VMI_UID", UID)
            .env("TIMEOUT", qemu_timeout)
            .env("POD", pod)
            .env("SETUP", setup)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a second handle of the log"))
            .stderr(log)
            .spawn()
            .expect("unshare starts");
        let socket = dir.path().join("run/kubevirt/sockets/launcher-sock");
        let client = Client::new({
            let socket = socket.clone();
            move || Box::pin(tokio::net::UnixStream::connect(socket.clone()))
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let launcher = Launcher { dir, namespace: RefCell::new(namespace), runtime, client };
        launcher.wait("the launcher's socket", || {
            let ended = launcher.namespace.borrow_mut().try_wait().expect("unshare can be waited for");
            assert!(ended.is_none(), "the launcher ended at once: {}", launcher.log());
            socket.exists().then_some(())
        });
        launcher
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    pub(crate) fn call<T, F: Future<Output = Result<T, Error>>>(
        &self,
        ask: impl FnOnce(Client) -> F,
    ) -> Result<T, Error> {
        self.runtime.block_on(ask(self.client.clone()))
    }

    pub(crate) fn state(&self) -> LauncherState {
        self.call(|client| async move { client.state(None, Duration::ZERO).await }).expect("the launcher answers")
    }

    pub(crate) fn is(&self, state: &LauncherState, status: DomainStatus) -> bool {
        state.domain.as_ref().is_some_and(|domain| domain.status == status)
    }

    pub(crate) fn sync(&self, vmi: &VirtualMachineInstance) -> Result<(), Error> {
        self.sync_with(vmi, &[])
    }

    /// With these volumes mounted for the guest beside those of the Pod.
    pub(crate) fn sync_with(&self, vmi: &VirtualMachineInstance, plugged: &[&str]) -> Result<(), Error> {
        let options = SyncOptions {
            plugged_volumes: plugged.iter().map(|name| (*name).to_owned()).collect(),
            mem_balloon_stats_period: 10,
            serial_console_log_disabled: true,
            tolerated_shortage_percent: 10,
            reserved_bytes: 131_072,
            expand_disks: true,
            ..Default::default()
        };
        self.call(|client| async move { client.sync(vmi, &options).await })
    }

    pub(crate) fn command(&self, command: Rpc) -> Result<(), Error> {
        self.call(|client| async move { client.command(command, &vmi_uid()).await })
    }

    /// Follows the state by long polls, as the handler does.
    pub(crate) fn wait_state(&self, what: &str, condition: impl Fn(&LauncherState) -> bool) -> LauncherState {
        let limit = Instant::now() + LIMIT;
        let mut state = self.state();
        while !condition(&state) {
            assert!(Instant::now() < limit, "{what} did not come; the state is {state:?}");
            let after = state.seq;
            let poll = self.call(|client| async move { client.state(Some(after), Duration::from_secs(5)).await });
            state = poll.expect("the launcher answers");
        }
        state
    }

    pub(crate) fn wait<T>(&self, what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
        let limit = Instant::now() + LIMIT;
        loop {
            if let Some(found) = probe() {
                return found;
            }
            assert!(Instant::now() < limit, "{what} did not appear; the log:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Process 1 of the launcher's namespace, by its pid out here.
    pub(crate) fn init(&self) -> u32 {
        self.try_init().expect("unshare has a child")
    }

    fn try_init(&self) -> Option<u32> {
        let unshare = self.namespace.borrow().id();
        let children = std::fs::read_to_string(format!("/proc/{unshare}/task/{unshare}/children")).ok()?;
        children.split_whitespace().next()?.parse().ok()
    }

    /// All processes of the launcher's pid namespace, by their pids out here.
    fn pids(&self) -> Vec<String> {
        let namespace = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
        let Some(ours) = self.try_init().and_then(|pid| namespace(&pid.to_string())) else { return Vec::new() };
        let entries = std::fs::read_dir("/proc").expect("/proc is there").flatten();
        entries
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|pid| pid.bytes().all(|byte| byte.is_ascii_digit()) && namespace(pid).as_ref() == Some(&ours))
            .collect()
    }

    fn find(&self, name: &str) -> Option<u32> {
        let runs = |pid: &String| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let program = line.split(|&byte| byte == 0).next().unwrap_or_default();
            String::from_utf8_lossy(program).rsplit('/').next() == Some(name)
        };
        self.pids().into_iter().find(runs).and_then(|pid| pid.parse().ok())
    }

    pub(crate) fn find_libvirtd(&self) -> Option<u32> {
        self.find("libvirtd")
    }

    pub(crate) fn libvirtd(&self) -> u32 {
        self.wait("libvirtd", || self.find_libvirtd())
    }

    pub(crate) fn find_qemu(&self) -> Option<u32> {
        self.find("qemu-system-x86_64")
    }

    pub(crate) fn qemu(&self) -> u32 {
        self.wait("QEMU", || self.find_qemu())
    }

    /// Sends a signal to a process that was found in the launcher's namespace.
    pub(crate) fn signal(&self, pid: u32, signal: &str) {
        let status = Command::new("kill").args([signal, &pid.to_string()]).status().expect("kill starts");
        assert!(status.success(), "kill {signal} {pid}");
    }

    /// Runs a script as root in the launcher's mount namespace.
    pub(crate) fn run(&self, script: &str) {
        let init = self.init().to_string();
        let status = Command::new("nsenter").args(["--target", &init, "--mount", "sh", "-ec", script]).status();
        assert!(status.expect("nsenter starts").success(), "{script}");
    }

    /// Processes of the launcher's namespace that have ended and that nobody has collected.
    pub(crate) fn zombies(&self) -> usize {
        let ended = |pid: &String| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z'))
        };
        self.pids().iter().filter(|pid| ended(pid)).count()
    }

    pub(crate) fn wait_exit(&self) -> i32 {
        self.wait("the launcher's end", || {
            let status = self.namespace.borrow_mut().try_wait().expect("unshare can be waited for");
            status.map(|status| status.code().unwrap_or(-1))
        })
    }

    /// What the launcher left for a handler that comes late.
    pub(crate) fn last_state(&self) -> Option<LauncherState> {
        let file = self.dir.path().join("run/kubevirt/sockets").join(launcher_contract::sockets::LAST_STATE);
        let text = std::fs::read(file).ok()?;
        Some(serde_json::from_slice(&text).expect("a whole state"))
    }

    pub(crate) fn image_of_container_disk(&self) -> PathBuf {
        self.dir.path().join("images/disk/disk/disk.qcow2")
    }

    /// A directory of the launcher's /run, as it is out here.
    pub(crate) fn run_dir(&self, name: &str) -> PathBuf {
        self.dir.path().join("run").join(name)
    }

    /// The guest's memory as QEMU has it, in bytes.
    pub(crate) fn memory(&self) -> u64 {
        let uri = format!("qemu+unix:///session?socket={}", self.run_dir("libvirt/libvirt-sock").display());
        let ask = ["qemu-monitor-command", "default_vm", r#"{"execute": "query-memory-size-summary"}"#];
        let output = Command::new("virsh").args(["--connect", &uri]).args(ask).output().expect("virsh starts");
        let answer: serde_json::Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
        answer["return"]["base-memory"].as_u64().unwrap_or_else(|| panic!("QEMU says {answer}"))
    }

    fn private(&self, name: &str) -> PathBuf {
        self.dir.path().join("run/kubevirt-private").join(UID).join(name)
    }

    /// Attaches to the guest's serial line.
    pub(crate) fn serial(&self) -> Serial {
        let path = self.private("virt-serial0");
        let stream = self.wait("the serial socket", || UnixStream::connect(&path).ok());
        let text = Arc::new(Mutex::new(String::new()));
        let sink = text.clone();
        let mut reader = stream.try_clone().expect("a second handle of the socket");
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = reader.read(&mut buffer) {
                sink.lock().push_str(&String::from_utf8_lossy(&buffer[..length]));
            }
        });
        Serial { stream, text }
    }

    pub(crate) fn vnc_greeting(&self) -> [u8; 3] {
        let mut greeting = [0; 3];
        let mut stream = UnixStream::connect(self.private("virt-vnc")).expect("the VNC socket");
        stream.read_exact(&mut greeting).expect("a greeting");
        greeting
    }

    /// Prints what launcher and libvirt take besides QEMU.
    pub(crate) fn report_memory(&self) {
        for (name, pid) in [("virt-launcher", self.init()), ("libvirtd", self.libvirtd()), ("QEMU", self.qemu())] {
            let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
            let field = |key: &str| rollup.lines().find(|line| line.starts_with(key)).unwrap_or_default().to_owned();
            eprintln!("{name}: {} {}", field("Rss:"), field("Pss:"));
        }
    }
}

impl Drop for Launcher {
    fn drop(&mut self) {
        // Process 1 of the namespace takes everything inside along, mounts included. It does not end with unshare: the
        // kernel forgets that wish when a process changes its user.
        if let Some(init) = self.try_init() {
            let _ = Command::new("kill").args(["-KILL", &init.to_string()]).status();
        }
        let mut namespace = self.namespace.borrow_mut();
        let _ = namespace.kill();
        let _ = namespace.wait();
    }
}

pub(crate) struct Serial {
    stream: UnixStream,
    text: Arc<Mutex<String>>,
}

impl Serial {
    pub(crate) fn text(&self) -> String {
        self.text.lock().clone()
    }

    /// The last number that was printed after this word.
    pub(crate) fn last(&self, word: &str) -> u64 {
        let text = self.text();
        let mut numbers = text.lines().filter_map(|line| line.trim().strip_prefix(word)?.trim().parse().ok());
        numbers.next_back().unwrap_or_default()
    }

    pub(crate) fn wait_for(&self, expected: &str) {
        let limit = Instant::now() + LIMIT;
        loop {
            let text = self.text.lock().clone();
            if text.contains(expected) {
                return;
            }
            assert!(Instant::now() < limit, "{expected:?} was not printed; the guest said:\n{text}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for Serial {
    fn drop(&mut self) {
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }
}
