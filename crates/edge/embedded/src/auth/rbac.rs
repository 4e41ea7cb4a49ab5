//! Role-based access control as a pure function of the roles and bindings.

use std::collections::HashMap;

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject};

use super::{MASTERS, User};

/// The attributes of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attributes {
    /// The requesting user.
    pub user: User,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`.
    pub verb: String,
    /// The requested resource or path.
    pub target: Target,
}

/// An API resource, or a non-resource path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A resource; absent parts are empty.
    Resource { group: String, resource: String, subresource: String, namespace: String, name: String },
    /// A non-resource path.
    Path(String),
}

impl Attributes {
    /// The error message for a denied request, in Kubernetes' words.
    pub fn refusal(&self) -> String {
        let (user, verb) = (&self.user.name, &self.verb);
        match &self.target {
            Target::Path(path) => format!("User {user:?} cannot {verb} path {path:?}"),
            Target::Resource { group, resource, subresource, namespace, .. } => {
                let slash = if subresource.is_empty() { "" } else { "/" };
                let place = if namespace.is_empty() {
                    "at the cluster scope".to_owned()
                } else {
                    format!("in the namespace {namespace:?}")
                };
                let resource = format!("{resource}{slash}{subresource}");
                format!("User {user:?} cannot {verb} resource {resource:?} in API group {group:?} {place}")
            }
        }
    }
}

/// The decision, with the reason that an access review reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Allowed by a rule.
    Allow { reason: String },
    /// Not allowed by any rule.
    Deny,
}

#[derive(Debug)]
struct Binding {
    name: String,
    role: RoleRef,
    subjects: Vec<Subject>,
}

/// All roles and bindings of the cluster.
#[derive(Debug, Default)]
pub struct Rules {
    cluster_roles: HashMap<String, Vec<PolicyRule>>,
    /// By namespace, then name.
    roles: HashMap<String, HashMap<String, Vec<PolicyRule>>>,
    cluster_bindings: Vec<Binding>,
    /// By namespace.
    bindings: HashMap<String, Vec<Binding>>,
}

impl Rules {
    /// Takes stored objects; a binding without a name is ignored.
    pub fn new(
        cluster_roles: Vec<ClusterRole>,
        cluster_bindings: Vec<ClusterRoleBinding>,
        roles: Vec<Role>,
        bindings: Vec<RoleBinding>,
    ) -> Self {
        let mut rules = Self::default();
        for role in cluster_roles {
            rules.cluster_roles.insert(role.metadata.name.unwrap_or_default(), role.rules.unwrap_or_default());
        }
        for role in roles {
            let namespace = rules.roles.entry(role.metadata.namespace.unwrap_or_default()).or_default();
            namespace.insert(role.metadata.name.unwrap_or_default(), role.rules.unwrap_or_default());
        }
        for binding in cluster_bindings {
            let name = binding.metadata.name.unwrap_or_default();
            let subjects = binding.subjects.unwrap_or_default();
            rules.cluster_bindings.push(Binding { name, role: binding.role_ref, subjects });
        }
        for binding in bindings {
            let namespace = rules.bindings.entry(binding.metadata.namespace.unwrap_or_default()).or_default();
            let name = binding.metadata.name.unwrap_or_default();
            namespace.push(Binding { name, role: binding.role_ref, subjects: binding.subjects.unwrap_or_default() });
        }
        rules
    }

    /// The rules granted by a binding, if its role exists. `namespace` is the binding's own; empty for cluster
    /// bindings.
    fn of(&self, binding: &Binding, namespace: &str) -> &[PolicyRule] {
        let found = match binding.role.kind.as_str() {
            "ClusterRole" => self.cluster_roles.get(&binding.role.name),
            _ => self.roles.get(namespace).and_then(|roles| roles.get(&binding.role.name)),
        };
        found.map_or(&[], Vec::as_slice)
    }
}

/// Decides by the rules; `system:masters` may do anything, so that no mistake in a role can lock everyone out.
pub fn authorize(attributes: &Attributes, rules: &Rules) -> Decision {
    let user = &attributes.user;
    if user.is_in(MASTERS) {
        return Decision::Allow { reason: String::new() };
    }
    let cluster = rules.cluster_bindings.iter().map(|binding| (binding, "", "ClusterRoleBinding"));
    let namespace = match &attributes.target {
        Target::Resource { namespace, .. } if !namespace.is_empty() => namespace.as_str(),
        _ => "",
    };
    let local = rules.bindings.get(namespace).into_iter().flatten();
    let local = local.map(|binding| (binding, namespace, "RoleBinding"));
    for (binding, namespace, kind) in cluster.chain(local) {
        let Some(subject) = binding.subjects.iter().find(|subject| is_subject(user, subject)) else { continue };
        if rules.of(binding, namespace).iter().any(|rule| rule_allows(rule, attributes)) {
            return Decision::Allow { reason: reason(kind, binding, subject, namespace) };
        }
    }
    Decision::Deny
}

fn reason(kind: &str, binding: &Binding, subject: &Subject, namespace: &str) -> String {
    let place = if namespace.is_empty() { String::new() } else { format!("/{namespace}") };
    let (role_kind, role, by) = (&binding.role.kind, &binding.role.name, &subject.kind);
    format!("RBAC: allowed by {kind} \"{}{place}\" of {role_kind} {role:?} to {by} {:?}", binding.name, subject.name)
}

/// A service account is the user `system:serviceaccount:<namespace>:<name>`.
fn is_subject(user: &User, subject: &Subject) -> bool {
    match subject.kind.as_str() {
        "User" => user.name == subject.name,
        "Group" => user.is_in(&subject.name),
        "ServiceAccount" => {
            let namespace = subject.namespace.as_deref().unwrap_or_default();
            user.name.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'))
                == Some((namespace, &subject.name))
        }
        _ => false,
    }
}

fn rule_allows(rule: &PolicyRule, attributes: &Attributes) -> bool {
    if !contains(&rule.verbs, &attributes.verb) {
        return false;
    }
    match &attributes.target {
        Target::Path(path) => rule.non_resource_urls.iter().flatten().any(|pattern| match pattern.strip_suffix('*') {
            Some(prefix) => path.starts_with(prefix),
            None => pattern == path,
        }),
        Target::Resource { group, resource, subresource, name, .. } => {
            let groups = rule.api_groups.as_deref().unwrap_or_default();
            let names = rule.resource_names.as_deref().unwrap_or_default();
            contains(groups, group)
                && rule.resources.iter().flatten().any(|pattern| resource_matches(pattern, resource, subresource))
                && (names.is_empty() || names.iter().any(|allowed| allowed == name))
        }
    }
}

/// `*`, `pods`, `pods/status`, `*/status`.
fn resource_matches(pattern: &str, resource: &str, subresource: &str) -> bool {
    if pattern == "*" {
        return true;
    }
    match pattern.split_once('/') {
        None => subresource.is_empty() && pattern == resource,
        Some((left, right)) => (left == "*" || left == resource) && right == subresource,
    }
}

fn contains(list: &[String], item: &str) -> bool {
    list.iter().any(|entry| entry == "*" || entry == item)
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    fn strings(words: &str) -> Vec<String> {
        words.split(' ').map(|word| if word == "''" { String::new() } else { word.to_owned() }).collect()
    }

    fn rule(verbs: &str, groups: &str, resources: &str, names: &[&str]) -> PolicyRule {
        PolicyRule {
            verbs: strings(verbs),
            api_groups: Some(strings(groups)),
            resources: Some(strings(resources)),
            resource_names: (!names.is_empty()).then(|| names.iter().map(|name| (*name).to_owned()).collect()),
            non_resource_urls: None,
        }
    }

    fn subject(kind: &str, name: &str, namespace: Option<&str>) -> Vec<Subject> {
        vec![Subject {
            kind: kind.into(),
            name: name.into(),
            namespace: namespace.map(Into::into),
            ..Subject::default()
        }]
    }

    fn role_ref(kind: &str, name: &str) -> RoleRef {
        RoleRef { api_group: "rbac.authorization.k8s.io".into(), kind: kind.into(), name: name.into() }
    }

    fn meta(namespace: &str, name: &str) -> ObjectMeta {
        let namespace = (!namespace.is_empty()).then(|| namespace.to_owned());
        ObjectMeta { name: Some(name.into()), namespace, ..ObjectMeta::default() }
    }

    fn cluster_role(name: &str, rules: Vec<PolicyRule>) -> ClusterRole {
        ClusterRole { metadata: meta("", name), rules: Some(rules), ..ClusterRole::default() }
    }

    fn cluster_binding(role: &str, subjects: Vec<Subject>) -> ClusterRoleBinding {
        let role_ref = role_ref("ClusterRole", role);
        ClusterRoleBinding { metadata: meta("", role), role_ref, subjects: Some(subjects) }
    }

    fn world() -> Rules {
        let discovery = PolicyRule {
            verbs: strings("get"),
            non_resource_urls: Some(strings("/healthz /api /apis/*")),
            ..PolicyRule::default()
        };
        let cluster_roles = vec![
            cluster_role("reader", vec![rule("get list watch", "''", "pods", &[])]),
            cluster_role("status", vec![rule("patch", "''", "*/status", &[])]),
            cluster_role("one", vec![rule("get update", "''", "configmaps", &["ca"])]),
            cluster_role("all-of-group", vec![rule("*", "kubevirt.io", "*", &[])]),
            cluster_role("discovery", vec![discovery]),
        ];
        let cluster_bindings = vec![
            cluster_binding("reader", subject("User", "ada", None)),
            cluster_binding("status", subject("Group", "system:nodes", None)),
            cluster_binding("one", subject("User", "ada", None)),
            cluster_binding("all-of-group", subject("ServiceAccount", "controller", Some("kubevirt"))),
            cluster_binding("discovery", subject("Group", "system:authenticated", None)),
            cluster_binding("missing-role", subject("User", "ada", None)),
        ];
        let roles =
            vec![Role { metadata: meta("dev", "secrets"), rules: Some(vec![rule("get", "''", "secrets", &[])]) }];
        let bindings = vec![
            RoleBinding {
                metadata: meta("dev", "secrets"),
                role_ref: role_ref("Role", "secrets"),
                subjects: Some(subject("User", "bob", None)),
            },
            RoleBinding {
                metadata: meta("dev", "pods"),
                role_ref: role_ref("ClusterRole", "reader"),
                subjects: Some(subject("User", "bob", None)),
            },
        ];
        Rules::new(cluster_roles, cluster_bindings, roles, bindings)
    }

    fn user(name: &str, groups: &str) -> User {
        User { name: name.into(), groups: groups.split(' ').map(Into::into).collect() }
    }

    fn resource(group: &str, resource: &str, namespace: &str, name: &str) -> Target {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        Target::Resource {
            group: group.into(),
            resource: resource.into(),
            subresource: subresource.into(),
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    #[test]
    fn rules_decide() {
        let ada = user("ada", "system:authenticated");
        let bob = user("bob", "system:authenticated");
        let node = user("system:node:n1", "system:nodes system:authenticated");
        let controller = user("system:serviceaccount:kubevirt:controller", "system:authenticated");
        let impostor = user("system:serviceaccount:other:controller", "system:authenticated");
        let master = user("root", "system:masters");
        let nobody = User::anonymous();
        let path = |path: &str| Target::Path(path.into());
        let table = [
            ("a cluster role reaches every namespace", &ada, "get", resource("", "pods", "dev", "x"), true),
            ("and the cluster scope", &ada, "list", resource("", "pods", "", ""), true),
            ("but only with its verbs", &ada, "delete", resource("", "pods", "dev", "x"), false),
            ("only in its group", &ada, "get", resource("metrics.k8s.io", "pods", "dev", "x"), false),
            ("a resource does not include its subresources", &ada, "get", resource("", "pods/log", "dev", "x"), false),
            ("*/status includes every status", &node, "patch", resource("", "nodes/status", "", "n1"), true),
            ("and nothing else", &node, "patch", resource("", "nodes", "", "n1"), false),
            ("resourceNames allow the named", &ada, "get", resource("", "configmaps", "kubevirt", "ca"), true),
            ("and refuse the others", &ada, "get", resource("", "configmaps", "kubevirt", "b"), false),
            ("and lists", &ada, "list", resource("", "configmaps", "kubevirt", ""), false),
            ("a service account by namespace", &controller, "x", resource("kubevirt.io", "vms/a", "d", ""), true),
            ("not its namesake", &impostor, "x", resource("kubevirt.io", "vms/a", "d", ""), false),
            ("a role in its namespace", &bob, "get", resource("", "secrets", "dev", "x"), true),
            ("not in another", &bob, "get", resource("", "secrets", "prod", "x"), false),
            ("a role binding narrows a cluster role", &bob, "get", resource("", "pods", "dev", "x"), true),
            ("to its namespace", &bob, "get", resource("", "pods", "prod", "x"), false),
            ("paths by name", &ada, "get", path("/healthz"), true),
            ("paths by prefix", &ada, "get", path("/apis/kubevirt.io/v1"), true),
            ("no other paths", &ada, "get", path("/metrics"), false),
            ("a stranger has no rights", &nobody, "get", path("/healthz"), false),
            ("masters pass", &master, "delete", resource("", "nodes", "", "n1"), true),
        ];
        let rules = world();
        for (name, user, verb, target, allowed) in table {
            let attributes = Attributes { user: user.clone(), verb: verb.into(), target };
            let decision = authorize(&attributes, &rules);
            assert_eq!(decision != Decision::Deny, allowed, "{name}: {decision:?}");
        }
    }

    #[test]
    fn a_refusal_reads_as_in_kubernetes() {
        let attributes = |target| Attributes { user: user("ada", "x"), verb: "get".into(), target };
        assert_eq!(
            attributes(resource("", "pods", "default", "x")).refusal(),
            r#"User "ada" cannot get resource "pods" in API group "" in the namespace "default""#
        );
        assert_eq!(
            attributes(resource("kubevirt.io", "kubevirts/status", "", "x")).refusal(),
            r#"User "ada" cannot get resource "kubevirts/status" in API group "kubevirt.io" at the cluster scope"#
        );
        assert_eq!(attributes(Target::Path("/x".into())).refusal(), r#"User "ada" cannot get path "/x""#);
    }

    #[test]
    fn an_allowance_names_the_binding_that_gave_it() {
        let attributes = Attributes {
            user: user("bob", "system:authenticated"),
            verb: "get".into(),
            target: resource("", "pods", "dev", "x"),
        };
        let expected = r#"RBAC: allowed by RoleBinding "pods/dev" of ClusterRole "reader" to User "bob""#;
        assert_eq!(authorize(&attributes, &world()), Decision::Allow { reason: expected.into() });
    }
}
