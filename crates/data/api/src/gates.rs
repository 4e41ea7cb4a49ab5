//! Feature gates: which exist, their maturity, and which are enabled.

/// The maturity of a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Disabled by default.
    Alpha,
    /// Enabled by default.
    Beta,
    /// Always enabled; naming it has no effect.
    GenerallyAvailable,
    /// Disabled by default, and about to be removed.
    Deprecated,
    /// Removed. It can still be enabled, but has no effect.
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

/// The maturity of a feature; `None` for an unknown name.
pub fn stage(name: &str) -> Option<Stage> {
    GATES.iter().find(|(gate, _)| *gate == name).map(|(_, stage)| *stage)
}

/// Whether the feature is enabled, given the lists of enabled and disabled gates. Unknown names are disabled.
///
/// A gate on both lists is enabled.
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
