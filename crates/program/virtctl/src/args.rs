//! The command tree.

use std::net::IpAddr;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::connect::ConnectArgs;

/// Controls virtual machines.
#[derive(Debug, Parser)]
#[command(name = "virtctl", version, about, disable_help_subcommand = true)]
pub struct Cli {
    #[command(flatten)]
    pub connect: ConnectArgs,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start a virtual machine
    Start(StartArgs),
    /// Stop a virtual machine
    Stop(StopArgs),
    /// Restart a virtual machine
    Restart(StopArgs),
    /// Pause a running virtual machine
    Pause(PauseArgs),
    /// Unpause a virtual machine
    Unpause(PauseArgs),
    /// Ask the guest to reboot itself, through its agent or its power button
    #[command(name = "soft-reboot", alias = "softreboot")]
    SoftReboot(NameArgs),
    /// Live-migrate a virtual machine to another node
    Migrate(MigrateArgs),
    /// Cancel the migration of a virtual machine
    #[command(name = "migrate-cancel")]
    MigrateCancel(DryRunArgs),
    /// Cancel the evacuation of a virtual machine
    #[command(name = "evacuate-cancel")]
    EvacuateCancel(PauseArgs),
    Explain(ExplainArgs),
    Console(ConsoleArgs),
    /// Open a VNC connection to a virtual machine
    Vnc(VncArgs),
    /// Print the client's and the server's version
    Version(VersionArgs),
    /// Print a script that completes commands in a shell
    Completion {
        /// The shell to complete for
        shell: clap_complete::Shell,
    },
}

#[derive(Debug, Args)]
pub(crate) struct StartArgs {
    /// Name of the VirtualMachine
    pub(crate) name: String,
    /// Start the virtual machine paused
    #[arg(long)]
    pub(crate) paused: bool,
    /// Server-side dry run: validate the request without carrying it out
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StopArgs {
    /// Name of the VirtualMachine
    pub(crate) name: String,
    /// Force the stop after --grace-period
    #[arg(long, requires = "grace_period")]
    pub(crate) force: bool,
    /// Seconds to wait for the guest to shut down; requires --force
    #[arg(long, value_name = "SECONDS", requires = "force", value_parser = clap::value_parser!(i64).range(0..))]
    pub(crate) grace_period: Option<i64>,
    /// Server-side dry run: validate the request without carrying it out
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Args)]
pub(crate) struct MigrateArgs {
    /// Name of the VirtualMachine
    pub(crate) name: String,
    /// Additional node selector for the target node
    #[arg(long = "addedNodeSelector", alias = "added-node-selector", value_name = "KEY=VALUE", value_delimiter = ',',
          value_parser = key_value)]
    pub(crate) added_node_selector: Vec<(String, String)>,
    /// Show progress until the migration ends; fail if it does not succeed
    #[arg(long)]
    pub(crate) wait: bool,
    /// Server-side dry run: validate the request without carrying it out
    #[arg(long)]
    pub(crate) dry_run: bool,
}

fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("expected KEY=VALUE".to_owned()),
    }
}

#[derive(Debug, Args)]
pub(crate) struct DryRunArgs {
    /// Name of the VirtualMachine
    pub(crate) name: String,
    /// Server-side dry run: validate the request without carrying it out
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExplainTarget {
    /// A VirtualMachine
    #[value(alias = "vms", alias = "virtualmachine", alias = "virtualmachines")]
    Vm,
    /// A VirtualMachineInstance
    #[value(alias = "vmis", alias = "virtualmachineinstance", alias = "virtualmachineinstances")]
    Vmi,
    /// A VirtualMachineInstanceMigration
    #[value(
        alias = "vmim",
        alias = "vmims",
        alias = "virtualmachineinstancemigration",
        alias = "virtualmachineinstancemigrations"
    )]
    Migration,
}

/// Show the status of a virtual machine or migration and what it waits for
///
/// Prints each object behind it, from the VirtualMachine to the Pod, what it waits for, since when, and how to unblock it.
#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// Resource type of NAME
    #[arg(value_enum, ignore_case = true)]
    pub(crate) target: ExplainTarget,
    /// Name of the object
    pub(crate) name: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Target {
    /// A VirtualMachine
    #[value(alias = "vms", alias = "virtualmachine", alias = "virtualmachines")]
    Vm,
    /// A VirtualMachineInstance
    #[value(alias = "vmis", alias = "virtualmachineinstance", alias = "virtualmachineinstances")]
    Vmi,
}

#[derive(Debug, Args)]
pub(crate) struct PauseArgs {
    /// Resource type of NAME
    #[arg(value_enum, ignore_case = true)]
    pub(crate) target: Target,
    /// Name of the VirtualMachine or VirtualMachineInstance
    pub(crate) name: String,
    /// Server-side dry run: validate the request without carrying it out
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Args)]
pub(crate) struct NameArgs {
    /// Name of the VirtualMachineInstance
    pub(crate) name: String,
}

/// Connect to the serial console of a virtual machine
///
/// Waits until the guest runs. Leave with Ctrl+]. Input and output may be pipes: then everything is passed on unchanged,
/// the end of the input does not end the session, and the byte 0x1d (Ctrl+]) in the input does. A serial line has no
/// window size; set it in the guest with `stty rows R cols C`.
#[derive(Debug, Args)]
pub(crate) struct ConsoleArgs {
    /// Name of the VirtualMachineInstance
    pub(crate) name: String,
    /// Minutes to wait for the virtual machine to run
    #[arg(long, value_name = "MINUTES", default_value_t = 5)]
    pub(crate) timeout: u64,
}

#[derive(Debug, Args)]
pub(crate) struct VncArgs {
    /// Name of the VirtualMachineInstance
    pub(crate) name: String,
    /// Print the local port as JSON and do not start a viewer
    #[arg(long)]
    pub(crate) proxy_only: bool,
    /// Local port to listen on; 0 picks a free port
    #[arg(long, default_value_t = 0)]
    pub(crate) port: u16,
    /// Local address to listen on
    #[arg(long, default_value = "127.0.0.1", requires = "proxy_only")]
    pub(crate) address: IpAddr,
    /// Fail if another client is connected instead of replacing it
    #[arg(long)]
    pub(crate) preserve_session: bool,
}

#[derive(Debug, Args)]
pub(crate) struct VersionArgs {
    /// Print the client's version only
    #[arg(short, long)]
    pub(crate) client: bool,
}
