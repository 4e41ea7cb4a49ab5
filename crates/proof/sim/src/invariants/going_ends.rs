//! 13: a terminating object disappears once nothing holds it. (The engine checks at the end of every history that
//! settled objects are not written.)

use machinery::meta::is_deleting;
use virt_controller::Stores;

use super::{Invariant, Scene, Verdict};
use crate::kinds::Kind;

#[derive(Default)]
pub(crate) struct Rule;

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "going_ends"
    }

    fn rest(&mut self, scene: &Scene<'_>, _: &Stores) -> Verdict {
        for kind in [Kind::Vm, Kind::Vmi, Kind::Pod, Kind::DataVolume] {
            let stuck = scene.server.tables.objects(kind).into_iter().find(|object| is_deleting(object.meta()));
            if let Some(object) = stuck {
                let held = object.meta().finalizers.clone().unwrap_or_default();
                return Err(format!("{} is being deleted for ever, held by {held:?}", object.title()));
            }
        }
        Ok(())
    }
}
