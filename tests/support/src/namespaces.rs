//! Namespaces of a test's own, as a container runtime would make them, for a daemon or a launcher to run in.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Functions for the scripts that run in them. `$D` is a directory of the test's own.
///
/// - `make_dev`: a `/dev` without kvm. Its node may exist and not work, which costs libvirt half a minute.
/// - `add_qemu HOME`: a user and a group with id 107.
/// - `make_pod ADDRESS`: both, and what else a launcher finds in its Pod: tun, a name server, a host name and `eth0`.
/// - `exec_launcher PROGRAM ARGUMENTS`: becomes a launcher, with a launcher's user, capabilities and environment.
const FUNCTIONS: &str = r#"
set -e
make_dev() {
  mkdir -p $D/dev
  mount -t tmpfs -o mode=755,size=1m dev $D/dev
  for n in null zero full random urandom; do : > $D/dev/$n; mount --bind /dev/$n $D/dev/$n; done
  mkdir $D/dev/pts $D/dev/shm
  mount -t devpts -o newinstance,ptmxmode=0666 devpts $D/dev/pts; ln -s pts/ptmx $D/dev/ptmx
  ln -s /proc/self/fd $D/dev/fd
  mount --rbind $D/dev /dev
}
add_qemu() {
  cp /etc/passwd $D/passwd; echo "qemu:x:107:107::$1:/bin/sh" >> $D/passwd; mount --bind $D/passwd /etc/passwd
  cp /etc/group $D/group; echo "qemu:x:107:" >> $D/group; mount --bind $D/group /etc/group
}
make_pod() {
  make_dev
  mkdir /dev/net; mknod -m 666 /dev/net/tun c 10 200
  mount -t tmpfs -o mode=1777 shm /dev/shm
  add_qemu /run
  printf 'nameserver 10.96.0.10\nsearch default.svc.cluster.local\n' > $D/resolv.conf
  mount --bind $D/resolv.conf /etc/resolv.conf
  hostname vm
  ip link set lo up
  ip link add eth0 mtu 1450 type veth peer name node0; ip link set node0 up
  ip addr add $1/24 dev eth0; ip link set eth0 up
}
exec_launcher() {
  exec setpriv --reuid 107 --regid 107 --clear-groups --no-new-privs --inh-caps -all,+net_bind_service \
    --ambient-caps -all,+net_bind_service --bounding-set -all,+net_bind_service \
    env FERROVIRT_TEST_ROLE=launcher RUST_BACKTRACE=0 XDG_CONFIG_HOME=/var/run/kubevirt-private XDG_RUNTIME_DIR=/var/run \
    POD_NAME=$POD "$@"
}
"#;

/// Runs a script as process 1 of new namespaces, with `$D` for `dir` and the functions above. Everything in them ends
/// with `unshare`, unless a process has changed its user: then only with process 1.
pub fn unshare(script: &str, dir: &Path) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--pid", "--ipc", "--uts", "--net", "--fork", "--kill-child", "--mount-proc"]);
    command.args(["--propagation", "private", "sh", "-c", &format!("{FUNCTIONS}{script}")]).env("D", dir);
    command
}

/// Why namespaces with these programs cannot be made here.
pub fn missing(tools: &[&str]) -> Option<String> {
    if !std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0) {
        return Some("needs root to make namespaces".to_owned());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = |tool: &str| std::env::split_paths(&path).any(|dir| dir.join(tool).exists());
    let tool = ["unshare", "setpriv"].iter().chain(tools).find(|tool| !found(tool))?;
    Some(format!("{tool} is not installed"))
}

/// Where the test guest was built.
pub fn guest_dir() -> PathBuf {
    match std::env::var_os("FERROVIRT_GUEST_DIR") {
        Some(dir) => dir.into(),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../build/guest"),
    }
}

/// Which of these files of the test guest is not there.
pub fn missing_of_guest(files: &[&str]) -> Option<String> {
    let guest = guest_dir();
    let file = files.iter().map(|file| guest.join(file)).find(|file| !file.exists())?;
    Some(format!("{} is missing; build the guest or set FERROVIRT_GUEST_DIR", file.display()))
}
