//! `cargo xtask proto`: the Rust code of the kubelet's device plugin API, made from its .proto file. The result is
//! committed, so that no build needs a generator.

use std::path::Path;

use anyhow::Result;

/// Writes the generated code, or with `check` says whether it is up to date.
///
/// The generator is a feature of this program, which runs itself with it.
#[cfg(not(feature = "proto"))]
pub(crate) fn run(_: &Path, check: bool) -> Result<()> {
    let flag = if check { &["--check"][..] } else { &[] };
    crate::cargo(&[&["run", "-q", "-p", "xtask", "--features", "proto", "--", "proto"], flag].concat(), &[])
}

#[cfg(feature = "proto")]
pub(crate) fn run(workspace: &Path, check: bool) -> Result<()> {
    generator::run(workspace, check)
}

#[cfg(feature = "proto")]
mod generator {
    use std::fs;
    use std::path::Path;
    use std::process::Command;

    use anyhow::{Context, Result, bail};

    const CRATE: &str = "crates/edge/device-plugin";
    const HEADER: &str = "// Made by `cargo xtask proto` from proto/deviceplugin.proto. Do not edit.\n\n";

    pub(super) fn run(workspace: &Path, check: bool) -> Result<()> {
        let home = workspace.join(CRATE);
        let scratch = workspace.join("target/proto");
        fs::create_dir_all(&scratch).with_context(|| format!("cannot make {}", scratch.display()))?;
        let definitions = protox::compile(["deviceplugin.proto"], [home.join("proto")])?;
        tonic_prost_build::configure()
            .build_transport(false)
            .disable_comments(["."])
            .out_dir(&scratch)
            .compile_fds(definitions)
            .context("cannot generate code from deviceplugin.proto")?;
        // The package's name is the file's.
        let made = scratch.join("v1beta1.rs");
        let text = fs::read_to_string(&made).with_context(|| format!("cannot read {}", made.display()))?;
        fs::write(&made, format!("{HEADER}{text}")).with_context(|| format!("cannot write {}", made.display()))?;
        format(workspace, &made)?;
        compare_or_copy(&made, &home.join("src/v1beta1.rs"), check)
    }

    /// As `cargo fmt` would, so that its check passes.
    fn format(workspace: &Path, file: &Path) -> Result<()> {
        let mut rustfmt = Command::new("rustfmt");
        rustfmt.arg("--config-path").arg(workspace.join("rustfmt.toml")).arg(file);
        let status = rustfmt.status().context("cannot run rustfmt; it is a part of the toolchain")?;
        if !status.success() {
            bail!("rustfmt cannot format {} ({status})", file.display());
        }
        Ok(())
    }

    fn compare_or_copy(made: &Path, committed: &Path, check: bool) -> Result<()> {
        if !check {
            fs::copy(made, committed).with_context(|| format!("cannot write {}", committed.display()))?;
            return Ok(());
        }
        let read = |path: &Path| fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()));
        if read(made)? != read(committed)? {
            bail!("{} is out of date; run `cargo xtask proto` and commit the result", committed.display());
        }
        Ok(())
    }
}
