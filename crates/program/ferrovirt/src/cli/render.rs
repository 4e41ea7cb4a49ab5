//! `render`: what a manifest would become, without creating anything.

use std::process::ExitCode;

use anyhow::Context as _;
use api::v1::VirtualMachineInstance;
use domain::HostFacts;
use virtctl::output::print;

use super::judge::{Judge, Source};
use super::manifest::{Document, to_yaml};

/// Show what a VirtualMachine or VirtualMachineInstance would become
///
/// Objects that were never stored have no UID; names that are derived from it are made up.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// The launcher Pod, as YAML
    Pod {
        #[command(flatten)]
        source: Source,
    },
    /// The libvirt domain, as XML, with made-up facts about the node
    Domain {
        #[command(flatten)]
        source: Source,
        /// Suppose a node without usable hardware virtualization
        #[arg(long)]
        without_kvm: bool,
    },
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let (What::Pod { source } | What::Domain { source, .. }) = &args.what;
    let documents = source.documents()?;
    let judge = source.judge(&documents)?;
    let machines: Vec<&Document> = documents.iter().filter(|document| is_machine(document)).collect();
    anyhow::ensure!(!machines.is_empty(), "there is no VirtualMachine and no VirtualMachineInstance in the input");
    for (index, document) in machines.iter().enumerate() {
        let vmi = judge.instance(&document.object).map_err(|errors| {
            let lines = errors.iter().map(|error| format!("\n{error}")).collect::<String>();
            anyhow::anyhow!("{}: {} is refused:{lines}", document.origin, document.name())
        })?;
        let text = match &args.what {
            What::Pod { .. } => pod(&judge, &vmi),
            What::Domain { without_kvm, .. } => xml(&judge, &vmi, *without_kvm),
        };
        let text = text.with_context(|| document.origin.to_string())?;
        let separator = if matches!(args.what, What::Pod { .. }) && index > 0 { "---\n" } else { "" };
        print(&format!("{separator}{text}"))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn is_machine(document: &Document) -> bool {
    matches!(document.kind(), "VirtualMachine" | "VirtualMachineInstance")
}

fn pod(judge: &Judge, vmi: &VirtualMachineInstance) -> anyhow::Result<String> {
    Ok(to_yaml(&render::launcher_pod(vmi, &judge.config, &render::Context::default())?)?)
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
