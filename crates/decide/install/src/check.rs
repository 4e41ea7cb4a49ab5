//! Whether a cluster meets the requirements.
//!
//! Container disks and the launcher are mounted as image volumes, which only recent versions of Kubernetes and of container
//! runtimes support.

use std::collections::BTreeMap;
use std::fmt;

use api::config::ClusterConfig;
use serde_json::{Value, json};

use crate::installed::{self, Installed};
use crate::settings::Settings;
use crate::workload::placement::{AMD64, ARCHITECTURE, CONTROL_PLANE, IMAGES, OS, node_selector};

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
    /// Whether the API server stores image volumes; `None` if that could not be tried.
    pub image_volumes: Option<bool>,
    pub nodes: Vec<NodeFacts>,
    pub installed: Installed,
}

/// What a node reports about itself.
#[derive(Clone, Debug, Default)]
pub struct NodeFacts {
    pub name: String,
    /// Such as `linux`.
    pub os: String,
    /// Such as `amd64`.
    pub architecture: String,
    /// The kubelet's version.
    pub kubelet: String,
    /// The container runtime, such as `containerd://2.1.3`.
    pub runtime: String,
    pub labels: BTreeMap<String, String>,
    /// Whether virt-handler offers `/dev/kvm` of it already.
    pub kvm: bool,
}

impl NodeFacts {
    /// Whether it has these labels. The kubelet sets those of the operating system and the architecture.
    fn has(&self, selector: &BTreeMap<String, String>) -> bool {
        selector.iter().all(|(key, value)| match self.labels.get(key) {
            Some(label) => label == value,
            None if key == OS => ["", value].contains(&&*self.os),
            None if key == ARCHITECTURE => ["", value].contains(&&*self.architecture),
            None => false,
        })
    }

    /// Whether our images run on it.
    fn runs_images(&self) -> bool {
        self.has(&IMAGES.map(|(key, value)| (key.to_owned(), value.to_owned())).into())
    }
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

/// The resource by which virt-handler offers `/dev/kvm` of its node.
pub fn kvm() -> String {
    launcher_contract::devices::KVM.resource()
}

/// A Pod with an image volume, to be created in a dry run. It meets the Pod security standard `restricted`.
pub fn probe() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"generateName": "ferrovirt-install-check-"},
        "spec": {
            "restartPolicy": "Never",
            "securityContext": {"runAsNonRoot": true, "runAsUser": 1001, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{
                "name": "check", "image": "example.com/none",
                "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
                "volumeMounts": [{"name": "image", "mountPath": "/image"}],
            }],
            "volumes": [{"name": "image", "image": {"reference": "example.com/none"}}],
        },
    })
}

/// What the answer to [`probe`] says: the Pod as it would be stored, or why it is refused. An API server without the feature gate
/// drops the field, and then refuses a volume without a source.
pub fn image_volumes(answer: Result<&Value, (u16, &str)>) -> Option<bool> {
    match answer {
        Ok(pod) => Some(pod.pointer("/spec/volumes/0/image").is_some_and(Value::is_object)),
        Err((422, message)) if message.contains("spec.volumes[0]") => Some(false),
        // Quotas and policies of the cluster may refuse any Pod.
        Err(_) => None,
    }
}

/// Judges a cluster for an installation with these settings: the API server first, then what is installed, then its nodes.
pub fn judge(facts: &Facts, settings: &Settings) -> Vec<Finding> {
    let mut findings = vec![api_server(facts)];
    findings.extend(installed::judge(&facts.installed, settings));
    findings.extend(infra(facts, settings));
    let workloads = node_selector(&settings.workloads.clone().unwrap_or_default());
    let (chosen, others): (Vec<&NodeFacts>, Vec<&NodeFacts>) =
        facts.nodes.iter().partition(|node| node.has(&workloads));
    if chosen.is_empty() {
        findings.push(Finding::wrong(format!(
            "no node has the labels {}, so virt-handler would run nowhere: add one, or choose nodes with \
             --workloads-node-selector",
            shown(&workloads)
        )));
    } else {
        findings.push(guests(&chosen, facts));
    }
    findings.extend(chosen.into_iter().map(node));
    let linux = |node: &&NodeFacts| ["", "linux"].contains(&&*node.os);
    let unfit = others.into_iter().filter(linux).filter(|node| !node.runs_images() && settings.workloads.is_none());
    findings.extend(unfit.map(|node| {
        Finding::depends(format!(
            "node {} is {}: it gets no VMs, because the images are for {AMD64}",
            node.name, node.architecture
        ))
    }));
    findings
}

fn api_server(facts: &Facts) -> Finding {
    let (by_version, version) = (kubernetes("the API server", &facts.server), &facts.server);
    match facts.image_volumes {
        Some(false) => Finding::wrong(format!(
            "the API server (Kubernetes {version}) drops image volumes: enable the feature gate ImageVolume for it and for the \
             kubelets, or update to 1.{UNGATED}"
        )),
        Some(true) if by_version.level == Level::Depends => {
            Finding::fine(format!("the API server: Kubernetes {version}, with image volumes"))
        }
        _ => by_version,
    }
}

/// Whether virt-api, virt-controller and virt-operator have nodes.
fn infra(facts: &Facts, settings: &Settings) -> Option<Finding> {
    match &settings.infra {
        None => {
            let is_fit =
                |node: &NodeFacts| node.runs_images() && CONTROL_PLANE.iter().any(|key| node.labels.contains_key(*key));
            (!facts.nodes.iter().any(is_fit)).then(|| {
                Finding::depends(
                    "no node has the role control-plane: choose nodes for virt-api and virt-controller, \
                     such as all with --infra-node-selector=kubernetes.io/os=linux"
                        .to_owned(),
                )
            })
        }
        Some(placement) => {
            let selector = node_selector(placement);
            (!facts.nodes.iter().any(|node| node.has(&selector))).then(|| {
                Finding::wrong(format!(
                    "no node has the labels {}, so virt-operator would not start: choose others with --infra-node-selector",
                    shown(&selector)
                ))
            })
        }
    }
}

/// Whether guests can run. Before virt-handler runs, only its own nodes know.
fn guests(chosen: &[&NodeFacts], facts: &Facts) -> Finding {
    let config = facts.installed.kubevirt.as_ref().map(ClusterConfig::from_kubevirt);
    let emulates = config.and_then(Result::ok).is_some_and(|config| config.use_emulation());
    match chosen.iter().filter(|node| node.kvm).count() {
        _ if emulates => Finding::fine("guests may be emulated: useEmulation is set".to_owned()),
        0 => Finding::depends(
            "guests need /dev/kvm on their node: make sure that it is there, or set \
             spec.configuration.developerConfiguration.useEmulation of the KubeVirt object for slow guests without it"
                .to_owned(),
        ),
        count => Finding::fine(format!("nodes with KVM: {count} of {}", chosen.len())),
    }
}

fn shown(selector: &BTreeMap<String, String>) -> String {
    selector.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
}

/// A node is as good as the worse of its kubelet and its container runtime.
fn node(node: &NodeFacts) -> Finding {
    let who = format!("node {}", node.name);
    if !node.runs_images() {
        return Finding::wrong(format!(
            "{who} is {}, and the images are for {AMD64}: choose other nodes with --workloads-node-selector",
            node.architecture
        ));
    }
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
    pub(crate) fn fine(message: String) -> Self {
        Self { level: Level::Fine, message }
    }

    pub(crate) fn depends(message: String) -> Self {
        Self { level: Level::Depends, message }
    }

    pub(crate) fn wrong(message: String) -> Self {
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

    /// A node of the control plane with KVM.
    fn good(name: &str) -> NodeFacts {
        NodeFacts {
            name: name.to_owned(),
            os: "linux".to_owned(),
            architecture: "amd64".to_owned(),
            kubelet: "v1.36.0".to_owned(),
            runtime: "containerd://2.4.2".to_owned(),
            labels: [(CONTROL_PLANE[0].to_owned(), String::new())].into(),
            kvm: true,
        }
    }

    fn facts(nodes: &[NodeFacts]) -> Facts {
        Facts { server: "v1.36.0".to_owned(), nodes: nodes.to_vec(), ..Facts::default() }
    }

    fn selecting(key: &str, value: &str) -> Option<api::v1::NodePlacement> {
        let node_selector = [(key.to_owned(), value.to_owned())].into();
        Some(api::v1::NodePlacement { node_selector, ..Default::default() })
    }

    /// The worst findings, each beginning on a new line.
    fn worst(facts: &Facts, settings: &Settings) -> (Level, String) {
        let findings = judge(facts, settings);
        let level = findings.iter().map(|finding| finding.level).max().unwrap();
        let messages = findings.into_iter().filter(|finding| finding.level == level).map(|finding| finding.message);
        (level, messages.collect::<Vec<_>>().join("\n"))
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
            let node = NodeFacts { kubelet: kubelet.to_owned(), runtime: runtime.to_owned(), ..good("n1") };
            let facts = Facts { server: server.to_owned(), ..facts(&[node]) };
            assert_eq!(worst(&facts, &Settings::default()).0, expected, "{server} {kubelet} {runtime}");
        }
    }

    #[test]
    fn the_api_server_shows_whether_it_stores_image_volumes() {
        let table = [
            ("v1.34.0", Some(true), Fine),
            ("v1.34.0", Some(false), Wrong),
            ("v1.34.0", None, Depends),
            ("v1.36.0", Some(false), Wrong),
            ("v1.36.0", None, Fine),
            ("v1.32.0", Some(true), Wrong),
        ];
        for (server, image_volumes, expected) in table {
            let facts = Facts { server: server.to_owned(), image_volumes, ..facts(&[good("n1")]) };
            assert_eq!(judge(&facts, &Settings::default())[0].level, expected, "{server} {image_volumes:?}");
        }
    }

    #[test]
    fn a_probe_that_is_refused_for_other_reasons_shows_nothing() {
        let without = json!({"spec": {"volumes": [{"name": "image"}]}});
        let required = "Pod \"x\" is invalid: spec.volumes[0]: Required value: must specify a volume type";
        let table = [
            (Ok(&without), Some(false)),
            (Err((422, required)), Some(false)),
            (Err((422, "spec.containers[0].image: Invalid value")), None),
            (Err((403, "exceeded quota")), None),
        ];
        for (answer, expected) in table {
            assert_eq!(image_volumes(answer), expected, "{answer:?}");
        }
        assert_eq!(image_volumes(Ok(&probe())), Some(true));
    }

    #[test]
    fn only_chosen_nodes_count() {
        let old = || NodeFacts { kubelet: "v1.20.0".to_owned(), ..good("old") };
        let arm = || NodeFacts { architecture: "arm64".to_owned(), ..good("arm") };
        let windows = || NodeFacts { os: "windows".to_owned(), ..old() };
        let labelled = |node: NodeFacts| NodeFacts { labels: [("vms".to_owned(), "yes".to_owned())].into(), ..node };
        let default = Settings::default;
        let vms = || Settings { workloads: selecting("vms", "yes"), ..default() };
        let all = || Settings { infra: selecting(OS, "linux"), ..default() };
        let table = [
            (vec![good("n1"), windows()], default(), Fine, ""),
            (
                vec![windows()],
                default(),
                Wrong,
                "no node has the labels kubernetes.io/arch=amd64,kubernetes.io/os=linux",
            ),
            (vec![good("n1"), old()], default(), Wrong, "the kubelet of node old"),
            (vec![good("n1"), labelled(good("n2")), old()], vms(), Fine, ""),
            (vec![good("n1")], vms(), Wrong, "vms=yes, so virt-handler would run nowhere"),
            (vec![good("n1"), arm()], default(), Depends, "node arm is arm64: it gets no VMs"),
            (vec![arm()], default(), Wrong, "virt-handler would run nowhere"),
            (
                vec![good("n1"), arm()],
                Settings { workloads: selecting(ARCHITECTURE, "arm64"), ..default() },
                Wrong,
                "node arm is arm64, and the images are for amd64",
            ),
            (vec![labelled(good("n1"))], default(), Depends, "no node has the role control-plane"),
            (vec![labelled(good("n1"))], all(), Fine, ""),
            (
                vec![good("n1")],
                Settings { infra: selecting("a", "b"), ..default() },
                Wrong,
                "so virt-operator would not start",
            ),
        ];
        for (nodes, settings, level, message) in table {
            let found = worst(&facts(&nodes), &settings);
            assert!(found.0 == level && found.1.contains(message), "{nodes:?}: {found:?}");
        }
    }

    #[test]
    fn guests_need_kvm_or_emulation() {
        let without = NodeFacts { kvm: false, ..good("n1") };
        let (level, message) = worst(&facts(std::slice::from_ref(&without)), &Settings::default());
        assert!(level == Depends && message.contains("useEmulation"), "{message}");
        let emulating =
            json!({"metadata": {}, "spec": {"configuration": {"developerConfiguration": {"useEmulation": true}}}});
        let installed =
            Installed { kubevirt: Some(serde_json::from_value(emulating).unwrap()), ..Installed::default() };
        assert_eq!(worst(&Facts { installed, ..facts(&[without]) }, &Settings::default()).0, Fine);
        assert_eq!(worst(&facts(&[good("n1")]), &Settings::default()).0, Fine);
    }
}
