//! 13: what is to be deleted disappears once nothing holds it. (That a settled object is left alone is checked by the
//! engine at the end of every history.)

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
