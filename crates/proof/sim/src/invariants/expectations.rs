//! 3, 22: while something that a controller created or deleted for a key is not yet in its cache, it creates and
//! deletes nothing for that key, for at most five minutes. Expectations are tracked by name: an earlier object of the
//! same name that a late watch delivers satisfies them, and the next request then meets the existing object.

use std::collections::BTreeMap;
use std::time::Duration;

use informer::{EXPIRY, Key};
use machinery::meta::is_deleting;

use super::{Invariant, Scene, Verdict};
use crate::engine::PassInfo;
use crate::hub::{Op, Request};
use crate::kinds::Kind;

#[derive(Default)]
pub(crate) struct Rule {
    open: BTreeMap<(u32, &'static str, Key), Vec<Expected>>,
}

/// Something a pass has done, and heard that it was done.
struct Expected {
    pass: u64,
    kind: Kind,
    key: Key,
    /// Number of changes of the kind in the cache at that time.
    seen: usize,
    /// The number of the change among those of its kind.
    nth: usize,
    at: Duration,
}

fn counts(request: &Request) -> Option<Kind> {
    let kind = request.kind.filter(|kind| matches!(kind, Kind::Pod | Kind::Vmi | Kind::DataVolume))?;
    matches!(request.op, Op::Create | Op::Delete { .. }).then_some(kind)
}

/// The change that shows a deletion: the first with a deletion timestamp, whoever set it.
fn shows(scene: &Scene<'_>, kind: Kind, request: &Request) -> Option<usize> {
    let Op::Delete { uid } = &request.op else { return None };
    let changes = scene.server.stream(kind).iter().map(|&at| &scene.server.log[at]);
    changes.map(|change| &change.last).position(|object| object.uid() == uid && is_deleting(object.meta()))
}

/// Whether the cache has received another object of the name since.
fn met_another(scene: &Scene<'_>, expected: &Expected, seen: usize) -> bool {
    let stream = scene.server.stream(expected.kind);
    let since = stream.get(expected.seen..seen.min(stream.len())).unwrap_or_default();
    let mut since = since.iter().map(|&at| &scene.server.log[at]);
    since.any(|change| change.was.is_none() && change.last.is_at(&expected.key))
}

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "expectations"
    }

    fn request(&mut self, scene: &Scene<'_>, pass: &PassInfo, request: &Request) -> Verdict {
        let Some(_) = counts(request) else { return Ok(()) };
        let key = (pass.replica, pass.controller, pass.key.clone());
        let Some(open) = self.open.get_mut(&key) else { return Ok(()) };
        open.retain(|expected| {
            let seen = pass.seen[expected.kind as usize];
            seen <= expected.nth && scene.server.now - expected.at < EXPIRY && !met_another(scene, expected, seen)
        });
        match open.iter().find(|expected| expected.pass != pass.id) {
            Some(expected) => Err(format!("{} is asked for while {} is not in the cache yet", request.key, expected.key.name)),
            None => Ok(()),
        }
    }

    fn answer(&mut self, scene: &Scene<'_>, pass: &PassInfo, request: &Request, answer: Result<(), u16>) -> Verdict {
        let Some(kind) = counts(request).filter(|_| answer.is_ok()) else { return Ok(()) };
        let own = scene.server.log.last().filter(|change| scene.pass(change.by).is_some_and(|by| by.id == pass.id));
        if own.is_some_and(|change| change.kind() == kind) {
            let nth = shows(scene, kind, request).unwrap_or(scene.server.stream(kind).len() - 1);
            let (seen, at) = (pass.seen[kind as usize], scene.server.now);
            let expected = Expected { pass: pass.id, kind, key: request.key.clone(), seen, nth, at };
            let key = (pass.replica, pass.controller, pass.key.clone());
            self.open.entry(key).or_default().push(expected);
        }
        Ok(())
    }
}
