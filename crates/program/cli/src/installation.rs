//! `install`: the manifests of an installation on Kubernetes, and whether a cluster can take them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use api::v1::{KubeVirt, NodePlacement};
use install::check::{self, Facts, Finding, Level, NodeFacts};
use install::installed::Installed;
use install::{Manifest, Programs, Settings, Step, names};
use k8s_openapi::Resource;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{LocalObjectReference, Node, Pod};
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::api::{Api, ListParams, PostParams};
use kube::{Client, ResourceExt as _};
use machinery::names::{check_dns1123_label, check_dns1123_subdomain};
use terminal::output::print;
use virtctl::connect::ConnectArgs;

use super::errors::{gone_is_none, server_error};
use super::manifest::to_yaml;

/// CA bundles beyond this size are something else.
const CA_BUNDLE_MAX: u64 = 1 << 20;
/// Where a Pod is created in a dry run: this namespace always exists.
const PROBED: &str = "default";

/// Print the manifests that install Ferrovirt on a Kubernetes cluster
///
/// virt-operator, its RBAC objects, and the KubeVirt object with the configuration:
///
///   ferrovirt install --only operator | kubectl apply -f -
///   kubectl wait crd kubevirts.kubevirt.io --for condition=Established
///   ferrovirt install --only kubevirt | kubectl apply -f -
///   kubectl -n kubevirt wait kubevirt kubevirt --for condition=Available --timeout 10m
///
/// kubectl looks up the kinds of all documents before it applies the first one. If the cluster knows the KubeVirt kind,
/// as for an update, one command is enough: ferrovirt install | kubectl apply -f -
///
/// virt-operator creates everything else, including certificates. --without-operator prints all objects except
/// certificates; see docs/install.md.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Args {
    #[command(flatten)]
    connect: ConnectArgs,
    /// Prefix of the image names: registry and path
    #[arg(long, default_value_t = Settings::default().image_prefix, value_name = "PREFIX")]
    image_prefix: String,
    /// Image tag
    #[arg(long, default_value_t = Settings::default().image_tag, value_name = "TAG")]
    image_tag: String,
    /// Image pull policy
    #[arg(long, default_value_t = Settings::default().image_pull_policy, value_parser = ["Always", "IfNotPresent", "Never"], value_name = "POLICY")]
    image_pull_policy: String,
    /// Image pull secret; can be repeated
    #[arg(long, value_parser = object_name, value_name = "NAME")]
    image_pull_secret: Vec<String>,
    /// Replicas of each Deployment [default: 2]
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..), value_name = "NUMBER")]
    replicas: Option<u8>,
    /// Node selector of virt-api, virt-controller and virt-operator; can be repeated [default: the control plane]
    #[arg(long, value_parser = pair, value_name = "KEY=VALUE")]
    infra_node_selector: Vec<(String, String)>,
    /// Node selector of virt-handler and VMs; can be repeated [default: all amd64 Linux nodes]
    #[arg(long, value_parser = pair, value_name = "KEY=VALUE")]
    workloads_node_selector: Vec<(String, String)>,
    /// Root directory of the kubelets
    #[arg(long, default_value_t = Settings::default().kubelet_root, value_parser = absolute, value_name = "DIR")]
    kubelet_root: String,
    /// Print only virt-operator and its RBAC objects, or only the KubeVirt object
    #[arg(long, value_name = "PART", conflicts_with_all = ["without_operator", "check"])]
    only: Option<Part>,
    /// Print what virt-operator would create, except certificates, instead of virt-operator
    #[arg(long)]
    without_operator: bool,
    /// PEM file with the CAs of the certificate kubevirt-virt-api-certs, for the API server to trust
    #[arg(long, requires = "without_operator", value_name = "FILE")]
    ca_bundle: Option<PathBuf>,
    /// Check whether the cluster meets the requirements, and print no manifests
    #[arg(long, conflicts_with = "without_operator")]
    check: bool,
}

/// One of the two manifests that KubeVirt has, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    Operator,
    Kubevirt,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    if args.check {
        return tell(&findings(&args).await?);
    }
    print(&manifests(&args)?)?;
    Ok(ExitCode::SUCCESS)
}

/// The manifests, as YAML documents in the order of application.
pub fn manifests(args: &Args) -> anyhow::Result<String> {
    let (settings, programs) = (settings(args)?, programs());
    let manifests = match args.without_operator {
        true => install::without_operator(&settings, &programs),
        false => install::with_operator(&settings, &programs),
    };
    let is_printed = |manifest: &&Manifest| match args.only {
        None => true,
        Some(part) => (part == Part::Kubevirt) == (manifest.step == Step::Installation),
    };
    documents(manifests.iter().filter(is_printed))
}

fn documents<'a>(manifests: impl Iterator<Item = &'a Manifest>) -> anyhow::Result<String> {
    manifests.map(|manifest| Ok(format!("---\n{}", to_yaml(&manifest.object)?))).collect()
}

/// Our programs, with the rights that their code declares.
pub fn programs() -> Programs {
    Programs {
        api: virt_api::program_on_kubernetes(),
        controller: virt_controller::program(virt_controller::ALL),
        handler: virt_handler::program_on_kubernetes(),
    }
}

fn settings(args: &Args) -> anyhow::Result<Settings> {
    let namespace = args.connect.namespace.clone().unwrap_or_else(|| install::names::NAMESPACE.to_owned());
    let wrong = check_dns1123_label(&namespace);
    ensure!(wrong.is_empty(), "--namespace {namespace:?} is not the name of a namespace: {}", wrong.join(", "));
    let pull_secrets = args.image_pull_secret.iter().map(|name| LocalObjectReference { name: name.clone() });
    Ok(Settings {
        namespace,
        image_prefix: args.image_prefix.clone(),
        image_tag: args.image_tag.clone(),
        image_pull_policy: args.image_pull_policy.clone(),
        image_pull_secrets: pull_secrets.collect(),
        replicas: args.replicas,
        infra: placement(&args.infra_node_selector),
        workloads: placement(&args.workloads_node_selector),
        kubelet_root: args.kubelet_root.clone(),
        ca_bundle: args.ca_bundle.as_deref().map(ca_bundle).transpose()?,
        ..Settings::default()
    })
}

fn placement(labels: &[(String, String)]) -> Option<NodePlacement> {
    let node_selector: BTreeMap<String, String> = labels.iter().cloned().collect();
    (!labels.is_empty()).then(|| NodePlacement { node_selector, ..NodePlacement::default() })
}

fn ca_bundle(path: &Path) -> anyhow::Result<String> {
    let shown = path.display();
    let size = std::fs::metadata(path).with_context(|| format!("cannot read the CA bundle {shown}"))?.len();
    ensure!(size <= CA_BUNDLE_MAX, "the CA bundle {shown} has {size} bytes; the limit is {CA_BUNDLE_MAX}");
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read the CA bundle {shown}"))?;
    ensure!(text.contains("-----BEGIN CERTIFICATE-----"), "the CA bundle {shown} has no PEM certificate");
    Ok(text)
}

fn object_name(text: &str) -> Result<String, String> {
    match check_dns1123_subdomain(text) {
        wrong if wrong.is_empty() => Ok(text.to_owned()),
        wrong => Err(wrong.join(", ")),
    }
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("expected KEY=VALUE".to_owned()),
    }
}

fn absolute(text: &str) -> Result<String, String> {
    match text.starts_with('/') && !text.split('/').any(|part| part == "..") {
        true => Ok(text.to_owned()),
        false => Err("expected an absolute path".to_owned()),
    }
}

/// What the cluster has of what an installation needs.
pub async fn findings(args: &Args) -> anyhow::Result<Vec<Finding>> {
    let settings = settings(args)?;
    let session = args.connect.connect().await?;
    let failed = |error| server_error(error, &session.server);
    let version =
        session.client.apiserver_version().await.map_err(failed).context("cannot read the cluster's version")?;
    let nodes = Api::<Node>::all(session.client.clone()).list(&ListParams::default()).await;
    let nodes = nodes.map_err(failed).context("cannot list the nodes")?;
    let installed = installed(&session.client, &settings.namespace).await;
    let facts = Facts {
        server: version.git_version,
        image_volumes: image_volumes(&session.client).await?,
        nodes: nodes.items.iter().map(node_facts).collect(),
        installed: installed.map_err(failed).context("cannot read what is installed")?,
    };
    Ok(check::judge(&facts, &settings))
}

/// Whether the API server stores image volumes. A dry run creates nothing.
async fn image_volumes(client: &Client) -> anyhow::Result<Option<bool>> {
    let pod: Pod = serde_json::from_value(check::probe()).context("cannot create the Pod for the dry run")?;
    let params = PostParams { dry_run: true, ..PostParams::default() };
    Ok(match Api::<Pod>::namespaced(client.clone(), PROBED).create(&params, &pod).await {
        Ok(stored) => check::image_volumes(Ok(&serde_json::to_value(stored)?)),
        Err(kube::Error::Api(status)) => check::image_volumes(Err((status.code, &status.message))),
        Err(_) => None,
    })
}

async fn installed(client: &Client, namespace: &str) -> Result<Installed, kube::Error> {
    let operators = ListParams::default().fields(&format!("metadata.name={}", names::app::OPERATOR));
    let operators = gone_is_none(Api::<Deployment>::all(client.clone()).list(&operators).await)?;
    let kind = format!("kubevirts.{}", api::v1::GROUP);
    let definition = gone_is_none(Api::<CustomResourceDefinition>::all(client.clone()).get_metadata(&kind).await)?;
    let bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
    let binding = gone_is_none(bindings.get_metadata(names::account::OPERATOR).await)?;
    let kubevirts: Api<KubeVirt> = Api::namespaced(client.clone(), namespace);
    let kubevirt = gone_is_none(kubevirts.list(&ListParams::default().limit(1)).await)?;
    let operators = operators.iter().flat_map(|list| &list.items).filter(|one| one.name_any() == names::app::OPERATOR);
    let operators = operators.map(typed::<Deployment, _>);
    let definition = definition.iter().map(typed::<CustomResourceDefinition, _>);
    let binding = binding.iter().map(typed::<ClusterRoleBinding, _>);
    Ok(Installed {
        objects: operators.chain(definition).chain(binding).collect(),
        kubevirt: kubevirt.and_then(|list| list.items.into_iter().next()),
    })
}

/// An object with its kind, which items of lists do not say.
fn typed<K: Resource, T: serde::Serialize>(object: &T) -> serde_json::Value {
    let mut value = serde_json::to_value(object).unwrap_or_default();
    value["kind"] = K::KIND.into();
    value
}

fn tell(findings: &[Finding]) -> anyhow::Result<ExitCode> {
    for finding in findings {
        let mark = match finding.level {
            Level::Fine => "ok   ",
            Level::Depends => "check",
            Level::Wrong => "wrong",
        };
        print(&format!("{mark}  {}\n", finding.message))?;
    }
    let worst = findings.iter().map(|finding| finding.level).max();
    Ok(if worst == Some(Level::Wrong) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn node_facts(node: &Node) -> NodeFacts {
    let info = node.status.as_ref().and_then(|status| status.node_info.clone()).unwrap_or_default();
    NodeFacts {
        name: node.name_any(),
        os: info.operating_system,
        architecture: info.architecture,
        kubelet: info.kubelet_version,
        runtime: info.container_runtime_version,
        labels: node.labels().clone(),
        kvm: node.status.as_ref().is_some_and(|status| offers_kvm(status.allocatable.as_ref())),
    }
}

fn offers_kvm(allocatable: Option<&BTreeMap<String, Quantity>>) -> bool {
    allocatable.and_then(|all| all.get(&check::kvm())).is_some_and(|count| count.0 != "0")
}
