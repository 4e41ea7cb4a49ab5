//! Service accounts, roles and bindings of our programs.
//!
//! Each program declares its rights next to the code that uses them. virt-operator must hold every right it grants, or the
//! API server refuses the roles; it may also change the objects of an installation, by name.

use std::collections::{BTreeMap, BTreeSet};

use api::rights::Verb::{Create, Get, List, Patch, Update, Watch};
use api::rights::{Identity, Program, Right, Scope, rule, rules};
use api::v1::{KubeVirt, VirtualMachine, VirtualMachineInstance, VirtualMachineInstanceReplicaSet};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Node, Pod, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use crate::object::{of_cluster, of_installation, typed};
use crate::{Settings, names};

/// Our programs with the rights they declare.
#[derive(Clone, Debug)]
pub struct Programs {
    pub api: Program,
    pub controller: Program,
    pub handler: Program,
}

impl Programs {
    /// All of them.
    pub fn all(&self) -> [&Program; 3] {
        [&self.api, &self.controller, &self.handler]
    }
}

/// The account of a program, then its roles and their bindings.
pub(crate) fn program(program: &Program, settings: &Settings) -> Vec<Value> {
    let mut objects = vec![
        account(program.name, settings),
        typed(&program.cluster_role(), settings),
        typed(&program.cluster_binding(&settings.namespace), settings),
    ];
    if let Some((role, binding)) = program.role(&settings.namespace) {
        objects.extend([typed(&role, settings), typed(&binding, settings)]);
    }
    objects
}

/// Allows virt-api to read the CAs of the API server's front proxy.
pub(crate) fn authentication_reader(settings: &Settings) -> Value {
    let metadata = ObjectMeta {
        namespace: Some(names::KUBE_SYSTEM.to_owned()),
        ..of_cluster(names::AUTHENTICATION_READER_BINDING)
    };
    let role_ref = role_ref("Role", names::AUTHENTICATION_READER);
    let subjects = Some(vec![subject(names::account::API, settings)]);
    typed(&RoleBinding { metadata, role_ref, subjects }, settings)
}

/// Roles for users, and the bindings for all users.
pub(crate) fn for_users(settings: &Settings) -> Vec<Value> {
    let roles = api::users::roles().into_iter().map(|role| typed(&role, settings));
    roles.chain(api::users::bindings().iter().map(|binding| typed(binding, settings))).collect()
}

fn account(name: &str, settings: &Settings) -> Value {
    let metadata = of_installation(name, settings);
    typed(&ServiceAccount { metadata, ..ServiceAccount::default() }, settings)
}

fn role_ref(kind: &str, name: &str) -> RoleRef {
    RoleRef { api_group: "rbac.authorization.k8s.io".to_owned(), kind: kind.to_owned(), name: name.to_owned() }
}

fn subject(account: &str, settings: &Settings) -> Subject {
    Subject {
        api_group: None,
        kind: "ServiceAccount".to_owned(),
        name: account.to_owned(),
        namespace: Some(settings.namespace.clone()),
    }
}

/// virt-operator's account and RBAC objects, given all objects that it manages.
pub(crate) fn operator(managed: &[Value], programs: &Programs, settings: &Settings) -> Vec<Value> {
    let name = names::account::OPERATOR;
    let of_kube_system = ObjectMeta { namespace: Some(names::KUBE_SYSTEM.to_owned()), ..of_cluster(name) };
    let cluster_role = ClusterRole {
        metadata: of_cluster(name),
        rules: Some(cluster_rules(managed, programs, settings)),
        ..ClusterRole::default()
    };
    let subjects = Some(vec![subject(name, settings)]);
    let cluster_binding = ClusterRoleBinding {
        metadata: of_cluster(name),
        role_ref: role_ref("ClusterRole", name),
        subjects: subjects.clone(),
    };
    let namespaced =
        [(of_installation(name, settings), installation_rules(programs)), (of_kube_system, kube_system_rules())];
    let mut objects = vec![account(name, settings), typed(&cluster_role, settings), typed(&cluster_binding, settings)];
    for (metadata, rules) in namespaced {
        let binding =
            RoleBinding { metadata: metadata.clone(), role_ref: role_ref("Role", name), subjects: subjects.clone() };
        objects.extend([typed(&Role { metadata, rules: Some(rules) }, settings), typed(&binding, settings)]);
    }
    objects
}

/// What virt-operator asks for itself, beyond the objects that it manages.
const OWN: &[Right] = &[
    Right::on::<KubeVirt>(&[List, Watch, Patch]),
    Right::on_status::<KubeVirt>(&[Patch]),
    // Whether there are workloads.
    Right::on::<VirtualMachine>(&[List]),
    Right::on::<VirtualMachineInstance>(&[List]),
    Right::on::<VirtualMachineInstanceReplicaSet>(&[List]),
    // Counts the nodes that run VMs, and removes our labels on uninstall.
    Right::on::<Node>(&[Get, List, Watch, Patch]),
    Right::on::<Event>(&[Create, Patch]),
    // Approves, signs or denies virt-handlers' requests for certificates of nodes.
    Right::on::<CertificateSigningRequest>(&[List, Watch]),
    Right::on::<CertificateSigningRequest>(&[Update]).of("approval"),
    Right::on_status::<CertificateSigningRequest>(&[Update]),
    Right::watch::<Pod>().in_installation(),
    Right::on::<Lease>(&[Get, Create, Update]).in_installation(),
];

/// virt-operator with what it asks for itself. Its roles have more: it manages the objects of the installation, and holds
/// every right that it grants.
pub fn operator_program() -> Program {
    Program { name: names::account::OPERATOR, identity: Identity::Account, rights: OWN.to_vec() }
}

/// Kinds of cluster-scoped objects that virt-operator manages: group, kind and resource.
const CLUSTER_KINDS: &[(&str, &str, &str)] = &[
    ("apiextensions.k8s.io", "CustomResourceDefinition", "customresourcedefinitions"),
    ("scheduling.k8s.io", "PriorityClass", "priorityclasses"),
    ("rbac.authorization.k8s.io", "ClusterRole", "clusterroles"),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding", "clusterrolebindings"),
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations"),
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations"),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy", "validatingadmissionpolicies"),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings"),
    ("apiregistration.k8s.io", "APIService", "apiservices"),
];

/// Kinds of objects in the installation's namespace that virt-operator manages, or makes certificates for.
const INSTALLATION_KINDS: &[(&str, &str)] = &[
    ("", "configmaps secrets serviceaccounts services"),
    ("apps", "daemonsets deployments"),
    ("policy", "poddisruptionbudgets"),
    ("rbac.authorization.k8s.io", "rolebindings roles"),
];

const FOUND: &str = "list watch create";
const OWNED: &str = "patch delete";

/// It may create any object, but change and delete only those of the installation and of earlier versions.
fn cluster_rules(managed: &[Value], programs: &Programs, settings: &Settings) -> Vec<PolicyRule> {
    let mut all = Vec::new();
    for &(group, kind, resource) in CLUSTER_KINDS {
        let of_kind = managed.iter().filter(|object| object["kind"] == kind);
        let names = of_kind.filter_map(|object| object["metadata"]["name"].as_str());
        let former = settings.former.iter().filter(|former| (former.group, former.kind) == (group, kind));
        let names: BTreeSet<String> = names.chain(former.map(|former| former.name)).map(str::to_owned).collect();
        all.push(rule(FOUND, group, resource));
        all.push(PolicyRule { resource_names: Some(names.into_iter().collect()), ..rule(OWNED, group, resource) });
    }
    all.extend(rules(OWN, Scope::Cluster));
    all.push(signer());
    all.extend(programs.all().into_iter().flat_map(|program| rules(&program.rights, Scope::Cluster)));
    all.extend(api::users::roles().into_iter().flat_map(|role| role.rules.unwrap_or_default()));
    folded(all)
}

/// Needed to approve and sign requests for certificates of nodes.
fn signer() -> PolicyRule {
    let ours = Some(vec![names::SIGNER.to_owned()]);
    PolicyRule { resource_names: ours, ..rule("approve sign", "certificates.k8s.io", "signers") }
}

fn installation_rules(programs: &Programs) -> Vec<PolicyRule> {
    let mut all: Vec<PolicyRule> = INSTALLATION_KINDS
        .iter()
        .map(|(group, resources)| rule(&format!("{FOUND} {OWNED}"), group, resources))
        .collect();
    all.extend(rules(OWN, Scope::Installation));
    all.extend(programs.all().into_iter().flat_map(|program| rules(&program.rights, Scope::Installation)));
    folded(all)
}

/// Enough to create virt-api's one binding there.
fn kube_system_rules() -> Vec<PolicyRule> {
    let group = "rbac.authorization.k8s.io";
    let named = |name: &str, rule: PolicyRule| PolicyRule { resource_names: Some(vec![name.to_owned()]), ..rule };
    vec![
        rule("create", group, "rolebindings"),
        // It is the only one there, so nothing is watched.
        named(names::AUTHENTICATION_READER_BINDING, rule(&format!("get {OWNED}"), group, "rolebindings")),
        named(names::AUTHENTICATION_READER, rule("bind", group, "roles")),
    ]
}

/// The same rights in few rules: one for each group, set of verbs and names.
fn folded(rules: Vec<PolicyRule>) -> Vec<PolicyRule> {
    let mut verbs: BTreeMap<(String, String, Vec<String>), BTreeSet<String>> = BTreeMap::new();
    for rule in rules {
        for group in rule.api_groups.iter().flatten() {
            for resource in rule.resources.iter().flatten() {
                let names = rule.resource_names.clone().unwrap_or_default();
                verbs.entry((group.clone(), resource.clone(), names)).or_default().extend(rule.verbs.iter().cloned());
            }
        }
    }
    let mut resources: BTreeMap<(String, Vec<String>, BTreeSet<String>), Vec<String>> = BTreeMap::new();
    for ((group, resource, names), verbs) in verbs {
        resources.entry((group, names, verbs)).or_default().push(resource);
    }
    let rule =
        |((group, names, verbs), resources): ((String, Vec<String>, BTreeSet<String>), Vec<String>)| PolicyRule {
            api_groups: Some(vec![group]),
            resources: Some(resources),
            resource_names: Some(names).filter(|names| !names.is_empty()),
            verbs: verbs.into_iter().collect(),
            ..PolicyRule::default()
        };
    resources.into_iter().map(rule).collect()
}
