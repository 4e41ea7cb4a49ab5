//! Hook sidecars: containers that may change the domain before it starts.
//!
//! They come from the VMI's annotation and from the network binding plugins of its interfaces, in that order; plugins
//! are sorted by name.

use api::annotations;
use api::config::ClusterConfig;
use api::v1::VirtualMachineInstance;
use k8s_openapi::api::core::v1::{
    Capabilities, ConfigMapVolumeSource, Container, EnvVar, SecurityContext, Volume, VolumeMount,
};
use launcher_contract::paths;
use serde::Deserialize;

use crate::auxiliary::{self, Kind};
use crate::compute;
use crate::context::Context;
use crate::error::Error;
use crate::network;
use crate::pod_volumes::{claim, mount, sub_path};
use crate::traits::{guaranteed, non_root, requested};

/// A sidecar, as the annotation describes it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Sidecar {
    image: String,
    image_pull_policy: String,
    command: Vec<String>,
    args: Vec<String>,
    config_map: Option<Script>,
    pvc: Option<Shared>,
    #[serde(skip)]
    plugin: Option<String>,
    #[serde(skip)]
    device_info: bool,
}

/// A ConfigMap key that is run as a program.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Script {
    name: String,
    key: String,
    hook_path: String,
}

/// A claim for the sidecar and, if it has a path there, for `compute`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Shared {
    name: String,
    volume_path: String,
    shared_compute_path: String,
}

/// All sidecars of a VMI.
pub(crate) fn of(vmi: &VirtualMachineInstance, config: &ClusterConfig) -> Result<Vec<Sidecar>, Error> {
    let mut all: Vec<Sidecar> = match requested(vmi, annotations::HOOK_SIDECARS) {
        Some(text) => serde_json::from_str(text).map_err(|error| Error::Sidecars(error.to_string()))?,
        None => vec![],
    };
    for (name, plugin) in network::plugins(vmi, config)? {
        let Some(image) = plugin.sidecar_image.clone().filter(|image| !image.is_empty()) else { continue };
        all.push(Sidecar {
            image,
            image_pull_policy: config.image_pull_policy().to_owned(),
            plugin: Some(name.to_owned()),
            device_info: network::wants_device_info(plugin),
            ..Sidecar::default()
        });
    }
    Ok(all)
}

/// What sidecars add to a Pod.
#[derive(Default)]
pub(crate) struct Additions {
    pub(crate) containers: Vec<Container>,
    pub(crate) volumes: Vec<Volume>,
    /// Additional mounts of `compute`.
    pub(crate) compute_mounts: Vec<VolumeMount>,
}

pub(crate) fn render(
    sidecars: &[Sidecar],
    vmi: &VirtualMachineInstance,
    config: &ClusterConfig,
    ctx: &Context,
) -> Result<Additions, Error> {
    let mut all = Additions::default();
    for (index, sidecar) in sidecars.iter().enumerate() {
        if let Some(script) = &sidecar.config_map {
            if ctx.missing_config_maps.contains(&script.name) {
                return Err(Error::ConfigMapNotFound { sidecar: index, name: script.name.clone() });
            }
            all.volume(script_volume(script));
        }
        if let Some(shared) = &sidecar.pvc {
            all.volume(claim(&shared.name, &shared.name, None));
            let path = Some(&shared.shared_compute_path).filter(|path| !path.is_empty());
            all.compute_mounts.extend(path.map(|path| mount(&shared.name, path)));
        }
        all.containers.push(container(index, sidecar, vmi, config, ctx));
    }
    Ok(all)
}

impl Additions {
    /// Several sidecars may share a volume.
    fn volume(&mut self, volume: Volume) {
        if !self.volumes.contains(&volume) {
            self.volumes.push(volume);
        }
    }
}

fn script_volume(script: &Script) -> Volume {
    let source = ConfigMapVolumeSource {
        name: script.name.clone(),
        default_mode: Some(0o755),
        ..ConfigMapVolumeSource::default()
    };
    Volume { name: script.name.clone(), config_map: Some(source), ..Volume::default() }
}

fn container(
    index: usize,
    sidecar: &Sidecar,
    vmi: &VirtualMachineInstance,
    config: &ClusterConfig,
    ctx: &Context,
) -> Container {
    let name = format!("hook-sidecar-{index}");
    let image = if sidecar.image.is_empty() { &ctx.launcher.sidecar_shim_image } else { &sidecar.image };
    Container {
        image: Some(image.clone()),
        image_pull_policy: Some(sidecar.image_pull_policy.clone()).filter(|policy| !policy.is_empty()),
        command: crate::some(sidecar.command.clone()),
        args: crate::some(sidecar.args.clone()),
        env: Some(env(&name, sidecar, vmi)),
        resources: Some(auxiliary::resources(Kind::Sidecar, guaranteed(vmi), config)),
        security_context: Some(security_context(vmi)),
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        volume_mounts: Some(mounts(&name, sidecar)),
        name,
        ..Container::default()
    }
}

fn env(name: &str, sidecar: &Sidecar, vmi: &VirtualMachineInstance) -> Vec<EnvVar> {
    let mut all = if non_root(vmi) { compute::home() } else { vec![] };
    all.push(compute::variable("CONTAINER_NAME", name));
    all.extend(sidecar.plugin.as_deref().map(|plugin| compute::variable("NETWORK_BINDING_PLUGIN_NAME", plugin)));
    all
}

fn security_context(vmi: &VirtualMachineInstance) -> SecurityContext {
    let capabilities = non_root(vmi).then(|| Capabilities { add: None, drop: Some(vec!["ALL".to_owned()]) });
    SecurityContext { capabilities, ..compute::user(non_root(vmi)) }
}

fn mounts(name: &str, sidecar: &Sidecar) -> Vec<VolumeMount> {
    let mut all = vec![sub_path(mount(paths::HOOK_SOCKETS_VOLUME, paths::HOOK_SOCKETS), name)];
    all.extend(sidecar.device_info.then(|| mount(paths::NETWORK_INFO_VOLUME, paths::NETWORK_INFO)));
    all.extend(sidecar.config_map.as_ref().map(|script| sub_path(mount(&script.name, &script.hook_path), &script.key)));
    all.extend(sidecar.pvc.as_ref().map(|shared| mount(&shared.name, &shared.volume_path)));
    all
}
