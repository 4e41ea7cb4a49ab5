//! The objects of an installation on Kubernetes, as pure functions of its settings.
//!
//! ```text
//! ferrovirt install                     namespace, virt-operator and its RBAC objects, the KubeVirt object
//!   virt-operator                       everything else: `managed`, in the order of `Step`, and certificates
//! ferrovirt install --without-operator  everything at once, except certificates
//! ```
//!
//! Names that several parts must agree on are in [`names`]. Not here: certificates, which need randomness and a clock, and how
//! objects are applied.

mod certificates;
pub mod check;
mod cluster;
mod former;
pub mod installed;
pub mod names;
mod object;
pub mod owner;
mod policies;
mod rights;
mod services;
mod settings;
mod webhooks;
mod workload;

use serde_json::Value;

pub use certificates::{ca_bundle, ca_config_map, secret};
pub use former::{FORMER, Former};
pub use rights::{Programs, operator_program};
pub use settings::Settings;

/// The order in which objects are applied: each needs those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// The CRDs.
    Definitions,
    /// The namespace and the priority class.
    Ground,
    /// Service accounts, roles and bindings.
    Rights,
    /// The KubeVirt object; before the webhooks that review it.
    Installation,
    Services,
    /// Admission policies; before the programs that they restrict.
    Policies,
    /// Webhooks; before virt-api, so that every stored object has passed admission.
    Webhooks,
    /// The aggregated API.
    Aggregation,
    Operator,
    Api,
    Controller,
    Handler,
}

/// An object, and the step in which it is applied.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    pub step: Step,
    pub object: Value,
}

/// Everything that virt-operator creates and repairs, in the order of application.
pub fn managed(settings: &Settings, programs: &Programs) -> Vec<Manifest> {
    in_order(parts(settings, programs, true))
}

/// What an administrator applies to install virt-operator, which creates the rest.
pub fn with_operator(settings: &Settings, programs: &Programs) -> Vec<Manifest> {
    let managed: Vec<Value> = managed(settings, programs).into_iter().map(|manifest| manifest.object).collect();
    let is_kubevirts = |definition: &Value| definition["spec"]["names"]["kind"] == "KubeVirt";
    in_order(vec![
        (Step::Definitions, cluster::definitions(settings).into_iter().filter(is_kubevirts).collect()),
        (Step::Ground, vec![cluster::namespace(settings), cluster::priority_class(settings)]),
        (Step::Rights, rights::operator(&managed, programs, settings)),
        (Step::Installation, vec![cluster::kubevirt(settings)]),
        (Step::Operator, workload::operator::objects(settings)),
    ])
}

/// A whole installation without virt-operator. The administrator creates and renews the certificates.
pub fn without_operator(settings: &Settings, programs: &Programs) -> Vec<Manifest> {
    let mut parts = parts(settings, programs, false);
    parts.push((Step::Ground, vec![cluster::namespace(settings)]));
    parts.push((Step::Installation, vec![cluster::kubevirt(settings)]));
    in_order(parts)
}

type Parts = Vec<(Step, Vec<Value>)>;

fn parts(settings: &Settings, programs: &Programs, operator: bool) -> Parts {
    let of_programs = programs.all().into_iter().flat_map(|program| rights::program(program, settings));
    let mut rights: Vec<Value> = of_programs.collect();
    rights.push(rights::authentication_reader(settings));
    rights.extend(rights::for_users(settings));
    let mut services = vec![services::api(settings), services::metrics(settings)];
    services.extend(operator.then(|| services::operator_webhook(settings)));
    vec![
        (Step::Definitions, cluster::definitions(settings)),
        (Step::Ground, vec![cluster::priority_class(settings)]),
        (Step::Rights, rights),
        (Step::Services, services),
        (Step::Policies, policies::policies(settings)),
        (Step::Webhooks, webhooks::configurations(settings, operator)),
        (Step::Aggregation, services::aggregated(settings)),
        (Step::Api, workload::api::objects(settings)),
        (Step::Controller, workload::controller::objects(settings)),
        (Step::Handler, workload::handler::objects(settings)),
    ]
}

fn in_order(mut parts: Parts) -> Vec<Manifest> {
    // Stable: within a step, objects keep their order.
    parts.sort_by_key(|(step, _)| *step);
    let manifests =
        |(step, objects): (Step, Vec<Value>)| objects.into_iter().map(move |object| Manifest { step, object });
    parts.into_iter().flat_map(manifests).collect()
}
