//! Deletion: grace periods, finalizers, preconditions.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use informer::Key;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Resource;
use machinery::status;

use super::{Answer, Server, Verb, Writer, about};

/// What happens to the dependents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Propagation {
    /// They are deleted after the object is gone.
    Background,
    /// They stay, without an owner.
    Orphan,
}

/// Default grace period of Pods.
const POD_GRACE: i64 = 30;

impl Server {
    /// Deletes the object if its UID matches.
    pub(crate) fn delete<K>(
        &mut self,
        by: Writer,
        key: &Key,
        uid: Option<&str>,
        grace: Option<i64>,
        propagation: Propagation,
    ) -> Answer<()>
    where
        K: Resource<DynamicType = ()> + Clone + 'static,
    {
        let old = self.stored::<K>(key)?;
        if uid.is_some() && uid != old.meta().uid.as_deref() {
            return Err(about::<K>(key, |about| status::conflict(about, "the UID in the precondition is another one")));
        }
        let grace = grace_of(&old, grace);
        let meta = old.meta();
        let shorter = meta.deletion_grace_period_seconds.is_none_or(|left| grace < left);
        if meta.deletion_timestamp.is_some() && !shorter && propagation == Propagation::Background {
            return Ok(());
        }
        let mut new = (*old).clone();
        let end = self.time().0 + Duration::from_secs(grace.unsigned_abs());
        let meta = new.meta_mut();
        if meta.deletion_timestamp.is_none() {
            meta.generation = Some(meta.generation.unwrap_or(0) + 1);
        }
        if meta.deletion_timestamp.is_none() || shorter {
            meta.deletion_timestamp = Some(Time(end));
            meta.deletion_grace_period_seconds = Some(grace);
        }
        if propagation == Propagation::Orphan {
            machinery::meta::add_finalizer(meta, api::finalizers::ORPHAN);
        }
        self.put(by, Verb::Delete, Some(old), key.clone(), new).map(drop)
    }
}

/// Only a Pod that is bound to a node and has not ended needs a grace period.
fn grace_of<K: 'static>(object: &Arc<K>, asked: Option<i64>) -> i64 {
    let Some(pod) = (object as &dyn Any).downcast_ref::<Arc<Pod>>() else { return 0 };
    let spec = pod.spec.as_ref();
    let bound = spec.is_some_and(|spec| spec.node_name.is_some());
    if !bound || machinery::pod::has_ended(pod) {
        return 0;
    }
    asked.unwrap_or_else(|| spec.and_then(|spec| spec.termination_grace_period_seconds).unwrap_or(POD_GRACE))
}
