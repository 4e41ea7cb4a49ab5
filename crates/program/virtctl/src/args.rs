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
    /// Plug a volume into a running virtual machine
    #[command(name = "addvolume")]
    AddVolume(AddVolumeArgs),
    /// Unplug a volume from a running virtual machine
    #[command(name = "removevolume")]
    RemoveVolume(RemoveVolumeArgs),
    /// Dump the memory of a running virtual machine to a claim
    #[command(name = "memory-dump")]
    MemoryDump(MemoryDumpArgs),
    #[command(name = "image-upload")]
    ImageUpload(crate::image_upload::ImageUploadArgs),
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

/// What the guest sees of a plugged volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DiskType {
    /// A disk
    Disk,
    /// A SCSI unit that takes its own commands
    Lun,
}

impl DiskType {
    pub(crate) fn field(self) -> &'static str {
        match self {
            DiskType::Disk => "disk",
            DiskType::Lun => "lun",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Cache {
    None,
    Writethrough,
    Writeback,
}

impl Cache {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Cache::None => "none",
            Cache::Writethrough => "writethrough",
            Cache::Writeback => "writeback",
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct AddVolumeArgs {
    /// Name of the VirtualMachine, or of a VirtualMachineInstance without one
    #[arg(value_name = "VMI")]
    pub(crate) vmi: String,
    /// Name of the DataVolume or PersistentVolumeClaim to plug
    #[arg(long, value_name = "NAME")]
    pub(crate) volume_name: String,
    /// Name of volume and disk in the virtual machine; that of the volume by default
    #[arg(long, value_name = "NAME")]
    pub(crate) disk_name: Option<String>,
    /// Serial number that the guest sees; the name of the disk by default
    #[arg(long)]
    pub(crate) serial: Option<String>,
    /// How the host caches the disk; as its storage allows by default
    #[arg(long, value_enum)]
    pub(crate) cache: Option<Cache>,
    /// What the guest sees
    #[arg(long, value_enum, default_value = "disk")]
    pub(crate) disk_type: DiskType,
    /// Bus of the disk
    #[arg(long, default_value = "scsi", value_parser = ["scsi", "virtio"])]
    pub(crate) bus: String,
    /// No effect: volumes of a VirtualMachine stay in its template
    #[arg(long, hide = true)]
    pub(crate) persist: bool,
    /// No effect: requests may always be made at the same time
    #[arg(long, hide = true)]
    pub(crate) concurrent: bool,
    /// Server-side dry run: validate the request without carrying it out
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RemoveVolumeArgs {
    /// Name of the VirtualMachine, or of a VirtualMachineInstance without one
    #[arg(value_name = "VMI")]
    pub(crate) vmi: String,
    /// Name of the volume, or of its DataVolume or PersistentVolumeClaim
    #[arg(long, value_name = "NAME")]
    pub(crate) volume_name: String,
    /// No effect: volumes of a VirtualMachine leave its template
    #[arg(long, hide = true)]
    pub(crate) persist: bool,
    /// Server-side dry run: validate the request without carrying it out
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Args)]
pub(crate) struct MemoryDumpArgs {
    #[command(subcommand)]
    pub(crate) command: MemoryDumpCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum MemoryDumpCommand {
    /// Dump the memory
    Get {
        /// Name of the VirtualMachine
        vm: String,
        /// The claim that the dump goes to; that of the last dump by default
        #[arg(long)]
        claim_name: Option<String>,
        /// Create the claim, large enough for the dump
        #[arg(long, requires = "claim_name")]
        create_claim: bool,
        /// Storage class of the new claim
        #[arg(long, requires = "create_claim")]
        storage_class: Option<String>,
        /// Access mode of the new claim
        #[arg(long, requires = "create_claim", value_parser = ["ReadWriteOnce", "ReadWriteMany"])]
        access_mode: Option<String>,
    },
    /// Take the claim with the last dump away from the virtual machine; its content stays
    Remove {
        /// Name of the VirtualMachine
        vm: String,
    },
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
