//! Feature gates: which exist, how ripe each is, and which are on.

/// How ripe a feature is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Off unless asked for.
    Alpha,
    /// On unless refused.
    Beta,
    /// Always on; naming it changes nothing.
    GenerallyAvailable,
    /// Off unless asked for, and on its way out.
    Deprecated,
    /// Gone. Asking for it still opens the gate, and nothing is behind it.
    Discontinued,
}

use Stage::{Alpha, Beta, Deprecated, Discontinued, GenerallyAvailable};

const GATES: &[(&str, Stage)] = &[
    ("AlignCPUs", Alpha),
    ("AutoResourceLimitsGate", GenerallyAvailable),
    ("BochsDisplayForEFIGuests", GenerallyAvailable),
    ("ClusterProfiler", GenerallyAvailable),
    ("CommonInstancetypesDeploymentGate", GenerallyAvailable),
    ("ConfigurableHypervisor", Alpha),
    ("ContainerPathVolumes", Alpha),
    ("CPUManager", Alpha),
    ("CPUNodeDiscovery", GenerallyAvailable),
    ("CrossArchitectureVirtualization", Alpha),
    ("DecentralizedLiveMigration", Beta),
    ("DeclarativeHotplugVolumes", Beta),
    ("DisableCustomSELinuxPolicy", GenerallyAvailable),
    ("DisableMDEVConfiguration", Deprecated),
    ("DockerSELinuxMCSWorkaround", Deprecated),
    ("DownwardMetrics", Alpha),
    ("DynamicPodInterfaceNaming", GenerallyAvailable),
    ("EnableVirtioFsConfigVolumes", GenerallyAvailable),
    ("EnableVirtioFsStorageVolumes", Alpha),
    ("ExpandDisks", GenerallyAvailable),
    ("ExperimentalIgnitionSupport", Alpha),
    ("ExperimentalVirtiofsSupport", Discontinued),
    ("ExternalNetResourceInjection", Beta),
    ("FirmwareAutoSelection", Alpha),
    ("GPU", GenerallyAvailable),
    ("GPUsWithDRA", Beta),
    ("GraceIOVirtualization", Alpha),
    ("HostDevices", Alpha),
    ("HostDevicesWithDRA", Beta),
    ("HostDisk", Alpha),
    ("HotplugNICs", GenerallyAvailable),
    ("HotplugVolumes", Deprecated),
    ("HypervStrictCheck", Alpha),
    ("ImageVolume", Beta),
    ("IncrementalBackup", Alpha),
    ("InstancetypeReferencePolicy", GenerallyAvailable),
    ("IOMMUFD", Alpha),
    ("KubevirtSeccompProfile", Beta),
    ("LibvirtHooksServerAndClient", GenerallyAvailable),
    ("LiveMigration", GenerallyAvailable),
    ("LiveUpdateNADRef", GenerallyAvailable),
    ("Macvtap", Discontinued),
    ("MigrationDowntimeTuning", Alpha),
    ("MigrationPriorityQueue", GenerallyAvailable),
    ("MigrationStallDetection", Alpha),
    ("MultiArchitecture", Deprecated),
    ("NetworkBindingPlugins", GenerallyAvailable),
    ("NetworkDevicesWithDRA", Alpha),
    ("NodeRestriction", Beta),
    ("NonRoot", GenerallyAvailable),
    ("NUMA", GenerallyAvailable),
    ("ObjectGraph", Alpha),
    ("OCIExport", Alpha),
    ("OptOutRoleAggregation", Beta),
    ("PanicDevices", GenerallyAvailable),
    ("Passt", Discontinued),
    ("PasstBinding", Beta),
    ("PasstIPStackMigration", Discontinued),
    ("PCINUMAAwareTopology", Alpha),
    ("PersistentReservation", GenerallyAvailable),
    ("Plugins", Alpha),
    ("PodSecondaryInterfaceNamingUpgrade", Beta),
    ("PortRangesSpec", Alpha),
    ("PSA", GenerallyAvailable),
    ("RebootPolicy", Beta),
    ("ReservedOverheadMemlock", Alpha),
    ("Root", Alpha),
    ("SecureExecution", GenerallyAvailable),
    ("Sidecar", Alpha),
    ("Snapshot", Beta),
    ("SRIOVLiveMigration", GenerallyAvailable),
    ("Template", Beta),
    ("UtilityVolumes", Alpha),
    ("VGPULiveMigration", Alpha),
    ("VideoConfig", GenerallyAvailable),
    ("VMExport", GenerallyAvailable),
    ("VmiMemoryOverheadReport", GenerallyAvailable),
    ("VMLiveUpdateFeatures", GenerallyAvailable),
    ("VMPersistentState", GenerallyAvailable),
    ("VMStatsCollector", Alpha),
    ("VolumeMigration", GenerallyAvailable),
    ("VolumesUpdateStrategy", GenerallyAvailable),
    ("VSOCK", Alpha),
    ("WorkloadEncryptionSEV", Beta),
    ("WorkloadEncryptionTDX", Alpha),
];

/// The names of all gates.
pub fn names() -> impl Iterator<Item = &'static str> {
    GATES.iter().map(|(gate, _)| *gate)
}

/// How ripe the feature of this name is; `None` for a name nobody knows.
pub fn stage(name: &str) -> Option<Stage> {
    GATES.iter().find(|(gate, _)| *gate == name).map(|(_, stage)| *stage)
}

/// Whether the feature is on, given the lists of asked-for and refused gates. Unknown names are off.
///
/// A gate on both lists is on: asking wins over refusing.
pub fn is_enabled(name: &str, asked_for: &[String], refused: &[String]) -> bool {
    let listed = |list: &[String]| list.iter().any(|gate| gate == name);
    match stage(name) {
        Some(GenerallyAvailable) => true,
        None => false,
        Some(_) if listed(asked_for) => true,
        Some(_) if listed(refused) => false,
        Some(stage) => stage == Beta,
    }
}
