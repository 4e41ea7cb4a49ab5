//! Reconciles one key: observe, decide, execute, and handle failures.

use std::pin::Pin;
use std::time::Duration;

use informer::{Classify, ErrorClass, Key, Requeue};
use k8s_openapi::api::core::v1::ObjectReference;
use plan::SyncError;
use plan::effect::{Deed, Doubt, Effect};
use plan::object::Object;

use crate::Error;
use crate::context::Context;
use crate::controller::Reconcile;
use crate::execute::execute;

/// The effects a controller decides on.
pub type EffectOf<C> = Effect<<C as Control>::Look, <C as Control>::Own>;

/// A function of `plan` that makes the decisions of a controller.
pub type Decide<C> = fn(&<C as Control>::World) -> Vec<EffectOf<C>>;

/// What the reconcile loop needs of a controller besides its decisions: their input, and the execution of effects that
/// only this controller has.
pub trait Control: Send + Sync {
    type World: Send + Sync;
    type Look: Doubt<Self::World> + Send + Sync;
    type Own: Deed + Send + Sync;

    fn ctx(&self) -> &Context;
    /// Gathers the input of the decision. `None` if the object is gone.
    fn observe(&self, key: &Key) -> Option<Self::World>;
    /// Called when the object is gone, to drop any state besides the context's memory.
    fn forget(&self, _key: &Key) {}
    /// Puts the last failure into the world, for controllers that report it on the object.
    fn fail(_world: &mut Self::World, _error: SyncError) {}
    /// The object that events are about.
    fn about(world: &Self::World) -> Option<ObjectReference>;
    /// Called after an object was created, or found to exist. The key is requeued after the returned time.
    fn created(&self, _key: &Key, _world: &Self::World, _object: &Object) -> Option<Duration> {
        None
    }
    /// Called after the object, or its status, was replaced.
    fn wrote(&self, _key: &Key, _world: &Self::World, _object: &Object) {}
    /// Executes an effect that only this controller has.
    fn own(
        &self,
        key: &Key,
        world: &Self::World,
        own: Self::Own,
    ) -> impl Future<Output = Result<Next<EffectOf<Self>>, Error>> + Send;
}

/// How to continue after an effect.
pub enum Next<E> {
    Continue,
    /// There was nothing left to do.
    Idle,
    /// Execute these next, then the remaining effects.
    Insert(Vec<E>),
    /// Requeue after this time; the remaining effects still run.
    After(Duration),
    /// Skip the remaining effects and requeue after this time.
    StopUntil(Duration),
}

/// A failed effect and how to report it.
struct Failed {
    reason: Option<&'static str>,
    error: Error,
}

/// The reconciler of a controller.
pub fn reconciler<C: Control + 'static>(control: C, decide: Decide<C>) -> Box<dyn Reconcile> {
    Box::new(Reconciler { control, decide })
}

struct Reconciler<C: Control> {
    control: C,
    decide: Decide<C>,
}

impl<C: Control> Reconcile for Reconciler<C> {
    fn reconcile<'a>(&'a self, key: &'a Key) -> Pin<Box<dyn Future<Output = Result<Requeue, Error>> + Send + 'a>> {
        Box::pin(reconcile(&self.control, self.decide, key))
    }
}

async fn reconcile<C: Control>(control: &C, decide: Decide<C>, key: &Key) -> Result<Requeue, Error> {
    let Some(mut world) = control.observe(key) else {
        control.ctx().memory.forget(key);
        control.forget(key);
        return Ok(Requeue::No);
    };
    let failed = match carry_out(control, key, &world, decide(&world)).await {
        Ok(requeue) => return Ok(requeue),
        Err(failed) => failed,
    };
    if let Some(reason) = failed.reason
        && failed.error.class() != ErrorClass::Conflict
    {
        C::fail(&mut world, SyncError::new(reason, failed.error.for_user()));
        if let Err(report) = carry_out(control, key, &world, decide(&world)).await {
            let error = &report.error as &dyn std::error::Error;
            tracing::debug!(%key, error, "failed to report the failure on the object; retrying");
        }
    }
    Err(failed.error)
}

async fn carry_out<C: Control>(
    control: &C,
    key: &Key,
    world: &C::World,
    mut waiting: Vec<EffectOf<C>>,
) -> Result<Requeue, Failed> {
    waiting.reverse(); // used as a stack: the next effect is at the end
    let mut delay: Option<Duration> = None;
    while let Some(effect) = waiting.pop() {
        tracing::debug!(%key, action = %effect);
        let reason = effect.on_failure();
        match execute(control, key, world, effect).await.map_err(|error| Failed { reason, error })? {
            Next::Continue | Next::Idle => {}
            Next::Insert(effects) => waiting.extend(effects.into_iter().rev()),
            Next::After(after) => delay = Some(delay.map_or(after, |delay| delay.min(after))),
            Next::StopUntil(after) => return Ok(Requeue::After(after)),
        }
    }
    Ok(delay.map_or(Requeue::No, Requeue::After))
}
