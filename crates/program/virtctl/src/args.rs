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
    /// Let a paused virtual machine go on
    Unpause(PauseArgs),
    /// Ask the guest to reboot itself, through its agent or its power button
    #[command(name = "soft-reboot", alias = "softreboot")]
    SoftReboot(NameArgs),
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
    /// Leave the guest paused before its first instruction
    #[arg(long)]
    pub(crate) paused: bool,
    /// Only check whether the request would be accepted
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StopArgs {
    /// Name of the VirtualMachine
    pub(crate) name: String,
    /// Do not wait for the guest longer than --grace-period says
    #[arg(long, requires = "grace_period")]
    pub(crate) force: bool,
    /// Seconds the guest gets to shut down; only with --force
    #[arg(long, value_name = "SECONDS", requires = "force", value_parser = clap::value_parser!(i64).range(0..))]
    pub(crate) grace_period: Option<i64>,
    /// Only check whether the request would be accepted
    #[arg(long)]
    pub(crate) dry_run: bool,
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
    /// What NAME names
    #[arg(value_enum, ignore_case = true)]
    pub(crate) target: Target,
    /// Name of the VirtualMachine or VirtualMachineInstance
    pub(crate) name: String,
    /// Only check whether the request would be accepted
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
/// Waits until the guest runs. Leave with Ctrl+]. Input and output may be pipes: then everything is passed on as it is,
/// the end of the input does not end the session, and the byte 0x1d (Ctrl+]) in the input does. A serial line does not
/// know the size of a window; tell the guest with `stty rows R cols C` if it matters.
#[derive(Debug, Args)]
pub(crate) struct ConsoleArgs {
    /// Name of the VirtualMachineInstance
    pub(crate) name: String,
    /// Minutes to wait for the guest to run
    #[arg(long, value_name = "MINUTES", default_value_t = 5)]
    pub(crate) timeout: u64,
}

#[derive(Debug, Args)]
pub(crate) struct VncArgs {
    /// Name of the VirtualMachineInstance
    pub(crate) name: String,
    /// Only print the port to connect to, as JSON, and do not start a viewer
    #[arg(long)]
    pub(crate) proxy_only: bool,
    /// Local port to listen on; 0 takes a free one
    #[arg(long, default_value_t = 0)]
    pub(crate) port: u16,
    /// Local address to listen on
    #[arg(long, default_value = "127.0.0.1", requires = "proxy_only")]
    pub(crate) address: IpAddr,
    /// Fail if somebody else is connected, instead of replacing them
    #[arg(long)]
    pub(crate) preserve_session: bool,
}

#[derive(Debug, Args)]
pub(crate) struct VersionArgs {
    /// Print the client's version only
    #[arg(short, long)]
    pub(crate) client: bool,
}
