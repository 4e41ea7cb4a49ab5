//! What every cluster starts with: namespaces, priority classes, and who may do what.
//!
//! Roles are brought up to date at every start, so that an upgrade brings its new permissions; one annotated
//! `rbac.authorization.kubernetes.io/autoupdate: "false"` is left as its owner wants it.

use serde_json::{Value, json};

use crate::cache::{Key, ObjectName};
use crate::errors::ApiError;
use crate::kinds::{Kinds, text_at};
use crate::registry::{Part, Registry, WriteContext};
use crate::server::Error;
use crate::views::Served;

const NAMESPACES: &[&str] = &["default", "kube-system", "kube-public", "kube-node-lease", "kubevirt"];

/// Name, value, and what it is for.
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
    (
        "kubevirt-cluster-critical",
        1_000_000_000,
        "This priority class should be used for core kubevirt components only.",
    ),
];

const ALL: &str = "*";
const READ: &str = "get list watch";
const CRUD: &str = "get list watch create update patch delete";
const CRUD_PLUS: &str = "get list watch create update patch delete deletecollection";
const SUBRESOURCES: &str = "subresources.kubevirt.io";

const VMI_VIEW: &str = "virtualmachineinstances/guestosinfo virtualmachineinstances/filesystemlist \
    virtualmachineinstances/userlist virtualmachineinstances/sev/fetchcertchain \
    virtualmachineinstances/sev/querylaunchmeasurement virtualmachineinstances/objectgraph virtualmachines/objectgraph \
    virtualmachines/expand-spec virtualmachineinstances/migrationprogress";
const VMI_STREAMS: &str = "virtualmachineinstances/console virtualmachineinstances/vnc \
    virtualmachineinstances/portforward virtualmachineinstances/usbredir virtualmachines/portforward";
const VMI_ACTIONS: &str = "virtualmachineinstances/pause virtualmachineinstances/unpause \
    virtualmachineinstances/addvolume virtualmachineinstances/removevolume virtualmachineinstances/freeze \
    virtualmachineinstances/unfreeze virtualmachineinstances/softreboot virtualmachineinstances/reset \
    virtualmachineinstances/sev/setupsession virtualmachineinstances/sev/injectlaunchsecret \
    virtualmachineinstances/evacuate/cancel";
const VM_ACTIONS: &str = "virtualmachines/start virtualmachines/stop virtualmachines/restart virtualmachines/addvolume \
    virtualmachines/removevolume virtualmachines/memorydump virtualmachines/removememorydump \
    virtualmachines/evacuate/cancel";
const VMS: &str = "virtualmachines virtualmachineinstances";
/// What users make of the group of machines.
const MACHINES: &str = "virtualmachines virtualmachineinstances virtualmachineinstancepresets \
    virtualmachineinstancereplicasets";
/// Groups whose kinds are the users' own, all of them alike.
const SISTERS: &str = "snapshot.kubevirt.io export.kubevirt.io clone.kubevirt.io pool.kubevirt.io \
    instancetype.kubevirt.io backup.kubevirt.io";
const SISTER_KINDS: &str = "virtualmachinesnapshots virtualmachinesnapshotcontents virtualmachinerestores \
    virtualmachineexports virtualmachineclones virtualmachinepools virtualmachinebackups virtualmachinebackuptrackers \
    virtualmachineinstancetypes virtualmachineclusterinstancetypes virtualmachinepreferences \
    virtualmachineclusterpreferences";
const CLUSTER_INSTANCETYPES: &str = "virtualmachineclusterinstancetypes virtualmachineclusterpreferences";
/// What an importer of disks would bring along.
const CDI: &str = "cdi.kubevirt.io";
const MIGRATIONS: &str = "virtualmachineinstancemigrations";

/// Writes everything that is missing.
pub(crate) async fn run(registry: &Registry) -> Result<(), Error> {
    for object in namespaces().into_iter().chain(priorities()).chain(roles()).chain(bindings()) {
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
    let name = ObjectName::new("", text_at(object, "metadata.name"));
    let Some(existing) = registry.cache.get(kind, &name) else {
        let served = Served::stored(kind);
        return registry.create(&served, "", object.clone(), &mut WriteContext::server()).await.map(drop);
    };
    let manual = existing.value()["metadata"]["annotations"]["rbac.authorization.kubernetes.io/autoupdate"] == "false";
    if object.get("rules").is_none() || manual {
        return Ok(());
    }
    let update = |current: &mut Value| current["rules"] = object["rules"].clone();
    registry.modify(&Key { kind, name }, Part::Main, update).await.map(drop)
}

fn namespaces() -> Vec<Value> {
    let namespace = |name: &&str| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    NAMESPACES.iter().map(namespace).collect()
}

fn priorities() -> Vec<Value> {
    let class = |(name, value, description): &(&str, i64, &str)| {
        json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name},
            "value": value, "description": description,
        })
    };
    PRIORITIES.iter().map(class).collect()
}

fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}

/// Verbs, groups (`core` for the one without a name) and resources, each separated by spaces.
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
        "metadata": {"name": name, "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"}},
        "rules": rules,
    })
}

fn roles() -> Vec<Value> {
    let mut roles = user_roles();
    roles.extend(component_roles());
    roles
}

/// Roles for people.
fn user_roles() -> Vec<Value> {
    let discovery = "/api /api/* /apis /apis/* /healthz /livez /openapi /openapi/* /readyz /version /version/";
    let namespaced = "pods configmaps secrets services endpoints persistentvolumeclaims serviceaccounts";
    let visible = "pods configmaps services endpoints persistentvolumeclaims serviceaccounts events resourcequotas \
                   limitranges namespaces pods/status";
    let plugins = |verbs| rule(verbs, "plugin.kubevirt.io", "plugins");
    let vm_view = vec![
        rule(READ, "kubevirt.io", &format!("{MACHINES} {MIGRATIONS}")),
        rule(READ, SISTERS, SISTER_KINDS),
        rule(READ, "migrations.kubevirt.io", "migrationpolicies"),
        rule("get list", "kubevirt.io", "kubevirts"),
        rule("get", SUBRESOURCES, VMI_VIEW),
        rule("update", SUBRESOURCES, "expand-vm-spec"),
    ];
    let vm_edit = with(
        &vm_view,
        [
            rule(CRUD, "kubevirt.io", MACHINES),
            rule(CRUD, SISTERS, SISTER_KINDS),
            rule("get", SUBRESOURCES, VMI_STREAMS),
            rule("update", SUBRESOURCES, &format!("{VMI_ACTIONS} {VM_ACTIONS}")),
        ],
    );
    let vm_admin = with(
        &vm_edit,
        [
            rule(CRUD_PLUS, "kubevirt.io", MACHINES),
            rule(CRUD_PLUS, SISTERS, SISTER_KINDS),
            plugins(CRUD_PLUS),
            rule("get", SUBRESOURCES, "virtualmachineinstances/vnc/screenshot"),
        ],
    );
    // Whoever edits machines has no business with what runs inside the launchers of all of them.
    let vm_view = with(&vm_view, [plugins(READ)]);
    let view = [rule(READ, "core", visible), rule(READ, "policy", "poddisruptionbudgets")];
    let edit = with(
        &view,
        [
            rule(CRUD_PLUS, "core", namespaced),
            rule("create", "core", "pods/eviction"),
            rule(CRUD_PLUS, "policy", "poddisruptionbudgets"),
        ],
    );
    let admin = with(&edit, [rule(CRUD_PLUS, "rbac.authorization.k8s.io", "roles rolebindings")]);
    vec![
        role("cluster-admin", vec![rule(ALL, ALL, ALL), json!({"verbs": ["*"], "nonResourceURLs": ["*"]})]),
        role("system:discovery", vec![paths(discovery)]),
        role("system:public-info-viewer", vec![paths("/healthz /livez /readyz /version /version/")]),
        role("system:basic-user", vec![rule("create", "authorization.k8s.io", "selfsubjectaccessreviews")]),
        role(
            "kubevirt.io:default",
            vec![
                rule("get list", "kubevirt.io", "kubevirts"),
                rule("get list", SUBRESOURCES, "version guestfs healthz"),
            ],
        ),
        role(
            "kubevirt.io:migrate",
            vec![rule("update", SUBRESOURCES, "virtualmachines/migrate"), rule(CRUD_PLUS, "kubevirt.io", MIGRATIONS)],
        ),
        role("instancetype.kubevirt.io:view", vec![rule(READ, "instancetype.kubevirt.io", CLUSTER_INSTANCETYPES)]),
        // What Kubernetes would aggregate is written out.
        role("view", with(&view, vm_view.clone())),
        role("edit", with(&edit, vm_edit.clone())),
        role("admin", with(&admin, vm_admin.clone())),
        role("kubevirt.io:view", vm_view),
        role("kubevirt.io:edit", vm_edit),
        role("kubevirt.io:admin", vm_admin),
    ]
}

fn with(rules: &[Value], more: impl IntoIterator<Item = Value>) -> Vec<Value> {
    rules.iter().cloned().chain(more).collect()
}

/// Roles for the programs of the system.
fn component_roles() -> Vec<Value> {
    let events = || rule("create get patch update", "core events.k8s.io", "events");
    let node = vec![
        rule("get list watch create update patch", "core", "nodes"),
        rule("get update patch", "core", "nodes/status pods/status"),
        rule("get list watch delete patch", "core", "pods"),
        rule(READ, "core", "configmaps secrets namespaces persistentvolumeclaims persistentvolumes services"),
        rule("get create update patch", "coordination.k8s.io", "leases"),
        events(),
    ];
    let scheduler = vec![
        rule(READ, "core", "pods nodes namespaces persistentvolumeclaims persistentvolumes"),
        rule("create", "core", "pods/binding"),
        rule("patch update", "core", "pods/status"),
        rule("get create update patch", "coordination.k8s.io", "leases"),
        events(),
    ];
    let controller = vec![
        rule(ALL, &format!("kubevirt.io {SISTERS} {CDI}"), ALL),
        rule(READ, "migrations.kubevirt.io plugin.kubevirt.io k8s.cni.cncf.io apiextensions.k8s.io", ALL),
        rule(CRUD_PLUS, "core", "pods services configmaps endpoints persistentvolumeclaims"),
        rule("get update patch", "core", "pods/status"),
        rule("create", "core", "pods/eviction"),
        rule("get list watch update patch", "core", "nodes"),
        rule(READ, "core", "namespaces persistentvolumes resourcequotas limitranges serviceaccounts events"),
        rule(CRUD, "policy", "poddisruptionbudgets"),
        rule(CRUD, "apps", "controllerrevisions"),
        rule(CRUD, "coordination.k8s.io", "leases"),
        rule(READ, "scheduling.k8s.io storage.k8s.io", "priorityclasses storageclasses"),
        rule("update", SUBRESOURCES, &format!("{VMI_ACTIONS} {VM_ACTIONS}")),
        rule("create", "authorization.k8s.io", "subjectaccessreviews"),
        events(),
    ];
    let handler = vec![
        rule("get list watch update patch", "kubevirt.io", "virtualmachineinstances"),
        rule(READ, "kubevirt.io", "kubevirts virtualmachineinstancemigrations"),
        rule(READ, "migrations.kubevirt.io plugin.kubevirt.io apiextensions.k8s.io", ALL),
        rule("get list watch patch", "backup.kubevirt.io", "virtualmachinebackuptrackers"),
        rule("patch update", "backup.kubevirt.io", "virtualmachinebackuptrackers/status"),
        rule(READ, "core", "pods configmaps namespaces"),
        rule("get list watch update patch", "core", "nodes"),
        events(),
    ];
    let apiserver = vec![
        rule("get list watch patch update", "kubevirt.io", VMS),
        rule("patch update", "kubevirt.io", "virtualmachines/status"),
        rule("get list watch create patch", "kubevirt.io", MIGRATIONS),
        rule(READ, "kubevirt.io", "kubevirts virtualmachineinstancepresets"),
        rule(READ, "snapshot.kubevirt.io backup.kubevirt.io instancetype.kubevirt.io migrations.kubevirt.io", ALL),
        rule(READ, &format!("{CDI} apiextensions.k8s.io"), ALL),
        rule("get list delete patch", "core", "pods"),
        rule(READ, "core", "nodes persistentvolumeclaims configmaps namespaces"),
        rule("create get list", "apps", "controllerrevisions"),
        rule("create", "authorization.k8s.io", "subjectaccessreviews"),
    ];
    vec![
        role("system:node", node),
        role("system:kube-scheduler", scheduler),
        role("kubevirt-controller", controller),
        role("kubevirt-handler", handler),
        role("kubevirt-apiserver", apiserver),
    ]
}

fn binding(role: &str, subjects: Vec<Value>) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": role, "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"}},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": subjects,
    })
}

fn bindings() -> Vec<Value> {
    let group = |name: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": name});
    let user = |name: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name});
    let account = |name: &str| json!({"kind": "ServiceAccount", "name": name, "namespace": "kubevirt"});
    let everybody = "system:authenticated";
    vec![
        binding("cluster-admin", vec![group(crate::auth::MASTERS)]),
        binding("system:discovery", vec![group(everybody)]),
        binding("system:public-info-viewer", vec![group(everybody), group("system:unauthenticated")]),
        binding("system:basic-user", vec![group(everybody)]),
        binding("kubevirt.io:default", vec![group(everybody)]),
        binding("instancetype.kubevirt.io:view", vec![group(everybody)]),
        binding("system:node", vec![group("system:nodes")]),
        binding("system:kube-scheduler", vec![user("system:kube-scheduler")]),
        binding("kubevirt-controller", vec![account("kubevirt-controller")]),
        binding("kubevirt-handler", vec![account("kubevirt-handler")]),
        binding("kubevirt-apiserver", vec![account("kubevirt-apiserver")]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::{Attributes, Decision, Rules, Target, User, authorize};

    fn rules() -> Rules {
        let typed = |kind: &str| {
            let all = roles().into_iter().chain(bindings());
            all.filter(move |object| text_at(object, "kind") == kind).collect::<Vec<_>>()
        };
        let cluster_roles = typed("ClusterRole").into_iter().map(|role| serde_json::from_value(role).unwrap());
        let bindings = typed("ClusterRoleBinding").into_iter().map(|role| serde_json::from_value(role).unwrap());
        Rules::new(cluster_roles.collect(), bindings.collect(), vec![], vec![])
    }

    #[test]
    fn the_roles_for_people_reach_every_kind_of_ours() {
        let allows = |role: &str, verb: &str, resource: &api::resources::Resource| {
            let role = user_roles().into_iter().find(|object| text_at(object, "metadata.name") == role);
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
            // Kinds that are not the users' own: the installation's, the cluster's, and what the controllers write.
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
    fn every_identity_of_the_cluster_can_do_its_work_and_not_more() {
        let rules = rules();
        let node = ("system:node:n1", "system:nodes");
        let handler = ("system:serviceaccount:kubevirt:kubevirt-handler", "ferrovirt:node:n1");
        let controller = ("system:serviceaccount:kubevirt:kubevirt-controller", "x");
        let api = ("system:serviceaccount:kubevirt:kubevirt-apiserver", "x");
        let scheduler = ("system:kube-scheduler", "x");
        let stranger = ("eve", "x");
        let table = [
            (node, "patch", "", "nodes/status", true),
            (node, "delete", "", "pods", true),
            (node, "create", "", "pods", false),
            (node, "list", "kubevirt.io", "virtualmachineinstances", false),
            (handler, "update", "kubevirt.io", "virtualmachineinstances", true),
            (handler, "patch", "", "nodes", true),
            (handler, "create", "", "pods", false),
            (handler, "get", "", "secrets", false),
            (handler, "delete", "kubevirt.io", "virtualmachineinstances", false),
            (controller, "create", "", "pods", true),
            (controller, "patch", "kubevirt.io", "virtualmachines/status", true),
            (controller, "create", "", "secrets", false),
            (api, "patch", "kubevirt.io", "virtualmachines", true),
            (api, "create", "", "pods", false),
            (scheduler, "create", "", "pods/binding", true),
            (scheduler, "patch", "", "pods/status", true),
            (scheduler, "delete", "", "pods", false),
            (stranger, "get", "kubevirt.io", "kubevirts", true),
            (stranger, "get", "kubevirt.io", "virtualmachines", false),
            (stranger, "list", "instancetype.kubevirt.io", "virtualmachineclusterinstancetypes", true),
            (stranger, "list", "instancetype.kubevirt.io", "virtualmachineinstancetypes", false),
            (controller, "update", "pool.kubevirt.io", "virtualmachinepools/status", true),
            (controller, "create", "snapshot.kubevirt.io", "virtualmachinesnapshotcontents", true),
            (controller, "list", "migrations.kubevirt.io", "migrationpolicies", true),
            (controller, "update", "migrations.kubevirt.io", "migrationpolicies", false),
            (handler, "list", "plugin.kubevirt.io", "plugins", true),
            (handler, "update", "pool.kubevirt.io", "virtualmachinepools", false),
            (api, "get", "instancetype.kubevirt.io", "virtualmachinepreferences", true),
            (api, "create", "snapshot.kubevirt.io", "virtualmachinesnapshots", false),
            (stranger, "create", "authorization.k8s.io", "selfsubjectaccessreviews", true),
        ];
        for ((name, group), verb, api_group, resource, allowed) in table {
            let user = User { name: name.into(), groups: vec![group.into(), "system:authenticated".into()] };
            let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
            let target = Target::Resource {
                group: api_group.into(),
                resource: resource.into(),
                subresource: subresource.into(),
                namespace: "default".into(),
                name: "x".into(),
            };
            let decision = authorize(&Attributes { user, verb: verb.into(), target }, &rules);
            assert_eq!(decision != Decision::Deny, allowed, "{name} {verb} {resource}/{subresource}");
        }
    }
}
