//! `render`: what a manifest would become, without creating anything.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use api::v1::{VirtualMachineInstance, VirtualMachineInstanceMigration};
use domain::HostFacts;
use k8s_openapi::api::core::v1::{Node, Pod};
use machinery::field::{Cause, FieldError, FieldPath};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use terminal::output::print;

use super::judge::{Judge, Source, stored};
use super::manifest::{self, Document, to_yaml};

/// Default node of a Pod.
const MADE_UP_NODE: &str = "node";

/// Render the Pods and the libvirt domain of a VirtualMachine or VirtualMachineInstance
///
/// Objects in manifests have no UID; names that are derived from it are placeholders.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// The launcher Pod, as YAML
    Pod(PodArgs),
    /// The Pod that binds WaitForFirstConsumer volumes where the guest can run, as YAML
    FirstConsumerPod(PodArgs),
    /// The Pod that attaches hotplugged volumes on the guest's node, as YAML
    AttachmentPod(PodArgs),
    /// The target Pod of a live migration, as YAML
    ///
    /// --context may contain the source Pod, its Node and the VirtualMachineInstanceMigration.
    MigrationPod(PodArgs),
    /// The libvirt domain, as XML, for an example node
    Domain {
        #[command(flatten)]
        source: Source,
        /// Assume a node without hardware virtualization
        #[arg(long)]
        without_kvm: bool,
    },
}

#[derive(Debug, clap::Args)]
struct PodArgs {
    #[command(flatten)]
    source: Source,
    /// File or directory with objects that the Pod depends on: PersistentVolumeClaims, the Namespace, ResourceQuotas,
    /// NetworkAttachmentDefinitions. Those in the same input count, too
    #[arg(long, value_name = "FILE|DIR")]
    context: Vec<PathBuf>,
    /// Also render valid fields that this build does not support
    #[arg(long)]
    ignore_unsupported: bool,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let (source, pod) = match &args.what {
        What::Pod(pod) | What::FirstConsumerPod(pod) | What::AttachmentPod(pod) | What::MigrationPod(pod) => {
            (&pod.source, Some(pod))
        }
        What::Domain { source, .. } => (source, None),
    };
    let documents = source.documents()?;
    let judge = source.judge(&documents)?;
    let machines: Vec<&Document> = documents.iter().filter(|document| is_machine(document)).collect();
    anyhow::ensure!(!machines.is_empty(), "there is no VirtualMachine and no VirtualMachineInstance in the input");
    let around = match pod.filter(|pod| !pod.context.is_empty()) {
        Some(pod) => manifest::read(&pod.context, false)?,
        None => vec![],
    };
    let around: Vec<&Document> = documents.iter().chain(&around).collect();
    for (index, document) in machines.iter().enumerate() {
        let ignore_unsupported = pod.is_some_and(|pod| pod.ignore_unsupported);
        let vmi = instance(&judge, &document.object, ignore_unsupported).map_err(|errors| {
            let lines = errors.iter().map(|error| format!("\n{error}")).collect::<String>();
            anyhow::anyhow!("{}: {} is refused:{lines}", document.origin, document.name())
        })?;
        let text = match &args.what {
            What::Domain { without_kvm, .. } => xml(&judge, &vmi, *without_kvm),
            what => render_pod(what, &judge, &vmi, &around),
        };
        let text = text.with_context(|| document.origin.to_string())?;
        let separator = if pod.is_some() && index > 0 { "---\n" } else { "" };
        print(&format!("{separator}{text}"))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn is_machine(document: &Document) -> bool {
    matches!(document.kind(), "VirtualMachine" | "VirtualMachineInstance")
}

/// The VMI that results from a manifest. Unsupported fields can be ignored only for VMIs: the VMI of a VM is what its
/// controller would create.
fn instance(
    judge: &Judge,
    object: &Value,
    ignore_unsupported: bool,
) -> Result<VirtualMachineInstance, Vec<FieldError>> {
    let judged = match judge.judge(object) {
        Some(judged) if ignore_unsupported && object["kind"] == "VirtualMachineInstance" => judged?,
        _ => return judge.instance(object),
    };
    if !judged.causes.is_empty() {
        return Err(judged.causes);
    }
    serde_json::from_value(stored(judged.object))
        .map_err(|error| vec![FieldError::new(Cause::TypeInvalid, FieldPath::root(), error.to_string())])
}

/// A Pod as accepted by `kubectl create -f`.
fn render_pod(
    what: &What,
    judge: &Judge,
    vmi: &VirtualMachineInstance,
    around: &[&Document],
) -> anyhow::Result<String> {
    let mut context = render::Context::default();
    for document in around {
        context.learn(vmi, &document.object).with_context(|| document.origin.to_string())?;
    }
    let rendered = match what {
        What::FirstConsumerPod(_) => render::first_consumer_pod(vmi, &judge.config, &context),
        What::AttachmentPod(_) => attachment(judge, vmi, &context),
        What::MigrationPod(_) => return migration(judge, vmi, &context, around),
        _ => render::launcher_pod(vmi, &judge.config, &context),
    };
    to_text(&rendered.map_err(with_remedy)?)
}

fn to_text(pod: &Pod) -> anyhow::Result<String> {
    let mut object = serde_json::to_value(pod)?;
    object["apiVersion"] = json!("v1");
    object["kind"] = json!("Pod");
    Ok(to_yaml(&object)?)
}

/// Adds the hint that missing objects can be put next to the VMI.
fn with_remedy(error: render::Error) -> anyhow::Error {
    let remedy = match &error {
        render::Error::ClaimNotFound { .. } => "give its manifest by --context",
        render::Error::NoBackendClaim => {
            "give the manifest of a claim with the label persistent-state-for: NAME by --context"
        }
        render::Error::NoDigest { .. } => "give the manifest of the source Pod, its status included, by --context",
        _ => return error.into(),
    };
    anyhow::Error::from(error).context(remedy)
}

/// The VMI's launcher Pod as if it were running.
fn running(judge: &Judge, vmi: &VirtualMachineInstance, context: &render::Context) -> Result<Pod, render::Error> {
    let mut pod = render::launcher_pod(vmi, &judge.config, context)?;
    pod.metadata.uid = vmi.metadata.uid.clone();
    let node = vmi.status.as_ref().and_then(|status| status.node_name.clone());
    pod.spec.get_or_insert_default().node_name = Some(node.unwrap_or_else(|| MADE_UP_NODE.to_owned()));
    Ok(pod)
}

/// The VMI as virt-handler would know it: with SELinux disabled unless it says otherwise.
fn labelled(vmi: &VirtualMachineInstance) -> VirtualMachineInstance {
    let mut vmi = vmi.clone();
    vmi.status_mut().selinux_context.get_or_insert_with(|| "none".to_owned());
    vmi
}

fn attachment(judge: &Judge, vmi: &VirtualMachineInstance, context: &render::Context) -> Result<Pod, render::Error> {
    let launcher = running(judge, vmi, context)?;
    let carried = launcher.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let carried: Vec<&str> = carried.map(|volume| volume.name.as_str()).collect();
    let volumes = vmi.spec.volumes.iter().filter(|volume| !carried.contains(&volume.name.as_str()));
    let plugged: Vec<render::Attachment> = volumes.filter_map(render::Attachment::of).collect();
    render::attachment_pod(&labelled(vmi), &launcher, &plugged, &judge.config, context)
}

fn migration(
    judge: &Judge,
    vmi: &VirtualMachineInstance,
    context: &render::Context,
    around: &[&Document],
) -> anyhow::Result<String> {
    let made_up = json!({ "metadata": { "name": "migration", "uid": vmi.metadata.uid } });
    let migration: VirtualMachineInstanceMigration = match find(around, "VirtualMachineInstanceMigration")? {
        Some(migration) => migration,
        None => serde_json::from_value(made_up)?,
    };
    let pod = match find(around, "Pod")? {
        Some(pod) => pod,
        None => running(judge, vmi, context).map_err(with_remedy)?,
    };
    let node: Option<Node> = find(around, "Node")?;
    let source = render::Source { pod: &pod, node: node.as_ref() };
    let rendered = render::migration_target_pod(&labelled(vmi), &migration, source, &judge.config, context);
    to_text(&rendered.map_err(with_remedy)?)
}

/// The first object of a kind.
fn find<T: DeserializeOwned>(documents: &[&Document], kind: &str) -> anyhow::Result<Option<T>> {
    let Some(document) = documents.iter().find(|document| document.kind() == kind) else { return Ok(None) };
    let object: Value = document.object.clone();
    Ok(Some(serde_json::from_value(object).with_context(|| document.origin.to_string())?))
}

fn xml(judge: &Judge, vmi: &VirtualMachineInstance, without_kvm: bool) -> anyhow::Result<String> {
    let mut facts = HostFacts::example(vmi);
    facts.kvm_usable = !without_kvm;
    facts.allow_emulation = without_kvm || judge.config.use_emulation();
    facts.smbios = judge.config.smbios();
    facts.mem_balloon_stats_period = judge.config.mem_balloon_stats_period();
    facts.serial_console_log_disabled = judge.config.serial_console_log_disabled();
    facts.free_page_reporting_disabled = judge.config.free_page_reporting_disabled();
    Ok(domain::convert(vmi, &facts)?.to_xml()?)
}
