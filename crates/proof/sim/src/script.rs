//! What happens in a history: what the user does, and what goes wrong.
//!
//! A script is data. A seed makes one ([`crate::profile`]), a scenario writes one by hand, and a failing one is made
//! shorter by leaving parts out ([`crate::shrink`]); what is left plays as before.

use std::fmt;
use std::time::Duration;

use api::v1::RunStrategy;

use crate::kinds::Kind;

/// A whole history before it is played.
#[derive(Clone, Debug)]
pub struct Script {
    /// Decides latencies and all other small luck.
    pub seed: u64,
    pub user: Vec<(Duration, Deed)>,
    pub faults: Vec<Fault>,
    /// The virtual machines whose guests keep state of their own.
    pub keeps: Vec<u8>,
    /// From here on nothing goes wrong any more and the user rests; everything must settle.
    pub calm: Duration,
}

/// Where the disk of a virtual machine comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disk {
    /// A container image: nothing to wait for.
    Image,
    /// A DataVolume the virtual machine brings along.
    Template,
    /// A claim somebody else makes, perhaps later.
    Claim,
}

/// What the user does. Virtual machines are numbered; a name is used again after a deletion.
#[derive(Clone, Debug, PartialEq)]
pub enum Deed {
    CreateVm {
        vm: u8,
        strategy: RunStrategy,
        disk: Disk,
    },
    /// An instance without a virtual machine.
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
    /// A change of the template that needs a restart.
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
    /// Plugs claim `volume` into the running instance.
    Plug {
        vm: u8,
        volume: u8,
    },
    Unplug {
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
    /// Deletes the launcher Pod behind everybody's back.
    DeletePod {
        vm: u8,
    },
    /// Asks for the guest to be moved.
    Migrate {
        vm: u8,
    },
    /// Deletes the migrations of the guest that have not ended.
    AbortMigration {
        vm: u8,
    },
    /// A virtual machine that waits for a guest from elsewhere: a new one, or one that is told to.
    Await {
        vm: u8,
    },
    /// Asks for the guest to be sent to the instance of another virtual machine.
    Send {
        vm: u8,
        to: u8,
    },
    /// Asks for the guest of another virtual machine.
    Receive {
        vm: u8,
        from: u8,
    },
    /// Asks the launcher Pod to leave its node.
    Evict {
        vm: u8,
    },
    /// Asks every Pod on the guest's node to leave.
    Drain {
        vm: u8,
    },
    /// Lets every guest stay that is asked to leave the same node as this one.
    CallOff {
        vm: u8,
    },
    /// A backup begins to read the guest's disks.
    Backup {
        vm: u8,
    },
    /// A volume for a purpose of ours is plugged into the guest, and taken out again after so long.
    Utility {
        vm: u8,
        lasts: Duration,
    },
    /// Asks whether the launcher Pod would leave its node, without meaning it.
    TryEvict {
        vm: u8,
    },
    /// The guest is to get more memory, which it gets by moving.
    Resize {
        vm: u8,
    },
    /// A disruption budget as earlier versions made them.
    OldBudget {
        vm: u8,
    },
    /// The guest shuts itself down.
    ShutDown {
        vm: u8,
    },
    /// The guest dies.
    Crash {
        vm: u8,
    },
}

/// What becomes of a launcher Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodFate {
    Unschedulable(Duration),
    ImagePull(Duration),
    FailsEarly,
    /// Evicted so long after it began to run.
    Evicted(Duration),
    /// Its containers die so long after they began to run.
    Killed(Duration),
}

/// What becomes of a guest that was handed over to its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuestFate {
    NeverStarts,
    SlowStart(Duration),
    ShutsDown(Duration),
    Crashes(Duration),
}

/// What becomes of a guest on its way to another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JourneyFate {
    /// The transfer breaks off after so long, and the guest stays.
    Breaks(Duration),
    /// The guest writes so many MiB per second to its memory.
    Busy(u64),
    /// The target dies so long after the transfer began.
    TargetDies(Duration),
    /// The source and its Pod vanish just when the guest has left.
    SourceDies,
    /// Both vanish just when the guest has come, and nobody is left to tell that it had.
    BothDie,
}

/// What becomes of a DataVolume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeFate {
    WaitsForConsumer,
    Slow(Duration),
    Fails,
}

/// What becomes of a Job that looks how a migration ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobFate {
    /// Its Pod dies and says nothing.
    Dies,
    /// It does not get done in its time.
    Hangs,
    Slow(Duration),
}

/// What goes wrong. Each fault stands for itself and can be left out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    /// Events of a kind arrive later, and lists show what was so long ago.
    Lag {
        kind: Kind,
        from: Duration,
        until: Duration,
        by: Duration,
    },
    /// The watch of a kind breaks; what happens meanwhile is only seen in the list that follows.
    Outage {
        kind: Kind,
        at: Duration,
        lasts: Duration,
    },
    /// Requests number `from` and the `count` after it are refused.
    Refuse {
        from: u64,
        count: u64,
        code: u16,
    },
    /// The request has its effect, but the answer does not arrive.
    LoseAnswer {
        request: u64,
    },
    /// Somebody else changes the object just before this write.
    Interfere {
        request: u64,
    },
    /// The process dies when this request is on its way; `after` it has had its effect or before.
    CrashAt {
        request: u64,
        after: bool,
    },
    Crash {
        at: Duration,
    },
    /// Another process leads. What the old one had sent arrives yet, after a while.
    NewLeader {
        at: Duration,
        in_flight: Duration,
    },
    /// The process comes back with a newer launcher image.
    Upgrade {
        at: Duration,
    },
    /// From now on guests are brought to newer launchers: by moving them where they can move, or by evictions alone.
    Updates {
        at: Duration,
        evict: bool,
    },
    /// All requests for one virtual machine are slow.
    SlowKey {
        vm: u8,
        from: Duration,
        until: Duration,
        latency: Duration,
    },
    /// A node stops answering and comes back.
    NodeOutage {
        node: u8,
        at: Duration,
        lasts: Duration,
    },
    /// A node stops answering and is removed for good.
    NodeLoss {
        node: u8,
        at: Duration,
    },
    /// Target Pods are refused, by a quota or by some other rule.
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
    /// The n-th guest that is handed to two nodes.
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
}

impl Deed {
    pub fn vm(&self) -> u8 {
        match self {
            Self::CreateVm { vm, .. }
            | Self::SetStrategy { vm, .. }
            | Self::Plug { vm, .. }
            | Self::Unplug { vm, .. }
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
        }
    }
}

/// The claim of a volume that serves a purpose of ours.
pub(crate) fn utility_name(vm: u8) -> String {
    format!("{}-utility", vm_name(vm))
}

/// The namespace everything happens in, but for guests that leave it.
pub(crate) const NAMESPACE: &str = "default";
/// The namespace of virtual machines from this number on: 8 is called as 0 is, and so forth.
pub(crate) const ELSEWHERE: (u8, &str) = (8, "elsewhere");

pub(crate) fn vm_name(vm: u8) -> String {
    format!("vm{}", if vm < ELSEWHERE.0 { vm } else { vm - ELSEWHERE.0 })
}

pub(crate) fn vm_namespace(vm: u8) -> &'static str {
    if vm < ELSEWHERE.0 { NAMESPACE } else { ELSEWHERE.1 }
}

/// As a timeline prints it.
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
