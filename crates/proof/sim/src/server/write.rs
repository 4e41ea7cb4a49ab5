//! Creating and replacing.

use std::sync::Arc;

use informer::Key;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use machinery::status::{self, About};
use virt_controller::api::Part;

use super::{Answer, Server, Verb, Writer, about};
use crate::kinds::{Table, key};

impl Server {
    pub(super) fn table<K: 'static>(&self) -> Answer<&Table<K>> {
        self.tables.of::<K>().ok_or_else(|| Box::new(status::unknown_path()))
    }

    pub(super) fn stored<K: Resource<DynamicType = ()> + 'static>(&self, key: &Key) -> Answer<Arc<K>> {
        self.table::<K>()?.get(key).cloned().ok_or_else(|| about::<K>(key, status::not_found))
    }

    pub(crate) fn create<K>(&mut self, by: Writer, mut object: K) -> Answer<Arc<K>>
    where
        K: Resource<DynamicType = ()> + Clone + 'static,
    {
        let key = key(object.meta());
        let table = self.table::<K>()?;
        if table.get(&key).is_some() {
            return Err(about::<K>(&key, status::already_exists));
        }
        if key.name.is_empty() {
            return Err(Box::new(status::bad_request("metadata.name: names are derived, never drawn")));
        }
        let begin = table.begin;
        let (uid, version, time) = (self.next_uid(), self.next_version(), self.time());
        let meta = object.meta_mut();
        *meta = ObjectMeta {
            uid: Some(uid),
            resource_version: Some(version),
            creation_timestamp: Some(time.clone()),
            deletion_timestamp: None,
            generation: Some(1),
            ..std::mem::take(meta)
        };
        begin(&mut object, &time);
        self.put(by, Verb::Create, None, key, object)
    }

    /// Replaces the object, or only its status, if its resource version is unset or matches the stored one.
    pub(crate) fn update<K>(&mut self, by: Writer, part: Part, object: K) -> Answer<Arc<K>>
    where
        K: Resource<DynamicType = ()> + Clone + 'static,
    {
        let verb = if part == Part::Status { Verb::UpdateStatus } else { Verb::Update };
        self.replace(by, verb, part, object)
    }

    pub(super) fn replace<K>(&mut self, by: Writer, verb: Verb, part: Part, object: K) -> Answer<Arc<K>>
    where
        K: Resource<DynamicType = ()> + Clone + 'static,
    {
        let key = key(object.meta());
        let old = self.stored::<K>(&key)?;
        let table = self.table::<K>()?;
        if part == Part::Status && !table.status_apart {
            return Err(Box::new(status::unknown_path()));
        }
        if object.meta().resource_version.is_some() && object.meta().resource_version != old.meta().resource_version {
            return Err(about::<K>(&key, status::stale));
        }
        if object.meta().uid.is_some() && object.meta().uid != old.meta().uid {
            return Err(about::<K>(&key, |about| {
                status::conflict(about, "the UID in the precondition is another one")
            }));
        }
        let mut new = match part {
            Part::Status => {
                let mut new = (*old).clone();
                (table.copy_status)(&mut new, &object);
                new
            }
            Part::Object => object,
        };
        if table.status_apart && part == Part::Object {
            (table.copy_status)(&mut new, &old);
        }
        carry_over(new.meta_mut(), old.meta());
        if old.meta().deletion_timestamp.is_some() && adds_finalizer(new.meta(), old.meta()) {
            return Err(about::<K>(&key, |about: About<'_>| {
                status::conflict(about, "no new finalizers can be added if the object is being deleted")
            }));
        }
        if (table.same)(&new, &old) {
            return Ok(old);
        }
        if !(table.same_generation)(&new, &old) {
            let meta = new.meta_mut();
            meta.generation = Some(meta.generation.unwrap_or(0) + 1);
        }
        self.put(by, verb, Some(old), key, new)
    }

    /// Stores the new state, or removes a terminating object that nothing holds any more.
    pub(super) fn put<K>(&mut self, by: Writer, verb: Verb, old: Option<Arc<K>>, key: Key, mut new: K) -> Answer<Arc<K>>
    where
        K: Resource<DynamicType = ()> + Clone + 'static,
    {
        new.meta_mut().resource_version = Some(self.next_version());
        let meta = new.meta();
        let held = meta.finalizers.as_ref().is_some_and(|finalizers| !finalizers.is_empty());
        let gone = meta.deletion_timestamp.is_some() && !held && meta.deletion_grace_period_seconds.unwrap_or(0) == 0;
        let new = Arc::new(new);
        let table = self.tables.of_mut::<K>().ok_or_else(|| Box::new(status::unknown_path()))?;
        let wrap = table.wrap;
        if gone {
            table.objects.remove(&key);
        } else {
            table.objects.insert(key, new.clone());
        }
        let last = wrap(new.clone());
        self.record(by, verb, old.map(wrap), (!gone).then(|| last.clone()), last);
        Ok(new)
    }
}

/// Fields owned by the server stay as they were.
fn carry_over(new: &mut ObjectMeta, old: &ObjectMeta) {
    new.uid.clone_from(&old.uid);
    new.resource_version.clone_from(&old.resource_version);
    new.creation_timestamp.clone_from(&old.creation_timestamp);
    new.deletion_timestamp.clone_from(&old.deletion_timestamp);
    new.deletion_grace_period_seconds = old.deletion_grace_period_seconds;
    new.generation = old.generation;
    new.namespace.clone_from(&old.namespace);
    if new.finalizers.as_ref().is_some_and(Vec::is_empty) {
        new.finalizers = None;
    }
    if new.owner_references.as_ref().is_some_and(Vec::is_empty) {
        new.owner_references = None;
    }
}

fn adds_finalizer(new: &ObjectMeta, old: &ObjectMeta) -> bool {
    new.finalizers.iter().flatten().any(|finalizer| !machinery::meta::has_finalizer(old, finalizer))
}

impl Server {
    /// Stores object and status together, for components of the cluster: binding a Pod, reporting its containers.
    ///
    /// # Panics
    /// If the object was not just read from this server.
    pub(crate) fn write_whole<K>(&mut self, by: Writer, verb: Verb, object: K) -> Arc<K>
    where
        K: Resource<DynamicType = ()> + Clone + 'static,
    {
        let key = key(object.meta());
        let old = self.stored::<K>(&key).expect("it was read a moment ago");
        self.put(by, verb, Some(old), key, object).expect("its kind is known")
    }
}
