//! Roles for users: what each kind of user may do with our kinds and their subresources.

use std::collections::BTreeMap;

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, RoleRef, Subject};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use machinery::rights::rule;

use crate::resources::{RESOURCES, Resource, SUBRESOURCES_GROUP};

const READ: &str = "get list watch";
const CRUD: &str = "get list watch create update patch delete";
const CRUD_PLUS: &str = "get list watch create update patch delete deletecollection";

/// Subresources that only show something.
const SHOWN: &str = "virtualmachineinstances/guestosinfo virtualmachineinstances/filesystemlist \
    virtualmachineinstances/userlist virtualmachineinstances/sev/fetchcertchain \
    virtualmachineinstances/sev/querylaunchmeasurement virtualmachineinstances/objectgraph virtualmachines/objectgraph \
    virtualmachines/expand-spec virtualmachineinstances/migrationprogress";
/// Subresources that reach into a guest.
const STREAMS: &str = "virtualmachineinstances/console virtualmachineinstances/vnc \
    virtualmachineinstances/portforward virtualmachineinstances/usbredir virtualmachines/portforward";
/// Subresources that act on a guest.
const ACTIONS: &str = "virtualmachineinstances/pause virtualmachineinstances/unpause \
    virtualmachineinstances/addvolume virtualmachineinstances/removevolume virtualmachineinstances/freeze \
    virtualmachineinstances/unfreeze virtualmachineinstances/softreboot virtualmachineinstances/reset \
    virtualmachineinstances/sev/setupsession virtualmachineinstances/sev/injectlaunchsecret \
    virtualmachineinstances/evacuate/cancel virtualmachines/start virtualmachines/stop virtualmachines/restart \
    virtualmachines/addvolume virtualmachines/removevolume virtualmachines/memorydump \
    virtualmachines/removememorydump virtualmachines/evacuate/cancel";

/// Everybody who is authenticated.
const EVERYBODY: &str = "system:authenticated";

/// Whose a kind is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Owner {
    /// Users write it, in their namespaces.
    Users,
    /// Only administrators of a namespace write it: it runs inside launchers.
    Admins,
    /// Users only look at it: it is the cluster's, or moves guests, which has a role of its own.
    Cluster,
    /// Everybody sees it, by the default role.
    Everybody,
}

fn owner(resource: &Resource) -> Owner {
    match resource.kind {
        "KubeVirt" => Owner::Everybody,
        "MigrationPolicy" | "VirtualMachineInstanceMigration" => Owner::Cluster,
        "Plugin" => Owner::Admins,
        _ => Owner::Users,
    }
}

/// A role for users.
struct UserRole {
    name: &'static str,
    /// The role of Kubernetes it becomes a part of.
    aggregate_to: Option<&'static str>,
    bound_to_everybody: bool,
    rules: fn() -> Vec<PolicyRule>,
}

const ROLES: &[UserRole] = &[
    UserRole { name: "kubevirt.io:default", aggregate_to: None, bound_to_everybody: true, rules: default },
    UserRole {
        name: "instancetype.kubevirt.io:view",
        aggregate_to: None,
        bound_to_everybody: true,
        rules: instancetypes,
    },
    UserRole { name: "kubevirt.io:admin", aggregate_to: Some("admin"), bound_to_everybody: false, rules: admin },
    UserRole { name: "kubevirt.io:edit", aggregate_to: Some("edit"), bound_to_everybody: false, rules: edit },
    UserRole { name: "kubevirt.io:view", aggregate_to: Some("view"), bound_to_everybody: false, rules: view },
    UserRole { name: "kubevirt.io:migrate", aggregate_to: None, bound_to_everybody: false, rules: migrate },
];

/// The roles.
pub fn roles() -> Vec<ClusterRole> {
    ROLES.iter().map(role).collect()
}

/// Their bindings. The others are bound by administrators.
pub fn bindings() -> Vec<ClusterRoleBinding> {
    ROLES.iter().filter(|role| role.bound_to_everybody).map(|role| binding(role.name)).collect()
}

fn role(role: &UserRole) -> ClusterRole {
    let label = role.aggregate_to.map(|to| format!("rbac.authorization.k8s.io/aggregate-to-{to}"));
    let labels = label.map(|label| BTreeMap::from([(label, "true".to_owned())]));
    let metadata = ObjectMeta { labels, ..named(role.name) };
    ClusterRole { metadata, rules: Some((role.rules)()), aggregation_rule: None }
}

fn named(name: &str) -> ObjectMeta {
    ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() }
}

fn binding(name: &str) -> ClusterRoleBinding {
    let group = "rbac.authorization.k8s.io".to_owned();
    let everybody = Subject {
        api_group: Some(group.clone()),
        kind: "Group".to_owned(),
        name: EVERYBODY.to_owned(),
        namespace: None,
    };
    ClusterRoleBinding {
        metadata: named(name),
        role_ref: RoleRef { api_group: group, kind: "ClusterRole".to_owned(), name: name.to_owned() },
        subjects: Some(vec![everybody]),
    }
}

fn default() -> Vec<PolicyRule> {
    let kubevirts = on_kinds("get list", |resource| owner(resource) == Owner::Everybody);
    with(kubevirts, [rule("get list", SUBRESOURCES_GROUP, "version guestfs healthz")])
}

fn instancetypes() -> Vec<PolicyRule> {
    on_kinds(READ, |resource| resource.group == crate::instancetype::GROUP && !resource.namespaced)
}

fn migrate() -> Vec<PolicyRule> {
    let migrations = on_kinds(CRUD_PLUS, |resource| resource.kind == "VirtualMachineInstanceMigration");
    with(migrations, [rule("update", SUBRESOURCES_GROUP, "virtualmachines/migrate")])
}

fn view() -> Vec<PolicyRule> {
    with(common(), on_kinds(READ, |resource| matches!(owner(resource), Owner::Users | Owner::Admins)))
}

fn edit() -> Vec<PolicyRule> {
    let rules = with(common(), on_kinds(CRUD, |resource| owner(resource) == Owner::Users));
    with(rules, acting())
}

fn admin() -> Vec<PolicyRule> {
    let rules = with(common(), on_kinds(CRUD_PLUS, |resource| matches!(owner(resource), Owner::Users | Owner::Admins)));
    let screenshot = rule("get", SUBRESOURCES_GROUP, "virtualmachineinstances/vnc/screenshot");
    with(with(rules, acting()), [screenshot])
}

/// What viewers, editors and administrators have in common.
fn common() -> Vec<PolicyRule> {
    let cluster = on_kinds(READ, |resource| owner(resource) == Owner::Cluster);
    let everybody = on_kinds("get list", |resource| owner(resource) == Owner::Everybody);
    let shown = [rule("get", SUBRESOURCES_GROUP, SHOWN), rule("update", SUBRESOURCES_GROUP, "expand-vm-spec")];
    with(with(cluster, everybody), shown)
}

fn acting() -> [PolicyRule; 2] {
    [rule("get", SUBRESOURCES_GROUP, STREAMS), rule("update", SUBRESOURCES_GROUP, ACTIONS)]
}

/// Verbs on those of our kinds that are chosen: a rule for each group.
fn on_kinds(verbs: &str, chosen: impl Fn(&Resource) -> bool) -> Vec<PolicyRule> {
    let mut groups: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for resource in RESOURCES.iter().filter(|resource| chosen(resource)) {
        groups.entry(resource.group).or_default().push(resource.plural);
    }
    groups.into_iter().map(|(group, plurals)| rule(verbs, group, &plurals.join(" "))).collect()
}

fn with(mut rules: Vec<PolicyRule>, more: impl IntoIterator<Item = PolicyRule>) -> Vec<PolicyRule> {
    rules.extend(more);
    rules
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allows(role: &str, verb: &str, group: &str, resource: &str) -> bool {
        let role = roles().into_iter().find(|object| object.metadata.name.as_deref() == Some(role)).unwrap();
        let has = |list: &[String], wanted: &str| list.iter().any(|entry| entry == wanted);
        role.rules.unwrap().iter().any(|rule| {
            has(rule.api_groups.as_ref().unwrap(), group)
                && has(rule.resources.as_ref().unwrap(), resource)
                && has(&rule.verbs, verb)
        })
    }

    #[test]
    fn each_kind_of_user_reaches_the_kinds_that_are_theirs() {
        for resource in RESOURCES {
            let may =
                |role: &str, verb: &str| allows(&format!("kubevirt.io:{role}"), verb, resource.group, resource.plural);
            let (admin, edit) = match owner(resource) {
                Owner::Users => (true, true),
                Owner::Admins => (true, false),
                Owner::Cluster | Owner::Everybody => (false, false),
            };
            assert!(may("view", "list") && !may("view", "update"), "{}", resource.kind);
            assert_eq!(may("edit", "create"), edit, "{}", resource.kind);
            assert!(!may("edit", "deletecollection"), "{}", resource.kind);
            assert_eq!(may("admin", "deletecollection"), admin, "{}", resource.kind);
        }
    }

    #[test]
    fn nobody_migrates_or_looks_at_a_screen_by_chance() {
        let may = |role: &str, verb: &str, subresource: &str| {
            allows(&format!("kubevirt.io:{role}"), verb, SUBRESOURCES_GROUP, subresource)
        };
        for role in ["view", "edit", "admin", "default"] {
            assert!(!may(role, "update", "virtualmachines/migrate"), "{role}");
            assert!(!may(role, "get", "virtualmachineinstances/vsock"), "{role}");
        }
        assert!(may("migrate", "update", "virtualmachines/migrate"));
        assert!(may("admin", "get", "virtualmachineinstances/vnc/screenshot"));
        assert!(!may("edit", "get", "virtualmachineinstances/vnc/screenshot"));
        assert!(!may("view", "get", "virtualmachineinstances/console"));
        assert!(may("edit", "get", "virtualmachineinstances/console"));
    }

    #[test]
    fn everybody_sees_the_installation_and_the_instance_types_of_the_cluster() {
        let bound: Vec<String> = bindings().into_iter().map(|binding| binding.role_ref.name).collect();
        assert_eq!(bound, ["kubevirt.io:default", "instancetype.kubevirt.io:view"]);
        assert!(allows(&bound[0], "get", "kubevirt.io", "kubevirts"));
        let group = crate::instancetype::GROUP;
        assert!(allows(&bound[1], "watch", group, "virtualmachineclusterpreferences"));
        assert!(!allows(&bound[1], "watch", group, "virtualmachinepreferences"));
    }
}
