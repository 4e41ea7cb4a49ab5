//! `cargo xtask proto`: the Rust code of gRPC interfaces (the kubelet's and CSI's), made from their .proto files. The
//! results are committed, so that no build needs a generator.

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

    /// An interface: where its definition is and where its code goes.
    struct Interface {
        /// The crate that holds both.
        home: &'static str,
        /// The definition's file in `proto`.
        definition: &'static str,
        /// The package that it declares, which names the generated file.
        package: &'static str,
        code: &'static str,
    }

    const INTERFACES: [Interface; 3] = [
        Interface {
            home: "crates/edge/device-plugin",
            definition: "deviceplugin.proto",
            package: "v1beta1",
            code: "src/v1beta1.rs",
        },
        Interface { home: "crates/edge/volumes", definition: "csi.proto", package: "csi.v1", code: "src/csi/v1.rs" },
        Interface {
            home: "crates/edge/volumes",
            definition: "pluginregistration.proto",
            package: "pluginregistration",
            code: "src/csi/registry.rs",
        },
    ];

    pub(super) fn run(workspace: &Path, check: bool) -> Result<()> {
        let scratch = workspace.join("target/proto");
        fs::create_dir_all(&scratch).with_context(|| format!("cannot make {}", scratch.display()))?;
        INTERFACES.iter().try_for_each(|interface| interface.generate(workspace, &scratch, check))
    }

    impl Interface {
        fn generate(&self, workspace: &Path, scratch: &Path, check: bool) -> Result<()> {
            let Interface { home, definition, package, code } = self;
            let home = workspace.join(home);
            let definitions = protox::compile([definition], [home.join("proto")])?;
            tonic_prost_build::configure()
                .build_transport(false)
                .disable_comments(["."])
                .out_dir(scratch)
                .compile_fds(definitions)
                .with_context(|| format!("cannot generate code from {definition}"))?;
            let made = scratch.join(format!("{package}.rs"));
            let text = fs::read_to_string(&made).with_context(|| format!("cannot read {}", made.display()))?;
            let header = format!("// Made by `cargo xtask proto` from proto/{definition}. Do not edit.\n\n");
            fs::write(&made, format!("{header}{text}")).with_context(|| format!("cannot write {}", made.display()))?;
            format(workspace, &made)?;
            compare_or_copy(&made, &home.join(code), check)
        }
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
