//! What each service account of an installation may do, by a real kube-apiserver: what it declares, and nothing else.
//!
//! The server is asked about every resource that it serves, with every verb, everywhere. The questions come from the
//! server, the expected answers from what our programs declare.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use api::resources::SUBRESOURCES_GROUP;
use api::rights::{Grant, Program, Scope};
use control_plane::installed::{ask, send};
use ferrovirt_cli::installation::programs;
use futures::{StreamExt, TryStreamExt};
use http::{Method, Request};
use install::{Manifest, Programs, Settings, names};
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::Client;
use kube::client::Body;
use libtest_mimic::{Failed, Trial};
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::install::path;

/// Questions on their way at a time.
const CONCURRENT: usize = 32;
/// How long the server may take to follow new roles, after it was asked everything once.
const PATIENCE: Duration = Duration::from_secs(10);

const REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
const RBAC: &str = "rbac.authorization.k8s.io";
const CERTIFICATES: &str = "certificates.k8s.io";

/// A namespace that the installation has nothing to do with.
const FOREIGN_NAMESPACE: &str = "default";
/// An object that the installation has nothing to do with.
const FOREIGN_NAME: &str = "of-somebody-else";

/// A role that should not be there.
const PLANTED: &str = "planted-by-a-test";

/// Verbs of requests.
const VERBS: &str = "get list watch create update patch delete deletecollection";
/// Granted only by a rule for all verbs, resources or groups.
const ANY: &str = "*";

/// Resources that no discovery shows, because the server only asks for rights on them: group, resources and verbs.
const UNSERVED: &[(&str, &str, &str)] = &[
    // Impersonation.
    ("", "users groups serviceaccounts userextras/scopes", "impersonate"),
    ("authentication.k8s.io", "uids userextras/authentication.kubernetes.io/node-name", "impersonate"),
    // Granting what one does not have.
    (RBAC, "roles clusterroles", "bind escalate"),
    (CERTIFICATES, "signers", "approve sign attest"),
    // Kubelets.
    (
        "",
        "nodes/metrics nodes/stats nodes/log nodes/spec nodes/pods nodes/healthz nodes/configz nodes/checkpoint",
        VERBS,
    ),
    // OpenShift lets Pods be privileged by it.
    ("security.openshift.io", "securitycontextconstraints", "use"),
    // Nobody's: granted only by rules for everything.
    ("example.com", "widgets widgets/status", VERBS),
    (ANY, ANY, VERBS),
    ("", ANY, VERBS),
    ("apps", ANY, VERBS),
    (api::v1::GROUP, ANY, VERBS),
];

/// What other projects or virt-api itself serve, so that this server does not: group, and whose it is.
const SERVED_BY_OTHERS: &[(&str, &str)] = &[
    ("cdi.kubevirt.io", "CDI: DataVolumes"),
    ("snapshot.storage.k8s.io", "the CSI snapshot controller: VolumeSnapshots"),
    // What its discovery lists is asked about all the same.
    (SUBRESOURCES_GROUP, "virt-api, which does not run here"),
];

/// What everybody with an account may do: verbs, group, resources, and by which role.
const EVERYBODY: &[(&str, &str, &str, &str)] = &[
    // Kubernetes': who am I, and what may I do?
    ("create", "authorization.k8s.io", "selfsubjectaccessreviews selfsubjectrulesreviews", "system:basic-user"),
    ("create", "authentication.k8s.io", "selfsubjectreviews", "system:basic-user"),
    // Ours: which version is installed, with which instance types?
    ("get list", api::v1::GROUP, "kubevirts", "kubevirt.io:default"),
    ("get list", SUBRESOURCES_GROUP, "version guestfs healthz", "kubevirt.io:default"),
    (
        "get list watch",
        api::instancetype::GROUP,
        "virtualmachineclusterinstancetypes virtualmachineclusterpreferences",
        "instancetype.kubevirt.io:view",
    ),
];

/// Paths that everybody with an account may get, and by which role. A star stands for whatever follows.
const EVERYBODYS_PATHS: &[(&str, &str)] = &[
    // Which kinds are there?
    ("/api", "system:discovery"),
    ("/api/*", "system:discovery"),
    ("/apis", "system:discovery"),
    ("/apis/*", "system:discovery"),
    ("/openapi", "system:discovery"),
    ("/openapi/*", "system:discovery"),
    // Is the server well, and which version is it?
    ("/healthz", "system:public-info-viewer"),
    ("/livez", "system:public-info-viewer"),
    ("/readyz", "system:public-info-viewer"),
    ("/version", "system:public-info-viewer"),
    ("/version/", "system:public-info-viewer"),
    // By which keys are tokens signed?
    ("/.well-known/openid-configuration", "system:service-account-issuer-discovery"),
    ("/.well-known/openid-configuration/", "system:service-account-issuer-discovery"),
    ("/openid/v1/jwks", "system:service-account-issuer-discovery"),
    ("/openid/v1/jwks/", "system:service-account-issuer-discovery"),
];

/// Paths beyond those that the server lists.
const PATHS: &[&str] =
    &["/", "*", "/api/v1", "/healthz/etcd", "/metrics/slis", "/logs", "/logs/x", "/debug/pprof/profile", "/configz"];
const METHODS: &str = "get head post put patch delete options";

/// The CA and the certificates, which virt-operator makes in the installation's namespace: verbs, group, resources.
const CERTIFICATES_OF_PODS: (&str, &str, &str) = ("list watch create patch delete", "", "configmaps secrets");

/// What virt-handler writes in the whole cluster and no policy restricts to its node: verbs, group, resource, and why.
const UNRESTRICTED: &[(&str, &str, &str, &str)] = &[
    ("create patch", "", "events", "an event changes nothing, and is where the VMI is"),
    (
        "create",
        CERTIFICATES,
        "certificatesigningrequests",
        "virt-operator denies what does not name the node of the requester's token",
    ),
];

pub(crate) fn trials() -> Vec<Trial> {
    let covered = || policies_restrict_what_virt_handler_writes().map_err(|err| Failed::from(format!("{err:#}")));
    vec![
        crate::trial("accounts_may_do_what_they_declare_and_nothing_else", may_do_what_they_declare),
        Trial::test("policies_restrict_what_virt_handler_writes", covered),
    ]
}

/// Something that can be granted, or asked about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Right {
    group: String,
    /// With the subresource after a slash.
    resource: String,
    verb: String,
    /// Granted without one: in all of them, and on cluster-scoped objects.
    namespace: Option<String>,
    /// Granted without one: for all names.
    name: Option<String>,
}

impl Right {
    fn everywhere(group: &str, resource: &str, verb: &str) -> Self {
        let [group, resource, verb] = [group, resource, verb].map(str::to_owned);
        Self { group, resource, verb, namespace: None, name: None }
    }

    fn within(self, namespace: &str) -> Self {
        Self { namespace: Some(namespace.to_owned()), ..self }
    }

    fn named(self, name: &str) -> Self {
        Self { name: Some(name.to_owned()), ..self }
    }

    /// Whether some right grants it.
    fn is_granted(&self, rights: &BTreeSet<Right>) -> bool {
        self.wider().chain([self.clone()]).any(|right| rights.contains(&right))
    }

    /// The same for all names, in all namespaces, or both.
    fn wider(&self) -> impl Iterator<Item = Right> {
        let unnamed = self.name.is_some().then(|| Self { name: None, ..self.clone() });
        let everywhere = self.namespace.is_some().then(|| Self { namespace: None, ..self.clone() });
        let both = everywhere.as_ref().filter(|_| unnamed.is_some()).map(|right| Self { name: None, ..right.clone() });
        [unnamed, everywhere, both].into_iter().flatten()
    }
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { group, resource, verb, namespace, name } = self;
        write!(f, "{verb} {resource}{}{group}", if group.is_empty() { "" } else { "." })?;
        name.iter().try_for_each(|name| write!(f, " {name}"))?;
        namespace.iter().try_for_each(|namespace| write!(f, " in {namespace}"))
    }
}

/// Each verb on each resource by itself; both are separated by spaces.
fn rights(verbs: &str, group: &str, resources: &str) -> Vec<Right> {
    let each = |resource| verbs.split_whitespace().map(move |verb| Right::everywhere(group, resource, verb));
    resources.split_whitespace().flat_map(each).collect()
}

/// A service account with what it declares.
struct Account {
    name: &'static str,
    rights: BTreeSet<Right>,
}

async fn may_do_what_they_declare(cluster: &Cluster) -> Result<()> {
    let client = cluster.plane.client()?;
    let installation = Installation::new();
    installation.apply_rights(&client).await?;
    let served = Served::discover(&client).await?;
    let accounts = installation.accounts(&served)?;
    let questions = questions(&client, &served, &installation, &accounts).await?;
    let started = Instant::now();
    let mut wrong = wrong_answers(&client, &accounts, &questions).await?;
    eprintln!(
        "{} questions about each of {} accounts answered after {:.1} s",
        questions.len(),
        accounts.len(),
        started.elapsed().as_secs_f32()
    );
    wrong.extend(accounts.iter().flat_map(|account| served.void(account)));
    ensure!(wrong.is_empty(), "rights and declarations differ:\n{}", wrong.join("\n"));
    differences_are_found(&client, accounts, &questions).await
}

/// Plants a right that nobody declares and a declaration that nobody grants: both have to be found.
async fn differences_are_found(
    client: &Client,
    mut accounts: Vec<Account>,
    questions: &BTreeSet<Question>,
) -> Result<()> {
    accounts.retain(|account| account.name == names::account::HANDLER);
    let handler = accounts.first_mut().context("virt-handler has no account")?;
    handler.rights.extend(rights("delete", "", "nodes"));
    let is_planted = |question: &Question| match question {
        Question::Object(right) => match right.group.as_str() {
            "" => right.resource.starts_with("nodes"),
            group => group == SUBRESOURCES_GROUP,
        },
        Question::Path { .. } => false,
    };
    let asked: Vec<(usize, &Question)> =
        questions.iter().filter(|question| is_planted(question)).map(|question| (0, question)).collect();
    // Nobody declares to delete what can only be put.
    let rules = json!([
        {"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"]},
        {"apiGroups": [SUBRESOURCES_GROUP], "resources": ["virtualmachines/stop"], "verbs": ["delete", "update"]},
    ]);
    let role = json!({"apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRole", "metadata": {"name": PLANTED},
        "rules": rules});
    let subject = json!({"kind": "ServiceAccount", "name": names::account::HANDLER, "namespace": names::NAMESPACE});
    let binding = json!({"apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": PLANTED},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": PLANTED}, "subjects": [subject]});
    apply(client, &role).await?;
    apply(client, &binding).await?;
    let expected = [
        "kubevirt-handler declares, but may not: delete nodes",
        "kubevirt-handler may, but does not declare: patch nodes/status",
        "kubevirt-handler may, but does not declare: delete virtualmachines/stop.subresources.kubevirt.io",
        "kubevirt-handler may, but does not declare: update virtualmachines/stop.subresources.kubevirt.io",
    ];
    let deadline = Instant::now() + PATIENCE;
    let found = loop {
        let found = told(&accounts, &disagreements(client, &accounts, asked.clone()).await?);
        if found == expected || Instant::now() > deadline {
            break found;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    };
    for object in [&binding, &role] {
        let answer = ask(client, Method::DELETE, &path(object)?, None).await?;
        ensure!(answer.code == 200, "the planted role is not deleted: {} {}", answer.code, answer.body);
    }
    ensure!(found == expected, "of {expected:?} there is found only {found:?}");
    Ok(())
}

async fn apply(client: &Client, object: &Value) -> Result<()> {
    let path = format!("{}?fieldManager=test&fieldValidation=Strict", path(object)?);
    let answer = ask(client, Method::PATCH, &path, Some(object)).await?;
    ensure!(matches!(answer.code, 200 | 201), "{path}: {} {}", answer.code, answer.body);
    Ok(())
}

/// The objects of an installation, as they are printed and as virt-operator makes them.
struct Installation {
    programs: Programs,
    /// What virt-operator makes.
    managed: Vec<Value>,
    /// What an administrator applies.
    printed: Vec<Value>,
    /// What an administrator applies who goes without virt-operator.
    alone: Vec<Value>,
}

impl Installation {
    fn new() -> Self {
        let (settings, programs) = (Settings::default(), programs());
        let objects =
            |manifests: Vec<Manifest>| manifests.into_iter().map(|manifest| manifest.object).collect::<Vec<_>>();
        Self {
            managed: objects(install::managed(&settings, &programs)),
            printed: objects(install::with_operator(&settings, &programs)),
            alone: objects(install::without_operator(&settings, &programs)),
            programs,
        }
    }

    /// Applies the accounts, roles and bindings. Definitions are there already; of the rest nothing matters for rights.
    async fn apply_rights(&self, client: &Client) -> Result<()> {
        let is_right =
            |object: &&Value| object["kind"] == "ServiceAccount" || text(object, "/apiVersion").starts_with(RBAC);
        for object in self.alone.iter().filter(is_right) {
            ensure!(self.managed.contains(object), "without virt-operator there is another {object}");
        }
        let namespace = self.printed.iter().filter(|object| object["kind"] == "Namespace");
        let others = self.printed.iter().chain(&self.managed).filter(is_right);
        for object in namespace.chain(others) {
            apply(client, object).await?;
        }
        Ok(())
    }

    /// All accounts that the installation makes.
    fn accounts(&self, served: &Served) -> Result<Vec<Account>> {
        let of_program = |program: &Program| program.grants().into_iter().map(of_grant).collect::<BTreeSet<Right>>();
        let Programs { api, controller, handler } = &self.programs;
        // Whom the API server trusts to pass on requests: granted by a role of Kubernetes.
        let trusted = rights("get list watch", "", "configmaps").into_iter();
        let trusted = trusted.map(|right| right.within("kube-system").named("extension-apiserver-authentication"));
        let account = |name, rights| Account { name, rights };
        let mut accounts = vec![
            account(names::account::API, of_program(api).into_iter().chain(trusted).collect()),
            account(names::account::CONTROLLER, of_program(controller)),
            account(names::account::HANDLER, of_program(handler)),
            account(names::account::OPERATOR, self.operator(served)?),
        ];
        for object in self.printed.iter().chain(&self.managed).filter(|object| object["kind"] == "ServiceAccount") {
            let name = text(object, "/metadata/name");
            ensure!(accounts.iter().any(|account| account.name == name), "nobody says what {name} may do");
        }
        let everybody = EVERYBODY.iter().flat_map(|(verbs, group, resources, _)| rights(verbs, group, resources));
        let everybody: Vec<Right> = everybody.collect();
        accounts.iter_mut().for_each(|account| account.rights.extend(everybody.iter().cloned()));
        Ok(accounts)
    }

    /// virt-operator may make the objects of an installation, change and delete these and those of earlier versions, and do
    /// whatever it grants.
    fn operator(&self, served: &Served) -> Result<BTreeSet<Right>> {
        let mut all = BTreeSet::new();
        for object in &self.managed {
            let (group, resource, namespaced) = served.resource_of(object)?;
            let (found, owned) =
                (rights("list watch create", group, resource), rights("patch delete", group, resource));
            let (name, namespace) = (text(object, "/metadata/name"), text(object, "/metadata/namespace"));
            ensure!(namespaced != namespace.is_empty(), "{object} is in no place where there can be one");
            match namespace {
                "" => all.extend(found.into_iter().chain(owned.into_iter().map(|right| right.named(name)))),
                names::NAMESPACE => all.extend(found.into_iter().chain(owned).map(|right| right.within(namespace))),
                // It looks for its one binding there by name.
                _ => {
                    let owned = owned.into_iter().chain(rights("get", group, resource));
                    let owned = owned.map(|right| right.named(name));
                    let create = Right::everywhere(group, resource, "create");
                    all.extend(owned.chain([create]).map(|right| right.within(namespace)));
                }
            }
        }
        let (verbs, group, resources) = CERTIFICATES_OF_PODS;
        all.extend(rights(verbs, group, resources).into_iter().map(|right| right.within(names::NAMESPACE)));
        all.extend(install::operator_program().grants().into_iter().map(of_grant));
        for former in Settings::default().former {
            let object = json!({"apiVersion": format!("{}/v1", former.group), "kind": former.kind});
            let (group, resource, _) = served.resource_of(&object)?;
            all.extend(rights("patch delete", group, resource).into_iter().map(|right| right.named(former.name)));
        }
        all.extend(rights("approve sign", CERTIFICATES, "signers").into_iter().map(|right| right.named(names::SIGNER)));
        let lent = Right::everywhere(RBAC, "roles", "bind").named("extension-apiserver-authentication-reader");
        all.insert(lent.within("kube-system"));
        all.extend(self.programs.all().into_iter().flat_map(Program::grants).map(of_grant));
        for rule in api::users::roles().into_iter().flat_map(|role| role.rules.unwrap_or_default()) {
            all.extend(of_rule(&rule)?);
        }
        Ok(all)
    }
}

fn of_grant(grant: Grant) -> Right {
    let right = Right::everywhere(&grant.group, &grant.resource, &grant.verb);
    match grant.scope {
        Scope::Cluster => right,
        Scope::Installation => right.within(names::NAMESPACE),
    }
}

/// What a role for users grants.
fn of_rule(rule: &PolicyRule) -> Result<Vec<Right>> {
    let is_plain = rule.resource_names.is_none() && rule.non_resource_urls.is_none();
    ensure!(is_plain && !json!(rule).to_string().contains(ANY), "a role for users has the rule {rule:?}");
    let resources = rule.resources.iter().flatten().map(String::as_str).collect::<Vec<_>>().join(" ");
    let groups = rule.api_groups.iter().flatten();
    Ok(groups.flat_map(|group| rights(&rule.verbs.join(" "), group, &resources)).collect())
}

/// What the server serves, and what virt-api would.
struct Served {
    /// By group and resource, with the subresource after a slash.
    resources: BTreeMap<(String, String), ServedResource>,
}

#[derive(Default)]
struct ServedResource {
    /// Empty for subresources.
    kind: String,
    namespaced: bool,
    verbs: BTreeSet<String>,
}

impl Served {
    async fn discover(client: &Client) -> Result<Self> {
        let mut resources = BTreeMap::new();
        for path in ["/api", "/apis"] {
            let request = Request::get(path)
                .header("Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
                .body(Body::empty())?;
            let answer = send(client, request).await?;
            ensure!(answer.code == 200 && answer.body["kind"] == "APIGroupDiscoveryList", "{path}: {}", answer.body);
            for group in list(&answer.body, "/items") {
                for resource in list(group, "/versions").flat_map(|version| list(version, "/resources")) {
                    insert(&mut resources, text(group, "/metadata/name"), resource);
                }
            }
        }
        // Whoever blocks the deletion of an owner needs to be able to.
        let finalizers = resources.iter().filter(|((_, resource), _)| !resource.contains('/')).map(
            |((group, resource), ServedResource { namespaced, .. }): (&(String, String), &ServedResource)| {
                let verbs = BTreeSet::from(["update".to_owned()]);
                let served = ServedResource { kind: String::new(), namespaced: *namespaced, verbs };
                ((group.clone(), format!("{resource}/finalizers")), served)
            },
        );
        let finalizers: Vec<_> = finalizers.collect();
        ensure!(finalizers.len() > 80, "the server serves only {} resources", finalizers.len());
        for (key, served) in finalizers {
            resources.entry(key).or_insert(served);
        }
        for subresource in virt_api::subresources() {
            let served = ServedResource { namespaced: true, ..ServedResource::default() };
            resources.insert((SUBRESOURCES_GROUP.to_owned(), subresource), served);
        }
        Ok(Self { resources })
    }

    /// Where objects of an object's kind are: group, resource and whether they are in namespaces.
    fn resource_of(&self, object: &Value) -> Result<(&str, &str, bool)> {
        let (group, kind) =
            (text(object, "/apiVersion").rsplit_once('/').map_or("", |(group, _)| group), text(object, "/kind"));
        let mut found = self.resources.iter().filter(|((of, _), served)| of == group && served.kind == kind);
        let ((group, resource), served) = found.next().with_context(|| format!("{kind} is not served"))?;
        Ok((group, resource, served.namespaced))
    }

    /// What an account declares and can never do, because there is nothing to do it to.
    fn void(&self, account: &Account) -> Vec<String> {
        let void = |right: &Right| {
            let Right { group, resource, verb, namespace, .. } = right;
            let is_unserved = UNSERVED
                .iter()
                .any(|(of, resources, verbs)| of == group && has_word(resources, resource) && has_word(verbs, verb));
            if is_unserved || SERVED_BY_OTHERS.iter().any(|(of, _)| of == group) {
                return None;
            }
            let why = match self.resources.get(&(group.clone(), resource.clone())) {
                None => "nobody serves them",
                Some(served) if !served.verbs.contains(verb) => "the server does not know this verb for them",
                Some(served) if !served.namespaced && namespace.is_some() && resource != "namespaces" => {
                    "they are in no namespace"
                }
                Some(_) => return None,
            };
            Some(format!("{} declares, but {why}: {right}", account.name))
        };
        account.rights.iter().filter_map(void).collect()
    }
}

/// Adds a resource of a discovery with its subresources.
fn insert(resources: &mut BTreeMap<(String, String), ServedResource>, group: &str, resource: &Value) {
    let name = text(resource, "/resource");
    let itself = (name.to_owned(), text(resource, "/responseKind/kind"), resource);
    let below =
        list(resource, "/subresources").map(|below| (format!("{name}/{}", text(below, "/subresource")), "", below));
    for (path, kind, entry) in below.chain([itself]) {
        let served = resources.entry((group.to_owned(), path)).or_default();
        kind.clone_into(&mut served.kind);
        served.namespaced = resource["scope"] == "Namespaced";
        served.verbs.extend(list(entry, "/verbs").filter_map(Value::as_str).map(str::to_owned));
    }
}

/// What the server is asked about each account.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Question {
    Object(Right),
    Path { path: String, method: String },
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Object(right) => right.fmt(f),
            Self::Path { path, method } => write!(f, "{method} {path}"),
        }
    }
}

async fn questions(
    client: &Client,
    served: &Served,
    installation: &Installation,
    accounts: &[Account],
) -> Result<BTreeSet<Question>> {
    let mut resources: BTreeMap<(&str, &str), (bool, BTreeSet<&str>)> = BTreeMap::new();
    for ((group, resource), ServedResource { namespaced, .. }) in &served.resources {
        let verbs = if resource.ends_with("/finalizers") { "update" } else { VERBS };
        // A request for a namespace is one within it.
        let namespaced = *namespaced || resource == "namespaces";
        resources.insert((group, resource), (namespaced, verbs.split_whitespace().collect()));
    }
    let declared = accounts.iter().flat_map(|account| &account.rights);
    let declared: Vec<(&str, &str, &str)> = declared
        .map(|Right { group, resource, verb, .. }| (group.as_str(), resource.as_str(), verb.as_str()))
        .collect();
    for (group, names, verbs) in declared.into_iter().chain(UNSERVED.iter().copied()) {
        for resource in names.split_whitespace() {
            let (_, asked) = resources.entry((group, resource)).or_insert((true, BTreeSet::new()));
            asked.extend(verbs.split_whitespace());
        }
    }
    let roles = Roles::read(client).await?;
    let namespaces: BTreeSet<&str> =
        roles.namespaces.iter().map(String::as_str).chain([names::NAMESPACE, FOREIGN_NAMESPACE]).collect();
    let mut of_names: BTreeMap<(String, String), BTreeSet<String>> = roles.names;
    for object in installation.printed.iter().chain(&installation.managed) {
        let (group, resource, namespaced) = served.resource_of(object)?;
        if !namespaced {
            let names = of_names.entry((group.to_owned(), resource.to_owned())).or_default();
            names.insert(text(object, "/metadata/name").to_owned());
        }
    }
    let mut questions = BTreeSet::new();
    for ((group, resource), (namespaced, verbs)) in resources {
        let names = of_names.get(&(group.to_owned(), resource.to_owned()));
        let foreign = names.map(|_| FOREIGN_NAME);
        let names: Vec<&str> = names.into_iter().flatten().map(String::as_str).chain(foreign).collect();
        // Once is enough: a rule for all verbs of one namespace grants `deletecollection` there, too.
        questions.insert(Question::Object(Right::everywhere(group, resource, ANY)));
        for verb in verbs {
            let unnamed = Right::everywhere(group, resource, verb);
            for right in names.iter().map(|name| unnamed.clone().named(name)).chain([unnamed.clone()]) {
                let places = namespaces.iter().filter(|_| namespaced).map(|namespace| right.clone().within(namespace));
                questions.extend(places.chain([right.clone()]).map(Question::Object));
            }
        }
    }
    let root = ask(client, Method::GET, "/", None).await?;
    let paths: Vec<&str> = list(&root.body, "/paths").filter_map(Value::as_str).collect();
    ensure!(paths.contains(&"/metrics"), "the server does not list its paths: {}", root.body);
    for path in paths.into_iter().chain(PATHS.iter().copied()).chain(EVERYBODYS_PATHS.iter().map(|(path, _)| *path)) {
        let methods = METHODS.split_whitespace().map(str::to_owned);
        questions.extend(methods.map(|method| Question::Path { path: path.to_owned(), method }));
    }
    Ok(questions)
}

/// Where roles are bound to us, and for which names roles of whomever grant something: worth to be asked about.
struct Roles {
    namespaces: BTreeSet<String>,
    /// By group and resource.
    names: BTreeMap<(String, String), BTreeSet<String>>,
}

impl Roles {
    async fn read(client: &Client) -> Result<Self> {
        let get = async |plural: &str| {
            let answer = ask(client, Method::GET, &format!("/apis/{RBAC}/v1/{plural}"), None).await?;
            ensure!(answer.code == 200, "cannot list {plural}: {} {}", answer.code, answer.body);
            Ok(answer.body)
        };
        let (bindings, roles, cluster_roles) =
            (get("rolebindings").await?, get("roles").await?, get("clusterroles").await?);
        let is_ours = |subject: &Value| subject["kind"] != "User" && subject["namespace"] != names::KUBE_SYSTEM;
        let bindings = list(&bindings, "/items").filter(|binding| list(binding, "/subjects").any(is_ours));
        let namespaces = bindings.map(|binding| text(binding, "/metadata/namespace").to_owned()).collect();
        let mut of_names: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
        for rule in list(&roles, "/items").chain(list(&cluster_roles, "/items")).flat_map(|role| list(role, "/rules")) {
            let strings = |pointer| list(rule, pointer).filter_map(Value::as_str).map(str::to_owned);
            for group in strings("/apiGroups").filter(|_| rule["resourceNames"].is_array()) {
                for resource in strings("/resources") {
                    of_names.entry((group.clone(), resource)).or_default().extend(strings("/resourceNames"));
                }
            }
        }
        Ok(Self { namespaces, names: of_names })
    }
}

/// What accounts may do and do not declare, and the other way round.
async fn wrong_answers(client: &Client, accounts: &[Account], questions: &BTreeSet<Question>) -> Result<Vec<String>> {
    let mut open: Vec<(usize, &Question)> =
        (0..accounts.len()).flat_map(|index| questions.iter().map(move |question| (index, question))).collect();
    let mut deadline = None;
    loop {
        let wrong = disagreements(client, accounts, open).await?;
        // Rights are in force a little later than roles.
        let until = *deadline.get_or_insert_with(|| Instant::now() + PATIENCE);
        if wrong.is_empty() || Instant::now() > until {
            return Ok(told(accounts, &wrong));
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
        open = wrong.into_iter().collect();
    }
}

/// Those of the questions, with the accounts they are about, that are not answered as expected.
async fn disagreements<'a>(
    client: &Client,
    accounts: &[Account],
    questions: Vec<(usize, &'a Question)>,
) -> Result<BTreeSet<(usize, &'a Question)>> {
    let answered = futures::stream::iter(questions).map(async |(index, question)| {
        let account = &accounts[index];
        let allowed = is_allowed(client, account, question).await.with_context(|| question.to_string())?;
        anyhow::Ok((allowed != is_expected(account, question)).then_some((index, question)))
    });
    let wrong: Vec<Option<(usize, &Question)>> = answered.buffer_unordered(CONCURRENT).try_collect().await?;
    Ok(wrong.into_iter().flatten().collect())
}

/// Says what is wrong, but not in each namespace and for each name that which is wrong in general.
fn told(accounts: &[Account], wrong: &BTreeSet<(usize, &Question)>) -> Vec<String> {
    let is_implied = |index: usize, question: &Question| match question {
        Question::Object(right) => right.wider().any(|right| wrong.contains(&(index, &Question::Object(right)))),
        Question::Path { .. } => false,
    };
    let told = wrong.iter().filter(|(index, question)| !is_implied(*index, question)).map(|(index, question)| {
        let account = &accounts[*index];
        match is_expected(account, question) {
            true => format!("{} declares, but may not: {question}", account.name),
            false => format!("{} may, but does not declare: {question}", account.name),
        }
    });
    told.collect()
}

fn is_expected(account: &Account, question: &Question) -> bool {
    match question {
        Question::Object(right) => right.is_granted(&account.rights),
        Question::Path { path, method } => {
            let is_everybodys = |pattern: &str| match pattern.strip_suffix('*') {
                Some(start) => path.starts_with(start),
                None => path == pattern,
            };
            method == "get" && EVERYBODYS_PATHS.iter().any(|(pattern, _)| is_everybodys(pattern))
        }
    }
}

async fn is_allowed(client: &Client, account: &Account, question: &Question) -> Result<bool> {
    let namespace = names::NAMESPACE;
    let mut spec = json!({
        "user": names::user(account.name, namespace),
        "groups": ["system:serviceaccounts", format!("system:serviceaccounts:{namespace}"), "system:authenticated"],
    });
    match question {
        Question::Object(Right { group, resource, verb, namespace, name }) => {
            let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
            spec["resourceAttributes"] = json!({"group": group, "resource": resource, "subresource": subresource,
                "verb": verb, "namespace": namespace, "name": name});
        }
        Question::Path { path, method } => spec["nonResourceAttributes"] = json!({"path": path, "verb": method}),
    }
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec});
    let answer = ask(client, Method::POST, REVIEWS, Some(&review)).await?;
    let status = &answer.body["status"];
    match (&status["allowed"], &status["evaluationError"]) {
        (Value::Bool(allowed), Value::Null) => Ok(*allowed),
        _ => bail!("{} {}", answer.code, answer.body),
    }
}

/// RBAC cannot say "on its own node". Where virt-handler writes, either a policy says it, or there is a reason why not.
fn policies_restrict_what_virt_handler_writes() -> Result<()> {
    let Installation { managed, alone, programs, .. } = Installation::new();
    for objects in [managed, alone] {
        let unrestricted = UNRESTRICTED.iter().flat_map(|(verbs, group, resource, _)| rights(verbs, group, resource));
        let mut unrestricted: BTreeSet<Right> = unrestricted.collect();
        let writes = programs.handler.grants().into_iter().filter(|grant| grant.scope == Scope::Cluster).map(of_grant);
        let writes: Vec<Right> =
            writes.filter(|right| !matches!(right.verb.as_str(), "get" | "list" | "watch")).collect();
        ensure!(writes.iter().any(|right| right.resource == "nodes"), "virt-handler does not write its node");
        for right in &writes {
            let is_restricted = objects.iter().any(|policy| restricts(policy, right) && is_in_force(&objects, policy));
            match unrestricted.remove(right) {
                true => ensure!(!is_restricted, "a policy restricts {right}, which is told to be unrestricted"),
                false => ensure!(is_restricted, "virt-handler may {right} on all nodes: no policy restricts it"),
            }
        }
        ensure!(unrestricted.is_empty(), "virt-handler does not declare {unrestricted:?} any more");
    }
    Ok(())
}

/// Whether a policy looks at all that virt-handler does with a right, whatever the version it does it in.
fn restricts(policy: &Value, right: &Right) -> bool {
    let operation = match right.verb.as_str() {
        "create" => "CREATE",
        "update" | "patch" => "UPDATE",
        _ => "DELETE",
    };
    let has = |rule: &Value, pointer, wanted: &str| list(rule, pointer).any(|value| value == wanted);
    let handler = format!("request.userInfo.username == '{}'", names::user(names::account::HANDLER, names::NAMESPACE));
    policy["kind"] == "ValidatingAdmissionPolicy"
        && text(policy, "/spec/matchConstraints/matchPolicy") == "Equivalent"
        && list(policy, "/spec/matchConditions").all(|condition| condition["expression"] == handler.as_str())
        && list(policy, "/spec/matchConstraints/resourceRules").any(|rule| {
            has(rule, "/apiGroups", &right.group)
                && has(rule, "/resources", &right.resource)
                && has(rule, "/operations", operation)
                && rule["resourceNames"].is_null()
        })
        && ["namespaceSelector", "objectSelector", "excludeResourceRules"]
            .iter()
            .all(|narrower| policy["spec"]["matchConstraints"][narrower].is_null())
}

/// Whether what a policy does not let through, or cannot judge, is denied.
fn is_in_force(objects: &[Value], policy: &Value) -> bool {
    let binds = |binding: &Value| {
        binding["kind"] == "ValidatingAdmissionPolicyBinding"
            && binding["spec"]["policyName"] == policy["metadata"]["name"]
            && binding["spec"]["matchResources"].is_null()
            && list(binding, "/spec/validationActions").any(|action| action == "Deny")
    };
    policy["spec"]["failurePolicy"] == "Fail" && objects.iter().any(binds)
}

fn has_word(words: &str, word: &str) -> bool {
    words.split_whitespace().any(|each| each == word)
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn list<'a>(object: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    object.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}
