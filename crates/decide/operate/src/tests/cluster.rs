//! A cluster of plain values.

use api::conditions;
use api::rights::{Identity, Program, Right, Verb};
use api::v1::{Condition, KubeVirt, KubeVirtPhase, VirtualMachineInstance};
use install::names::CERTIFICATES;
use install::{Former, Programs, Settings, names};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use crate::certificates::{Authority, Facts, Leaf, Renewal, text};
use crate::{Decision, Effect, Id, NotReady, Objects, Operator, World, decide};

/// What an imagined earlier version created.
pub(super) const FORMER: &[Former] = &[
    Former { group: "admissionregistration.k8s.io", kind: "ValidatingAdmissionPolicy", name: "kubevirt-old-policy" },
    Former { group: "apiextensions.k8s.io", kind: "CustomResourceDefinition", name: "olds.kubevirt.io" },
];

/// More passes than any history needs.
const PASSES: usize = 60;

pub(super) struct Cluster {
    pub(super) operator: Operator,
    pub(super) kubevirts: Vec<KubeVirt>,
    pub(super) live: Objects,
    pub(super) handlers: Vec<Pod>,
    pub(super) not_ready: NotReady,
    pub(super) certificates: Facts,
    pub(super) workloads: Vec<String>,
    pub(super) labelled_nodes: Vec<String>,
    pub(super) now: Timestamp,
    /// What was carried out, in short.
    pub(super) log: Vec<String>,
}

pub(super) fn operator(version: &str) -> Operator {
    let program = |name, rights: &[Right]| Program { name, identity: Identity::Account, rights: rights.to_vec() };
    let programs = Programs {
        api: program(names::account::API, &[]),
        controller: program(names::account::CONTROLLER, &[]),
        handler: program(names::account::HANDLER, &[Right::on::<VirtualMachineInstance>(&[Verb::List])]),
    };
    let base = Settings { image_tag: version.to_owned(), ..Settings::default() };
    Operator::new(version.to_owned(), base, "amd64".to_owned(), programs)
}

impl Cluster {
    /// A cluster in which an administrator has applied what is printed.
    pub(super) fn new() -> Self {
        let operator = operator("v0.2.0");
        let applied =
            install::with_operator(&operator.base, &operator.programs).into_iter().map(|manifest| manifest.object);
        let (kubevirts, rest): (Vec<Value>, Vec<Value>) = applied.partition(|object| object["kind"] == "KubeVirt");
        let kubevirts = kubevirts.into_iter().map(|one| serde_json::from_value(one).unwrap()).collect();
        let mut live: Objects = rest.into_iter().map(|object| (Id::of(&object), object)).collect();
        for object in live.values_mut().filter(|object| object["kind"] == "Deployment") {
            object["status"] = json!({"readyReplicas": 1});
        }
        let (certificates, now) = (Facts::default(), Timestamp::from_second(1_700_000_000).unwrap());
        Self {
            operator,
            kubevirts,
            live,
            handlers: vec![],
            not_ready: NotReady::new(),
            certificates,
            workloads: vec![],
            labelled_nodes: vec![],
            now,
            log: vec![],
        }
    }

    /// One in which everything is ready.
    pub(super) fn deployed() -> Self {
        let mut cluster = Self::new();
        cluster.run(|cluster| cluster.roll_out_everything());
        assert_eq!(cluster.phase(), Some(KubeVirtPhase::Deployed));
        cluster.log.clear();
        cluster
    }

    pub(super) fn world(&self) -> World<'_> {
        World {
            now: self.now,
            operator: &self.operator,
            kubevirts: self.kubevirts.clone(),
            live: self.live.clone(),
            handlers: self.handlers.clone(),
            not_ready: self.not_ready.clone(),
            certificates: self.certificates.clone(),
            nodes: 3,
            labelled_nodes: self.labelled_nodes.clone(),
            workloads: self.workloads.clone(),
        }
    }

    /// One pass; returns whether anything was done.
    pub(super) fn pass(&mut self) -> bool {
        let Decision { effects, .. } = decide(&self.world());
        for effect in &effects {
            self.carry_out(effect);
        }
        !effects.is_empty()
    }

    /// Passes until nothing is left to do, with Kubernetes' part in between.
    pub(super) fn run(&mut self, mut kubernetes: impl FnMut(&mut Self)) {
        for _ in 0..PASSES {
            let done = self.pass();
            kubernetes(self);
            if !done && decide(&self.world()).effects.is_empty() {
                return;
            }
        }
        panic!("it does not settle: {:#?}", &self.log[self.log.len().saturating_sub(10)..]);
    }

    fn carry_out(&mut self, effect: &Effect) {
        match effect {
            Effect::Apply { object, .. } => self.store(object.clone()),
            Effect::Merge { id, patch, .. } => {
                self.log.push(format!("merge {id}"));
                json_patch::merge(self.live.get_mut(id).unwrap(), patch);
                self.collect(id);
            }
            Effect::Delete { id, .. } => {
                self.log.push(format!("delete {id}"));
                let live = self.live.get_mut(id).unwrap();
                live["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
                if id.kind == "CustomResourceDefinition" {
                    let all = live["metadata"]["finalizers"].as_array_mut().unwrap();
                    all.push(json!("customresourcecleanup.apiextensions.k8s.io"));
                }
                self.collect(id);
            }
            Effect::Renew(renewal) => self.renew(renewal),
            Effect::Unlabel { node } => {
                self.log.push(format!("unlabel {node}"));
                self.labelled_nodes.retain(|one| one != node);
            }
            Effect::Status { name, status, .. } => {
                let kubevirt = self.kubevirts.iter_mut().find(|one| one.metadata.name.as_ref() == Some(name)).unwrap();
                kubevirt.status = Some((**status).clone());
            }
            Effect::Finalizers { name, new, .. } => {
                let named = |one: &&mut KubeVirt| one.metadata.name.as_ref() == Some(name);
                self.kubevirts.iter_mut().find(named).unwrap().metadata.finalizers = Some(new.clone());
                self.kubevirts
                    .retain(|one| one.metadata.deletion_timestamp.is_none() || one.metadata.finalizers != Some(vec![]));
            }
            Effect::Warn { message, .. } => self.log.push(format!("warn {message}")),
        }
    }

    /// As the API server does, with a new generation if the spec changes.
    fn store(&mut self, mut object: Value) {
        let id = Id::of(&object);
        self.log.push(format!("apply {id}"));
        let old = self.live.get(&id).cloned().unwrap_or_default();
        let generation = old["metadata"]["generation"].as_i64().unwrap_or(0);
        let changed = old["spec"] != object["spec"];
        object["metadata"]["generation"] = json!(generation + i64::from(changed));
        object["status"] = old["status"].clone();
        if id.kind == "CustomResourceDefinition" {
            object["status"] = json!({"conditions": [{"type": "Established", "status": "True"}]});
        }
        self.live.insert(id, object);
    }

    /// Objects that are deleted go when nothing holds them.
    fn collect(&mut self, id: &Id) {
        let live = &self.live[id];
        let held = live["metadata"]["finalizers"].as_array().is_some_and(|all| !all.is_empty());
        if !live["metadata"]["deletionTimestamp"].is_null() && !held {
            self.live.remove(id);
        }
    }

    fn renew(&mut self, renewal: &Renewal) {
        let namespace = &self.operator.base.namespace;
        match renewal {
            Renewal::Authority { duration, .. } => {
                self.log.push("renew ca".to_owned());
                let name = format!("ca@{}", self.now.as_second());
                let authority = Authority {
                    pem: format!("{name}\n"),
                    key_id: name,
                    created: self.now,
                    not_after: self.now + *duration,
                    duration: Some(text(*duration)),
                };
                self.certificates.bundle.push(authority.clone());
                self.certificates.authority = Some(authority);
            }
            Renewal::Leaf { certificate, duration, .. } => {
                self.log.push(format!("renew {}", certificate.secret));
                let leaf = Leaf {
                    common_name: certificate.common_name(namespace),
                    dns_names: certificate.dns_names(namespace),
                    authority: self.certificates.authority.as_ref().unwrap().key_id.clone(),
                    not_after: self.now + *duration,
                    duration: Some(text(*duration)),
                };
                self.certificates.leaves.insert(certificate.secret.to_owned(), leaf);
            }
        }
        assert!(self.certificates.leaves.len() <= CERTIFICATES.len());
    }

    /// Objects of an earlier version are left, with the marker of the installation in this namespace.
    pub(super) fn keep_former(&mut self, installation: &str) {
        self.operator.base.former = FORMER;
        for former in FORMER {
            let object = json!({"apiVersion": format!("{}/v1", former.group), "kind": former.kind, "metadata": {
                "name": former.name, "finalizers": [], "labels": {names::INSTALLATION_LABEL: installation}}});
            self.live.insert(Id::of(&object), object);
        }
    }

    /// Kubernetes starts all Pods.
    pub(super) fn roll_out_everything(&mut self) {
        for name in [names::app::API, names::app::CONTROLLER, names::app::HANDLER] {
            self.roll_out(name);
        }
    }

    /// Kubernetes starts all Pods of a workload, if it is there.
    pub(super) fn roll_out(&mut self, app: &str) {
        let of_app = |id: &&Id| id.name == app && matches!(id.kind.as_str(), "Deployment" | "DaemonSet");
        let Some(id) = self.live.keys().find(of_app).cloned() else { return };
        let live = self.live.get_mut(&id).unwrap();
        let (generation, replicas) = (live["metadata"]["generation"].clone(), live["spec"]["replicas"].clone());
        live["status"] = match id.kind.as_str() {
            "DaemonSet" => json!({"observedGeneration": generation, "desiredNumberScheduled": 3,
                "currentNumberScheduled": 3, "updatedNumberScheduled": 3, "numberReady": 3}),
            _ => json!({"observedGeneration": generation, "replicas": replicas, "updatedReplicas": replicas,
                "readyReplicas": replicas}),
        };
    }

    pub(super) fn kubevirt(&mut self) -> &mut KubeVirt {
        &mut self.kubevirts[0]
    }

    pub(super) fn phase(&self) -> Option<KubeVirtPhase> {
        self.kubevirts[0].status.as_ref()?.phase.clone()
    }

    /// Available, Progressing and Degraded, and the reason and message of Progressing or what is wrong.
    pub(super) fn told(&self) -> ([bool; 3], String, String) {
        let status = self.kubevirts[0].status.clone().unwrap_or_default();
        let all = [conditions::AVAILABLE, conditions::PROGRESSING, conditions::DEGRADED];
        let holds = all.map(|type_| conditions::is_true(&status.conditions, type_));
        let told = [conditions::SYNCHRONIZED, conditions::PROGRESSING, conditions::DEGRADED];
        let told = told.iter().find_map(|type_| conditions::find(&status.conditions, type_));
        let message = told.and_then(|one| one.message.clone()).unwrap_or_default();
        (holds, told.map(Condition::reason).unwrap_or_default().to_owned(), message)
    }

    pub(super) fn has(&self, kind: &str, name: &str) -> bool {
        self.live.keys().any(|id| id.kind == kind && id.name == name)
    }

    /// An object to change.
    pub(super) fn object(&mut self, kind: &str, name: &str) -> &mut Value {
        self.live.iter_mut().find(|(id, _)| id.kind == kind && id.name == name).unwrap().1
    }

    /// Where in the log something was first done.
    pub(super) fn first(&self, what: &str) -> usize {
        let found = self.log.iter().position(|line| line.starts_with(what));
        found.unwrap_or_else(|| panic!("{what} is not in {:#?}", self.log))
    }
}
