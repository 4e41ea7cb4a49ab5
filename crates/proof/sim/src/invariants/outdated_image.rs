//! 14: a VMI has the outdated-launcher label exactly if its launcher's image is not the controller's.

use api::labels::OUTDATED_LAUNCHER_IMAGE;
use machinery::meta::label;
use virt_controller::Stores;

use super::support::{ensure, name, pods_of};
use super::{Invariant, Scene, Verdict};
use crate::actors::{is_launcher, node_of};
use crate::kinds::uid;

#[derive(Default)]
pub(crate) struct Rule;

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "outdated_image"
    }

    fn rest(&mut self, scene: &Scene<'_>, _: &Stores) -> Verdict {
        for vmi in scene.server.tables.vmis.all().filter(|vmi| !vmi.is_final()) {
            // A migrated guest leaves its old launcher behind.
            let node = vmi.status.as_ref().and_then(|status| status.node_name.as_deref()).filter(|node| !node.is_empty());
            let launchers = pods_of(scene.server, uid(&vmi.metadata)).filter(|pod| is_launcher(pod));
            let here = launchers.filter(|pod| node.is_none() || node_of(pod) == node);
            let Some(pod) = here.max_by_key(|pod| pod.metadata.creation_timestamp.clone()) else { continue };
            let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
            let image = containers.filter(|container| container.name == "compute").find_map(|container| container.image.clone());
            let outdated = image.as_deref() != Some(scene.image.as_str());
            let status = vmi.status.clone().unwrap_or_default();
            ensure(status.launcher_container_image_version == image, || {
                format!("instance {} shows image {:?}, its launcher has {image:?}", name(vmi), status.launcher_container_image_version)
            })?;
            ensure(label(&vmi.metadata, OUTDATED_LAUNCHER_IMAGE).is_some() == outdated, || {
                format!("instance {} has launcher image {image:?}, the controller brings {}", name(vmi), scene.image)
            })?;
        }
        Ok(())
    }
}
