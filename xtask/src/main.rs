//! Jobs of the workspace that a Makefile line cannot hold. `make` calls them; they can be called by hand too.

mod fuzz;
mod images;
mod peers;
mod proto;
mod suite;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

const HELP: &str = "usage: cargo xtask <job>
  test    every test of the workspace, the end-to-end ones last; --timings prints what took how long
  nightly what `test` leaves out for its length: all simulated histories, the whole fault matrix, a minute of fuzzing
  kube-test  every scenario on a real Kubernetes cluster; --lane NAME for one group of them. The lane `upgrade` updates
          from images of HEAD~1: --upgrade-from COMMIT for those of another commit, `same` for those of this one;
          --all-faults for the whole fault matrix there and nothing else, a few hours
  kube-demo  a real cluster, an installation, a VM that boots and moves, and nothing left
  faults  every party of a migration killed at each point of it: the fault matrix alone, on an embedded cluster
  docs    write the documents and recorded outputs that are generated from the tables of the API
  fuzz    mutated manifests through the dictionary and disk images through their reader, for 60 seconds or as many as are given
  images  our images as archives in build/images; --prefix, --tag; --quick for an unoptimised program, --dev for the one
          that is in target/debug already, on the packages of virt-launcher, for tests
  program the optimised static program; prints where it is
  proto   write the code of gRPC interfaces (the kubelet's, CSI's) from their .proto files; --check compares
  peers   other projects' programs, in a cache outside the work tree; prints the folders that hold them
          kubevirt: virtctl and a judge; kube: etcd and the control plane, with --all also kubelet and kube-proxy;
          nodes: all that a cluster with nodes needs; csi-sanity: the judge of CSI drivers; csi-sidecars: Kubernetes' provisioner, snapshotter and resizer
  kube-up    a real Kubernetes cluster in the background; --nodes 3, --image FILE for an OCI archive on every node
  kube-down  end that cluster; --wipe removes its logs, too";

fn main() -> ExitCode {
    let job = std::env::args().nth(1);
    let result = match job.as_deref() {
        Some("test") => test(&std::env::args().skip(2).collect::<Vec<_>>()),
        Some("nightly") => suite::nightly(&workspace()),
        Some("kube-test") => suite::OnKubernetes::parse(&std::env::args().skip(2).collect::<Vec<_>>())
            .and_then(|wanted| suite::kube_test(&workspace(), &wanted)),
        Some("kube-demo") => cargo(&["run", "-q", "-p", "e2e", "--bin", "kube-demo"], &[]),
        Some("faults") => suite::faults(&workspace()),
        Some("docs") => docs(),
        Some("fuzz") => fuzz::run(&workspace(), std::env::args().nth(2).as_deref().unwrap_or("60")),
        Some("images") => images::Options::parse(&std::env::args().skip(2).collect::<Vec<_>>())
            .and_then(|options| images::run(&workspace(), &options)),
        Some("program") => images::build_program(&workspace(), images::Profile::Dist)
            .map(|programs| println!("{}", programs.ferrovirt.display())),
        Some("proto") => proto(&std::env::args().skip(2).collect::<Vec<_>>()),
        Some("kube-up") => cluster("up"),
        Some("kube-down") => cluster("down"),
        Some("peers") => return peers::main(&workspace(), &std::env::args().skip(2).collect::<Vec<_>>()),
        _ => {
            eprintln!("{HELP}");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            eprintln!("xtask: {err:#}");
            ExitCode::FAILURE
        }
    }
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_owned).unwrap_or_default()
}

/// A folder outside the work tree, for what is long to make and the same for all of them.
fn cache(name: &str) -> Result<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = set("FERROVIRT_CACHE")
        .or_else(|| set("XDG_CACHE_HOME").map(|home| home.join("ferrovirt")))
        .or_else(|| set("HOME").map(|home| home.join(".cache/ferrovirt")))
        .context("none of FERROVIRT_CACHE, XDG_CACHE_HOME and HOME says where to keep things")?;
    Ok(cache.join(name))
}

fn test(flags: &[String]) -> Result<()> {
    let mut options = suite::Options::default();
    for flag in flags {
        match flag.as_str() {
            "--timings" => options.timings = true,
            other => bail!("`test` has no flag {other}; it has --timings"),
        }
    }
    if std::env::var_os("FERROVIRT_SHARED").is_none() {
        eprintln!("note: FERROVIRT_SHARED is not set; comparisons with KubeVirt's data report themselves as skipped");
    }
    suite::test(&workspace(), options)
}

fn proto(flags: &[String]) -> Result<()> {
    match flags.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => proto::run(&workspace(), false),
        ["--check"] => proto::run(&workspace(), true),
        _ => bail!("`proto` has one flag, --check"),
    }
}

/// The tests that compare generated files write them instead.
fn docs() -> Result<()> {
    if std::env::var_os("FERROVIRT_SHARED").is_none() {
        eprintln!("note: FERROVIRT_SHARED is not set; what is said about KubeVirt's examples stays as it is");
    }
    let dictionary = ["test", "-q", "-p", "ferrovirt", "--test", "program", "dictionary::"];
    cargo(&dictionary, &[("FERROVIRT_UPDATE", OsStr::new("1"))])
}

/// A program of its own, so that the other jobs need not be built with a client of Kubernetes.
fn cluster(order: &str) -> Result<()> {
    let further: Vec<String> = std::env::args().skip(2).collect();
    let dir = workspace().join("build/kube").display().to_string();
    // In the folder of the caller, whose paths are given.
    let status = Command::new(env!("CARGO"))
        .args(["run", "-q", "--manifest-path"])
        .arg(workspace().join("tests/cluster/Cargo.toml"))
        .args(["--", "--dir", &dir, order])
        .args(&further)
        .status()
        .context("cannot run cargo")?;
    if !status.success() {
        bail!("kube-{order} failed ({status})");
    }
    Ok(())
}

fn cargo(args: &[&str], environment: &[(&str, &OsStr)]) -> Result<()> {
    let status = Command::new(env!("CARGO"))
        .current_dir(workspace())
        .args(args)
        .envs(environment.iter().copied())
        .status()
        .with_context(|| format!("cannot run cargo {}", args.join(" ")))?;
    if !status.success() {
        bail!("cargo {} failed ({status})", args.join(" "));
    }
    Ok(())
}
