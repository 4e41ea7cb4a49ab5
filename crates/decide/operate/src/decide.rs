//! What virt-operator does in a pass.
//!
//! # Guarantees
//!
//! - While nothing differs, nothing is written.
//! - A step starts once everything it needs exists; the condition `Progressing` says what it waits for.
//! - Certificates are renewed until the removal is complete: also while a downgrade is refused, and during the removal,
//!   because the programs that stop guests still have to trust each other.
//! - The status is written last: it reports what was observed.

use std::time::Duration;

use api::finalizers;
use api::v1::KubeVirt;

use crate::absence;
use crate::certificates::Rotation;
use crate::effect::{Decision, Effect};
use crate::status::{Report, Standing, status};
use crate::sync::{Certificates, Halt, Pass, certificates, refreshed};
use crate::target::{Target, settings};
use crate::uninstall;
use crate::version::{is_downgrade, is_update};
use crate::world::World;

/// Interval of reconciles without a change.
const PERIOD: Duration = Duration::from_secs(300);

/// Decides one pass.
pub fn decide(w: &World<'_>) -> Decision {
    let mut decision = Decision { effects: vec![], again: Some(PERIOD) };
    let ours = ours(w);
    for other in w.kubevirts.iter().filter(|kubevirt| !ours.is_some_and(|ours| same(ours, kubevirt))) {
        if let Some(release) = release(w, other, ours) {
            decision.effects.push(release);
            continue;
        }
        decision.effects.extend(report(w, other, &Standing::Other { why: why_other(w, other, ours) }, None, false));
    }
    let Some(kubevirt) = ours else { return decision };
    let held = finalizer(kubevirt);
    if kubevirt.metadata.deletion_timestamp.is_some() {
        if has_finalizer(kubevirt) {
            uninstall::decide(w, kubevirt, &mut decision);
        }
        return decision;
    }
    decision.effects.extend(held);
    match Rotation::of(&kubevirt.spec) {
        Ok(rotation) => {
            let found = certificates(w, &rotation);
            keep(w, kubevirt, found, &mut decision);
        }
        Err(why) => decision.effects.extend(report(w, kubevirt, &Standing::Failed { why }, None, false)),
    }
    decision
}

/// The status after a pass that failed.
pub fn failed(w: &World<'_>, why: &str) -> Option<Effect> {
    let kubevirt = ours(w)?;
    let why = why.to_owned();
    let standing = match kubevirt.metadata.deletion_timestamp {
        Some(_) => Standing::Stays { why },
        None => Standing::Failed { why },
    };
    report(w, kubevirt, &standing, None, false)
}

/// Installs, updates or repairs.
fn keep(w: &World<'_>, kubevirt: &KubeVirt, found: Certificates, decision: &mut Decision) {
    let Certificates { effects, bundle, next, complete } = found;
    decision.effects.extend(effects);
    let absence = absence::next(&w.handlers, &w.not_ready, w.now);
    decision.again = again(w, next.into_iter().chain(absence).min());
    if let Some(why) = downgrade(w, kubevirt) {
        decision.effects.extend(refreshed(&w.live, bundle.as_deref()));
        decision.effects.extend(report(w, kubevirt, &Standing::Refused { why }, None, false));
        return;
    }
    let target = match Target::new(w, kubevirt, bundle.clone()) {
        Ok(target) => target,
        Err(why) => return decision.effects.extend(report(w, kubevirt, &Standing::Failed { why }, None, false)),
    };
    let observed = kubevirt.status.as_ref().and_then(|status| status.observed_deployment_id.clone());
    let settled = observed.as_ref() == Some(&target.identifier());
    let mut pass = Pass { w, target: &target, settled, effects: vec![] };
    let standing = match complete && bundle.is_some() {
        true => run(&mut pass, kubevirt),
        false => Standing::UnderWay { waiting: "Waiting for certificates.".to_owned() },
    };
    let created = pass.all_created();
    decision.effects.extend(pass.effects);
    decision.effects.extend(report(w, kubevirt, &standing, Some(&target), created));
}

fn run(pass: &mut Pass<'_>, kubevirt: &KubeVirt) -> Standing {
    let observed = kubevirt.status.as_ref().and_then(|status| status.observed_kube_virt_version.as_deref());
    let update = observed.is_some_and(|observed| is_update(observed, &pass.target.settings.image_tag));
    match pass.run(update) {
        Err(Halt::Waiting(waiting)) => return Standing::UnderWay { waiting },
        Err(Halt::Failed(why)) => return Standing::Failed { why },
        Ok(()) => {}
    }
    let not_ready = pass.not_ready();
    if not_ready.is_empty() {
        pass.delete_obsolete();
        return Standing::Ready;
    }
    let what = format!("Pods not ready: {}.", not_ready.join(", "));
    match pass.settled {
        true => Standing::NotReady { what, available: pass.is_available() },
        false => Standing::UnderWay { waiting: what },
    }
}

/// Why this virt-operator must not replace the running version.
fn downgrade(w: &World<'_>, kubevirt: &KubeVirt) -> Option<String> {
    let status = kubevirt.status.as_ref()?;
    let (operator, target) = (&w.operator.version, settings(w, kubevirt).image_tag);
    let remedy = "Install the newer version again, or uninstall Ferrovirt and install the older one.";
    if let Some(before) = status.operator_version.as_ref().filter(|before| is_downgrade(before, operator)) {
        return Some(format!("virt-operator {operator} is older than the previous one, {before}. {remedy}"));
    }
    let observed = status.observed_kube_virt_version.as_ref().filter(|observed| is_downgrade(observed, &target))?;
    Some(format!("Version {target} is older than the running version {observed}. Nothing was changed. {remedy}"))
}

/// The installation: the KubeVirt object in force in virt-operator's namespace.
pub(crate) fn ours<'a>(w: &'a World<'_>) -> Option<&'a KubeVirt> {
    api::config::in_force(&w.kubevirts, Some(&w.operator.base.namespace))
}

/// Lets an object go that is being deleted while another one keeps the installation: nothing is removed for it.
fn release(w: &World<'_>, other: &KubeVirt, ours: Option<&KubeVirt>) -> Option<Effect> {
    let here = other.metadata.namespace.as_ref() == Some(&w.operator.base.namespace);
    let leaves = other.metadata.deletion_timestamp.is_some() && has_finalizer(other);
    (ours.is_some() && here && leaves).then(|| let_go(other))
}

/// Removes our finalizer.
pub(crate) fn let_go(kubevirt: &KubeVirt) -> Effect {
    let old = kubevirt.metadata.finalizers.clone().unwrap_or_default();
    let new = old.iter().filter(|one| !is_our_finalizer(one)).cloned().collect();
    set_finalizers(kubevirt, old, new)
}

fn same(one: &KubeVirt, other: &KubeVirt) -> bool {
    (&one.metadata.namespace, &one.metadata.name) == (&other.metadata.namespace, &other.metadata.name)
}

fn why_other(w: &World<'_>, other: &KubeVirt, ours: Option<&KubeVirt>) -> String {
    let namespace = &w.operator.base.namespace;
    match ours.filter(|_| other.metadata.namespace.as_ref() == Some(namespace)) {
        Some(ours) => {
            let name = ours.metadata.name.as_deref().unwrap_or_default();
            format!("A cluster has one installation: KubeVirt {namespace}/{name}. Delete this object.")
        }
        None => {
            format!("virt-operator manages namespace {namespace} only. Delete this object and create it there.")
        }
    }
}

pub(crate) fn has_finalizer(kubevirt: &KubeVirt) -> bool {
    kubevirt.metadata.finalizers.iter().flatten().any(|one| is_our_finalizer(one))
}

fn is_our_finalizer(name: &str) -> bool {
    name == finalizers::KUBEVIRT || name == finalizers::KUBEVIRT_LEGACY
}

/// Adds our finalizer to the object, in place of the one with the old name.
fn finalizer(kubevirt: &KubeVirt) -> Option<Effect> {
    let old = kubevirt.metadata.finalizers.clone().unwrap_or_default();
    let mut new = old.clone();
    new.retain(|one| one != finalizers::KUBEVIRT_LEGACY);
    if !new.iter().any(|one| one == finalizers::KUBEVIRT) {
        new.push(finalizers::KUBEVIRT.to_owned());
    }
    (new != old).then(|| set_finalizers(kubevirt, old, new))
}

fn set_finalizers(kubevirt: &KubeVirt, old: Vec<String>, new: Vec<String>) -> Effect {
    let (namespace, name) = named(kubevirt);
    Effect::Finalizers { namespace, name, old, new }
}

fn named(kubevirt: &KubeVirt) -> (String, String) {
    let metadata = &kubevirt.metadata;
    (metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default())
}

pub(crate) fn report(
    w: &World<'_>,
    kubevirt: &KubeVirt,
    standing: &Standing,
    target: Option<&Target>,
    created: bool,
) -> Option<Effect> {
    let report = Report { operator: w.operator, target, created, now: w.now };
    let status = Box::new(status(kubevirt, standing, &report)?);
    let (namespace, name) = named(kubevirt);
    Some(Effect::Status { namespace, name, status })
}

/// When the next certificate is due, or the next regular reconcile.
pub(crate) fn again(w: &World<'_>, next: Option<jiff::Timestamp>) -> Option<Duration> {
    let due = next.map(|next| Duration::try_from(next.duration_since(w.now)).unwrap_or(Duration::ZERO));
    Some(due.unwrap_or(PERIOD).clamp(Duration::from_secs(1), PERIOD))
}
