//! 52, 53: the evacuation controller creates at most one migration at a time for a VMI, however stale its caches are,
//! and none for a VMI that must not or cannot migrate, or that already has a second Pod.

use api::conditions;
use machinery::meta::is_controlled_by;

use super::evictions::strategy;
use super::migration_backoff::is_automatic;
use super::support::{ensure, instance_key, name};
use super::{Invariant, Scene, Verdict};
use crate::actors::{has_ended, is_ephemeral};
use crate::kinds::{Kind, Object, uid};
use crate::server::Change;

#[derive(Default)]
pub(crate) struct Rule;

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "evacuations"
    }

    fn change(&mut self, scene: &Scene<'_>, change: &Change) -> Verdict {
        let (Object::Migration(new), None) = (&change.last, &change.was) else { return Ok(()) };
        if change.by.name() != "evacuation-controller" {
            return Ok(());
        }
        let server = scene.server;
        let same = |other: &api::v1::VirtualMachineInstanceMigration| {
            instance_key(other) == instance_key(new) && is_automatic(other) && !other.is_final()
        };
        let going = server.tables.migrations.all().filter(|other| same(other)).count();
        ensure(going <= 1, || format!("{going} migrations are to empty the node of {:?}", new.spec.vmi_name))?;
        let Some(pass) = scene.pass(change.by) else { return Ok(()) };
        let seen = instance_key(new).and_then(|key| scene.cached(pass, Kind::Vmi, &key));
        let Some(Object::Vmi(vmi)) = seen else { return Ok(()) };
        let strategy = strategy(server, &vmi);
        ensure(matches!(strategy.as_str(), "LiveMigrate" | "LiveMigrateIfPossible"), || {
            format!("{} is moved, and its eviction strategy is {strategy:?}", name(&vmi))
        })?;
        ensure(vmi.has_condition(conditions::LIVE_MIGRATABLE), || format!("{} is moved, and cannot be", name(&vmi)))?;
        let active = scene.all_cached(pass, Kind::Pod).into_iter().filter(|object| match object {
            Object::Pod(pod) => {
                is_controlled_by(&pod.metadata, uid(&vmi.metadata)) && !has_ended(pod) && !is_ephemeral(pod)
            }
            _ => false,
        });
        let active = active.count();
        ensure(active <= 1, || format!("{} is moved, and has {active} Pods", name(&vmi)))
    }
}
