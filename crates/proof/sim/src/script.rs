//! The content of a history: what the user does, and what goes wrong.
//!
//! A script is data. It is generated from a seed ([`crate::profile`]) or written by hand as a scenario, and a failing
//! one is minimized by leaving parts out ([`crate::shrink`]); the rest plays as before.

use std::fmt;
use std::time::Duration;

use api::v1::RunStrategy;

use crate::kinds::Kind;

/// A complete history before it is played.
#[derive(Clone, Debug)]
pub struct Script {
    /// Determines latencies and all other random details.
    pub seed: u64,
    pub user: Vec<(Duration, Deed)>,
    pub faults: Vec<Fault>,
    /// The VMs with backend storage.
    pub keeps: Vec<u8>,
    /// Whether storage is simulated in detail: claims bind when they can, Pods wait for their volumes, and guests let go of
    /// plugged disks when they like.
    pub storage: bool,
    /// From here on there are no faults and no user actions; everything must settle.
    pub calm: Duration,
}

/// The source of a VM's disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disk {
    /// A container image: nothing to wait for.
    Image,
    /// A DataVolume template of the VM.
    Template,
    /// A claim that somebody else creates, perhaps later.
    Claim,
}

/// User actions. VMs are numbered; a name is reused after a deletion.
#[derive(Clone, Debug, PartialEq)]
pub enum Deed {
    CreateVm {
        vm: u8,
        strategy: RunStrategy,
        disk: Disk,
    },
    /// A VMI without a VM.
    CreateVmi {
        vm: u8,
    },
    Start {
        vm: u8,
    },
    Stop {
        vm: u8,
    },
    Restart {
        vm: u8,
    },
    SetStrategy {
        vm: u8,
        strategy: RunStrategy,
    },
    /// A template change that requires a restart.
    EditTemplate {
        vm: u8,
    },
    /// A change outside of the template.
    Annotate {
        vm: u8,
    },
    Pause {
        vm: u8,
    },
    Unpause {
        vm: u8,
    },
    CreateClaim {
        vm: u8,
    },
    /// Hotplugs claim `volume` into the running VMI.
    Plug {
        vm: u8,
        volume: u8,
    },
    Unplug {
        vm: u8,
        volume: u8,
    },
    /// Deletes the claim of a volume, plugged in or not.
    DeleteClaim {
        vm: u8,
        volume: u8,
    },
    DeleteVm {
        vm: u8,
    },
    OrphanVm {
        vm: u8,
    },
    DeleteVmi {
        vm: u8,
    },
    /// Deletes the launcher Pod directly.
    DeletePod {
        vm: u8,
    },
    /// Creates a migration.
    Migrate {
        vm: u8,
    },
    /// Deletes the unfinished migrations of the guest.
    AbortMigration {
        vm: u8,
    },
    /// A VM that waits for a guest from another VMI: a new one, or one that is switched to it.
    Await {
        vm: u8,
    },
    /// Creates the sending migration to the VMI of another VM.
    Send {
        vm: u8,
        to: u8,
    },
    /// Creates the receiving migration for the guest of another VM.
    Receive {
        vm: u8,
        from: u8,
    },
    /// Evicts the launcher Pod.
    Evict {
        vm: u8,
    },
    /// Evicts every Pod on the guest's node.
    Drain {
        vm: u8,
    },
    /// Cancels the evacuation of all guests from the node of this one.
    CallOff {
        vm: u8,
    },
    /// A backup begins to read the guest's disks.
    Backup {
        vm: u8,
    },
    /// A utility volume is plugged into the guest, and unplugged after this time.
    Utility {
        vm: u8,
        lasts: Duration,
    },
    /// Evicts the launcher Pod in a dry run.
    TryEvict {
        vm: u8,
    },
    /// Memory hotplug, which is applied by migrating.
    Resize {
        vm: u8,
    },
    /// A disruption budget as created by earlier versions.
    OldBudget {
        vm: u8,
    },
    /// The guest shuts down by itself.
    ShutDown {
        vm: u8,
    },
    /// The guest crashes.
    Crash {
        vm: u8,
    },
}

/// The fate of a launcher Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodFate {
    Unschedulable(Duration),
    ImagePull(Duration),
    FailsEarly,
    /// Evicted this long after it started running.
    Evicted(Duration),
    /// Its containers die this long after they started running.
    Killed(Duration),
}

/// The fate of a guest that was handed over to its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuestFate {
    NeverStarts,
    SlowStart(Duration),
    ShutsDown(Duration),
    Crashes(Duration),
}

/// The fate of a guest that is being migrated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JourneyFate {
    /// The transfer fails after this time, and the guest stays.
    Breaks(Duration),
    /// The guest dirties this many MiB per second.
    Busy(u64),
    /// The target dies this long after the transfer began.
    TargetDies(Duration),
    /// The source and its Pod vanish right when the guest has left.
    SourceDies,
    /// Both vanish right when the guest has arrived, and nobody is left to report it.
    BothDie,
}

/// The fate of a DataVolume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeFate {
    WaitsForConsumer,
    Slow(Duration),
    Fails,
}

/// The fate of a claim that is to be bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimFate {
    BindsLate(Duration),
    NeverBinds,
}

/// The fate of a volume that a node is to mount for a Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MountFate {
    Slow(Duration),
    /// Every attempt fails for this long.
    Fails(Duration),
    /// It is unmounted this long after its Pod.
    Lingers(Duration),
}

/// The fate of a disk that a guest is asked to let go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EjectFate {
    Slow(Duration),
    /// The guest keeps it.
    Ignored,
}

/// The fate of a Job that determines how a migration ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobFate {
    /// Its Pod dies without a result.
    Dies,
    /// It does not finish in time.
    Hangs,
    Slow(Duration),
}

/// Faults. Each is independent and can be left out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    /// Events of a kind are delayed, and lists are equally stale.
    Lag {
        kind: Kind,
        from: Duration,
        until: Duration,
        by: Duration,
    },
    /// The watch of a kind breaks; changes in the meantime only show in the list that follows.
    Outage {
        kind: Kind,
        at: Duration,
        lasts: Duration,
    },
    /// Requests from number `from` on, `count` of them, are rejected.
    Refuse {
        from: u64,
        count: u64,
        code: u16,
    },
    /// The request takes effect, but its response is lost.
    LoseAnswer {
        request: u64,
    },
    /// Somebody else changes the object right before this write.
    Interfere {
        request: u64,
    },
    /// The process crashes while this request is in flight, before it took effect or `after`.
    CrashAt {
        request: u64,
        after: bool,
    },
    Crash {
        at: Duration,
    },
    /// Another process becomes leader. Requests of the old one that are in flight still arrive after a while.
    NewLeader {
        at: Duration,
        in_flight: Duration,
    },
    /// The process restarts with a newer launcher image.
    Upgrade {
        at: Duration,
    },
    /// From now on guests are moved to newer launchers: by migration where possible, or by evictions only.
    Updates {
        at: Duration,
        evict: bool,
    },
    /// All requests for one VM are slow.
    SlowKey {
        vm: u8,
        from: Duration,
        until: Duration,
        latency: Duration,
    },
    /// A node stops responding and comes back.
    NodeOutage {
        node: u8,
        at: Duration,
        lasts: Duration,
    },
    /// A node stops responding and is removed for good.
    NodeLoss {
        node: u8,
        at: Duration,
    },
    /// Target Pods are rejected, by a quota or otherwise.
    NoTargets {
        at: Duration,
        lasts: Duration,
        quota: bool,
    },
    /// The n-th launcher Pod.
    Pod {
        nth: u64,
        fate: PodFate,
    },
    /// The n-th guest.
    Guest {
        nth: u64,
        fate: GuestFate,
    },
    /// The n-th migrated guest.
    Journey {
        nth: u64,
        fate: JourneyFate,
    },
    /// The n-th Job.
    Job {
        nth: u64,
        fate: JobFate,
    },
    /// The n-th DataVolume.
    Volume {
        nth: u64,
        fate: VolumeFate,
    },
    /// The n-th claim that is to be bound.
    Claim {
        nth: u64,
        fate: ClaimFate,
    },
    /// The n-th volume that a node is to mount for a Pod.
    Mount {
        nth: u64,
        fate: MountFate,
    },
    /// The n-th disk that a guest is asked to let go.
    Eject {
        nth: u64,
        fate: EjectFate,
    },
}

impl Deed {
    pub fn vm(&self) -> u8 {
        match self {
            Self::CreateVm { vm, .. }
            | Self::SetStrategy { vm, .. }
            | Self::Plug { vm, .. }
            | Self::Unplug { vm, .. }
            | Self::DeleteClaim { vm, .. }
            | Self::Send { vm, .. }
            | Self::Receive { vm, .. }
            | Self::Utility { vm, .. } => *vm,
            Self::CreateVmi { vm }
            | Self::Start { vm }
            | Self::Stop { vm }
            | Self::Restart { vm }
            | Self::EditTemplate { vm }
            | Self::Annotate { vm }
            | Self::Pause { vm }
            | Self::Unpause { vm }
            | Self::CreateClaim { vm }
            | Self::DeleteVm { vm }
            | Self::OrphanVm { vm }
            | Self::DeleteVmi { vm }
            | Self::DeletePod { vm }
            | Self::Migrate { vm }
            | Self::AbortMigration { vm }
            | Self::Await { vm }
            | Self::Evict { vm }
            | Self::TryEvict { vm }
            | Self::Drain { vm }
            | Self::CallOff { vm }
            | Self::Backup { vm }
            | Self::Resize { vm }
            | Self::OldBudget { vm }
            | Self::ShutDown { vm }
            | Self::Crash { vm } => *vm,
        }
    }
}

impl fmt::Display for Deed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = title(self.vm());
        match self {
            Self::CreateVm { strategy, disk, .. } => {
                write!(f, "create virtual machine {name}, {}, disk from {disk:?}", strategy.as_str())
            }
            Self::CreateVmi { .. } => write!(f, "create instance {name} without a virtual machine"),
            Self::Start { .. } => write!(f, "start {name}"),
            Self::Stop { .. } => write!(f, "stop {name}"),
            Self::Restart { .. } => write!(f, "restart {name}"),
            Self::SetStrategy { strategy, .. } => write!(f, "set {name} to {}", strategy.as_str()),
            Self::EditTemplate { .. } => write!(f, "edit the template of {name}"),
            Self::Annotate { .. } => write!(f, "annotate {name}"),
            Self::Pause { .. } => write!(f, "pause {name}"),
            Self::Unpause { .. } => write!(f, "unpause {name}"),
            Self::CreateClaim { .. } => write!(f, "create the claim of {name}"),
            Self::Plug { volume, .. } => write!(f, "plug {} into {name}", volume_name(*volume)),
            Self::Unplug { volume, .. } => write!(f, "unplug {} from {name}", volume_name(*volume)),
            Self::DeleteClaim { volume, .. } => write!(f, "delete the claim of {} of {name}", volume_name(*volume)),
            Self::DeleteVm { .. } => write!(f, "delete virtual machine {name}"),
            Self::OrphanVm { .. } => write!(f, "delete virtual machine {name} and leave its instance"),
            Self::DeleteVmi { .. } => write!(f, "delete instance {name}"),
            Self::DeletePod { .. } => write!(f, "delete the launcher Pod of {name}"),
            Self::Migrate { .. } => write!(f, "migrate {name}"),
            Self::AbortMigration { .. } => write!(f, "give the migration of {name} up"),
            Self::Await { .. } => write!(f, "let {name} wait for a guest"),
            Self::Send { to, .. } => write!(f, "send the guest of {name} to {}", title(*to)),
            Self::Receive { from, .. } => write!(f, "let {name} receive the guest of {}", title(*from)),
            Self::Evict { .. } => write!(f, "evict {name}"),
            Self::Drain { .. } => write!(f, "empty the node of {name}"),
            Self::CallOff { .. } => write!(f, "call off that the node of {name} is emptied"),
            Self::Backup { .. } => write!(f, "back {name} up"),
            Self::Utility { lasts, .. } => write!(f, "plug a volume of ours into {name} for {lasts:?}"),
            Self::TryEvict { .. } => write!(f, "ask whether {name} could be evicted"),
            Self::Resize { .. } => write!(f, "give {name} more memory"),
            Self::OldBudget { .. } => write!(f, "leave a disruption budget of {name}"),
            Self::ShutDown { .. } => write!(f, "shut {name} down from inside"),
            Self::Crash { .. } => write!(f, "crash the guest of {name}"),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lag { kind, from, until, by } => {
                write!(f, "events of {kind:?} come {by:?} late from {from:?} to {until:?}")
            }
            Self::Outage { kind, at, lasts } => write!(f, "the watch of {kind:?} is down for {lasts:?} at {at:?}"),
            Self::Refuse { from, count, code } => write!(f, "requests {from} to {} are answered {code}", from + count),
            Self::LoseAnswer { request } => write!(f, "the answer to request {request} is lost"),
            Self::Interfere { request } => write!(f, "somebody else writes just before request {request}"),
            Self::CrashAt { request, after: false } => {
                write!(f, "the process dies before request {request} takes effect")
            }
            Self::CrashAt { request, after: true } => write!(f, "the process dies after request {request} took effect"),
            Self::Crash { at } => write!(f, "the process dies at {at:?}"),
            Self::NewLeader { at, in_flight } => {
                write!(f, "another process leads at {at:?}; what was sent arrives {in_flight:?} later")
            }
            Self::Upgrade { at } => write!(f, "the process is replaced by a newer version at {at:?}"),
            Self::Updates { at, evict } => {
                let how = if *evict { "evicted from" } else { "moved off" };
                write!(f, "from {at:?} on guests are {how} outdated launchers")
            }
            Self::SlowKey { vm, from, until, latency } => {
                write!(f, "requests for {} take {latency:?} from {from:?} to {until:?}", vm_name(*vm))
            }
            Self::NodeOutage { node, at, lasts } => {
                write!(f, "{} does not answer for {lasts:?} at {at:?}", node_name(*node))
            }
            Self::NodeLoss { node, at } => write!(f, "{} is lost at {at:?}", node_name(*node)),
            Self::NoTargets { at, lasts, quota } => {
                let who = if *quota { "a quota" } else { "a rule" };
                write!(f, "{who} refuses target Pods for {lasts:?} at {at:?}")
            }
            Self::Pod { nth, fate } => write!(f, "launcher Pod {nth}: {fate:?}"),
            Self::Guest { nth, fate } => write!(f, "guest {nth}: {fate:?}"),
            Self::Journey { nth, fate } => write!(f, "journey {nth}: {fate:?}"),
            Self::Job { nth, fate } => write!(f, "Job {nth}: {fate:?}"),
            Self::Volume { nth, fate } => write!(f, "DataVolume {nth}: {fate:?}"),
            Self::Claim { nth, fate } => write!(f, "claim {nth}: {fate:?}"),
            Self::Mount { nth, fate } => write!(f, "mount {nth}: {fate:?}"),
            Self::Eject { nth, fate } => write!(f, "eject {nth}: {fate:?}"),
        }
    }
}

/// The claim of a utility volume.
pub(crate) fn utility_name(vm: u8) -> String {
    format!("{}-utility", vm_name(vm))
}

/// The namespace of everything, except for guests that leave it.
pub(crate) const NAMESPACE: &str = "default";
/// The namespace of VMs from this number on: 8 has the same name as 0, and so on.
pub(crate) const ELSEWHERE: (u8, &str) = (8, "elsewhere");

pub(crate) fn vm_name(vm: u8) -> String {
    format!("vm{}", if vm < ELSEWHERE.0 { vm } else { vm - ELSEWHERE.0 })
}

pub(crate) fn vm_namespace(vm: u8) -> &'static str {
    if vm < ELSEWHERE.0 { NAMESPACE } else { ELSEWHERE.1 }
}

/// The name in a timeline.
fn title(vm: u8) -> String {
    match vm_namespace(vm) {
        NAMESPACE => vm_name(vm),
        namespace => format!("{namespace}/{}", vm_name(vm)),
    }
}

pub(crate) fn volume_name(volume: u8) -> String {
    format!("extra{volume}")
}

pub(crate) fn node_name(node: u8) -> String {
    format!("node{node}")
}
