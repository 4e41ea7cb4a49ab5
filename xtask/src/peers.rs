//! Other projects' programs, to compare ourselves with and to test against: KubeVirt's `virtctl` and `virt-controller`, a judge
//! that tells what KubeVirt makes of an object, Kubernetes' own programs with etcd, and what nodes need beside them. Each set
//! is built from a Go module under `tools` into a cache outside the work tree, under a digest of the module's files: a changed module is built anew,
//! an unchanged one costs nothing. To make room, delete the cache's folder `peers`.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use sha2::{Digest, Sha256};

/// What is built: the program's name, the Go package, and what the linker is told beside the common flags.
type Program = (&'static str, &'static str, &'static str);

/// Programs that are built from one Go module of ours.
struct Peers {
    /// What callers ask for, and the module's folder below `tools`.
    name: &'static str,
    programs: &'static [Program],
    /// What is built for `--all` or by its name only: hardly a test needs it.
    on_request: &'static [Program],
    /// Build tags, separated by spaces.
    tags: &'static str,
    /// Whether the whole set is built only for those who name it.
    only_by_name: bool,
}

// Built from modules, the programs cannot know their own versions.
const KUBEVIRT: &str = "-X kubevirt.io/client-go/version.gitVersion=v1.8.2";
const KUBERNETES: &str =
    "-X k8s.io/component-base/version.gitVersion=v1.36.3 -X k8s.io/client-go/pkg/version.gitVersion=v1.36.3";
const CONTAINERD: &str = "-X github.com/containerd/containerd/v2/version.Version=v2.4.2";
const CNI: &str = "-X github.com/containernetworking/plugins/pkg/utils/buildversion.BuildVersion=v1.9.1";

/// All that a cluster with nodes needs, by one name. The folders are printed in this order; `tests/peers` reads them.
const NODES: (&str, [&str; 5]) = ("nodes", ["kube", "containerd", "cni", "multus", "coredns"]);

/// Kubernetes' own sidecars of CSI drivers: minutes of compiling that only the tests of storage on a real cluster need.
const SIDECARS: &str = "csi-sidecars";

const PEERS: [Peers; 8] = [
    Peers {
        name: "kubevirt",
        programs: &[("judge", "./judge", ""), ("virtctl", "kubevirt.io/kubevirt/cmd/virtctl", KUBEVIRT)],
        on_request: &[("virt-controller", "kubevirt.io/kubevirt/cmd/virt-controller", KUBEVIRT)],
        tags: "",
        only_by_name: false,
    },
    Peers {
        name: "kube",
        programs: &[
            ("etcd", "./etcd", ""),
            ("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver", KUBERNETES),
            ("kubectl", "k8s.io/kubernetes/cmd/kubectl", KUBERNETES),
            ("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler", KUBERNETES),
            ("kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager", KUBERNETES),
        ],
        on_request: &[
            ("kubelet", "k8s.io/kubernetes/cmd/kubelet", KUBERNETES),
            ("kube-proxy", "k8s.io/kubernetes/cmd/kube-proxy", KUBERNETES),
        ],
        tags: "",
        only_by_name: false,
    },
    Peers {
        name: "containerd",
        programs: &[
            ("containerd", "github.com/containerd/containerd/v2/cmd/containerd", CONTAINERD),
            ("containerd-shim-runc-v2", "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2", CONTAINERD),
            ("ctr", "github.com/containerd/containerd/v2/cmd/ctr", CONTAINERD),
        ],
        on_request: &[],
        // Only overlayfs is used; the others would need C libraries.
        tags: "no_btrfs no_zfs no_devmapper no_tracing",
        only_by_name: true,
    },
    Peers {
        name: "cni",
        programs: &[
            ("bridge", "github.com/containernetworking/plugins/plugins/main/bridge", CNI),
            ("loopback", "github.com/containernetworking/plugins/plugins/main/loopback", CNI),
            ("host-local", "github.com/containernetworking/plugins/plugins/ipam/host-local", CNI),
            ("static", "github.com/containernetworking/plugins/plugins/ipam/static", CNI),
            ("portmap", "github.com/containernetworking/plugins/plugins/meta/portmap", CNI),
            ("tuning", "github.com/containernetworking/plugins/plugins/meta/tuning", CNI),
        ],
        on_request: &[],
        tags: "",
        only_by_name: true,
    },
    Peers {
        name: "multus",
        programs: &[("multus", "gopkg.in/k8snetworkplumbingwg/multus-cni.v4/cmd/multus", "")],
        on_request: &[],
        tags: "",
        only_by_name: true,
    },
    Peers { name: "coredns", programs: &[("coredns", ".", "")], on_request: &[], tags: "", only_by_name: true },
    Peers {
        name: "csi-sanity",
        programs: &[("csi-sanity", "github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity", "")],
        on_request: &[],
        tags: "",
        only_by_name: true,
    },
    Peers {
        name: SIDECARS,
        programs: &[
            ("csi-provisioner", "github.com/kubernetes-csi/external-provisioner/v5/cmd/csi-provisioner", ""),
            ("csi-snapshotter", "github.com/kubernetes-csi/external-snapshotter/v8/cmd/csi-snapshotter", ""),
            ("snapshot-controller", "github.com/kubernetes-csi/external-snapshotter/v8/cmd/snapshot-controller", ""),
            ("csi-resizer", "github.com/kubernetes-csi/external-resizer/cmd/csi-resizer", ""),
        ],
        on_request: &[],
        tags: "",
        only_by_name: true,
    },
];

const PROGRESS_EVERY: Duration = Duration::from_secs(10);

/// Why there are no peers.
enum Failure {
    /// This machine has no Go, or no way to the modules. Callers may carry on without peers.
    Unavailable(anyhow::Error),
    /// They should have been built.
    Broken(anyhow::Error),
}

/// What is to be built of one set.
#[derive(Clone, Copy)]
enum Wanted<'a> {
    Usual,
    All,
    One(&'a str),
}

/// Builds what is missing of the named peers, or of all, and prints for each the folder that holds the programs. A name like
/// `kubevirt/virt-controller` asks for one program of a set. Exits with 3 when the machine lacks what the build needs, and
/// with 1 when the build itself fails.
pub(crate) fn main(workspace: &Path, args: &[String]) -> ExitCode {
    let (flags, names): (Vec<&str>, Vec<&str>) = args.iter().map(String::as_str).partition(|arg| arg.starts_with('-'));
    let usual = if flags.is_empty() { Wanted::Usual } else { Wanted::All };
    let (group, members) = NODES;
    let asked: Vec<(&str, Wanted<'_>)> = match names.is_empty() {
        true => PEERS.iter().filter(|peers| !peers.only_by_name).map(|peers| (peers.name, usual)).collect(),
        false if names == [group] => members.into_iter().map(|set| (set, Wanted::All)).collect(),
        false => names
            .iter()
            .map(|name| name.split_once('/').map_or((*name, usual), |(set, program)| (set, Wanted::One(program))))
            .collect(),
    };
    let known = |(set, wanted): &(&str, Wanted<'_>)| PEERS.iter().any(|peers| peers.name == *set && peers.has(*wanted));
    let unknown = flags.iter().find(|flag| **flag != "--all").copied();
    if let Some(unknown) =
        unknown.or_else(|| names.iter().zip(&asked).find(|(_, ask)| !known(ask)).map(|(name, _)| *name))
    {
        eprintln!(
            "peers: there is no {unknown}; ask for {}, for one program as in kubevirt/judge, for {group} alone, or give no name \
             for what most tests use",
            PEERS.map(|p| p.name).join(" or ")
        );
        return ExitCode::from(2);
    }
    for (set, wanted) in asked {
        for peers in PEERS.iter().filter(|peers| peers.name == set) {
            match peers.build(workspace, wanted) {
                Ok(folder) => println!("{}", folder.display()),
                Err(failure) => return failure.tell(),
            }
        }
    }
    ExitCode::SUCCESS
}

/// Builds what tests ask for, before the first one asks. A machine that cannot is told of; its tests are skipped, or fail in CI.
pub(crate) fn build_for_tests(workspace: &Path) -> Result<()> {
    for peers in PEERS.iter().filter(|peers| peers.name != SIDECARS) {
        let wanted = if NODES.1.contains(&peers.name) { Wanted::All } else { Wanted::Usual };
        match peers.build(workspace, wanted) {
            Ok(_) => {}
            // Better now than when all else has run.
            Err(Failure::Unavailable(err)) if std::env::var("CI").is_ok_and(|ci| ci == "true") => return Err(err),
            Err(Failure::Unavailable(err)) => eprintln!("peers: {err:#}"),
            Err(Failure::Broken(err)) => return Err(err),
        }
    }
    Ok(())
}

/// The same for tests of storage on a real cluster.
pub(crate) fn build_for_storage(workspace: &Path) -> Result<()> {
    for peers in PEERS.iter().filter(|peers| peers.name == SIDECARS) {
        match peers.build(workspace, Wanted::Usual) {
            Ok(_) => {}
            Err(Failure::Unavailable(err) | Failure::Broken(err)) => return Err(err),
        }
    }
    Ok(())
}

impl Failure {
    fn tell(self) -> ExitCode {
        let (err, code) = match self {
            Failure::Unavailable(err) => (err, ExitCode::from(3)),
            Failure::Broken(err) => (err, ExitCode::FAILURE),
        };
        eprintln!("peers: {err:#}");
        code
    }
}

impl Peers {
    fn wanted(&self, wanted: Wanted<'_>) -> Vec<Program> {
        let all = self.programs.iter().chain(self.on_request);
        match wanted {
            Wanted::Usual => self.programs.to_vec(),
            Wanted::All => all.copied().collect(),
            Wanted::One(name) => all.filter(|program| program.0 == name).copied().collect(),
        }
    }

    fn has(&self, wanted: Wanted<'_>) -> bool {
        !self.wanted(wanted).is_empty()
    }

    /// Builds what is missing and returns the folder that holds the programs.
    fn build(&self, workspace: &Path, wanted: Wanted<'_>) -> Result<PathBuf, Failure> {
        let module = workspace.join("tools").join(self.name);
        let (cache, folder) = self.places(&module).map_err(Failure::Broken)?;
        let missing = || -> Vec<Program> {
            let wanted = self.wanted(wanted).into_iter();
            wanted.filter(|(name, ..)| !folder.join(name).exists()).collect()
        };
        if missing().is_empty() {
            return Ok(folder);
        }
        let _lock = lock(&cache).map_err(Failure::Broken)?;
        let missing = missing(); // Somebody else may have built them while we waited.
        if !missing.is_empty() {
            fetch(self.name, &module).map_err(Failure::Unavailable)?;
            build(&module, &folder, self.tags, &missing).map_err(Failure::Broken)?;
        }
        Ok(folder)
    }

    /// The cache of peers, and the folder in it for this very module.
    fn places(&self, module: &Path) -> Result<(PathBuf, PathBuf)> {
        let cache = crate::cache("peers")?;
        fs::create_dir_all(&cache).with_context(|| format!("cannot make {}", cache.display()))?;
        let folder = cache.join(self.digest(module)?);
        Ok((cache, folder))
    }

    /// A digest of all that decides what the build gives, the compiler's version aside.
    fn digest(&self, module: &Path) -> Result<String> {
        let mut files = Vec::new();
        collect(module, &mut files)?;
        files.sort();
        let mut hasher = Sha256::new();
        hasher.update(format!("{:?}", self.programs));
        hasher.update(self.tags);
        for file in files {
            let text = fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
            let name = file.strip_prefix(module).unwrap_or(&file).display().to_string();
            hasher.update(format!("\n{name} {}\n", text.len()));
            hasher.update(text);
        }
        Ok(hasher.finalize()[..8].iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    for entry in entries {
        let path = entry.with_context(|| format!("cannot read {}", folder.display()))?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|kind| kind == "go" || kind == "mod" || kind == "sum") {
            files.push(path);
        }
    }
    Ok(())
}

/// One build at a time. The lock ends with the file handle, however the process ends.
fn lock(cache: &Path) -> Result<File> {
    let path = cache.join("lock");
    let file = File::create(&path).with_context(|| format!("cannot make {}", path.display()))?;
    if file.try_lock().is_err() {
        eprintln!("peers: another build is under way; waiting for it");
        file.lock().with_context(|| format!("cannot lock {}", path.display()))?;
    }
    Ok(file)
}

fn go(module: &Path) -> Command {
    let mut go = Command::new("go");
    go.current_dir(module).env("CGO_ENABLED", "0").stdin(Stdio::null());
    go
}

/// Brings the sources, so that a build that fails later fails for a reason of its own.
fn fetch(name: &str, module: &Path) -> Result<()> {
    eprintln!("peers: fetching the modules of {name}");
    let output = go(module).args(["mod", "download"]).output().map_err(|err| match err.kind() {
        ErrorKind::NotFound => {
            anyhow!("go is not on the PATH; install Go 1.26 or newer to build the programs of {name}")
        }
        _ => anyhow!(err).context("cannot run go"),
    })?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        bail!("the modules cannot be had ({}):\n{}", output.status, text.trim_end());
    }
    Ok(())
}

/// Builds each program beside its final place and moves it there at the end: what is there is complete.
fn build(module: &Path, folder: &Path, tags: &str, programs: &[Program]) -> Result<()> {
    let unfinished = folder.with_extension("unfinished");
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    for (name, package, flags) in programs {
        compile(name, module, &unfinished, package, tags, flags).with_context(|| format!("cannot build {name}"))?;
        let program = folder.join(name);
        fs::rename(&unfinished, &program)
            .with_context(|| format!("cannot move {} to {}", unfinished.display(), program.display()))?;
    }
    Ok(())
}

/// Runs the compiler and says now and then how far it is. With `-v` it names each package on a line of its own; what is
/// no such name is a complaint.
fn compile(name: &str, module: &Path, output: &Path, package: &str, tags: &str, flags: &str) -> Result<()> {
    eprintln!("peers: building {name} (minutes when nothing is in Go's own cache)");
    let started = Instant::now();
    let mut child = go(module)
        .args(["build", "-v", "-trimpath", "-tags", tags, "-ldflags", &format!("-s -w {flags}"), "-o"])
        .arg(output)
        .arg(package)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot run go")?;
    let (mut packages, mut complaints, mut told) = (0, Vec::new(), Instant::now());
    let stderr = child.stderr.take().context("the compiler has no error stream")?;
    for line in BufReader::new(stderr).lines() {
        let line = line.context("cannot read what the compiler says")?;
        if line.contains([' ', ':', '#']) {
            complaints.push(line);
            continue;
        }
        packages += 1;
        if told.elapsed() > PROGRESS_EVERY {
            told = Instant::now();
            eprintln!("peers: {name}: {packages} packages after {} s", started.elapsed().as_secs());
        }
    }
    let status = child.wait().context("cannot wait for the compiler")?;
    if !status.success() {
        bail!("go build {package} failed ({status}):\n{}", complaints.join("\n"));
    }
    eprintln!("peers: built {name} in {} s", started.elapsed().as_secs());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_go_whoever_wants_a_cluster_is_told_before_anything_is_built() {
        let workspace = crate::workspace();
        let programs = tempfile::tempdir().unwrap();
        for name in ["dirname", "sed"] {
            std::os::unix::fs::symlink(Path::new("/usr/bin").join(name), programs.path().join(name)).unwrap();
        }
        let mut setup = Command::new("/bin/bash");
        setup.arg(workspace.join("tools/setup.sh")).arg("go").env("PATH", programs.path());
        let output = setup.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains("install Go 1.26"), "{said}");
        let makefile = fs::read_to_string(workspace.join("Makefile")).unwrap();
        for target in ["kube-demo", "kube-test", "kube-up", "bench-kube"] {
            assert!(makefile.contains(&format!("\n{target}: setup-go ")), "make {target} does not check for Go");
        }
    }
}
