//! API permissions of programs, and the RBAC rules that grant exactly those.
//!
//! Each program declares [`Right`]s next to the code that uses them. Everything else is derived: the roles of the
//! embedded cluster, the role in the documentation, and the roles that tests run with.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::Resource;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// A verb of RBAC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
}

impl Verb {
    pub const ALL: &'static [Self] =
        &[Self::Get, Self::List, Self::Watch, Self::Create, Self::Update, Self::Patch, Self::Delete];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
        }
    }
}

/// The scope of a right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// In all namespaces, and for cluster-scoped objects.
    Cluster,
    /// In the namespace the system is installed in.
    Installation,
}

/// Some verbs on one resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Right {
    /// Empty for Kubernetes' core kinds.
    pub group: &'static str,
    /// The plural name.
    pub resource: &'static str,
    /// Empty for the object itself.
    pub subresource: &'static str,
    pub verbs: &'static [Verb],
    pub scope: Scope,
}

impl Right {
    /// On objects of a kind.
    pub const fn on<K: Resource>(verbs: &'static [Verb]) -> Self {
        Self::named(K::GROUP, K::URL_PATH_SEGMENT, verbs)
    }

    /// What an informer of a kind needs.
    pub const fn watch<K: Resource>() -> Self {
        Self::on::<K>(&[Verb::List, Verb::Watch])
    }

    /// On the status of objects of a kind.
    pub const fn on_status<K: Resource>(verbs: &'static [Verb]) -> Self {
        Self::on::<K>(verbs).of("status")
    }

    /// Permission to create objects that block the deletion of an owner of this kind: required by the admission plugin
    /// `OwnerReferencesPermissionEnforcement`, which some clusters enable.
    pub const fn own_by<K: Resource>() -> Self {
        Self::on::<K>(&[Verb::Update]).of("finalizers")
    }

    /// On a resource without a Rust type.
    pub const fn named(group: &'static str, resource: &'static str, verbs: &'static [Verb]) -> Self {
        Self { group, resource, subresource: "", verbs, scope: Scope::Cluster }
    }

    /// The same on a subresource.
    #[must_use]
    pub const fn of(self, subresource: &'static str) -> Self {
        Self { subresource, ..self }
    }

    /// The same in the installation's namespace only.
    #[must_use]
    pub const fn in_installation(self) -> Self {
        Self { scope: Scope::Installation, ..self }
    }

    /// Whether it includes all verbs of another one on the same resource.
    pub fn covers(&self, needed: &Self) -> bool {
        (self.group, self.resource, self.subresource) == (needed.group, needed.resource, needed.subresource)
            && needed.verbs.iter().all(|verb| self.verbs.contains(verb))
    }

    /// The resource as RBAC rules spell it.
    fn path(&self) -> String {
        match self.subresource {
            "" => self.resource.to_owned(),
            subresource => format!("{}/{subresource}", self.resource),
        }
    }

    /// Each verb by itself.
    pub fn grants(&self) -> impl Iterator<Item = Grant> + use<> {
        let (group, resource, scope) = (self.group.to_owned(), self.path(), self.scope);
        self.verbs.iter().map(move |&verb| Grant {
            scope,
            group: group.clone(),
            resource: resource.clone(),
            verb: verb.as_str().to_owned(),
        })
    }
}

/// One verb on one resource: what a single request needs.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Grant {
    pub scope: Scope,
    pub group: String,
    /// With the subresource after a slash.
    pub resource: String,
    pub verb: String,
}

impl std::fmt::Display for Grant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { scope, group, resource, verb } = self;
        let dot = if group.is_empty() { "" } else { "." };
        let place = match scope {
            Scope::Cluster => "",
            Scope::Installation => " in the installation's namespace",
        };
        write!(f, "{verb} {resource}{dot}{group}{place}")
    }
}

/// A rule written by hand; verbs and resources are separated by spaces.
pub fn rule(verbs: &str, group: &str, resources: &str) -> PolicyRule {
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect();
    PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(words(resources)),
        verbs: words(verbs),
        ..PolicyRule::default()
    }
}

/// The rules that grant the rights of a scope: one per group and set of verbs, in alphabetical order.
pub fn rules<'a>(rights: impl IntoIterator<Item = &'a Right>, scope: Scope) -> Vec<PolicyRule> {
    let mut verbs: BTreeMap<(&str, String), BTreeSet<Verb>> = BTreeMap::new();
    for right in rights.into_iter().filter(|right| right.scope == scope) {
        verbs.entry((right.group, right.path())).or_default().extend(right.verbs);
    }
    let mut resources: BTreeMap<(&str, BTreeSet<Verb>), Vec<String>> = BTreeMap::new();
    for ((group, resource), verbs) in verbs.into_iter().filter(|(_, verbs)| !verbs.is_empty()) {
        resources.entry((group, verbs)).or_default().push(resource);
    }
    let rule = |((group, verbs), resources): ((&str, BTreeSet<Verb>), Vec<String>)| PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(resources),
        verbs: verbs.into_iter().map(|verb| verb.as_str().to_owned()).collect(),
        ..PolicyRule::default()
    };
    let mut rules: Vec<PolicyRule> = resources.into_iter().map(rule).collect();
    rules.sort_by(|a, b| (&a.api_groups, &a.resources).cmp(&(&b.api_groups, &b.resources)));
    rules
}

/// The identity of a program at the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    /// A service account in the installation's namespace.
    Account,
    /// A user with the name of the program's role.
    User,
    /// All members of a group.
    Group(&'static str),
}

/// A program with all its rights.
#[derive(Clone, Debug)]
pub struct Program {
    /// The name of its roles, and of its account.
    pub name: &'static str,
    pub identity: Identity,
    pub rights: Vec<Right>,
}

impl Program {
    /// Its rights one by one.
    pub fn grants(&self) -> BTreeSet<Grant> {
        self.rights.iter().flat_map(Right::grants).collect()
    }

    /// Its permissions in all namespaces.
    pub fn cluster_role(&self) -> ClusterRole {
        let rules = Some(rules(&self.rights, Scope::Cluster));
        ClusterRole { metadata: self.metadata(None), rules, ..ClusterRole::default() }
    }

    /// Binds the cluster role.
    pub fn cluster_binding(&self, installation: &str) -> ClusterRoleBinding {
        ClusterRoleBinding {
            metadata: self.metadata(None),
            role_ref: self.role_ref("ClusterRole"),
            subjects: Some(vec![self.subject(installation)]),
        }
    }

    /// Its additional permissions in the installation's namespace, with the binding; `None` if there are none.
    pub fn role(&self, installation: &str) -> Option<(Role, RoleBinding)> {
        let rules = Some(rules(&self.rights, Scope::Installation)).filter(|rules| !rules.is_empty())?;
        let binding = RoleBinding {
            metadata: self.metadata(Some(installation)),
            role_ref: self.role_ref("Role"),
            subjects: Some(vec![self.subject(installation)]),
        };
        Some((Role { metadata: self.metadata(Some(installation)), rules: Some(rules) }, binding))
    }

    /// The program's user name at the API server.
    pub fn user(&self, installation: &str) -> String {
        match self.identity {
            Identity::Account => format!("system:serviceaccount:{installation}:{}", self.name),
            Identity::User | Identity::Group(_) => self.name.to_owned(),
        }
    }

    fn metadata(&self, namespace: Option<&str>) -> ObjectMeta {
        ObjectMeta {
            name: Some(self.name.to_owned()),
            namespace: namespace.map(str::to_owned),
            ..ObjectMeta::default()
        }
    }

    fn role_ref(&self, kind: &str) -> RoleRef {
        RoleRef { api_group: ClusterRole::GROUP.to_owned(), kind: kind.to_owned(), name: self.name.to_owned() }
    }

    fn subject(&self, installation: &str) -> Subject {
        let (kind, name) = match self.identity {
            Identity::Account => ("ServiceAccount", self.name),
            Identity::User => ("User", self.name),
            Identity::Group(group) => ("Group", group),
        };
        let is_account = self.identity == Identity::Account;
        Subject {
            // Accounts are of the core group.
            api_group: (!is_account).then(|| ClusterRole::GROUP.to_owned()),
            kind: kind.to_owned(),
            name: name.to_owned(),
            namespace: is_account.then(|| installation.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::batch::v1::Job;
    use k8s_openapi::api::coordination::v1::Lease;
    use k8s_openapi::api::core::v1::{Node, Pod};
    use serde_json::{Value, json};

    use super::Verb::{Create, Delete, Get, Patch};
    use super::*;

    const RIGHTS: &[Right] = &[
        Right::on::<Pod>(&[Delete, Create]),
        Right::watch::<Job>(),
        Right::watch::<Pod>(),
        Right::watch::<Node>(),
        Right::on::<Pod>(&[Create, Get]),
        Right::on_status::<Pod>(&[Patch]),
        Right::on::<Node>(&[Get]),
        Right::on::<Lease>(&[Get]).in_installation(),
    ];

    fn program(identity: Identity) -> Program {
        Program { name: "worker", identity, rights: RIGHTS.to_vec() }
    }

    fn as_json(object: impl serde::Serialize) -> Value {
        serde_json::to_value(object).unwrap()
    }

    #[test]
    fn rights_fold_into_few_rules_in_a_fixed_order() {
        let expected = json!([
            {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]},
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "create", "delete"]},
            {"apiGroups": [""], "resources": ["pods/status"], "verbs": ["patch"]},
            {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["list", "watch"]},
        ]);
        assert_eq!(as_json(rules(RIGHTS, Scope::Cluster)), expected);
        let reversed: Vec<Right> = RIGHTS.iter().rev().copied().collect();
        assert_eq!(as_json(rules(&reversed, Scope::Cluster)), expected);
    }

    #[test]
    fn what_holds_in_the_installation_only_is_no_cluster_role() {
        let (role, binding) = program(Identity::Account).role("here").unwrap();
        assert_eq!(
            as_json(&role)["rules"],
            json!([{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get"]}])
        );
        assert_eq!(role.metadata.namespace.as_deref(), Some("here"));
        assert_eq!(binding.role_ref.kind, "Role");
        let everywhere = Program { rights: vec![Right::watch::<Pod>()], ..program(Identity::Account) };
        assert!(everywhere.role("here").is_none());
    }

    #[test]
    fn bindings_name_who_the_program_is() {
        let subject = |identity| as_json(program(identity).cluster_binding("here"))["subjects"][0].clone();
        let group = "rbac.authorization.k8s.io";
        assert_eq!(
            subject(Identity::Account),
            json!({"kind": "ServiceAccount", "name": "worker", "namespace": "here"})
        );
        assert_eq!(subject(Identity::User), json!({"apiGroup": group, "kind": "User", "name": "worker"}));
        assert_eq!(subject(Identity::Group("team")), json!({"apiGroup": group, "kind": "Group", "name": "team"}));
    }

    #[test]
    fn grants_are_told_one_by_one() {
        let told: Vec<String> = program(Identity::Account).grants().iter().map(ToString::to_string).collect();
        assert!(told.contains(&"patch pods/status".to_owned()), "{told:?}");
        assert!(told.contains(&"watch jobs.batch".to_owned()), "{told:?}");
        assert!(told.contains(&"get leases.coordination.k8s.io in the installation's namespace".to_owned()));
    }
}
