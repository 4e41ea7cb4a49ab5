//! Jobs of the workspace that a Makefile line cannot hold. `make` calls them; they can be called by hand too.

mod peers;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

const HELP: &str = "usage: cargo xtask <job>
  test    every test of the workspace, the end-to-end ones last
  peers   KubeVirt's virtctl and judge, in a cache outside the work tree; prints the folder that holds them";

fn main() -> ExitCode {
    let job = std::env::args().nth(1);
    let result = match job.as_deref() {
        Some("test") => test(),
        Some("peers") => return peers::main(&workspace()),
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

/// The quick tests first: a broken decision shows in seconds, not after the guests have booted.
fn test() -> Result<()> {
    let root = workspace();
    let guest = root.join("build/guest");
    let program = root.join("target/debug/ferrovirt");
    if !program.exists() {
        bail!("{} is missing; run `make build`", program.display());
    }
    if std::env::var_os("FERROVIRT_SHARED").is_none() {
        eprintln!("note: FERROVIRT_SHARED is not set; comparisons with KubeVirt's data report themselves as skipped");
    }
    let run = |args: &[&str]| -> Result<()> {
        let status = Command::new(env!("CARGO"))
            .current_dir(&root)
            .args(args)
            .env("FERROVIRT_GUEST_DIR", &guest)
            .env("FERROVIRT_BIN", &program)
            .status()
            .with_context(|| format!("cannot run cargo {}", args.join(" ")))?;
        if !status.success() {
            bail!("cargo {} failed ({status})", args.join(" "));
        }
        Ok(())
    };
    run(&["test", "--workspace", "--exclude", "e2e"])?;
    run(&["test", "-p", "e2e"])
}
