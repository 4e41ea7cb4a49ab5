//! The borders of the layers: what decides must not be able to wait, to talk or to look at a clock.

#![allow(clippy::unwrap_used, reason = "the helpers of a test may panic like the test itself")]

use std::path::Path;
use std::process::Command;

/// Crates that may not appear among the dependencies of data and decisions.
const FORBIDDEN: &[&str] =
    &["tokio", "kube", "kube-client", "kube-runtime", "kube-core", "hyper", "axum", "rustix", "rand"];

/// Every crate of the layers `data` and `decide`, by its folder.
fn pure_crates() -> Vec<String> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
    let mut names = Vec::new();
    for layer in ["data", "decide"] {
        for entry in std::fs::read_dir(crates.join(layer)).unwrap() {
            names.push(entry.unwrap().file_name().into_string().unwrap());
        }
    }
    names.sort();
    names
}

fn dependencies(name: &str) -> Vec<String> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--edges", "normal", "--prefix", "none", "--format", "{p}", "-p", name])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

#[test]
fn data_and_decisions_depend_on_neither_a_runtime_nor_a_client() {
    let names = pure_crates();
    for expected in [
        "api",
        "machinery",
        "admission",
        "plan",
        "render",
        "domain",
        "netplan",
        "vmstate",
        "placement",
        "podstate",
        "subresources",
    ] {
        assert!(names.iter().any(|name| name == expected), "crate {expected} is not where it belongs");
    }
    for name in names {
        let all = dependencies(&name);
        let bad: Vec<_> = all.iter().filter(|dependency| FORBIDDEN.contains(&dependency.as_str())).collect();
        assert!(bad.is_empty(), "{name} depends on {bad:?}");
    }
}
