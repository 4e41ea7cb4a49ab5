//! Plugging volumes into a running guest, and unplugging them.
//!
//! A request to a VM changes its template, and its VMI follows; with the feature gate HotplugVolumes it is added to the
//! VM's status instead, and the controller applies it to both. A request to a VMI changes the VMI alone, which ends with
//! the next restart: that is for a VMI without a VM, or with the gate.

use api::config::ClusterConfig;
use api::v1::{
    AddVolumeOptions, Disk, HotplugSource, HotplugVolumeSource, RemoveVolumeOptions, VirtualMachine,
    VirtualMachineInstance, VirtualMachineInstancePhase, VirtualMachineInstanceSpec, VirtualMachineStatus,
    VirtualMachineVolumeRequest, Volume,
};
use json_patch::Patch;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use machinery::patch::JsonPatch;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::refusal::{Kind, Refusal};
use crate::lifecycle::Step;
use crate::options;

const REQUESTED: &str = "HotplugVolumes";
const DECLARED: &str = "DeclarativeHotplugVolumes";

/// One request.
#[derive(Clone, Debug, PartialEq)]
pub enum VolumeChange {
    Add(AddVolumeOptions),
    Remove(RemoveVolumeOptions),
}

/// The body of a request to plug a volume, in which a disk that is not there differs from an empty one.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct AddBody {
    name: String,
    disk: Option<Disk>,
    volume_source: Option<HotplugVolumeSource>,
    dry_run: Vec<String>,
}

impl VolumeChange {
    /// Reads a request to plug a volume.
    pub fn add(body: &[u8]) -> Result<Self, Refusal> {
        let body: AddBody = options::parse_present(body)?.ok_or_else(|| no_body("a volume and a disk"))?;
        let missing = |what: &str| Refusal::bad_request(format!("AddVolumeOptions requires {what} to be set"));
        if body.name.is_empty() {
            return Err(missing("name"));
        }
        let mut disk = body.disk.ok_or_else(|| missing("disk"))?;
        let volume_source = body.volume_source.filter(|source| source.kind() != HotplugSource::Unset);
        let volume_source = volume_source.ok_or_else(|| missing("volumeSource"))?;
        disk.name.clone_from(&body.name);
        Ok(VolumeChange::Add(AddVolumeOptions { name: body.name, disk, volume_source, dry_run: body.dry_run }))
    }

    /// Reads a request to unplug a volume.
    pub fn remove(body: &[u8]) -> Result<Self, Refusal> {
        let options: RemoveVolumeOptions = options::parse_present(body)?.ok_or_else(|| no_body("the volume's name"))?;
        if options.name.is_empty() {
            return Err(Refusal::bad_request("RemoveVolumeOptions requires name to be set"));
        }
        Ok(VolumeChange::Remove(options))
    }

    /// Whether nothing is to be written.
    pub fn is_dry_run(&self) -> Result<bool, Refusal> {
        match self {
            VolumeChange::Add(options) => options::is_dry_run(&options.dry_run),
            VolumeChange::Remove(options) => options::is_dry_run(&options.dry_run),
        }
    }

    /// The change to a running VMI.
    pub fn of_instance(&self, vmi: &VirtualMachineInstance, config: &ClusterConfig) -> Result<Step, Refusal> {
        self.is_enabled(config)?;
        let kind = Kind::VirtualMachineInstance;
        let name = vmi.metadata.name.as_deref().unwrap_or_default();
        let owners = vmi.metadata.owner_references.as_deref().unwrap_or_default();
        let owner = owners.iter().find(|owner| owner.controller == Some(true) && owner.kind == "VirtualMachine");
        if let Some(owner) = owner.filter(|_| !config.feature_gate(REQUESTED)) {
            let why = format!(
                "VirtualMachineInstance {name} belongs to VirtualMachine {}: plug and unplug volumes of the \
                 VirtualMachine; without the feature gate {REQUESTED} its instance follows it",
                owner.name
            );
            return Err(Refusal::bad_request(why));
        }
        let phase = vmi.status.as_ref().and_then(|status| status.phase.as_ref());
        if phase != Some(&VirtualMachineInstancePhase::Running) {
            return Err(Refusal::conflict(kind, name, "VMI is not running"));
        }
        let spec = self.applied(&vmi.spec).map_err(|why| Refusal::conflict(kind, name, why))?;
        Ok(Step::Vmi(changed(&vmi.metadata, &["spec"], &vmi.spec, &spec)))
    }

    /// The change to a VM, whether or not it runs.
    pub fn of_machine(&self, vm: &VirtualMachine, config: &ClusterConfig) -> Result<Step, Refusal> {
        self.is_enabled(config)?;
        let name = vm.metadata.name.as_deref().unwrap_or_default();
        let refused = |why: String| Refusal::conflict(Kind::VirtualMachine, name, why);
        if config.feature_gate(REQUESTED) {
            return self.requested(vm).map_err(refused);
        }
        let spec = &vm.spec.template.spec;
        let new = self.applied(spec).map_err(refused)?;
        Ok(Step::Vm(changed(&vm.metadata, &["spec", "template", "spec"], spec, &new)))
    }

    fn is_enabled(&self, config: &ClusterConfig) -> Result<(), Refusal> {
        if config.feature_gate(REQUESTED) || config.feature_gate(DECLARED) {
            return Ok(());
        }
        let act = match self {
            VolumeChange::Add(_) => "Add",
            VolumeChange::Remove(_) => "Remove",
        };
        let why = format!("Unable to {act} Volume because neither {REQUESTED} nor {DECLARED} feature gate is enabled.");
        Err(Refusal::bad_request(why))
    }

    /// The spec with the change, or why it does not fit.
    fn applied(&self, spec: &VirtualMachineInstanceSpec) -> Result<VirtualMachineInstanceSpec, String> {
        let mut new = spec.clone();
        match self {
            VolumeChange::Add(options) => {
                let volume = addable(spec, options)?;
                // A drive that is there already only gets a medium.
                if !spec.domain.devices.disks.iter().any(|disk| disk.name == options.name && disk.is_cdrom()) {
                    new.domain.devices.disks.push(options.disk.clone());
                }
                new.volumes.push(volume);
            }
            VolumeChange::Remove(options) => {
                let gone = removable(spec, &options.name)?.name.clone();
                new.volumes.retain(|volume| volume.name != gone);
                // A drive stays, without a medium.
                new.domain.devices.disks.retain(|disk| disk.name != gone || disk.is_cdrom());
            }
        }
        Ok(new)
    }

    /// A request for the controller, beside those that it has not finished.
    fn requested(&self, vm: &VirtualMachine) -> Result<Step, String> {
        let spec = &vm.spec.template.spec;
        let status = vm.status.clone().unwrap_or_default();
        let adds = |request: &VirtualMachineVolumeRequest, name: &str| {
            request.add_volume_options.as_ref().is_some_and(|options| options.name == name)
        };
        let removes = |request: &VirtualMachineVolumeRequest, name: &str| {
            request.remove_volume_options.as_ref().is_some_and(|options| options.name == name)
        };
        let mut requests = status.volume_requests.clone();
        match self {
            VolumeChange::Add(options) => {
                let name = &options.name;
                if requests.iter().any(|request| adds(request, name)) {
                    return Err(format!("add volume request for volume [{name}] already exists"));
                }
                if requests.iter().any(|request| removes(request, name)) {
                    return Err(format!(
                        "unable to add volume since a remove volume request for volume [{name}] already exists and is \
                         still being processed"
                    ));
                }
                addable(spec, options)?;
                let add_volume_options = Some(options.clone());
                requests.push(VirtualMachineVolumeRequest { add_volume_options, ..Default::default() });
            }
            VolumeChange::Remove(options) => {
                let known = removable(spec, &options.name);
                let name = known.as_ref().map_or(options.name.as_str(), |volume| &volume.name);
                if requests.iter().any(|request| removes(request, name)) {
                    return Err(format!("a remove volume request for volume [{name}] already exists"));
                }
                let pending = requests.len();
                requests.retain(|request| !adds(request, name));
                let was_pending = requests.len() < pending;
                match known {
                    Ok(volume) => {
                        let options = RemoveVolumeOptions { name: volume.name.clone(), ..options.clone() };
                        let remove_volume_options = Some(options);
                        requests.push(VirtualMachineVolumeRequest { remove_volume_options, ..Default::default() });
                    }
                    // It was never added: nothing is left to remove.
                    Err(_) if was_pending => {}
                    Err(why) => return Err(why),
                }
            }
        }
        let mut patch = at_version(&vm.metadata);
        if vm.status.as_ref().is_none_or(|status| *status == VirtualMachineStatus::default()) {
            patch.set(&["status"], json!({ "volumeRequests": requests }));
        } else {
            patch.set(&["status", "volumeRequests"], value(&requests));
        }
        Ok(Step::VmStatus(built(patch)))
    }
}

fn no_body(what: &str) -> Refusal {
    Refusal::bad_request(format!("Request with no body, {what} is expected as the request body"))
}

/// The volume to add, if neither its name nor its source is used already.
fn addable(spec: &VirtualMachineInstanceSpec, options: &AddVolumeOptions) -> Result<Volume, String> {
    let new = Volume::plugged(&options.name, &options.volume_source);
    for volume in &spec.volumes {
        if volume.name == options.name {
            return Err(format!("Unable to add volume [{}] because volume with that name already exists", volume.name));
        }
        // A DataVolume's claim has its name.
        if let Some(source) = new.source().claim_name().filter(|source| volume.source().claim_name() == Some(source)) {
            return Err(format!("Unable to add volume source [{source}] because it already exists"));
        }
    }
    Ok(new)
}

/// The volume to remove, by its own name or that of its source.
fn removable<'a>(spec: &'a VirtualMachineInstanceSpec, name: &str) -> Result<&'a Volume, String> {
    let by_name = spec.volumes.iter().find(|volume| volume.name == name);
    let by_source =
        || spec.volumes.iter().find(|volume| volume.is_claim() && volume.source().claim_name() == Some(name));
    let volume = by_name.or_else(by_source);
    let volume = volume.ok_or_else(|| format!("Unable to remove volume [{name}] because it does not exist"))?;
    match volume.source().is_hotpluggable() {
        true => Ok(volume),
        false => Err(format!("Unable to remove volume [{name}] because it is not hotpluggable")),
    }
}

/// A patch of the lists of volumes and disks. Lists of objects are guarded by the object's version: tests by value fail
/// where a stored element holds what is left out of ours.
fn changed(
    metadata: &ObjectMeta,
    spec: &[&str],
    old: &VirtualMachineInstanceSpec,
    new: &VirtualMachineInstanceSpec,
) -> Patch {
    let mut patch = at_version(metadata);
    let at =
        |rest: &[&'static str]| -> Vec<String> { spec.iter().chain(rest).map(|name| (*name).to_owned()).collect() };
    let mut set = |path: Vec<String>, value: Value| {
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        patch.set(&path, value);
    };
    if old.volumes != new.volumes {
        set(at(&["volumes"]), value(&new.volumes));
    }
    if old.domain.devices.disks != new.domain.devices.disks {
        set(at(&["domain", "devices", "disks"]), value(&new.domain.devices.disks));
    }
    built(patch)
}

fn at_version(metadata: &ObjectMeta) -> JsonPatch {
    let mut patch = JsonPatch::new();
    patch.test(&["metadata", "resourceVersion"], value(&metadata.resource_version));
    patch
}

fn built(patch: JsonPatch) -> Patch {
    patch.build().expect("it has at least a test")
}

fn value(of: &impl Serialize) -> Value {
    serde_json::to_value(of).expect("API types have string keys and serialize")
}
