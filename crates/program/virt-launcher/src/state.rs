//! The launcher's state document, with a sequence number and a way to wait for changes.

use std::sync::Arc;
use std::time::Duration;

use launcher_contract::types::LauncherState;
use tokio::sync::watch;

/// Cheap to clone; all clones share the document.
#[derive(Clone)]
pub(crate) struct StateStore(Arc<watch::Sender<LauncherState>>);

impl StateStore {
    pub(crate) fn new() -> Self {
        // Starts at 1, so that "after 0" always returns at once.
        StateStore(Arc::new(watch::Sender::new(LauncherState { seq: 1, ..Default::default() })))
    }

    pub(crate) fn get(&self) -> LauncherState {
        self.0.borrow().clone()
    }

    /// Updates the document; a no-op update wakes nobody.
    pub(crate) fn update(&self, change: impl FnOnce(&mut LauncherState)) {
        self.0.send_if_modified(|state| {
            let mut next = state.clone();
            change(&mut next);
            next.seq = state.seq;
            if next == *state {
                return false;
            }
            next.seq += 1;
            *state = next;
            true
        });
    }

    /// Returns the document once its sequence number differs from `after`, or after `wait`.
    pub(crate) async fn changed(&self, after: u64, wait: Duration) -> LauncherState {
        let mut receiver = self.0.subscribe();
        let _ = tokio::time::timeout(wait, receiver.wait_for(|state| state.seq != after)).await;
        self.get()
    }

    /// Waits until the document satisfies a condition.
    pub(crate) async fn until(&self, condition: impl FnMut(&LauncherState) -> bool) {
        // `self` holds the sender, so this cannot fail.
        let _ = self.0.subscribe().wait_for(condition).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_is_behind_gets_the_state_at_once_and_others_wait() {
        let store = StateStore::new();
        assert_eq!(store.changed(0, Duration::from_secs(30)).await.seq, 1);
        let started = tokio::time::Instant::now();
        assert_eq!(store.changed(1, Duration::from_secs(30)).await.seq, 1);
        assert_eq!(started.elapsed().as_secs(), 30);

        let waiting = tokio::spawn({
            let store = store.clone();
            async move { store.changed(1, Duration::from_secs(30)).await }
        });
        tokio::time::sleep(Duration::from_secs(1)).await;
        store.update(|state| state.marked_for_graceful_shutdown = true);
        let state = waiting.await.unwrap();
        assert_eq!((state.seq, state.marked_for_graceful_shutdown), (2, true));
    }

    #[tokio::test]
    async fn writing_the_same_again_changes_no_number() {
        let store = StateStore::new();
        store.update(|state| state.last_error = Some("x".into()));
        store.update(|state| state.last_error = Some("x".into()));
        store.update(|state| state.seq = 77);
        assert_eq!(store.get().seq, 2);
    }
}
