//! 49: if a quota rejects the target Pod, the migration stays Pending with the quota condition; once the quota allows
//! the Pod, the migration continues, and from Scheduling on the condition is gone.

use std::collections::BTreeMap;

use api::conditions;
use api::v1::VirtualMachineInstanceMigration as Migration;
use api::v1::VirtualMachineInstanceMigrationPhase as Phase;
use machinery::meta::is_deleting;
use virt_controller::Stores;

use super::support::ensure;
use super::{Invariant, Scene, Verdict};
use crate::controllers;
use crate::engine::PassInfo;
use crate::hub::{Op, Request};
use crate::kinds::{Kind, Object};
use crate::server::Change;

#[derive(Default)]
pub(crate) struct Rule {
    /// Reconciles with a Pod rejected by a quota, and whether all of their other requests succeeded.
    refused: BTreeMap<u64, bool>,
}

fn shows(migration: &Migration) -> bool {
    let list = migration.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    conditions::is_true(list, conditions::MIGRATION_REJECTED_BY_RESOURCE_QUOTA)
}

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "quota_waits"
    }

    fn change(&mut self, _: &Scene<'_>, change: &Change) -> Verdict {
        let Object::Migration(migration) = &change.last else { return Ok(()) };
        ensure(!shows(migration) || migration.phase() == Some(&Phase::Pending), || {
            format!("migration {} is {:?} and still has the quota condition", change.last.key().name, migration.phase())
        })
    }

    fn answer(&mut self, scene: &Scene<'_>, pass: &PassInfo, request: &Request, answer: Result<(), u16>) -> Verdict {
        if pass.controller != controllers::MIGRATION {
            return Ok(());
        }
        let by_quota = scene.server.tables.quotas.all().next().is_some();
        if request.kind == Some(Kind::Pod) && matches!(request.op, Op::Create) && answer == Err(403) && by_quota {
            self.refused.insert(pass.id, true);
        } else if let Some(done) = self.refused.get_mut(&pass.id) {
            *done &= answer.is_ok();
        }
        Ok(())
    }

    fn pass_ends(&mut self, scene: &Scene<'_>, pass: &PassInfo, _: bool) -> Verdict {
        let Some(true) = self.refused.remove(&pass.id) else { return Ok(()) };
        let Some(migration) = scene.server.tables.migrations.get(&pass.key) else { return Ok(()) };
        let waits = migration.phase() == Some(&Phase::Pending) && shows(migration);
        ensure(waits || is_deleting(&migration.metadata), || {
            format!("migration {} was rejected by a quota, but is {:?} or lacks the condition", pass.key, migration.phase())
        })
    }

    fn rest(&mut self, scene: &Scene<'_>, _: &Stores) -> Verdict {
        let stuck = scene.server.tables.migrations.all().find(|migration| shows(migration));
        stuck.map_or(Ok(()), |migration| Err(format!("migration {:?} still waits for a quota", migration.metadata.name)))
    }
}
