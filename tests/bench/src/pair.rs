//! Two libvirt daemons with nothing of ours around them, and a guest that `virsh migrate` moves between them.

use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use drive::{BOOT_LIMIT, LIMIT, UP_LINE};
use libvirt_io::{Connection, Keepalive, flags};
use test_support::Authority;
use tokio::io::AsyncReadExt as _;
use tokio::net::UnixStream;

use crate::migrations::{Move, settle};

/// The user of the daemons and their QEMUs, as in a launcher's Pod.
const QEMU: u32 = 107;
/// Where a domain's sockets are, in the daemon's own view of the file system.
const SOCKETS: &str = "/mnt";
const URI: &str = "qemu:///session";

/// A session daemon as a launcher has it. Its `/dev` has no kvm: libvirt probes a device that does not work for half a
/// minute. The shell stays as process 1 and reaps. Host names and ids differ, or libvirt takes both for one host.
const DAEMON: &str = r#"
set -e
echo 0 > $C/cgroup.procs
hostname $N
ip link set lo up
mkdir -p $D/dev $D/run $D/sockets $D/home/libvirt
mount -t tmpfs -o mode=755,size=1m dev $D/dev
for n in null zero full random urandom; do : > $D/dev/$n; mount --bind /dev/$n $D/dev/$n; done
mkdir $D/dev/pts $D/dev/shm
mount -t devpts -o newinstance,ptmxmode=0666 devpts $D/dev/pts
ln -s pts/ptmx $D/dev/ptmx
mount --rbind $D/dev /dev
mount --bind $D/sockets /mnt
cp /etc/passwd $D/passwd; echo "qemu:x:107:107::$D/home:/bin/sh" >> $D/passwd; mount --bind $D/passwd /etc/passwd
cp /etc/group $D/group; echo "qemu:x:107:" >> $D/group; mount --bind $D/group /etc/group
printf 'stdio_handler = "file"\nsecurity_driver = "none"\nnamespaces = [ ]\ncgroup_controllers = [ ]\nmigrate_tls_x509_cert_dir = "%s"\n' $T > $D/home/libvirt/qemu.conf
printf 'host_uuid = "%s"\n' $U > $D/home/libvirt/libvirtd.conf
chown -R 107:107 $D/run $D/home $D/sockets
export HOME=$D/home XDG_RUNTIME_DIR=$D/run XDG_CONFIG_HOME=$D/home XDG_CACHE_HOME=$D/home/.cache
setpriv --reuid 107 --regid 107 --clear-groups --no-new-privs libvirtd &
while :; do wait || :; sleep 0.1; done
"#;

/// What the two QEMUs send the guest over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    Tcp,
    /// TCP, encrypted by the two QEMUs.
    Tls,
}

/// The name in the certificate of both daemons' QEMUs.
const TLS_NAME: &str = "bare";

/// Both daemons, in one network namespace that is nobody else's, and the guest at one of them.
pub(crate) struct Pair {
    daemons: [Daemon; 2],
    /// Goes after what runs in it.
    _dir: Owned,
    /// The domain's name.
    name: String,
    /// The daemon that has the guest.
    at: usize,
    moves: u16,
}

impl Pair {
    /// Starts the daemons beside the Pod of this QEMU, and at the first one a guest as another libvirt describes it.
    pub(crate) async fn start(name: &str, xml: &str, guest_dir: &Path, qemu: i32) -> Result<Self> {
        let pods = cgroup_of_pods(qemu)?;
        // Not beside the cluster's directories: paths of Unix sockets must be short.
        let dir = Owned(PathBuf::from(format!("/tmp/fv-pair-{}-{name}", std::process::id())));
        certify(&dir.0.join("tls"))?;
        let first = Daemon::start(&dir.0, &pods, 0, None)?;
        let source = first.connect().await?;
        let second = Daemon::start(&dir.0, &pods, 1, Some(&first))?;
        second.connect().await?;
        let domain =
            source.define_xml(&adapted(xml, guest_dir)?, 0).await.context("libvirt does not define the guest")?;
        source.create(&domain, 0).await.context("libvirt does not start the guest")?;
        first.wait_to_boot().await?;
        Ok(Self { daemons: [first, second], _dir: dir, name: domain.name, at: 0, moves: 0 })
    }

    /// Moves the guest to the other daemon.
    pub(crate) async fn migrate(&mut self, over: Over) -> Result<Move> {
        let (source, target) = (&self.daemons[self.at], &self.daemons[1 - self.at]);
        self.moves += 1;
        // A port of its own each time: nothing of the last move is in the way.
        let memory = format!("tcp://127.0.0.1:{}", 49152 + self.moves);
        let mut virsh = Command::new("virsh");
        virsh.args(["--quiet", "--connect", &source.uri(), "migrate", &self.name, "--live", "--p2p", "--persistent"]);
        virsh.args(["--desturi", &target.uri(), "--migrateuri", &memory]).stdin(Stdio::null());
        if over == Over::Tls {
            virsh.args(["--tls", "--tls-destination", TLS_NAME]);
        }
        settle().await?;
        let started = Instant::now();
        let output = tokio::task::spawn_blocking(move || virsh.output()).await?.context("cannot run virsh")?;
        let wall = started.elapsed();
        ensure!(output.status.success(), "virsh migrate failed: {}", String::from_utf8_lossy(&output.stderr));
        let connection = source.connect().await?;
        let domain = connection.lookup_by_name(&self.name).await?.context("the source has forgotten the guest")?;
        let stats = connection.job_stats(&domain, flags::JOB_STATS_COMPLETED).await?;
        let stats = stats.context("libvirt has no figures of the move")?;
        self.at = 1 - self.at;
        Ok(Move {
            wall,
            total: Duration::from_millis(stats.number("time_elapsed")),
            downtime: Duration::from_millis(stats.number("downtime")),
            bytes: stats.number("data_processed"),
        })
    }
}

/// An authority and a certificate by it, under the names that libvirt looks for.
fn certify(dir: &Path) -> Result<()> {
    let authority = Authority::new();
    let mut params = rcgen::CertificateParams::new(vec![TLS_NAME.to_owned()])?;
    // QEMU's TLS asks what a certificate is for.
    params.key_usages = vec![rcgen::KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages =
        vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth, rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    let test_support::Pair { cert, key } = authority.sign(params);
    fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let files = [
        ("ca-cert.pem", authority.pem()),
        ("server-cert.pem", &cert),
        ("server-key.pem", &key),
        ("client-cert.pem", &cert),
        ("client-key.pem", &key),
    ];
    for (name, text) in files {
        let file = dir.join(name);
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        chown(&file, Some(QEMU), Some(QEMU)).context("cannot give a file away")?;
    }
    Ok(())
}

/// A directory that goes when this is dropped.
struct Owned(PathBuf);

impl Drop for Owned {
    fn drop(&mut self) {
        if let Err(err) = fs::remove_dir_all(&self.0) {
            eprintln!("cannot remove {}: {err}", self.0.display());
        }
    }
}

/// One libvirtd in namespaces of its own.
struct Daemon {
    dir: PathBuf,
    cgroup: PathBuf,
    namespace: Child,
}

impl Daemon {
    /// In the network namespace of the other one, if there is one.
    fn start(parent: &Path, pods: &Path, number: usize, other: Option<&Daemon>) -> Result<Self> {
        let dir = parent.join(number.to_string());
        let cgroup = pods.join(format!("bare-{}-{number}", std::process::id()));
        for new in [&dir, &cgroup] {
            fs::create_dir(new).with_context(|| format!("cannot make {}", new.display()))?;
        }
        let log = fs::File::create(dir.join("log")).context("cannot make a log")?;
        // Whatever becomes of us, it ends with us.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]);
        match other {
            None => command.args(["unshare", "--net"]),
            Some(other) => {
                command.arg("nsenter").arg(format!("--net=/proc/{}/ns/net", other.namespace.id())).arg("unshare")
            }
        };
        let namespace = command
            .args(["--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child", "--mount-proc"])
            .args(["--propagation", "private", "sh", "-c", DAEMON])
            .env("C", &cgroup)
            .env("D", &dir)
            .env("N", format!("bare-{number}"))
            .env("T", parent.join("tls"))
            .env("U", format!("00000000-0000-4000-8000-{:012}", number + 1))
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("cannot duplicate the log's descriptor")?)
            .stderr(log)
            .spawn()
            .context("cannot start unshare")?;
        Ok(Self { dir, cgroup, namespace })
    }

    fn socket(&self) -> PathBuf {
        self.dir.join("run/libvirt/libvirt-sock")
    }

    fn uri(&self) -> String {
        format!("qemu+unix:///session?socket={}", self.socket().display())
    }

    /// Connects to the daemon, which may still be starting.
    async fn connect(&self) -> Result<Connection> {
        let started = Instant::now();
        loop {
            let keepalive = Keepalive { interval: Duration::from_secs(5), count: 5 };
            match Connection::connect(&self.socket(), URI, keepalive).await {
                Ok(connection) => return Ok(connection),
                Err(err) if started.elapsed() > LIMIT => {
                    let log = fs::read_to_string(self.dir.join("log")).unwrap_or_default();
                    return Err(err).with_context(|| format!("the private libvirtd does not answer: {log}"));
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }

    /// Reads the guest's console up to the end of its boot, and leaves it alone from then on.
    async fn wait_to_boot(&self) -> Result<()> {
        let console = self.dir.join("sockets/virt-serial0");
        let mut console = UnixStream::connect(console).await.context("the guest has no console")?;
        let mut seen = Vec::new();
        let read = async {
            while !String::from_utf8_lossy(&seen).contains(UP_LINE) {
                if console.read_buf(&mut seen).await.context("cannot read the console")? == 0 {
                    bail!("the guest ended");
                }
            }
            Ok(())
        };
        tokio::time::timeout(BOOT_LIMIT, read).await.context("the guest of bare libvirt does not boot")?
    }

    /// Ends the namespace's process 1 and with it the daemon and the guest; the mounts go with their namespace.
    fn end(&mut self) {
        let _ = self.namespace.kill();
        let _ = self.namespace.wait();
        // The last of its processes are a moment behind.
        for _ in 0..100 {
            match fs::remove_dir(&self.cgroup) {
                Err(err) if err.kind() == std::io::ErrorKind::ResourceBusy => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                _ => break,
            }
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.end();
    }
}

/// Where the cgroups of Pods are that share out CPU time. Below it all Pods together weigh as much as one process outside,
/// so on a machine that is busy otherwise a reference outside would be compared with something else.
fn cgroup_of_pods(qemu: i32) -> Result<PathBuf> {
    let text = fs::read_to_string(format!("/proc/{qemu}/cgroup")).context("cannot read QEMU's cgroup")?;
    let path_of = |wanted: fn(&str) -> bool| {
        text.lines().find_map(|line| {
            let (_, rest) = line.split_once(':')?;
            let (controllers, path) = rest.split_once(':')?;
            wanted(controllers).then_some(path)
        })
    };
    let first =
        path_of(|controllers| controllers.split(',').any(|one| one == "cpu")).map(|path| ("/sys/fs/cgroup/cpu", path));
    let (root, path) = first
        .or_else(|| path_of(str::is_empty).map(|path| ("/sys/fs/cgroup", path)))
        .context("QEMU is in no cgroup")?;
    // The container's, in the Pod's.
    let pods = Path::new(path.trim_start_matches('/')).ancestors().nth(2).context("QEMU's cgroup is not a Pod's")?;
    Ok(Path::new(root).join(pods))
}

/// A launcher's domain with its files where the pair has them.
fn adapted(xml: &str, guest_dir: &Path) -> Result<String> {
    let guest_dir = guest_dir.canonicalize().with_context(|| format!("cannot find {}", guest_dir.display()))?;
    let xml = xml.replace("/var/run/kubevirt-kernel-boot/boot", &guest_dir.to_string_lossy());
    let private = "/var/run/kubevirt-private/";
    let mut parts = xml.split(private);
    let mut adapted = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        // After the prefix comes the instance's UID, which is a directory.
        let (_, rest) = part.split_once('/').context("a socket of the domain has no directory")?;
        adapted.push_str(SOCKETS);
        adapted.push('/');
        adapted.push_str(rest);
    }
    ensure!(!adapted.contains("kubevirt-"), "the domain has files that the reference has not: {adapted}");
    Ok(adapted)
}
