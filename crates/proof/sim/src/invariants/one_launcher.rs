//! 1, 2: in the life of an instance (one UID) one launcher Pod is created and no other; so there is never more than one
//! that has not ended. Pods that only make storage bind do not count, nor do those that a migration brings (see
//! `one_target.rs`).

use std::collections::BTreeMap;

use machinery::meta::controller_of;

use super::{Invariant, Scene, Verdict};
use crate::actors::{is_launcher, is_target};
use crate::kinds::Object;
use crate::server::Change;

#[derive(Default)]
pub(crate) struct Rule {
    /// The launcher by the instance's UID.
    launchers: BTreeMap<String, String>,
}

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "one_launcher"
    }

    fn change(&mut self, _: &Scene<'_>, change: &Change) -> Verdict {
        let (Object::Pod(pod), None) = (&change.last, &change.was) else { return Ok(()) };
        let Some(owner) = controller_of(&pod.metadata).filter(|_| is_launcher(pod) && !is_target(pod)) else { return Ok(()) };
        let name = change.last.key().name;
        match self.launchers.insert(owner.uid.clone(), name.clone()) {
            Some(first) => Err(format!("instance {} has launcher {first} and now {name} as well", owner.name)),
            None => Ok(()),
        }
    }
}
