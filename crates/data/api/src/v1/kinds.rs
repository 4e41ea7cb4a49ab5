//! Union types, of which exactly one member is set, as enums.
//!
//! KubeVirt represents unions as structs of optional members. Only this module accesses those members; all other code
//! calls [`Volume::source`], [`Network::source`], [`Disk::device`], [`Interface::bound_by`] or [`Probe::handler`] and
//! matches:
//!
//! - Code that distinguishes kinds lists them all, without a wildcard, so that a new kind fails to compile there.
//! - Code about one kind alone ("the images of container disks") uses `if let` for that kind.
//!
//! Admission sees objects with several members set, or none; the plural forms return all that are set. Elsewhere
//! exactly one is set, and the first counts.

use k8s_openapi::api::core::v1::{ExecAction, HTTPGetAction, TCPSocketAction};

use super::disks::{CDRomTarget, Disk, DiskTarget, LunTarget};
use super::network::{Interface, MultusNetwork, Network, PluginBinding, PodNetwork, ResourceClaimNetworkSource};
use super::probe::Probe;
use super::vm::HotplugVolumeSource;
use super::volumes::{
    CloudInitConfigDriveSource, CloudInitNoCloudSource, ConfigMapVolumeSource, ContainerDiskSource,
    ContainerPathVolumeSource, DataVolumeVolumeSource, DownwardAPIVolumeSource, EmptyDiskSource, EphemeralVolumeSource,
    HostDisk, MemoryDumpVolumeSource, PersistentVolumeClaimVolumeSource, SecretVolumeSource,
    ServiceAccountVolumeSource, SysprepSource, Volume,
};

/// Where a volume's data comes from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum VolumeSource<'a> {
    CloudInitConfigDrive(&'a CloudInitConfigDriveSource),
    CloudInitNoCloud(&'a CloudInitNoCloudSource),
    ConfigMap(&'a ConfigMapVolumeSource),
    ContainerDisk(&'a ContainerDiskSource),
    ContainerPath(&'a ContainerPathVolumeSource),
    DataVolume(&'a DataVolumeVolumeSource),
    DownwardApi(&'a DownwardAPIVolumeSource),
    DownwardMetrics,
    EmptyDisk(&'a EmptyDiskSource),
    Ephemeral(&'a EphemeralVolumeSource),
    HostDisk(&'a HostDisk),
    MemoryDump(&'a MemoryDumpVolumeSource),
    PersistentVolumeClaim(&'a PersistentVolumeClaimVolumeSource),
    Secret(&'a SecretVolumeSource),
    ServiceAccount(&'a ServiceAccountVolumeSource),
    Sysprep(&'a SysprepSource),
    /// Nothing is set, or a member that this build does not know.
    Unset,
}

impl Volume {
    /// All sources that are set: one, unless admission has yet to look at it.
    pub fn sources(&self) -> impl Iterator<Item = VolumeSource<'_>> {
        let Volume {
            name: _,
            cloud_init_config_drive,
            cloud_init_no_cloud,
            config_map,
            container_disk,
            container_path,
            data_volume,
            downward_api,
            downward_metrics,
            empty_disk,
            ephemeral,
            host_disk,
            memory_dump,
            persistent_volume_claim,
            secret,
            service_account,
            sysprep,
        } = self;
        let all = [
            cloud_init_no_cloud.as_ref().map(VolumeSource::CloudInitNoCloud),
            cloud_init_config_drive.as_ref().map(VolumeSource::CloudInitConfigDrive),
            config_map.as_ref().map(VolumeSource::ConfigMap),
            container_disk.as_ref().map(VolumeSource::ContainerDisk),
            container_path.as_ref().map(VolumeSource::ContainerPath),
            data_volume.as_ref().map(VolumeSource::DataVolume),
            downward_api.as_ref().map(VolumeSource::DownwardApi),
            downward_metrics.as_ref().map(|_| VolumeSource::DownwardMetrics),
            empty_disk.as_ref().map(VolumeSource::EmptyDisk),
            ephemeral.as_ref().map(VolumeSource::Ephemeral),
            host_disk.as_ref().map(VolumeSource::HostDisk),
            memory_dump.as_ref().map(VolumeSource::MemoryDump),
            persistent_volume_claim.as_ref().map(VolumeSource::PersistentVolumeClaim),
            secret.as_ref().map(VolumeSource::Secret),
            service_account.as_ref().map(VolumeSource::ServiceAccount),
            sysprep.as_ref().map(VolumeSource::Sysprep),
        ];
        all.into_iter().flatten()
    }

    /// Where its data comes from.
    pub fn source(&self) -> VolumeSource<'_> {
        self.sources().next().unwrap_or(VolumeSource::Unset)
    }

    /// Whether it takes the guest's memory; no device of the guest shows it then.
    pub fn is_memory_dump(&self) -> bool {
        self.sources().any(|source| matches!(source, VolumeSource::MemoryDump(_)))
    }

    /// Whether the guest's disk is a claim: its own or a DataVolume's.
    pub fn is_claim(&self) -> bool {
        self.sources().any(VolumeSource::is_claim)
    }

    /// The container disk, if it is one, to fill in what its owner left out.
    pub fn container_disk_mut(&mut self) -> Option<&mut ContainerDiskSource> {
        self.container_disk.as_mut()
    }

    /// The volume that a request to plug one describes.
    pub fn requested(name: &str, source: &HotplugVolumeSource) -> Volume {
        let mut volume = Volume { name: name.to_owned(), ..Volume::default() };
        match source.kind() {
            HotplugSource::PersistentVolumeClaim(claim) => volume.persistent_volume_claim = Some(claim.clone()),
            HotplugSource::DataVolume(data_volume) => volume.data_volume = Some(data_volume.clone()),
            HotplugSource::Unset => {}
        }
        volume
    }

    /// The same once it is plugged: what came while the guest ran may go while it runs.
    pub fn plugged(name: &str, source: &HotplugVolumeSource) -> Volume {
        let mut volume = Volume::requested(name, source);
        let claim = volume.persistent_volume_claim.as_mut().map(|claim| &mut claim.hotpluggable);
        let data_volume = volume.data_volume.as_mut().map(|data_volume| &mut data_volume.hotpluggable);
        claim.into_iter().chain(data_volume).for_each(|hotpluggable| *hotpluggable = Some(true));
        volume
    }
}

impl<'a> VolumeSource<'a> {
    /// The claim that holds its data, or takes it. A DataVolume's claim has the DataVolume's name.
    pub fn claim_name(self) -> Option<&'a str> {
        match self {
            VolumeSource::DataVolume(source) => Some(&source.name),
            VolumeSource::PersistentVolumeClaim(source) => Some(&source.claim_name),
            VolumeSource::MemoryDump(source) => Some(&source.claim_name),
            VolumeSource::CloudInitConfigDrive(_)
            | VolumeSource::CloudInitNoCloud(_)
            | VolumeSource::ConfigMap(_)
            | VolumeSource::ContainerDisk(_)
            | VolumeSource::ContainerPath(_)
            | VolumeSource::DownwardApi(_)
            | VolumeSource::DownwardMetrics
            | VolumeSource::EmptyDisk(_)
            | VolumeSource::Ephemeral(_)
            | VolumeSource::HostDisk(_)
            | VolumeSource::Secret(_)
            | VolumeSource::ServiceAccount(_)
            | VolumeSource::Sysprep(_)
            | VolumeSource::Unset => None,
        }
    }

    /// Whether the guest's disk is a claim: its own or a DataVolume's.
    pub fn is_claim(self) -> bool {
        match self {
            VolumeSource::DataVolume(_) | VolumeSource::PersistentVolumeClaim(_) => true,
            VolumeSource::CloudInitConfigDrive(_)
            | VolumeSource::CloudInitNoCloud(_)
            | VolumeSource::ConfigMap(_)
            | VolumeSource::ContainerDisk(_)
            | VolumeSource::ContainerPath(_)
            | VolumeSource::DownwardApi(_)
            | VolumeSource::DownwardMetrics
            | VolumeSource::EmptyDisk(_)
            | VolumeSource::Ephemeral(_)
            | VolumeSource::HostDisk(_)
            | VolumeSource::MemoryDump(_)
            | VolumeSource::Secret(_)
            | VolumeSource::ServiceAccount(_)
            | VolumeSource::Sysprep(_)
            | VolumeSource::Unset => false,
        }
    }

    /// Whether it may come and go while the guest runs.
    pub fn is_hotpluggable(self) -> bool {
        let marked = match self {
            VolumeSource::DataVolume(source) => source.hotpluggable,
            VolumeSource::PersistentVolumeClaim(source) => source.hotpluggable,
            VolumeSource::MemoryDump(source) => source.hotpluggable,
            VolumeSource::CloudInitConfigDrive(_)
            | VolumeSource::CloudInitNoCloud(_)
            | VolumeSource::ConfigMap(_)
            | VolumeSource::ContainerDisk(_)
            | VolumeSource::ContainerPath(_)
            | VolumeSource::DownwardApi(_)
            | VolumeSource::DownwardMetrics
            | VolumeSource::EmptyDisk(_)
            | VolumeSource::Ephemeral(_)
            | VolumeSource::HostDisk(_)
            | VolumeSource::Secret(_)
            | VolumeSource::ServiceAccount(_)
            | VolumeSource::Sysprep(_)
            | VolumeSource::Unset => None,
        };
        marked == Some(true)
    }

    pub fn container_disk(self) -> Option<&'a ContainerDiskSource> {
        if let VolumeSource::ContainerDisk(source) = self { Some(source) } else { None }
    }

    pub fn service_account(self) -> Option<&'a ServiceAccountVolumeSource> {
        if let VolumeSource::ServiceAccount(source) = self { Some(source) } else { None }
    }

    pub fn data_volume(self) -> Option<&'a DataVolumeVolumeSource> {
        if let VolumeSource::DataVolume(source) = self { Some(source) } else { None }
    }

    pub fn persistent_volume_claim(self) -> Option<&'a PersistentVolumeClaimVolumeSource> {
        if let VolumeSource::PersistentVolumeClaim(source) = self { Some(source) } else { None }
    }
}

/// What is plugged into a running guest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum HotplugSource<'a> {
    DataVolume(&'a DataVolumeVolumeSource),
    PersistentVolumeClaim(&'a PersistentVolumeClaimVolumeSource),
    Unset,
}

impl HotplugVolumeSource {
    pub fn kind(&self) -> HotplugSource<'_> {
        let HotplugVolumeSource { data_volume, persistent_volume_claim } = self;
        match (persistent_volume_claim, data_volume) {
            (Some(claim), _) => HotplugSource::PersistentVolumeClaim(claim),
            (None, Some(data_volume)) => HotplugSource::DataVolume(data_volume),
            (None, None) => HotplugSource::Unset,
        }
    }
}

/// What a network is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum NetworkSource<'a> {
    Multus(&'a MultusNetwork),
    Pod(&'a PodNetwork),
    ResourceClaim(&'a ResourceClaimNetworkSource),
    /// Nothing is set, or a member that this build does not know.
    Unset,
}

impl Network {
    /// All sources that are set: one, unless admission has yet to look at it.
    pub fn sources(&self) -> impl Iterator<Item = NetworkSource<'_>> {
        let Network { name: _, multus, pod, resource_claim } = self;
        let all = [
            pod.as_ref().map(NetworkSource::Pod),
            multus.as_ref().map(NetworkSource::Multus),
            resource_claim.as_ref().map(NetworkSource::ResourceClaim),
        ];
        all.into_iter().flatten()
    }

    pub fn source(&self) -> NetworkSource<'_> {
        self.sources().next().unwrap_or(NetworkSource::Unset)
    }

    /// The definition that a Multus network follows, to have it follow another.
    pub fn multus_mut(&mut self) -> Option<&mut MultusNetwork> {
        self.multus.as_mut()
    }
}

impl<'a> NetworkSource<'a> {
    pub fn is_pod(self) -> bool {
        matches!(self, NetworkSource::Pod(_))
    }

    pub fn multus(self) -> Option<&'a MultusNetwork> {
        if let NetworkSource::Multus(multus) = self { Some(multus) } else { None }
    }

    pub fn resource_claim(self) -> Option<&'a ResourceClaimNetworkSource> {
        if let NetworkSource::ResourceClaim(claim) = self { Some(claim) } else { None }
    }

    /// A Multus network that takes the place of the Pod's.
    pub fn is_multus_default(self) -> bool {
        self.multus().is_some_and(|multus| multus.default == Some(true))
    }

    /// The network that brings the Pod its default route.
    pub fn is_primary(self) -> bool {
        match self {
            NetworkSource::Pod(_) => true,
            NetworkSource::Multus(_) => self.is_multus_default(),
            NetworkSource::ResourceClaim(_) | NetworkSource::Unset => false,
        }
    }

    /// A network that Multus joins besides the primary one.
    pub fn is_secondary(self) -> bool {
        match self {
            NetworkSource::Multus(_) => !self.is_multus_default(),
            NetworkSource::Pod(_) | NetworkSource::ResourceClaim(_) | NetworkSource::Unset => false,
        }
    }
}

/// What the guest sees of a disk.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DiskDevice<'a> {
    Disk(&'a DiskTarget),
    Lun(&'a LunTarget),
    CdRom(&'a CDRomTarget),
    /// Nothing is set: a plain disk once admission has filled it in.
    Unset,
}

impl Disk {
    /// All devices that are set: one, unless admission has yet to look at it.
    pub fn devices(&self) -> impl Iterator<Item = DiskDevice<'_>> {
        let all = [
            self.disk.as_ref().map(DiskDevice::Disk),
            self.lun.as_ref().map(DiskDevice::Lun),
            self.cdrom.as_ref().map(DiskDevice::CdRom),
        ];
        all.into_iter().flatten()
    }

    pub fn device(&self) -> DiskDevice<'_> {
        self.devices().next().unwrap_or(DiskDevice::Unset)
    }

    /// Whether the guest sees a CD-ROM.
    pub fn is_cdrom(&self) -> bool {
        self.devices().any(|device| matches!(device, DiskDevice::CdRom(_)))
    }

    /// Whether the guest sees a SCSI unit that takes its own commands.
    pub fn is_lun(&self) -> bool {
        self.devices().any(|device| matches!(device, DiskDevice::Lun(_)))
    }

    /// The CD-ROM, if it is one, to fill in what its owner left out.
    pub fn cdrom_mut(&mut self) -> Option<&mut CDRomTarget> {
        self.cdrom.as_mut()
    }

    /// The buses of its devices, to fill in what its owner left out.
    pub fn buses_mut(&mut self) -> impl Iterator<Item = &mut Option<String>> {
        let all = [
            self.disk.as_mut().map(|target| &mut target.bus),
            self.lun.as_mut().map(|target| &mut target.bus),
            self.cdrom.as_mut().map(|target| &mut target.bus),
        ];
        all.into_iter().flatten()
    }
}

impl<'a> DiskDevice<'a> {
    /// The member that is set; empty if none is.
    pub fn member(self) -> &'static str {
        match self {
            DiskDevice::Disk(_) => "disk",
            DiskDevice::Lun(_) => "lun",
            DiskDevice::CdRom(_) => "cdrom",
            DiskDevice::Unset => "",
        }
    }

    pub fn bus(self) -> Option<&'a str> {
        match self {
            DiskDevice::Disk(target) => target.bus.as_deref(),
            DiskDevice::Lun(target) => target.bus.as_deref(),
            DiskDevice::CdRom(target) => target.bus.as_deref(),
            DiskDevice::Unset => None,
        }
    }

    /// Whether the guest may reserve it for itself on its SCSI target.
    pub fn takes_reservations(self) -> bool {
        match self {
            DiskDevice::Lun(lun) => lun.reservation == Some(true),
            DiskDevice::Disk(_) | DiskDevice::CdRom(_) | DiskDevice::Unset => false,
        }
    }
}

/// How an interface reaches its network.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Binding<'a> {
    Bridge,
    Masquerade,
    Sriov,
    /// `passtBinding`.
    Passt,
    /// A binding plugin.
    Plugin(&'a PluginBinding),
    /// Discontinued.
    Macvtap,
    /// Discontinued: the member `passt`.
    OldPasst,
    /// Discontinued.
    Slirp,
    /// Nothing is set, or a member that this build does not know.
    Unset,
}

impl Interface {
    /// All bindings that are set: one, unless admission has yet to look at it.
    pub fn bindings(&self) -> impl Iterator<Item = Binding<'_>> {
        let all = [
            self.bridge.as_ref().map(|_| Binding::Bridge),
            self.masquerade.as_ref().map(|_| Binding::Masquerade),
            self.sriov.as_ref().map(|_| Binding::Sriov),
            self.passt_binding.as_ref().map(|_| Binding::Passt),
            self.binding.as_ref().map(Binding::Plugin),
            self.slirp.as_ref().map(|_| Binding::Slirp),
            self.passt.as_ref().map(|_| Binding::OldPasst),
            self.macvtap.as_ref().map(|_| Binding::Macvtap),
        ];
        all.into_iter().flatten()
    }

    /// How it reaches its network. (`binding` is the member for plugins.)
    pub fn bound_by(&self) -> Binding<'_> {
        self.bindings().next().unwrap_or(Binding::Unset)
    }

    /// Whether one of its bindings is this one.
    pub fn has_binding(&self, binding: Binding<'_>) -> bool {
        self.bindings().any(|set| set == binding)
    }

    /// The plugin that binds it, if one does.
    pub fn plugin(&self) -> Option<&PluginBinding> {
        self.bindings().find_map(|set| if let Binding::Plugin(plugin) = set { Some(plugin) } else { None })
    }
}

impl Binding<'_> {
    /// The member of a binding that was discontinued.
    pub fn discontinued(self) -> Option<&'static str> {
        match self {
            Binding::Slirp => Some("slirp"),
            Binding::OldPasst => Some("passt"),
            Binding::Macvtap => Some("macvtap"),
            Binding::Bridge
            | Binding::Masquerade
            | Binding::Sriov
            | Binding::Passt
            | Binding::Plugin(_)
            | Binding::Unset => None,
        }
    }
}

/// How a guest's health is checked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ProbeHandler<'a> {
    Exec(&'a ExecAction),
    GuestAgentPing,
    HttpGet(&'a HTTPGetAction),
    TcpSocket(&'a TCPSocketAction),
    /// Nothing is set, or a member that this build does not know.
    Unset,
}

impl Probe {
    /// All handlers that are set: one, unless admission has yet to look at it.
    pub fn handlers(&self) -> impl Iterator<Item = ProbeHandler<'_>> {
        let all = [
            self.guest_agent_ping.as_ref().map(|_| ProbeHandler::GuestAgentPing),
            self.exec.as_ref().map(ProbeHandler::Exec),
            self.http_get.as_ref().map(ProbeHandler::HttpGet),
            self.tcp_socket.as_ref().map(ProbeHandler::TcpSocket),
        ];
        all.into_iter().flatten()
    }

    pub fn handler(&self) -> ProbeHandler<'_> {
        self.handlers().next().unwrap_or(ProbeHandler::Unset)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_volume_is_read_as_the_source_that_is_set() {
        let read = |value| serde_json::from_value::<Volume>(value).unwrap();
        let claim = read(json!({"name": "v", "persistentVolumeClaim": {"claimName": "c", "hotpluggable": true}}));
        assert_eq!((claim.source().claim_name(), claim.source().is_hotpluggable()), (Some("c"), true));
        assert_eq!(read(json!({"name": "v"})).source(), VolumeSource::Unset);
        assert_eq!(read(json!({"name": "v", "fromTheFuture": {}})).source(), VolumeSource::Unset);
        assert_eq!(read(json!({"name": "v", "secret": {}, "emptyDisk": {"capacity": "1"}})).sources().count(), 2);
    }

    #[test]
    fn a_plugged_volume_may_go_while_the_guest_runs() {
        let source = |value| serde_json::from_value::<HotplugVolumeSource>(value).unwrap();
        for value in [json!({"dataVolume": {"name": "c"}}), json!({"persistentVolumeClaim": {"claimName": "c"}})] {
            let volume = Volume::plugged("v", &source(value));
            assert_eq!((volume.source().claim_name(), volume.source().is_hotpluggable()), (Some("c"), true));
        }
        assert_eq!(Volume::plugged("v", &source(json!({}))).source(), VolumeSource::Unset);
    }

    #[test]
    fn a_multus_network_is_primary_only_if_it_is_the_default() {
        let read = |value| serde_json::from_value::<Network>(value).unwrap();
        for (value, primary, secondary) in [
            (json!({"pod": {}}), true, false),
            (json!({"multus": {"networkName": "n", "default": true}}), true, false),
            (json!({"multus": {"networkName": "n"}}), false, true),
            (json!({"resourceClaim": {}}), false, false),
            (json!({}), false, false),
        ] {
            let network = read(value);
            assert_eq!((network.source().is_primary(), network.source().is_secondary()), (primary, secondary));
        }
    }
}
