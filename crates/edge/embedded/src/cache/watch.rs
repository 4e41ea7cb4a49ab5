//! The state machine of one client's watch.
//!
//! ```text
//!   Initial ── all sent ──► InitialEnd ── bookmark, if asked for ──► Live ──► Ended
//!                                          Live ── fell behind the history ──► (Expired) ──► Ended
//!                                          Live ── time is up, or shutdown ──► Ended
//! ```

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch as signal;
use tokio::time::{Instant, Interval, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::{Cache, Event, Filter, Object, TooOld};
use crate::kinds::KindId;

/// Interval of bookmarks, for clients that asked for them.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// Objects per chunk of the initial state: bounds the buffer of a watch of many objects.
const CHUNK: usize = 128;

/// Where a watch starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    /// With all current objects as ADDED; `mark_end` adds the bookmark that marks their end.
    State { mark_end: bool },
    /// With the next change.
    Now,
    /// With the first change after a revision.
    After(u64),
}

/// One item to send to the client.
#[derive(Debug, Clone)]
pub(crate) enum WatchItem {
    Added(Arc<Object>),
    Modified(Arc<Object>),
    /// The object, or its last version that matched the client's filter, as of `revision`.
    Deleted {
        object: Arc<Object>,
        revision: u64,
    },
    Bookmark {
        revision: u64,
        initial_events_end: bool,
    },
    Expired(TooOld),
}

enum Phase {
    Initial { objects: Vec<Arc<Object>>, mark_end: bool },
    InitialEnd,
    Live,
    Ended,
}

pub(crate) struct Watch {
    cache: Arc<Cache>,
    kind: KindId,
    filter: Filter,
    phase: Phase,
    /// Everything up to here has been sent.
    cursor: u64,
    changed: signal::Receiver<u64>,
    bookmarks: Option<Interval>,
    deadline: Instant,
    shutdown: CancellationToken,
}

impl Watch {
    pub(crate) fn new(
        cache: Arc<Cache>,
        kind: KindId,
        filter: Filter,
        start: Start,
        bookmarks: bool,
        timeout: Duration,
        shutdown: CancellationToken,
    ) -> Self {
        let changed = cache.changes(kind);
        let (phase, cursor) = match start {
            Start::State { mark_end } => {
                let mut snapshot = cache.list(kind, filter.namespace());
                snapshot.objects.retain(|object| filter.matches(object));
                snapshot.objects.reverse(); // chunks are taken from the end
                (Phase::Initial { objects: snapshot.objects, mark_end }, snapshot.revision)
            }
            Start::Now => (Phase::Live, *cache.revision().borrow()),
            Start::After(revision) => (Phase::Live, revision),
        };
        let now = Instant::now();
        let bookmarks = bookmarks.then(|| {
            let mut interval = tokio::time::interval_at(now + BOOKMARK_EVERY, BOOKMARK_EVERY);
            interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
            interval
        });
        Self { cache, kind, filter, phase, cursor, changed, bookmarks, deadline: now + timeout, shutdown }
    }

    /// The next items, at least one; `None` when the watch has ended.
    pub(crate) async fn next(&mut self) -> Option<Vec<WatchItem>> {
        loop {
            let items = match &mut self.phase {
                Phase::Initial { objects, mark_end } => {
                    let chunk = objects.split_off(objects.len().saturating_sub(CHUNK));
                    if objects.is_empty() {
                        self.phase = if *mark_end { Phase::InitialEnd } else { Phase::Live };
                    }
                    chunk.into_iter().rev().map(WatchItem::Added).collect()
                }
                Phase::InitialEnd => {
                    self.phase = Phase::Live;
                    vec![WatchItem::Bookmark { revision: self.cursor, initial_events_end: true }]
                }
                Phase::Live => self.live().await,
                Phase::Ended => return None,
            };
            if !items.is_empty() {
                return Some(items);
            }
        }
    }

    async fn live(&mut self) -> Vec<WatchItem> {
        self.changed.mark_unchanged(); // before checking, so that a later change wakes us
        let items = match self.cache.events_after(self.kind, self.cursor) {
            Ok((events, revision)) => {
                self.cursor = revision;
                events.iter().filter_map(|event| translate(event, &self.filter)).collect()
            }
            Err(too_old) => {
                self.phase = Phase::Ended;
                vec![WatchItem::Expired(too_old)]
            }
        };
        if items.is_empty() { self.wait().await } else { items }
    }

    /// Waits until there may be something to send.
    async fn wait(&mut self) -> Vec<WatchItem> {
        let tick = async {
            match &mut self.bookmarks {
                Some(interval) => interval.tick().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = self.changed.changed() => {
                if changed.is_err() {
                    self.phase = Phase::Ended; // the cache is gone, and the server with it
                }
                vec![]
            }
            _ = tick => vec![self.bookmark()],
            () = tokio::time::sleep_until(self.deadline) => self.end(),
            () = self.shutdown.cancelled() => self.end(),
        }
    }

    /// Sends a last bookmark, so that the client can resume without relisting.
    fn end(&mut self) -> Vec<WatchItem> {
        self.phase = Phase::Ended;
        if self.bookmarks.is_some() { vec![self.bookmark()] } else { vec![] }
    }

    /// The cursor also advances with changes of other kinds, so that the watch of a quiet kind does not expire.
    fn bookmark(&mut self) -> WatchItem {
        if let Ok((events, revision)) = self.cache.events_after(self.kind, self.cursor)
            && events.is_empty()
        {
            self.cursor = revision;
        }
        WatchItem::Bookmark { revision: self.cursor, initial_events_end: false }
    }
}

/// Translates a change for a filtered watch: an object that starts to match is added, one that stops to match is
/// deleted.
fn translate(event: &Event, filter: &Filter) -> Option<WatchItem> {
    let before = event.previous.as_ref().filter(|object| filter.matches(object));
    let after = !event.deleted && filter.matches(&event.object);
    let revision = event.object.revision;
    match (before, after) {
        (None, true) => Some(WatchItem::Added(event.object.clone())),
        (Some(_), true) => Some(WatchItem::Modified(event.object.clone())),
        (Some(_), false) if event.deleted => Some(WatchItem::Deleted { object: event.object.clone(), revision }),
        (Some(previous), false) => Some(WatchItem::Deleted { object: previous.clone(), revision }),
        (None, false) => None,
    }
}
