//! One pass over all desired objects.
//!
//! ```text
//! first:   existing CRDs, namespace, RBAC, services, policies ─► certificates
//!          ─► virt-api ─► webhooks, aggregated API ─► new CRDs ─► virt-controller, virt-handler
//! update:  the same ─► virt-handler, canary first ─► virt-controller ─► virt-api ─► webhooks, aggregated API ─► new CRDs
//! ```
//!
//! CRDs of new kinds follow once virt-api reviews their objects, so that every stored object has passed admission.
//! Webhooks and the aggregated API are registered once their server responds.

use install::{Step, names};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::absence::{Absent, waits_for};
use crate::certificates;
use crate::drift::{difference, stamped};
use crate::effect::Effect;
use crate::rollout::{Canary, Rollout, canary, template_hash};
use crate::target::{Desired, Target};
use crate::world::{Id, Objects, World};

/// Why a pass stops early.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Halt {
    /// It waits; for what.
    Waiting(String),
    /// It failed; why.
    Failed(String),
}

/// What a pass has decided so far.
pub(crate) struct Pass<'a> {
    pub(crate) w: &'a World<'a>,
    pub(crate) target: &'a Target,
    /// Whether the target was rolled out before: then no step waits for another.
    pub(crate) settled: bool,
    pub(crate) effects: Vec<Effect>,
}

impl Pass<'_> {
    /// Everything in the order of a first installation, or of an update.
    pub(crate) fn run(&mut self, update: bool) -> Result<(), Halt> {
        self.definitions(Kinds::Known);
        for step in [Step::Ground, Step::Rights, Step::Services, Step::Policies] {
            self.apply(step);
        }
        if update {
            self.refresh_registrations();
            self.handler()?;
            self.rolled_out(Step::Controller)?;
            self.rolled_out(Step::Api)?;
            self.register()?;
            return Ok(());
        }
        self.rolled_out(Step::Api)?;
        self.register()?;
        self.apply(Step::Controller);
        self.handler()?;
        self.wait_for(Step::Controller)
    }

    /// Applies what differs of a step.
    fn apply(&mut self, step: Step) {
        let different: Vec<Effect> = self.target.of(step).filter_map(|desired| self.change(desired)).collect();
        self.effects.extend(different);
    }

    fn change(&self, desired: &Desired) -> Option<Effect> {
        let because = difference(&desired.object, self.w.live.get(&desired.id))?;
        Some(Effect::Apply { object: desired.object.clone(), because })
    }

    fn definitions(&mut self, kinds: Kinds) {
        let is_known = |desired: &&Desired| self.w.live.contains_key(&desired.id);
        let chosen = self.target.of(Step::Definitions).filter(|desired| is_known(desired) == (kinds == Kinds::Known));
        let different: Vec<Effect> = chosen.filter_map(|desired| self.change(desired)).collect();
        self.effects.extend(different);
    }

    /// Applies a Deployment, and halts until it is rolled out.
    fn rolled_out(&mut self, step: Step) -> Result<(), Halt> {
        self.apply(step);
        self.wait_for(step)
    }

    fn wait_for(&self, step: Step) -> Result<(), Halt> {
        let unfinished = self.target.of(step).find(|desired| !self.is_rolled_out(desired));
        let Some(desired) = unfinished.filter(|_| !self.settled) else { return Ok(()) };
        let what = if step == Step::Handler { waits_for(&self.w.handlers, &self.w.not_ready) } else { None };
        let what = what.map(|what| format!(": {what}")).unwrap_or_default();
        Err(Halt::Waiting(format!("Waiting for {} to be rolled out{what}.", desired.id.name)))
    }

    /// True for objects that are not workloads. A workload that still has to change is not rolled out.
    fn is_rolled_out(&self, desired: &Desired) -> bool {
        if !is_workload(desired) {
            return true;
        }
        let live = self.w.live.get(&desired.id);
        let (changes, absent) = match desired.id.kind.as_str() {
            "DaemonSet" => (difference(&self.canary(desired).object, live).is_some(), self.absent(desired)),
            _ => (difference(&desired.object, live).is_some(), Absent::default()),
        };
        !changes && live.is_some_and(|live| Rollout::of(live).without(absent).is_finished())
    }

    fn canary(&self, desired: &Desired) -> Canary {
        canary(&desired.object, self.w.live.get(&desired.id), &self.w.handlers, self.absent(desired))
    }

    fn absent(&self, desired: &Desired) -> Absent {
        Absent::of(&self.w.handlers, &self.w.not_ready, template_hash(&desired.object), self.w.now)
    }

    fn handler(&mut self) -> Result<(), Halt> {
        let target = self.target;
        for desired in target.of(Step::Handler) {
            let Canary { object, stuck } = self.canary(desired);
            if let Some(because) = difference(&object, self.w.live.get(&desired.id)) {
                self.effects.push(Effect::Apply { object, because });
            }
            if let Some(stuck) = stuck.filter(|_| !self.settled) {
                let message = format!("virt-handler did not become ready on the first node. {stuck}");
                self.effects.push(Effect::Warn { reason: "FailedUpdate", message: message.clone() });
                return Err(Halt::Failed(message));
            }
        }
        self.wait_for(Step::Handler)
    }

    /// Registers webhooks and the aggregated API whose servers respond, then creates CRDs of new kinds.
    fn register(&mut self) -> Result<(), Halt> {
        let target = self.target;
        let answers = |app: &str| answers(&self.w.live, &target.settings.namespace, app);
        let (api, operator) = (answers(names::app::API), answers(names::app::OPERATOR));
        let mut waiting = None;
        for desired in target.of(Step::Webhooks).chain(target.of(Step::Aggregation)) {
            let answered = if is_operators(&desired.object) { operator } else { api };
            match self.w.live.contains_key(&desired.id) || answered {
                true => self.effects.extend(self.change(desired)),
                false => waiting = Some(&desired.id),
            }
        }
        if let Some(id) = waiting {
            return Err(Halt::Waiting(format!("Waiting for the server of {id} to respond.")));
        }
        self.definitions(Kinds::New);
        let mut definitions = target.of(Step::Definitions);
        match definitions.find(|desired| !is_established(self.w.live.get(&desired.id))).filter(|_| !self.settled) {
            Some(desired) => Err(Halt::Waiting(format!("Waiting for {} to be established.", desired.id))),
            None => Ok(()),
        }
    }

    /// Updates the CA bundles of the registered webhooks and APIs, whatever their version.
    pub(crate) fn refresh_registrations(&mut self) {
        let refreshed = refreshed(&self.w.live, self.target.settings.ca_bundle.as_deref());
        self.effects.extend(refreshed);
    }

    /// Deletes obsolete objects in the installation's namespace, and cluster-scoped ones that it knows by name: it has no
    /// right to delete others. A CRD stays until the removal, because users' objects go with it.
    pub(crate) fn delete_obsolete(&mut self) {
        let namespace = &self.target.settings.namespace;
        let is_kept = |id: &Id| {
            let certificate = matches!(id.kind.as_str(), "Secret" | "ConfigMap" | "Pod");
            certificate
                || self.w.operator.own.contains(id)
                || self.target.objects.iter().any(|desired| desired.id == *id)
        };
        let is_former =
            |id: &Id, live: &Value| id.kind != "CustomResourceDefinition" && self.w.operator.is_former(id, live);
        let obsolete = self.w.live.iter().filter(|(id, live)| {
            let is_ours = id.namespace == *namespace || is_former(id, live);
            is_ours && !is_kept(id) && live["metadata"]["deletionTimestamp"].is_null()
        });
        let because = "it no longer belongs to the installation";
        let delete = |(id, _): (&Id, &Value)| Effect::Delete { id: id.clone(), because: because.to_owned() };
        let effects: Vec<Effect> = obsolete.map(delete).collect();
        self.effects.extend(effects);
    }

    /// Whether every object exists.
    pub(crate) fn all_created(&self) -> bool {
        self.target.objects.iter().all(|desired| self.w.live.contains_key(&desired.id))
    }

    /// Components whose Pods are not all ready.
    pub(crate) fn not_ready(&self) -> Vec<&str> {
        let workloads = self.target.objects.iter().filter(|desired| is_workload(desired));
        workloads.filter(|desired| !self.is_rolled_out(desired)).map(|desired| desired.id.name.as_str()).collect()
    }

    /// Whether users can work: virt-api and virt-controller are ready.
    pub(crate) fn is_available(&self) -> bool {
        let namespace = &self.target.settings.namespace;
        [names::app::API, names::app::CONTROLLER].iter().all(|app| answers(&self.w.live, namespace, app))
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kinds {
    Known,
    New,
}

fn is_workload(desired: &Desired) -> bool {
    matches!(desired.id.kind.as_str(), "Deployment" | "DaemonSet")
}

/// Whether a Pod of one of our Deployments is ready.
fn answers(live: &Objects, namespace: &str, app: &str) -> bool {
    let (group, kind) = ("apps".to_owned(), "Deployment".to_owned());
    let id = Id { group, kind, namespace: namespace.to_owned(), name: app.to_owned() };
    live.get(&id).is_some_and(|live| Rollout::of(live).answers())
}

/// Whether virt-operator serves it itself.
fn is_operators(registration: &Value) -> bool {
    let service = registration.pointer("/webhooks/0/clientConfig/service/name");
    service.and_then(Value::as_str) == Some(names::service::OPERATOR_WEBHOOK)
}

fn is_established(definition: Option<&Value>) -> bool {
    let conditions = definition.and_then(|definition| definition.pointer("/status/conditions")?.as_array());
    conditions.into_iter().flatten().any(|one| one["type"] == "Established" && one["status"] == "True")
}

/// Registered webhooks and APIs with an outdated CA bundle, with the current one.
pub(crate) fn refreshed(live: &Objects, bundle: Option<&str>) -> Vec<Effect> {
    let Some(bundle) = bundle else { return vec![] };
    let bundle = json!(install::ca_bundle(bundle));
    let because = "the CAs have changed";
    let merge = |id: &Id, patch: Value| Effect::Merge { id: id.clone(), patch, because: because.to_owned() };
    let refresh = |(id, live): (&Id, &Value)| match id.kind.as_str() {
        "APIService" if live["spec"]["caBundle"] != bundle => {
            Some(merge(id, json!({"spec": {"caBundle": bundle.clone()}})))
        }
        "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration" => {
            let mut webhooks = live["webhooks"].as_array()?.clone();
            for webhook in &mut webhooks {
                webhook["clientConfig"]["caBundle"] = bundle.clone();
            }
            (live["webhooks"] != json!(webhooks)).then(|| merge(id, json!({"webhooks": webhooks})))
        }
        _ => None,
    };
    live.iter().filter_map(refresh).collect()
}

/// The effects on certificates, and the bundle of CAs if there is a CA.
pub(crate) struct Certificates {
    pub(crate) effects: Vec<Effect>,
    /// The current bundle, once it has propagated: nothing is registered or started before.
    pub(crate) bundle: Option<String>,
    pub(crate) next: Option<Timestamp>,
    /// Whether every certificate exists.
    pub(crate) complete: bool,
}

pub(crate) fn certificates(w: &World<'_>, rotation: &certificates::Rotation) -> Certificates {
    let namespace = &w.operator.base.namespace;
    let plan = certificates::plan(&w.certificates, rotation, namespace, w.now);
    let complete = names::CERTIFICATES.iter().all(|one| w.certificates.leaves.contains_key(one.secret));
    let mut effects = Vec::new();
    if let Some(bundle) = &plan.bundle {
        let object = stamped(install::ca_config_map(&w.operator.base, bundle));
        let id = Id::of(&object);
        if let Some(because) = difference(&object, w.live.get(&id)) {
            effects.push(Effect::Apply { object, because });
        }
    }
    effects.extend(plan.renewals.into_iter().map(Effect::Renew));
    Certificates { effects, bundle: plan.bundle, next: plan.next, complete }
}
