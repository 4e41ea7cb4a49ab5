//! Union types, of which exactly one member is set, as enums.
//!
//! KubeVirt represents unions as structs of optional members. Only this module accesses those members; all other code
//! calls [`Volume::source`], [`Network::source`], [`Disk::device`], [`Interface::bound_by`], [`Probe::handler`] or
//! `kind` and matches:
//!
//! - Code that distinguishes kinds lists them all, without a wildcard, so that a new kind fails to compile there.
//! - Code about one kind alone ("the images of container disks") uses `if let` for that kind.
//!
//! Admission sees objects with several members set, or none; the plural forms return all that are set. Elsewhere
//! exactly one is set, and the first counts.
//!
//! Here they are taken apart without `..`, so that a new member fails to compile. Clippy refuses their members
//! elsewhere; `xtask/tests/layers.rs` tests that its settings name each of them.

#![allow(clippy::disallowed_fields, reason = "this is the module that reads unions")]

use k8s_openapi::api::core::v1::{ExecAction, HTTPGetAction, LocalObjectReference, TCPSocketAction};

use super::Empty;
use super::access::{AccessCredential, SSHPublicKeyAccessCredential, UserPasswordAccessCredential};
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

/// Where the answer files for the Windows set-up are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SysprepKind<'a> {
    Secret(&'a LocalObjectReference),
    ConfigMap(&'a LocalObjectReference),
    Unset,
}

impl SysprepSource {
    pub fn kind(&self) -> SysprepKind<'_> {
        let SysprepSource { config_map, secret } = self;
        match (secret, config_map) {
            (Some(secret), _) => SysprepKind::Secret(secret),
            (None, Some(config_map)) => SysprepKind::ConfigMap(config_map),
            (None, None) => SysprepKind::Unset,
        }
    }
}

/// What is handed to the guest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CredentialKind<'a> {
    SshPublicKey(&'a SSHPublicKeyAccessCredential),
    UserPassword(&'a UserPasswordAccessCredential),
    Unset,
}

impl AccessCredential {
    /// All that are set: one, unless admission has yet to look at it.
    pub fn kinds(&self) -> impl Iterator<Item = CredentialKind<'_>> {
        let AccessCredential { ssh_public_key, user_password } = self;
        let all = [
            ssh_public_key.as_ref().map(CredentialKind::SshPublicKey),
            user_password.as_ref().map(CredentialKind::UserPassword),
        ];
        all.into_iter().flatten()
    }

    pub fn kind(&self) -> CredentialKind<'_> {
        self.kinds().next().unwrap_or(CredentialKind::Unset)
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
    /// The Pod network under this name.
    pub fn of_pod(name: &str) -> Network {
        Network { name: name.to_owned(), pod: Some(PodNetwork::default()), ..Network::default() }
    }

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
        let Disk {
            name: _,
            block_size: _,
            boot_order: _,
            cache: _,
            cdrom,
            changed_block_tracking: _,
            dedicated_io_thread: _,
            disk,
            error_policy: _,
            io: _,
            lun,
            serial: _,
            shareable: _,
            tag: _,
        } = self;
        let all = [
            disk.as_ref().map(DiskDevice::Disk),
            lun.as_ref().map(DiskDevice::Lun),
            cdrom.as_ref().map(DiskDevice::CdRom),
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

    /// Makes it a plain disk unless it is something already.
    pub fn fill_device(&mut self) {
        if self.device() == DiskDevice::Unset {
            self.disk = Some(DiskTarget::default());
        }
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
        let Interface {
            name: _,
            acpi_index: _,
            binding,
            boot_order: _,
            bridge,
            dhcp_options: _,
            mac_address: _,
            macvtap,
            masquerade,
            model: _,
            passt,
            passt_binding,
            pci_address: _,
            port_ranges: _,
            ports: _,
            slirp,
            sriov,
            state: _,
            tag: _,
        } = self;
        let all = [
            bridge.as_ref().map(|_| Binding::Bridge),
            masquerade.as_ref().map(|_| Binding::Masquerade),
            sriov.as_ref().map(|_| Binding::Sriov),
            passt_binding.as_ref().map(|_| Binding::Passt),
            binding.as_ref().map(Binding::Plugin),
            slirp.as_ref().map(|_| Binding::Slirp),
            passt.as_ref().map(|_| Binding::OldPasst),
            macvtap.as_ref().map(|_| Binding::Macvtap),
        ];
        all.into_iter().flatten()
    }

    /// Binds one that nothing binds yet.
    pub fn bind(&mut self, binding: Binding<'_>) {
        let member = match binding {
            Binding::Bridge => &mut self.bridge,
            Binding::Masquerade => &mut self.masquerade,
            Binding::Sriov => &mut self.sriov,
            Binding::Passt => &mut self.passt_binding,
            Binding::Macvtap => &mut self.macvtap,
            Binding::OldPasst => &mut self.passt,
            Binding::Slirp => &mut self.slirp,
            Binding::Plugin(plugin) => {
                self.binding = Some(plugin.clone());
                return;
            }
            Binding::Unset => return,
        };
        *member = Some(Empty {});
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
        let Probe {
            exec,
            failure_threshold: _,
            guest_agent_ping,
            http_get,
            initial_delay_seconds: _,
            period_seconds: _,
            success_threshold: _,
            tcp_socket,
            timeout_seconds: _,
        } = self;
        let all = [
            guest_agent_ping.as_ref().map(|_| ProbeHandler::GuestAgentPing),
            exec.as_ref().map(ProbeHandler::Exec),
            http_get.as_ref().map(ProbeHandler::HttpGet),
            tcp_socket.as_ref().map(ProbeHandler::TcpSocket),
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
    fn an_interface_is_bound_as_asked() {
        let plugin = PluginBinding { name: "p".to_owned() };
        for binding in [
            Binding::Bridge,
            Binding::Masquerade,
            Binding::Sriov,
            Binding::Passt,
            Binding::Plugin(&plugin),
            Binding::Macvtap,
            Binding::OldPasst,
            Binding::Slirp,
            Binding::Unset,
        ] {
            let mut interface = Interface::default();
            interface.bind(binding);
            assert_eq!(interface.bound_by(), binding);
        }
    }

    #[test]
    fn a_disk_without_a_device_becomes_a_plain_one_and_others_stay() {
        let filled = |value| {
            let mut disk: Disk = serde_json::from_value(value).unwrap();
            disk.fill_device();
            disk.devices().map(DiskDevice::member).collect::<Vec<_>>()
        };
        assert_eq!(filled(json!({"name": "d"})), ["disk"]);
        assert_eq!(filled(json!({"name": "d", "cdrom": {}})), ["cdrom"]);
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
