//! The end of a history: after the last fault everything must settle and then stay unchanged.

use std::time::Duration;

use informer::Key;

use super::{Event, Sim};
use crate::controllers;
use crate::hub::lock;
use crate::invariants::Violation;

/// Quiet time without writes: longer than expectations and crash-loop back-offs last. A failed key may back off for
/// longer.
const QUIET: Duration = Duration::from_secs(330);
/// Time limit for settling after the last fault.
const PATIENCE: Duration = Duration::from_secs(3600);

impl Sim {
    /// Whether everything had settled before this time.
    pub(super) fn quiet_at(&self, at: Duration) -> bool {
        at > self.script.calm
            && at.saturating_sub(self.last_write.max(self.script.calm)) > QUIET
            && self.replica.as_ref().is_some_and(|replica| !replica.tries_again())
            || at > self.script.calm + PATIENCE
    }

    pub(super) fn unsettled(&self, why: &str) -> Violation {
        Violation { invariant: "settles", at: self.now, message: why.to_owned() }
    }

    /// Checks the final state, then reconciles every key once more: nothing may be written.
    pub(super) fn rest(&mut self) -> Result<(), Violation> {
        if self.now.saturating_sub(self.last_write) <= QUIET && self.now > self.script.calm + PATIENCE - QUIET {
            return Err(self.unsettled("an hour after the last fault there is still no rest"));
        }
        let Some(replica) = &self.replica else { return Err(self.unsettled("nobody leads")) };
        if !replica.tasks.is_empty() {
            return Err(self.unsettled("a pass does not end"));
        }
        let id = replica.id;
        self.judge.rest(&lock(&self.hub).server, &replica.stores);
        if let Some(violation) = self.judge.violation.take() {
            return Err(violation);
        }
        let before = (lock(&self.hub).server.log.len(), self.writes);
        self.wake_everything();
        self.events.clear();
        self.schedule(Duration::ZERO, Event::Work { replica: id });
        let until = self.now + Duration::from_secs(20);
        while let Some(((at, _), event)) = self.events.pop_first() {
            if at > until {
                break;
            }
            self.move_to(at)?;
            self.handle(event);
            if let Some(violation) = self.judge.violation.take() {
                return Err(violation);
            }
            if let Some(change) = lock(&self.hub).server.log.get(before.0) {
                let what = format!("{} {:?} {}", change.by.name(), change.verb, change.last.title());
                return Err(self.unsettled(&format!("everything had settled, but another pass writes: {what}")));
            }
            if self.writes != before.1 {
                return Err(self.unsettled("everything had settled, but another pass tries to write"));
            }
        }
        Ok(())
    }

    fn wake_everything(&mut self) {
        let Some(replica) = &self.replica else { return };
        let hub = lock(&self.hub);
        let tables = &hub.server.tables;
        let queue = |of: &str, key: Key| {
            replica.controllers.named(of).expect("it is in the list").queue.add(key);
        };
        tables.vms.all().for_each(|vm| queue(controllers::VM, Key::of(vm.as_ref())));
        tables.vmis.all().for_each(|vmi| queue(controllers::VMI, Key::of(vmi.as_ref())));
        tables.budgets.all().for_each(|budget| queue(controllers::DISRUPTION_BUDGET, Key::of(budget.as_ref())));
        tables.kubevirts.all().for_each(|kubevirt| queue(controllers::WORKLOAD_UPDATE, Key::of(kubevirt.as_ref())));
        for migration in tables.migrations.all() {
            queue(controllers::MIGRATION, Key::of(migration.as_ref()));
            queue(controllers::SYNCHRONIZATION, Key::of(migration.as_ref()));
        }
        for node in tables.nodes.all() {
            queue(controllers::NODE, Key::of(node.as_ref()));
            queue(controllers::EVACUATION, Key::of(node.as_ref()));
        }
    }
}
