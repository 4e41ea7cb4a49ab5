//! Whether a cluster meets the requirements.
//!
//! Container disks and the launcher are mounted as image volumes, which only recent versions of Kubernetes and of container
//! runtimes support.

use std::fmt;

/// The first minor version of Kubernetes 1 with usable image volumes, if the feature gate is enabled.
const GATED: u32 = 33;
/// The first one that has them by default.
const UNGATED: u32 = 35;
/// Container runtimes with image volumes, from this version on.
const RUNTIMES: &[(&str, Version)] =
    &[("containerd", Version { major: 2, minor: 1 }), ("cri-o", Version { major: 1, minor: 33 })];

/// What a cluster reports about itself.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The API server's version, such as `v1.36.3`.
    pub server: String,
    pub nodes: Vec<NodeFacts>,
}

/// What a node reports about itself.
#[derive(Clone, Debug, Default)]
pub struct NodeFacts {
    pub name: String,
    /// Such as `linux`.
    pub os: String,
    /// The kubelet's version.
    pub kubelet: String,
    /// The container runtime, such as `containerd://2.1.3`.
    pub runtime: String,
    /// Whether it is one of the control plane.
    pub control_plane: bool,
}

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Fine,
    /// It works if the cluster is configured for it.
    Depends,
    /// It does not work.
    Wrong,
}

/// A finding about a cluster, with the remedy if it is a problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub level: Level,
    pub message: String,
}

/// Judges a cluster, the API server first, then its nodes.
pub fn judge(facts: &Facts) -> Vec<Finding> {
    let linux: Vec<&NodeFacts> = facts.nodes.iter().filter(|node| matches!(node.os.as_str(), "linux" | "")).collect();
    let mut findings = vec![kubernetes("the API server", &facts.server)];
    if linux.is_empty() {
        findings.push(Finding::wrong("the cluster has no Linux node for virt-handler: add one".to_owned()));
    } else if !linux.iter().any(|node| node.control_plane) {
        findings.push(Finding::depends(
            "no node has the role control-plane: choose nodes for virt-api and virt-controller, \
             such as all with --infra-node-selector=kubernetes.io/os=linux"
                .to_owned(),
        ));
    }
    findings.extend(linux.into_iter().map(node));
    findings
}

/// A node is as good as the worse of its kubelet and its container runtime.
fn node(node: &NodeFacts) -> Finding {
    let who = format!("node {}", node.name);
    let (kubelet, runtime) =
        (kubernetes(&format!("the kubelet of {who}"), &node.kubelet), container_runtime(&who, &node.runtime));
    match kubelet.level.max(runtime.level) {
        Level::Fine => Finding::fine(format!("{who}: Kubernetes {}, {}", node.kubelet, node.runtime)),
        level if level == kubelet.level => kubelet,
        _ => runtime,
    }
}

fn kubernetes(who: &str, version: &str) -> Finding {
    match Version::read(version) {
        Some(read) if read >= (Version { major: 1, minor: UNGATED }) => {
            Finding::fine(format!("{who}: Kubernetes {version}"))
        }
        Some(read) if read >= (Version { major: 1, minor: GATED }) => Finding::depends(format!(
            "{who} runs Kubernetes {version}: image volumes need the feature gate ImageVolume; \
             enable it, or update to 1.{UNGATED}"
        )),
        Some(_) => Finding::wrong(format!(
            "{who} runs Kubernetes {version}, whose image volumes are missing or too old: update to 1.{UNGATED}"
        )),
        None => Finding::depends(format!(
            "{who} reports the unknown version {version:?}: make sure that it is Kubernetes 1.{UNGATED} or newer"
        )),
    }
}

fn container_runtime(who: &str, reported: &str) -> Finding {
    let (name, version) = reported.split_once("://").unwrap_or((reported, ""));
    let Some((_, least)) = RUNTIMES.iter().find(|(known, _)| *known == name) else {
        return Finding::depends(format!(
            "{who} has the unknown container runtime {reported:?}: make sure that it supports image volumes"
        ));
    };
    match Version::read(version) {
        Some(read) if read >= *least => Finding::fine(format!("{who}: {reported}")),
        Some(_) => Finding::wrong(format!(
            "{who} has {name} {version}, which does not support image volumes: update to {least}"
        )),
        None => Finding::depends(format!(
            "{who} has {name} of the unknown version {version:?}: make sure that it is {least} or newer"
        )),
    }
}

impl Finding {
    fn fine(message: String) -> Self {
        Self { level: Level::Fine, message }
    }

    fn depends(message: String) -> Self {
        Self { level: Level::Depends, message }
    }

    fn wrong(message: String) -> Self {
        Self { level: Level::Wrong, message }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Version {
    major: u32,
    minor: u32,
}

impl Version {
    /// The first two numbers; vendors append their own suffixes.
    fn read(text: &str) -> Option<Self> {
        let mut numbers = text.trim().trim_start_matches('v').split('.');
        let mut next = || {
            let part = numbers.next()?;
            let digits = part.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(part.len());
            part[..digits].parse().ok()
        };
        Some(Self { major: next()?, minor: next()? })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::Level::{Depends, Fine, Wrong};
    use super::*;

    fn level(server: &str, kubelet: &str, runtime: &str) -> Level {
        let node = NodeFacts {
            name: "n1".to_owned(),
            os: "linux".to_owned(),
            kubelet: kubelet.to_owned(),
            runtime: runtime.to_owned(),
            control_plane: true,
        };
        let findings = judge(&Facts { server: server.to_owned(), nodes: vec![node] });
        findings.iter().map(|finding| finding.level).max().unwrap()
    }

    #[test]
    fn the_oldest_part_decides() {
        let table = [
            ("v1.36.3", "v1.36.3", "containerd://2.4.2", Fine),
            ("v1.35.0", "v1.35.1+k3s1", "containerd://2.1.0-k3s1", Fine),
            ("v1.36.3", "v1.36.3", "cri-o://1.36.0", Fine),
            ("v1.36.3", "v1.34.0", "containerd://2.1.0", Depends),
            ("v1.33.9-gke.100", "v1.33.9-gke.100", "containerd://2.1.0", Depends),
            ("v1.36.3", "v1.36.3", "containerd://2.0.9", Wrong),
            ("v1.36.3", "v1.36.3", "containerd://1.7.29", Wrong),
            ("v1.32.0", "v1.32.0", "containerd://2.4.2", Wrong),
            ("v1.36.3", "v1.36.3", "cri-o://1.32.5", Wrong),
            ("v1.36.3", "v1.36.3", "docker://27.0.0", Depends),
            ("v1.36.3", "v1.36.3", "containerd://", Depends),
            ("", "v1.36.3", "containerd://2.4.2", Depends),
            ("v2.0.0", "v2.0.0", "containerd://3.0.0", Fine),
        ];
        for (server, kubelet, runtime, expected) in table {
            assert_eq!(level(server, kubelet, runtime), expected, "{server} {kubelet} {runtime}");
        }
    }

    #[test]
    fn nodes_of_other_systems_do_not_count() {
        let windows = NodeFacts { os: "windows".to_owned(), kubelet: "v1.20.0".to_owned(), ..NodeFacts::default() };
        let findings = judge(&Facts { server: "v1.36.0".to_owned(), nodes: vec![windows] });
        assert_eq!(findings.last().unwrap().level, Wrong);
        assert!(findings.last().unwrap().message.contains("no Linux node"), "{findings:?}");
    }

    #[test]
    fn a_cluster_whose_control_plane_is_out_of_sight_is_told_what_to_choose() {
        let node = NodeFacts {
            name: "n1".to_owned(),
            os: "linux".to_owned(),
            kubelet: "v1.36.0".to_owned(),
            runtime: "containerd://2.4.2".to_owned(),
            control_plane: false,
        };
        let findings = judge(&Facts { server: "v1.36.0".to_owned(), nodes: vec![node] });
        assert!(findings.iter().any(|finding| finding.message.contains("--infra-node-selector")), "{findings:?}");
    }
}
