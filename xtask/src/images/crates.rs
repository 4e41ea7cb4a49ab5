//! The crates that are linked into a program.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::sbom::Package;

/// What `cargo build -p PACKAGE` for the target links. Not from `cargo metadata`, which shows the features of the whole
/// workspace, tests included.
pub(super) fn linked(workspace: &Path, package: &str, target: &str) -> Result<Vec<Package>> {
    let output = Command::new(env!("CARGO"))
        .current_dir(workspace)
        .args(["tree", "--offline", "--edges", "normal,no-proc-macro", "--prefix", "none", "--target", target])
        .args(["--format", "{p}|{l}", "--no-dedupe", "-p", package])
        .output()
        .context("cannot run cargo tree")?;
    if !output.status.success() {
        bail!("cargo tree failed ({}): {}", output.status, String::from_utf8_lossy(&output.stderr).trim_end());
    }
    Ok(parse(&String::from_utf8_lossy(&output.stdout)))
}

/// Lines `NAME vVERSION (…)|LICENCE`, each crate once.
fn parse(tree: &str) -> Vec<Package> {
    let mut all: Vec<Package> = tree.lines().filter_map(package).collect();
    all.sort();
    all.dedup();
    all
}

fn package(line: &str) -> Option<Package> {
    let (crate_, licence) = line.split_once('|')?;
    let mut words = crate_.split(' ');
    let (name, version) = (words.next()?, words.next()?.strip_prefix('v')?);
    // A slash was once allowed for "or".
    let licence = licence.split('/').map(str::trim).collect::<Vec<_>>().join(" OR ");
    Some(Package {
        name: name.to_owned(),
        version: version.to_owned(),
        purl: format!("pkg:cargo/{name}@{version}"),
        licence: (!licence.is_empty()).then_some(licence),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_crate_is_listed_once_with_its_licence_and_without_paths() {
        let tree = "ferrovirt v0.1.0 (/some/where)|Apache-2.0\nanyhow v1.0.104|MIT OR Apache-2.0\nold v0.2.1|MIT/Apache-2.0\n\
                    anyhow v1.0.104|MIT OR Apache-2.0\nnone v1.0.0|\n\n";
        let found = parse(tree);
        let summary: Vec<_> = found.iter().map(|p| (p.purl.as_str(), p.licence.as_deref())).collect();
        assert_eq!(
            summary,
            [
                ("pkg:cargo/anyhow@1.0.104", Some("MIT OR Apache-2.0")),
                ("pkg:cargo/ferrovirt@0.1.0", Some("Apache-2.0")),
                ("pkg:cargo/none@1.0.0", None),
                ("pkg:cargo/old@0.2.1", Some("MIT OR Apache-2.0")),
            ]
        );
    }
}
