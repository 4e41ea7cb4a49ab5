//! 33: the DataVolume of a template is created once in the lifetime of its VM, however stale the cache is.

use std::collections::BTreeSet;

use machinery::meta::controller_of;

use super::{Invariant, Scene, Verdict};
use crate::kinds::{Kind, Object};
use crate::server::Change;

#[derive(Default)]
pub(crate) struct Rule {
    /// UID of the virtual machine, name of the DataVolume.
    made: BTreeSet<(String, String)>,
}

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "data_volumes_once"
    }

    fn change(&mut self, scene: &Scene<'_>, change: &Change) -> Verdict {
        let (Object::DataVolume(volume), None) = (&change.last, &change.was) else { return Ok(()) };
        let Some(owner) = controller_of(&volume.metadata) else { return Ok(()) };
        let name = change.last.key().name;
        let again = !self.made.insert((owner.uid.clone(), name.clone()));
        // It is right to recreate one that somebody deleted, but the simulated user deletes none.
        let deleted = scene.server.stream(Kind::DataVolume).iter().any(|&at| {
            let old = &scene.server.log[at];
            old.is.is_none() && old.last.key().name == name
        });
        if again && !deleted { Err(format!("DataVolume {name} was created twice")) } else { Ok(()) }
    }
}
