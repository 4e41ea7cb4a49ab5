//! 52, 54: the workload updater creates at most as many migrations per reconcile as the cluster has free slots, none
//! for a VMI that already has an automatic one, requests at most one batch of evictions per interval across all
//! replicas, and does nothing while the installation is being updated.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use api::v1::{KubeVirt, KubeVirtPhase, VirtualMachineInstanceMigration as Migration};
use plan::migration::is_running;

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
    /// Migrations created, by reconcile.
    made: BTreeMap<u64, usize>,
    /// Times of evictions.
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
            instance_key(other) == instance_key(new) && is_automatic(other) && !other.is_final()
        };
        let going = scene.server.tables.migrations.all().filter(|other| same(other)).count();
        ensure(going <= 1, || format!("VMI {:?} has {going} automatic migrations", new.spec.vmi_name))?;
        let running = scene.all_cached(pass, Kind::Migration).into_iter().filter(|object| match object {
            Object::Migration(migration) => is_running(migration),
            _ => false,
        });
        let (running, limit) = (running.count(), Limits::of(scene.server).cluster);
        let made = self.made.entry(pass.id).or_default();
        *made += 1;
        ensure(*made + running <= limit, || format!("{made} migrations were created while {running} of at most {limit} run"))
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

/// The KubeVirt object as cached by the reconcile, if it allows what the reconcile does.
fn may_work(scene: &Scene<'_>, pass: &PassInfo, method: &str) -> Result<KubeVirt, String> {
    let Some(Object::KubeVirt(kubevirt)) = scene.cached(pass, Kind::KubeVirt, &pass.key) else {
        return Err("guests are updated without a KubeVirt object".to_owned());
    };
    let status = kubevirt.status.clone().unwrap_or_default();
    ensure(status.phase == Some(KubeVirtPhase::Deployed), || {
        format!("guests are updated while the installation is {:?}", status.phase)
    })?;
    ensure(status.observed_deployment_id == status.target_deployment_id, || {
        "guests are updated while the installation is being updated".to_owned()
    })?;
    let strategy = kubevirt.spec.workload_update_strategy.clone().unwrap_or_default();
    ensure(strategy.workload_update_methods.iter().any(|named| named == method), || {
        format!("guests are updated by {method}, which is not in workloadUpdateMethods")
    })?;
    Ok((*kubevirt).clone())
}
