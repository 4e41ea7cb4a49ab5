//! One pass over one key: observe, decide, execute; and what is done about a failure.

use std::time::Duration;

use informer::{Classify, ErrorClass, Key, Requeue};
use plan::SyncError;

use crate::Error;

/// A controller as the pass sees it.
pub(crate) trait Control: Sync {
    type World: Send + Sync;
    type Action: std::fmt::Display + Send;

    /// Everything the decision may see, or nothing if the object is gone.
    fn observe(&self, key: &Key) -> Option<Self::World>;
    /// The object is gone: drop what is remembered about it.
    fn forget(&self, key: &Key);
    fn decide(world: &Self::World) -> Vec<Self::Action>;
    /// Puts the failure of the last attempt into the world, for controllers that show it on the object.
    fn fail(_world: &mut Self::World, _error: SyncError) {}
    /// Under which reason a failure of this action is shown on the object. Without one it is only tried again.
    fn failure_reason(_action: &Self::Action) -> Option<&'static str> {
        None
    }
    fn execute(
        &self,
        key: &Key,
        world: &Self::World,
        action: Self::Action,
    ) -> impl Future<Output = Result<Next<Self::Action>, Error>> + Send;
}

/// How the pass goes on after an action.
pub(crate) enum Next<A> {
    Continue,
    /// These come next, then what remains.
    Insert(Vec<A>),
    /// Another look after this time; what remains still follows.
    After(Duration),
    /// Nothing more in this pass; another look after this time.
    StopUntil(Duration),
}

/// An action that failed, and how to show it.
struct Failed {
    reason: Option<&'static str>,
    error: Error,
}

pub(crate) async fn reconcile<C: Control>(control: &C, key: &Key) -> Result<Requeue, Error> {
    let Some(mut world) = control.observe(key) else {
        control.forget(key);
        return Ok(Requeue::No);
    };
    let failed = match carry_out(control, key, &world).await {
        Ok(requeue) => return Ok(requeue),
        Err(failed) => failed,
    };
    if let Some(reason) = failed.reason
        && failed.error.class() != ErrorClass::Conflict
    {
        C::fail(&mut world, SyncError::new(reason, failed.error.for_user()));
        if let Err(report) = carry_out(control, key, &world).await {
            let error = &report.error as &dyn std::error::Error;
            tracing::debug!(%key, error, "the failure could not be shown on the object; the next attempt will");
        }
    }
    Err(failed.error)
}

async fn carry_out<C: Control>(control: &C, key: &Key, world: &C::World) -> Result<Requeue, Failed> {
    let mut waiting: Vec<C::Action> = C::decide(world);
    waiting.reverse(); // a stack: the next action is the last
    let mut delay: Option<Duration> = None;
    while let Some(action) = waiting.pop() {
        tracing::debug!(%key, %action);
        let reason = C::failure_reason(&action);
        match control.execute(key, world, action).await.map_err(|error| Failed { reason, error })? {
            Next::Continue => {}
            Next::Insert(actions) => waiting.extend(actions.into_iter().rev()),
            Next::After(after) => delay = Some(delay.map_or(after, |delay| delay.min(after))),
            Next::StopUntil(after) => return Ok(Requeue::After(after)),
        }
    }
    Ok(delay.map_or(Requeue::No, Requeue::After))
}
