//! Executes effects, and records creations, deletions and writes until the caches show them.

use std::time::Duration;

use futures::future::BoxFuture;
use informer::{Expectations, Key};
use machinery::meta::controller_of;
use plan::effect::{Doubt, Effect, Part, Patch, Query, Report};
use plan::object::{Kind, Object};

use crate::Error;
use crate::context::Context;
use crate::reconcile::{Control, EffectOf, Next};
use crate::writer::Done;

/// Requeue delay after finding an object that the cache does not show yet; its event is on the way.
pub(crate) const CACHE_CATCHES_UP: Duration = Duration::from_secs(1);

/// Executes one effect on behalf of a key.
pub(crate) async fn execute<C: Control>(
    control: &C,
    key: &Key,
    world: &C::World,
    effect: EffectOf<C>,
) -> Result<Next<EffectOf<C>>, Error> {
    let ctx = control.ctx();
    match effect {
        Effect::Create { object, why: _ } => {
            ctx.create(key, &object).await?;
            return Ok(control.created(key, world, &object).map_or(Next::Continue, Next::After));
        }
        Effect::Replace(object) => {
            ctx.replace(key, Part::Object, &object).await?;
            control.wrote(key, world, &object);
        }
        Effect::ReplaceStatus(object) => {
            ctx.replace(key, Part::Status, &object).await?;
            control.wrote(key, world, &object);
        }
        Effect::Patch { kind, namespace, name, part, patch, why: _ } => {
            ctx.patch(key, kind, namespace, &name, part, &patch).await?;
        }
        Effect::Delete { kind, namespace, name, uid, grace_seconds, why: _ } => {
            return ctx.delete(key, kind, namespace, &name, &uid, grace_seconds).await.map(after);
        }
        Effect::Confirm { look, then } => {
            let found = ctx.look(look.queries(world)).await?;
            return Ok(if look.holds(world, &found) { Next::Insert(then) } else { Next::StopUntil(CACHE_CATCHES_UP) });
        }
        Effect::Migrate(migration) => return ctx.create_migration(key, &migration).await.map(after),
        Effect::Tell { effect, report } => return tell(control, key, world, *effect, *report).await,
        Effect::Note(note) => {
            if let Some(about) = C::about(world) {
                ctx.publish(about, note);
            }
        }
        Effect::NoteAbout(about, note) => ctx.publish(*about, note),
        Effect::RequeueAfter(delay) => return Ok(Next::After(delay)),
        Effect::Own(own) => return control.own(key, world, own).await,
    }
    Ok(Next::Continue)
}

/// [`execute`] for effects within effects: boxed, since a future cannot contain itself.
pub(crate) fn execute_within<'a, C: Control>(
    control: &'a C,
    key: &'a Key,
    world: &'a C::World,
    effect: EffectOf<C>,
) -> BoxFuture<'a, Result<Next<EffectOf<C>>, Error>> {
    Box::pin(execute(control, key, world, effect))
}

pub(crate) fn after<E>(done: Done) -> Next<E> {
    match done {
        Done::Now => Next::Continue,
        Done::Before => Next::Idle,
    }
}

/// Executes an effect and records an event about the outcome.
async fn tell<C: Control>(
    control: &C,
    key: &Key,
    world: &C::World,
    effect: EffectOf<C>,
    report: Report,
) -> Result<Next<EffectOf<C>>, Error> {
    let ctx = control.ctx();
    let what = effect.to_string();
    match execute_within(control, key, world, effect).await {
        Ok(Next::Idle) => Ok(Next::Idle),
        Ok(next) => {
            ctx.publish(report.about, report.done);
            Ok(next)
        }
        Err(error) => {
            let failure = report.failure(&error.for_user());
            ctx.publish(report.about, failure);
            if !report.go_on {
                return Err(error);
            }
            let error = &error as &dyn std::error::Error;
            tracing::debug!(%key, action = what, error, "failed; continuing with the rest of the pass");
            Ok(Next::Idle)
        }
    }
}

impl Context {
    /// Creates an object in the key's namespace, or finds that its controller already has.
    pub(crate) async fn create(&self, key: &Key, object: &Object) -> Result<Done, Error> {
        let at = Key::new(&key.namespace, object.name());
        let owner = controller_of(object.meta()).map(|owner| owner.uid.clone()).unwrap_or_default();
        let create = self.writer.create(key, object, &owner);
        creating(self.memory.expects_creation(object.kind()), key, &at, create).await
    }

    pub(crate) async fn delete(
        &self,
        key: &Key,
        kind: Kind,
        namespace: Option<String>,
        name: &str,
        uid: &str,
        grace_seconds: Option<u32>,
    ) -> Result<Done, Error> {
        let (by, at) = names(key, namespace, name);
        let Some(expected) = self.memory.expects_deletion(kind) else {
            return self.writer.delete(&by, kind, name, uid, grace_seconds).await;
        };
        expected.expect_deletion(key, at.clone());
        let deleted = self.writer.delete(&by, kind, name, uid, grace_seconds).await;
        if !matches!(deleted, Ok(Done::Now)) {
            expected.deleted(key, &at);
        }
        deleted
    }

    async fn replace(&self, key: &Key, part: Part, object: &Object) -> Result<(), Error> {
        let stored = self.writer.replace(key, part, object).await?;
        self.memory.wrote(key, object.kind(), stored.resource_version.as_deref());
        Ok(())
    }

    pub(crate) async fn patch(
        &self,
        key: &Key,
        kind: Kind,
        namespace: Option<String>,
        name: &str,
        part: Part,
        patch: &Patch,
    ) -> Result<(), Error> {
        let (by, _) = names(key, namespace, name);
        let stored = self.writer.patch(&by, kind, name, part, patch).await?;
        self.memory.wrote(key, kind, stored.resource_version.as_deref());
        Ok(())
    }

    /// Executes the queries as live reads.
    async fn look(&self, queries: Vec<Query>) -> Result<Vec<Object>, Error> {
        let mut found = vec![];
        for query in queries {
            match query {
                Query::Get { kind, namespace, name } => {
                    found.extend(self.writer.get_object(kind, &Key::new(namespace, name)).await?);
                }
                Query::List { kind, namespace, labels } => {
                    found.extend(self.writer.list_objects(kind, &namespace, &labels).await?);
                }
            }
        }
        Ok(found)
    }
}

/// The key a write is made for and the key of the written object. An object with an explicit namespace is its own key.
fn names(key: &Key, namespace: Option<String>, name: &str) -> (Key, Key) {
    match namespace {
        Some(namespace) => (Key::new(&namespace, name), Key::new(namespace, name)),
        None => (key.clone(), Key::new(&key.namespace, name)),
    }
}

/// Creates an object under an expectation of `owner`. The expectation is withdrawn unless the object was created.
pub(crate) async fn creating(
    expected: Option<&Expectations>,
    owner: &Key,
    object: &Key,
    create: impl Future<Output = Result<Done, Error>>,
) -> Result<Done, Error> {
    let Some(expected) = expected else { return create.await };
    expected.expect_creation(owner, object.clone());
    let created = create.await;
    if !matches!(created, Ok(Done::Now)) {
        expected.created(owner, object);
    }
    created
}
