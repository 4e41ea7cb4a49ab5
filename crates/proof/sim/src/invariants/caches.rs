//! 75: passes do not modify cached objects, and the caches end up equal to the server. Cached objects are shared and
//! immutable, so only the equality at the end is checked.

use kube::Resource;
use virt_controller::Stores;

use super::{Invariant, Scene, Verdict};
use crate::kinds::Table;

#[derive(Default)]
pub(crate) struct Rule;

fn same<K>(cached: &informer::Store<K>, stored: &Table<K>) -> Verdict
where
    K: Resource<DynamicType = ()> + PartialEq + Send + Sync + 'static,
{
    let cached = cached.all();
    let stored: Vec<_> = stored.all().collect();
    let equal = cached.len() == stored.len() && cached.iter().zip(&stored).all(|(a, b)| a.as_ref() == b.as_ref());
    if equal { Ok(()) } else { Err(format!("the cache of {} is not what the server has", K::kind(&()))) }
}

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "caches"
    }

    fn rest(&mut self, scene: &Scene<'_>, stores: &Stores) -> Verdict {
        let tables = &scene.server.tables;
        same(&stores.vms, &tables.vms)?;
        same(&stores.vmis, &tables.vmis)?;
        same(&stores.claims, &tables.claims)?;
        same(&stores.data_volumes, &tables.data_volumes)?;
        same(&stores.revisions, &tables.revisions)
    }
}
