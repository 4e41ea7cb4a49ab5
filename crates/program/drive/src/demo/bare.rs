//! The same guest started by libvirt alone: the baseline for a start.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use libvirt_io::{Connection, Keepalive};

use crate::FIRST_LINE;

/// Durations of a bare start.
#[derive(Clone, Copy, Debug)]
pub struct BareStart {
    /// Until the private libvirtd answered.
    pub daemon: Duration,
    /// From defining the domain, with the daemon running, to the guest's first user-space line.
    pub guest: Duration,
}

impl BareStart {
    /// A launcher starts its own libvirtd, so this total is what a start is compared with.
    pub fn total(&self) -> Duration {
        self.daemon + self.guest
    }
}

const LIMIT: Duration = Duration::from_secs(120);

/// A session daemon for uid 107 in its own namespaces, with a `/dev` without kvm: libvirt would probe a broken device
/// for half a minute. The shell stays as PID 1 and reaps.
const DAEMON: &str = r#"
set -e
mkdir -p $D/dev $D/run $D/home/libvirt
mount -t tmpfs -o mode=755,size=1m dev $D/dev
for n in null zero full random urandom; do : > $D/dev/$n; mount --bind /dev/$n $D/dev/$n; done
mkdir $D/dev/pts $D/dev/shm
mount -t devpts -o newinstance,ptmxmode=0666 devpts $D/dev/pts
ln -s pts/ptmx $D/dev/ptmx
mount --rbind $D/dev /dev
cp /etc/passwd $D/passwd; echo "qemu:x:107:107::$D/home:/bin/sh" >> $D/passwd; mount --bind $D/passwd /etc/passwd
printf 'stdio_handler = "file"\nsecurity_driver = "none"\nnamespaces = [ ]\ncgroup_controllers = [ ]\n' > $D/home/libvirt/qemu.conf
chown -R 107:107 $D/run $D/home
export HOME=$D/home XDG_RUNTIME_DIR=$D/run XDG_CONFIG_HOME=$D/home XDG_CACHE_HOME=$D/home/.cache
setpriv --reuid 107 --regid 107 --clear-groups --no-new-privs libvirtd &
while :; do wait || :; sleep 0.1; done
"#;

/// Starts the test guest's kernel with a private libvirtd and waits for its first user-space line.
pub async fn bare_start(guest: &Path) -> Result<BareStart> {
    let guest = guest.canonicalize().with_context(|| format!("cannot find {}", guest.display()))?;
    let bare = Bare::start()?;
    let started = Instant::now();
    let socket = bare.dir.join("run/libvirt/libvirt-sock");
    let connection = loop {
        let keepalive = Keepalive { interval: Duration::from_secs(5), count: 5 };
        match Connection::connect(&socket, "qemu:///session", keepalive).await {
            Ok(connection) => break connection,
            Err(err) if started.elapsed() > LIMIT => return Err(err).context("the private libvirtd does not answer"),
            Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    };
    let daemon = started.elapsed();
    let started = Instant::now();
    let domain = connection.define_xml(&bare.xml(&guest), 0).await.context("libvirt does not define the guest")?;
    connection.create(&domain, 0).await.context("libvirt does not start the guest")?;
    while !std::fs::read_to_string(bare.console()).is_ok_and(|text| text.contains(FIRST_LINE)) {
        if started.elapsed() > LIMIT {
            bail!("the guest started by bare libvirt wrote nothing within {} s", LIMIT.as_secs());
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(BareStart { daemon, guest: started.elapsed() })
}

/// The daemon's process and directory; both are removed on drop.
struct Bare {
    dir: PathBuf,
    namespace: Child,
}

impl Bare {
    fn start() -> Result<Self> {
        let dir = PathBuf::from(format!("/tmp/fv-bare-{}", std::process::id()));
        std::fs::create_dir(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let log = std::fs::File::create(dir.join("log")).context("cannot make a log")?;
        let namespace = Command::new("unshare")
            .args(["--mount", "--pid", "--ipc", "--uts", "--net", "--fork", "--kill-child", "--mount-proc"])
            .args(["--propagation", "private", "sh", "-c", DAEMON])
            .env("D", &dir)
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("cannot duplicate the log's descriptor")?)
            .stderr(log)
            .spawn()
            .context("cannot start unshare")?;
        Ok(Self { dir, namespace })
    }

    fn console(&self) -> PathBuf {
        self.dir.join("home/console")
    }

    /// The devices of the demo's VM, except for the network interface, which would need a network.
    fn xml(&self, guest: &Path) -> String {
        format!(
            "<domain type='qemu'><name>bare</name><memory unit='MiB'>256</memory><vcpu>1</vcpu>
<os><type arch='x86_64' machine='q35'>hvm</type><kernel>{guest}/vmlinuz</kernel><initrd>{guest}/initrd.gz</initrd>
<cmdline>console=ttyS0 quiet no_timer_check tick=1</cmdline></os><features><acpi/></features><cpu mode='host-model'/>
<devices><emulator>/usr/bin/qemu-system-x86_64</emulator><controller type='usb' model='none'/>
<controller type='scsi' model='virtio-scsi'/>
<serial type='file'><source path='{console}'/><target port='0'/></serial>
<channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel>
<graphics type='vnc'><listen type='socket' socket='{home}/vnc'/></graphics><video><model type='vga'/></video>
<memballoon model='virtio'/><rng model='virtio'><backend model='random'>/dev/urandom</backend></rng></devices></domain>",
            guest = guest.display(),
            console = self.console().display(),
            home = self.dir.join("home").display(),
        )
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        // Kills PID 1 of the namespace, and with it the daemon and the guest; the mounts go with their namespace.
        let _ = self.namespace.kill();
        let _ = self.namespace.wait();
        if let Err(err) = std::fs::remove_dir_all(&self.dir) {
            eprintln!("cannot remove {}: {err}", self.dir.display());
        }
    }
}
