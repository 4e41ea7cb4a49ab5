//! Fuzzing with libFuzzer, without tools beyond the compiler: the flags below are what `cargo fuzz` passes, less the
//! sanitizers, which only an unstable compiler has. Our code has next to no `unsafe`; what is looked for are panics,
//! with overflow checks on.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

/// Instruments every branch and comparison, so that the fuzzer sees what an input reaches.
const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";

/// Named, so that the flags hold for the target's code and not for build scripts and macros, which run by themselves.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// The programs, and where what reached something new stays from run to run, in the folder of built things.
const FUZZERS: [(&str, &str); 2] = [("fuzz", "corpus"), ("images", "corpus-images")];

/// Half of the time for each.
pub(crate) fn run(root: &Path, seconds: &str) -> Result<()> {
    let seconds: u32 = seconds.parse().with_context(|| format!("{seconds} is not a number of seconds"))?;
    let built = root.join("target/fuzz");
    let status = Command::new(env!("CARGO"))
        .args(["build", "-q", "--release", "--target", TARGET, "--manifest-path"])
        .arg(root.join("fuzz/Cargo.toml"))
        .arg("--target-dir")
        .arg(&built)
        .env("RUSTFLAGS", FLAGS)
        .status()
        .context("cannot run cargo")?;
    if !status.success() {
        bail!("the fuzzers do not build ({status})");
    }
    for (program, corpus) in FUZZERS {
        fuzz(&built, program, &built.join(corpus), (seconds / 2).max(1))?;
    }
    Ok(())
}

fn fuzz(built: &Path, program: &str, corpus: &Path, seconds: u32) -> Result<()> {
    let failures = built.join("failures");
    for folder in [corpus, failures.as_path()] {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    let status = Command::new(built.join(TARGET).join("release").join(program))
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-artifact_prefix={}/", failures.display()))
        .args(["-max_len=65536", "-timeout=10", "-print_final_stats=1"])
        .arg(corpus)
        .status()
        .with_context(|| format!("cannot run the fuzzer {program}"))?;
    if !status.success() {
        bail!("the fuzzer {program} found an input that fails ({status}); it is in {}", failures.display());
    }
    Ok(())
}
