//! Jobs of the workspace that a Makefile line cannot hold. `make` calls them; they can be called by hand too.

mod fuzz;
mod peers;
mod suite;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

const HELP: &str = "usage: cargo xtask <job>
  test    every test of the workspace, the end-to-end ones last; --timings prints what took how long
  nightly what `test` leaves out for its length: all simulated histories, the whole fault matrix, a minute of fuzzing
  faults  every party of a migration killed at each point of it: the fault matrix alone
  docs    write the documents and recorded outputs that are generated from the tables of the API
  fuzz    mutated manifests through the dictionary, for 60 seconds or as many as are given
  peers   other projects' programs, in a cache outside the work tree; prints the folders that hold them
          kubevirt: virtctl and a judge; kube: etcd and the control plane, with --all also kubelet and kube-proxy";

fn main() -> ExitCode {
    let job = std::env::args().nth(1);
    let result = match job.as_deref() {
        Some("test") => test(&std::env::args().skip(2).collect::<Vec<_>>()),
        Some("nightly") => suite::nightly(&workspace()),
        Some("faults") => suite::faults(&workspace()),
        Some("docs") => docs(),
        Some("fuzz") => fuzz::run(&workspace(), std::env::args().nth(2).as_deref().unwrap_or("60")),
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

/// The tests that compare generated files write them instead.
fn docs() -> Result<()> {
    if std::env::var_os("FERROVIRT_SHARED").is_none() {
        eprintln!("note: FERROVIRT_SHARED is not set; what is said about KubeVirt's examples stays as it is");
    }
    cargo(&["test", "-q", "-p", "ferrovirt", "--test", "dictionary"], &[("FERROVIRT_UPDATE", OsStr::new("1"))])
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
