//! Initial objects of every cluster: namespaces, priority classes and RBAC.
//!
//! Kubernetes' own are written here, those of the [`System`] come from whoever opens the server, and those of programs are
//! derived from the rights they declare. Roles are updated at every start, so that an upgrade adds its new permissions; a
//! role annotated with `rbac.authorization.kubernetes.io/autoupdate: "false"` is left alone.

use k8s_openapi::Resource;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use machinery::rights::Program;
use serde::Serialize;
use serde_json::{Value, json};

use crate::cache::{Key, ObjectName};
use crate::errors::ApiError;
use crate::kinds::{Kinds, text_at};
use crate::registry::{Part, Registry, WriteContext};
use crate::server::Error;
use crate::views::Served;

/// What is installed in the cluster, and belongs to every cluster therefore.
#[derive(Clone, Debug)]
pub struct System {
    /// The namespace of its programs' accounts.
    pub namespace: String,
    pub priority_classes: Vec<PriorityClass>,
    /// Roles for users. Their label `rbac.authorization.k8s.io/aggregate-to-ROLE` adds their rules to a role of
    /// Kubernetes'.
    pub roles: Vec<ClusterRole>,
    pub bindings: Vec<ClusterRoleBinding>,
}

const NAMESPACES: &[&str] = &["default", "kube-system", "kube-public", "kube-node-lease"];

/// Name, value and description.
const PRIORITIES: &[(&str, i64, &str)] = &[
    (
        "system-cluster-critical",
        2_000_000_000,
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
    ),
    (
        "system-node-critical",
        2_000_001_000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
];

const ALL: &str = "*";
const READ: &str = "get list watch";
const CRUD_PLUS: &str = "get list watch create update patch delete deletecollection";

/// Creates everything that is missing.
pub(crate) async fn run(registry: &Registry, system: &System) -> Result<(), Error> {
    let objects = namespaces(system).into_iter().chain(priorities(system));
    write(registry, objects.chain(user_roles(system)).chain(user_bindings(system))).await?;
    grant(registry, system, &[crate::scheduler::program()]).await
}

/// Writes the roles of programs and the bindings to their accounts.
pub(crate) async fn grant(registry: &Registry, system: &System, programs: &[Program]) -> Result<(), Error> {
    write(registry, programs.iter().flat_map(|program| program_objects(program, &system.namespace))).await
}

async fn write(registry: &Registry, objects: impl IntoIterator<Item = Value>) -> Result<(), Error> {
    for object in objects {
        ensure(registry, &object).await.map_err(|err| Error::Bootstrap {
            object: format!("{} {:?}", text_at(&object, "kind"), text_at(&object, "metadata.name")),
            reason: err.to_string(),
        })?;
    }
    Ok(())
}

async fn ensure(registry: &Registry, object: &Value) -> Result<(), ApiError> {
    let kind = Kinds::get().find_kind(text_at(object, "apiVersion"), text_at(object, "kind"));
    let kind = kind.expect("bootstrap objects are of known kinds");
    let namespace = text_at(object, "metadata.namespace");
    let name = ObjectName::new(namespace, text_at(object, "metadata.name"));
    let Some(existing) = registry.cache.get(kind, &name) else {
        let served = Served::stored(kind);
        return registry.create(&served, namespace, object.clone(), &mut WriteContext::server()).await.map(drop);
    };
    let manual = existing.value()["metadata"]["annotations"]["rbac.authorization.kubernetes.io/autoupdate"] == "false";
    if object.get("rules").is_none() || manual {
        return Ok(());
    }
    let update = |current: &mut Value| current["rules"] = object["rules"].clone();
    registry.modify(&Key { kind, name }, Part::Main, update).await.map(drop)
}

fn namespaces(system: &System) -> Vec<Value> {
    let namespace = |name: &str| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    NAMESPACES.iter().copied().chain([system.namespace.as_str()]).map(namespace).collect()
}

fn priorities(system: &System) -> Vec<Value> {
    let class = |(name, value, description): &(&str, i64, &str)| {
        json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name},
            "value": value, "description": description,
        })
    };
    PRIORITIES.iter().map(class).chain(system.priority_classes.iter().map(typed)).collect()
}

fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}

/// Verbs, groups (`core` for the unnamed one) and resources, each separated by spaces.
fn rule(verbs: &str, groups: &str, resources: &str) -> Value {
    let groups: Vec<&str> = words(groups).into_iter().map(|group| if group == "core" { "" } else { group }).collect();
    json!({"verbs": words(verbs), "apiGroups": groups, "resources": words(resources)})
}

fn paths(paths: &str) -> Value {
    json!({"verbs": ["get"], "nonResourceURLs": words(paths)})
}

fn role(name: &str, rules: Vec<Value>) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": name, "labels": bootstrapping()},
        "rules": rules,
    })
}

/// Roles for users.
fn user_roles(system: &System) -> Vec<Value> {
    let discovery = "/api /api/* /apis /apis/* /healthz /livez /openapi /openapi/* /readyz /version /version/";
    let namespaced = "pods configmaps secrets services endpoints persistentvolumeclaims serviceaccounts";
    let visible = "pods configmaps services endpoints persistentvolumeclaims serviceaccounts events resourcequotas \
                   limitranges namespaces pods/status";
    let view = [
        rule(READ, "core", visible),
        rule(READ, "policy", "poddisruptionbudgets"),
        rule(READ, "snapshot.storage.k8s.io", "volumesnapshots"),
    ];
    let edit = with(
        &view,
        [
            rule(CRUD_PLUS, "core", namespaced),
            rule("create", "core", "pods/eviction"),
            rule(CRUD_PLUS, "policy", "poddisruptionbudgets"),
            rule(CRUD_PLUS, "snapshot.storage.k8s.io", "volumesnapshots"),
        ],
    );
    let admin = with(&edit, [rule(CRUD_PLUS, "rbac.authorization.k8s.io", "roles rolebindings")]);
    let aggregated = |to: &str| -> Vec<Value> {
        let label = format!("rbac.authorization.k8s.io/aggregate-to-{to}");
        let is_part = |role: &&ClusterRole| {
            role.metadata.labels.as_ref().and_then(|labels| labels.get(&label)).is_some_and(|value| value == "true")
        };
        let parts = system.roles.iter().filter(is_part);
        parts.flat_map(|role| role.rules.iter().flatten()).map(|rule| json!(rule)).collect()
    };
    let roles = vec![
        role("cluster-admin", vec![rule(ALL, ALL, ALL), json!({"verbs": ["*"], "nonResourceURLs": ["*"]})]),
        role("system:discovery", vec![paths(discovery)]),
        role("system:public-info-viewer", vec![paths("/healthz /livez /readyz /version /version/")]),
        role("system:basic-user", vec![rule("create", "authorization.k8s.io", "selfsubjectaccessreviews")]),
        // Written out instead of aggregated as in Kubernetes.
        role("view", with(&view, aggregated("view"))),
        role("edit", with(&edit, aggregated("edit"))),
        role("admin", with(&admin, aggregated("admin"))),
    ];
    roles.into_iter().chain(system.roles.iter().map(marked)).collect()
}

fn with(rules: &[Value], more: impl IntoIterator<Item = Value>) -> Vec<Value> {
    rules.iter().cloned().chain(more).collect()
}

/// The roles of a program and the bindings to them.
fn program_objects(program: &Program, namespace: &str) -> Vec<Value> {
    let mut objects = vec![marked(&program.cluster_role()), marked(&program.cluster_binding(namespace))];
    if let Some((role, binding)) = program.role(namespace) {
        objects.extend([marked(&role), marked(&binding)]);
    }
    objects
}

/// An object with the label of those that every start writes.
fn marked<K: Resource + Serialize>(object: &K) -> Value {
    let mut object = typed(object);
    object["metadata"]["labels"] = bootstrapping();
    object
}

/// An object as clients send it, with its kind and API version.
fn typed<K: Resource + Serialize>(object: &K) -> Value {
    let mut value = serde_json::to_value(object).expect("initial objects are plain data");
    value["apiVersion"] = json!(K::API_VERSION);
    value["kind"] = json!(K::KIND);
    value
}

fn bootstrapping() -> Value {
    json!({"kubernetes.io/bootstrapping": "rbac-defaults"})
}

fn binding(role: &str, subjects: Vec<Value>) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": role, "labels": bootstrapping()},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": subjects,
    })
}

fn user_bindings(system: &System) -> Vec<Value> {
    let group = |name: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": name});
    let everybody = "system:authenticated";
    let bindings = vec![
        binding("cluster-admin", vec![group(crate::auth::MASTERS)]),
        binding("system:discovery", vec![group(everybody)]),
        binding("system:public-info-viewer", vec![group(everybody), group("system:unauthenticated")]),
        binding("system:basic-user", vec![group(everybody)]),
    ];
    bindings.into_iter().chain(system.bindings.iter().map(marked)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::{Attributes, Decision, Rules, Target, User, authorize};

    fn system() -> System {
        let (roles, bindings) = (api::users::roles(), api::users::bindings());
        System { namespace: "system".to_owned(), priority_classes: vec![], roles, bindings }
    }

    fn rules() -> Rules {
        let objects: Vec<Value> = user_roles(&system()).into_iter().chain(user_bindings(&system())).collect();
        let of_kind =
            |kind: &'static str| objects.iter().filter(move |object| text_at(object, "kind") == kind).cloned();
        let roles = of_kind("ClusterRole").map(|role| serde_json::from_value(role).unwrap());
        let bindings = of_kind("ClusterRoleBinding").map(|binding| serde_json::from_value(binding).unwrap());
        Rules::new(roles.collect(), bindings.collect(), vec![], vec![])
    }

    #[test]
    fn the_roles_for_people_reach_every_kind_of_ours() {
        let allows = |role: &str, verb: &str, resource: &api::resources::Resource| {
            let role = user_roles(&system()).into_iter().find(|object| text_at(object, "metadata.name") == role);
            let role = role.unwrap_or_else(|| panic!("a role is missing"));
            let has = |list: &Value, wanted: &str| {
                list.as_array().into_iter().flatten().any(|entry| entry.as_str() == Some(wanted))
            };
            let rules = role["rules"].as_array().unwrap();
            rules.iter().any(|rule| {
                has(&rule["apiGroups"], resource.group)
                    && has(&rule["resources"], resource.plural)
                    && has(&rule["verbs"], verb)
            })
        };
        for resource in api::resources::RESOURCES {
            // Kinds that are not users' own: those of the installation and the cluster, and those the controllers
            // write.
            let (admin, edit) = match resource.kind {
                "KubeVirt" | "MigrationPolicy" | "VirtualMachineInstanceMigration" => (false, false),
                "Plugin" => (true, false),
                _ => (true, true),
            };
            for prefix in ["", "kubevirt.io:"] {
                let role = |name: &str| format!("{prefix}{name}");
                assert!(allows(&role("view"), "list", resource), "{}", resource.kind);
                assert!(!allows(&role("view"), "update", resource), "{}", resource.kind);
                assert_eq!(allows(&role("edit"), "create", resource), edit, "{}", resource.kind);
                assert_eq!(allows(&role("admin"), "deletecollection", resource), admin, "{}", resource.kind);
            }
        }
    }

    #[test]
    fn a_stranger_sees_what_everybody_may_see() {
        let rules = rules();
        let table = [
            ("get", "kubevirt.io", "kubevirts", true),
            ("get", "kubevirt.io", "virtualmachines", false),
            ("list", "instancetype.kubevirt.io", "virtualmachineclusterinstancetypes", true),
            ("list", "instancetype.kubevirt.io", "virtualmachineinstancetypes", false),
            ("create", "authorization.k8s.io", "selfsubjectaccessreviews", true),
        ];
        for (verb, group, resource, allowed) in table {
            let user = User { name: "eve".into(), groups: vec!["system:authenticated".into()] };
            let target = Target::Resource {
                group: group.into(),
                resource: resource.into(),
                subresource: String::new(),
                namespace: "default".into(),
                name: "x".into(),
            };
            let decision = authorize(&Attributes { user, verb: verb.into(), target }, &rules);
            assert_eq!(decision != Decision::Deny, allowed, "{verb} {resource}");
        }
    }

    #[test]
    fn a_program_gets_roles_and_bindings_where_it_needs_them() {
        use machinery::rights::{Identity, Right, Verb};
        let pods = Right::named("", "pods", &[Verb::Get]);
        let program = |rights| Program { name: "worker", identity: Identity::Account, rights };
        let kinds = |rights| -> Vec<Value> {
            program_objects(&program(rights), "system").iter().map(|object| object["kind"].clone()).collect()
        };
        assert_eq!(kinds(vec![pods]), ["ClusterRole", "ClusterRoleBinding"]);
        let both = ["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"];
        assert_eq!(kinds(vec![pods, pods.in_installation()]), both);
        let role = &program_objects(&program(vec![pods.in_installation()]), "system")[2];
        assert_eq!(role["metadata"]["namespace"], "system");
        assert_eq!(role["apiVersion"], "rbac.authorization.k8s.io/v1");
        assert_eq!(role["rules"][0]["resources"], json!(["pods"]));
    }
}
