//! What controllers ask about the objects that theirs own, and how they make and end them.

use informer::{Change, Expectations, Key};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use machinery::meta::{controller_of, is_deleting};

use crate::Error;
use crate::api::{Api, Kind};
use crate::context::Context;
use crate::writer::Done;

/// The object of this kind that controls the one with these metadata.
pub(crate) fn owner_key(meta: &ObjectMeta, kind: &str) -> Option<Key> {
    let owner = controller_of(meta).filter(|owner| owner.kind == kind)?;
    Some(Key::new(meta.namespace.clone().unwrap_or_default(), &owner.name))
}

/// A creation or deletion that was expected has become visible.
pub(crate) fn note<K: Resource<DynamicType = ()>>(expected: &Expectations, owner: &Key, change: &Change<K>) {
    let object = change.object();
    let key = Key::of(object.as_ref());
    match change {
        Change::Deleted(_) => expected.deleted(owner, &key),
        _ if is_deleting(object.meta()) => expected.deleted(owner, &key),
        Change::Added(_) | Change::Updated { .. } => expected.created(owner, &key),
    }
}

/// Creates what `expected` is to wait for, on behalf of `owner`. If nothing comes of it, there is nothing to wait for.
pub(crate) async fn creating(
    expected: &Expectations,
    owner: &Key,
    object: &Key,
    create: impl Future<Output = Result<Done, Error>>,
) -> Result<Done, Error> {
    expected.expect_creation(owner, object.clone());
    let created = create.await;
    if !matches!(created, Ok(Done::Now)) {
        expected.created(owner, object);
    }
    created
}

/// The same of a deletion.
pub(crate) async fn deleting(
    expected: &Expectations,
    owner: &Key,
    object: &Key,
    delete: impl Future<Output = Result<Done, Error>>,
) -> Result<Done, Error> {
    expected.expect_deletion(owner, object.clone());
    let deleted = delete.await;
    if !matches!(deleted, Ok(Done::Now)) {
        expected.deleted(owner, object);
    }
    deleted
}

impl<A: Api> Context<A> {
    /// Creates an object in the namespace of the one it is made for, or finds that its controller has it.
    pub(crate) async fn create<K: Kind>(&self, key: &Key, object: &K, expected: &Expectations) -> Result<(), Error> {
        let object_key = Key::new(&key.namespace, object.meta().name.clone().unwrap_or_default());
        let controller = controller_of(object.meta()).map(|owner| owner.uid.clone()).unwrap_or_default();
        let create = self.writer.create(key, object, &controller);
        creating(expected, key, &object_key, create).await.map(drop)
    }

    /// Deletes an object in the namespace of the one it was made for, unless it is gone.
    pub(crate) async fn delete<K: Kind>(
        &self,
        key: &Key,
        (name, uid): (&str, &str),
        grace_seconds: Option<u32>,
        expected: &Expectations,
    ) -> Result<(), Error> {
        let delete = self.writer.delete::<K>(key, name, uid, grace_seconds);
        deleting(expected, key, &Key::new(&key.namespace, name), delete).await.map(drop)
    }
}

pub(crate) fn uid(meta: &ObjectMeta) -> &str {
    meta.uid.as_deref().unwrap_or_default()
}
