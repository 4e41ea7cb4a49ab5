//! 52, 54: the workload updater makes no more migrations in a pass than the cluster had room for, none beside another
//! that was made by us, asks for no more evictions than one batch in any interval, whichever process does, and does nothing
//! while the installation is not what it shall be.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use api::v1::{KubeVirt, KubeVirtPhase, VirtualMachineInstanceMigration as Migration};
use plan::migration::{is_final, is_running};

use super::limits::Limits;
use super::migration_backoff::is_automatic;
use super::support::{ensure, instance_key, pass_of};
use super::{Invariant, Scene, Verdict};
use crate::controllers;
use crate::engine::PassInfo;
use crate::hub::{Op, Request};
use crate::kinds::{Kind, Object};
use crate::server::Change;

#[derive(Default)]
pub(crate) struct Rule {
    /// By pass: migrations that it has made.
    made: BTreeMap<u64, usize>,
    /// When Pods were asked to leave.
    evicted: VecDeque<Duration>,
}

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "workload_updates"
    }

    fn change(&mut self, scene: &Scene<'_>, change: &Change) -> Verdict {
        let (Object::Migration(new), None) = (&change.last, &change.was) else { return Ok(()) };
        let Some(pass) = pass_of(scene, change, controllers::WORKLOAD_UPDATE) else { return Ok(()) };
        may_work(scene, pass, "LiveMigrate")?;
        let same = |other: &Migration| {
            instance_key(other) == instance_key(new) && is_automatic(other) && !is_final(other)
        };
        let going = scene.server.tables.migrations.all().filter(|other| same(other)).count();
        ensure(going <= 1, || format!("{going} migrations are to move {:?}", new.spec.vmi_name))?;
        let running = scene.all_cached(pass, Kind::Migration).into_iter().filter(|object| match object {
            Object::Migration(migration) => is_running(migration),
            _ => false,
        });
        let (running, limit) = (running.count(), Limits::of(scene.server).cluster);
        let made = self.made.entry(pass.id).or_default();
        *made += 1;
        ensure(*made + running <= limit, || format!("{made} migrations were made beside {running} of {limit}"))
    }

    fn request(&mut self, scene: &Scene<'_>, pass: &PassInfo, request: &Request) -> Verdict {
        let Op::Evict = request.op else { return Ok(()) };
        let kubevirt = may_work(scene, pass, "Evict")?;
        let strategy = kubevirt.spec.workload_update_strategy.unwrap_or_default();
        let size = strategy.batch_eviction_size.and_then(|size| usize::try_from(size).ok()).unwrap_or(10);
        let interval = strategy.batch_eviction_interval.unwrap_or_else(|| "1m".to_owned());
        let interval = interval.parse::<machinery::duration::Duration>().map_err(|error| error.to_string())?;
        let (now, interval) = (scene.server.now, interval.to_std().unwrap_or_default());
        self.evicted.push_back(now);
        self.evicted.retain(|at| now.saturating_sub(*at) < interval);
        ensure(self.evicted.len() <= size, || format!("{} evictions within {interval:?}", self.evicted.len()))
    }
}

/// The installation as the pass knows it, if it allows what the pass does.
fn may_work(scene: &Scene<'_>, pass: &PassInfo, method: &str) -> Result<KubeVirt, String> {
    let Some(Object::KubeVirt(kubevirt)) = scene.cached(pass, Kind::KubeVirt, &pass.key) else {
        return Err("guests are updated, and there is no installation".to_owned());
    };
    let status = kubevirt.status.clone().unwrap_or_default();
    ensure(status.phase == Some(KubeVirtPhase::Deployed), || format!("guests are updated in {:?}", status.phase))?;
    ensure(status.observed_deployment_id == status.target_deployment_id, || {
        "guests are updated while the installation is".to_owned()
    })?;
    let strategy = kubevirt.spec.workload_update_strategy.clone().unwrap_or_default();
    ensure(strategy.workload_update_methods.iter().any(|named| named == method), || {
        format!("guests are updated by {method}, which nobody chose")
    })?;
    Ok((*kubevirt).clone())
}
