//! Sockets, cores and threads for a number of vCPUs.

use api::instancetype::{
    PreferredCPUTopology, SpreadAcross, VirtualMachineInstancetypeSpec, VirtualMachinePreferenceSpec,
};
use machinery::field::{Cause, FieldError, FieldPath};

/// The default of cores per socket, or threads per core, if a preference spreads CPUs.
const DEFAULT_RATIO: u32 = 2;

/// Threads per core, if CPUs are spread over all three.
const THREADS_PER_CORE: u32 = 2;

/// The field of errors about CPUs that cannot be spread.
const GUEST_CPUS: &str = "instancetype.spec.cpu.guest";

/// A guest's CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Topology {
    /// Sockets of the machine.
    pub sockets: u32,
    /// Cores of each socket.
    pub cores: u32,
    /// Threads of each core.
    pub threads: u32,
}

/// What CPUs are spread over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Across {
    SocketsCores,
    CoresThreads,
    SocketsCoresThreads,
}

impl Across {
    /// As users write it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Across::SocketsCores => "SocketsCores",
            Across::CoresThreads => "CoresThreads",
            Across::SocketsCoresThreads => "SocketsCoresThreads",
        }
    }
}

/// The preferred topology of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Preferred {
    Sockets,
    Cores,
    Threads,
    Any,
    Spread { ratio: u32, across: Across },
}

impl Preferred {
    /// The topology of a preference, in its new or its deprecated spelling. Admission rejects unknown values; if one
    /// occurs nevertheless, it counts as unset.
    pub(crate) fn by(preference: Option<&VirtualMachinePreferenceSpec>) -> Self {
        let Some(preference) = preference else { return Preferred::Sockets };
        let cpu = preference.cpu.as_ref();
        match cpu.and_then(|cpu| cpu.preferred_cpu_topology.clone()).map(PreferredCPUTopology::canonical) {
            Some(PreferredCPUTopology::Cores) => Preferred::Cores,
            Some(PreferredCPUTopology::Threads) => Preferred::Threads,
            Some(PreferredCPUTopology::Any) => Preferred::Any,
            Some(PreferredCPUTopology::Spread) => {
                let options = cpu.and_then(|cpu| cpu.spread_options.as_ref());
                let old = preference.prefer_spread_socket_to_core_ratio.filter(|ratio| *ratio != 0);
                let ratio = options.and_then(|options| options.ratio).or(old).unwrap_or(DEFAULT_RATIO);
                let across = match options.and_then(|options| options.across.as_ref()) {
                    Some(SpreadAcross::CoresThreads) => Across::CoresThreads,
                    Some(SpreadAcross::SocketsCoresThreads) => Across::SocketsCoresThreads,
                    _ => Across::SocketsCores,
                };
                Preferred::Spread { ratio, across }
            }
            _ => Preferred::Sockets,
        }
    }
}

/// The topology of a number of CPUs. If they cannot be spread evenly ([`check_spread`] detects it), the remainder is
/// dropped.
pub fn topology(vcpus: u32, preference: Option<&VirtualMachinePreferenceSpec>) -> Topology {
    let one = Topology { sockets: 1, cores: 1, threads: 1 };
    if vcpus == 1 {
        return one;
    }
    match Preferred::by(preference) {
        Preferred::Sockets | Preferred::Any => Topology { sockets: vcpus, ..one },
        Preferred::Cores => Topology { cores: vcpus, ..one },
        Preferred::Threads => Topology { threads: vcpus, ..one },
        Preferred::Spread { ratio, across } => {
            let share = |vcpus: u32| vcpus.checked_div(ratio).unwrap_or(vcpus);
            match across {
                Across::SocketsCores => Topology { sockets: share(vcpus), cores: ratio, ..one },
                Across::CoresThreads => Topology { cores: share(vcpus), threads: ratio, ..one },
                Across::SocketsCoresThreads => {
                    Topology { sockets: share(vcpus / THREADS_PER_CORE), cores: ratio, threads: THREADS_PER_CORE }
                }
            }
        }
    }
}

/// An error if the CPUs of an instance type cannot be spread as a preference requires.
pub fn check_spread(
    instancetype: Option<&VirtualMachineInstancetypeSpec>,
    preference: Option<&VirtualMachinePreferenceSpec>,
) -> Option<FieldError> {
    let Preferred::Spread { ratio, across } = Preferred::by(preference) else { return None };
    let vcpus = instancetype?.cpu.guest;
    let divides = |divisor: u32, vcpus: u32| vcpus.checked_rem(divisor) == Some(0);
    let (even, parts) = match across {
        Across::SocketsCores => (divides(ratio, vcpus), format!("{ratio} cores for each socket")),
        Across::CoresThreads => (divides(ratio, vcpus), format!("{ratio} threads for each core")),
        Across::SocketsCoresThreads => (
            divides(THREADS_PER_CORE, vcpus) && divides(ratio, vcpus / THREADS_PER_CORE),
            format!("{THREADS_PER_CORE} threads for each core and {ratio} cores for each socket"),
        ),
    };
    let message = format!(
        "the {vcpus} vCPUs of the instance type do not make whole {across}: the preference wants {parts}",
        across = across.as_str()
    );
    (!even).then(|| FieldError::new(Cause::Invalid, FieldPath::new(GUEST_CPUS), message))
}
