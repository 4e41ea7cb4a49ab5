//! Looks up the server's kinds by plural, singular or short name, or by `apiVersion` and `kind`.

use anyhow::Context as _;
use futures::future::try_join_all;
use http::Request;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIGroupList, APIResource, APIResourceList};
use kube::core::ApiResource;
use virtctl::api_error;
use virtctl::connect::Session;

use super::nearest::nearest;

/// A kind of the server with all of its names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ResourceType {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) kind: String,
    pub(crate) plural: String,
    pub(crate) singular: String,
    pub(crate) short_names: Vec<String>,
    pub(crate) categories: Vec<String>,
    pub(crate) namespaced: bool,
}

impl ResourceType {
    fn new(group_version: &str, resource: APIResource) -> Self {
        let (group, version) = split_group_version(group_version);
        ResourceType {
            group: resource.group.filter(|group| !group.is_empty()).unwrap_or_else(|| group.to_owned()),
            version: resource.version.filter(|version| !version.is_empty()).unwrap_or_else(|| version.to_owned()),
            singular: if resource.singular_name.is_empty() {
                resource.kind.to_lowercase()
            } else {
                resource.singular_name
            },
            kind: resource.kind,
            plural: resource.name,
            short_names: resource.short_names.unwrap_or_default(),
            categories: resource.categories.unwrap_or_default(),
            namespaced: resource.namespaced,
        }
    }

    /// `virtualmachine.kubevirt.io`, `pod`: an object's kind in kubectl's messages.
    pub(crate) fn singular_with_group(&self) -> String {
        with_group(&self.singular, &self.group)
    }

    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// The path of one object, or of the list.
    pub(crate) fn path(&self, namespace: Option<&str>, name: Option<&str>) -> String {
        let root = if self.group.is_empty() { "/api".to_owned() } else { format!("/apis/{}", self.group) };
        let mut path = format!("{root}/{}", self.version);
        if let Some(namespace) = namespace.filter(|_| self.namespaced) {
            path += &format!("/namespaces/{namespace}");
        }
        path += &format!("/{}", self.plural);
        if let Some(name) = name {
            path += &format!("/{name}");
        }
        path
    }

    /// A client for objects of the kind.
    pub(crate) fn objects(&self, session: &Session, namespace: &str) -> kube::Api<kube::core::DynamicObject> {
        let resource = ApiResource {
            group: self.group.clone(),
            version: self.version.clone(),
            api_version: self.api_version(),
            kind: self.kind.clone(),
            plural: self.plural.clone(),
        };
        if self.namespaced {
            kube::Api::namespaced_with(session.client.clone(), namespace, &resource)
        } else {
            kube::Api::all_with(session.client.clone(), &resource)
        }
    }

    /// Its names, without the group.
    fn names(&self) -> impl Iterator<Item = &str> {
        let long = [&self.plural, &self.singular, &self.kind];
        long.into_iter().chain(&self.short_names).map(String::as_str)
    }
}

/// Whether a word is one of the names of a kind, in any case and with or without the group.
pub(crate) fn is_called<'a>(word: &str, group: &str, mut names: impl Iterator<Item = &'a str>) -> bool {
    let word = word.to_lowercase();
    names.any(|name| {
        let name = name.to_lowercase();
        word == name || word == with_group(&name, group)
    })
}

fn with_group(name: &str, group: &str) -> String {
    if group.is_empty() { name.to_owned() } else { format!("{name}.{group}") }
}

fn split_group_version(group_version: &str) -> (&str, &str) {
    group_version.split_once('/').unwrap_or(("", group_version))
}

/// The kinds of the server.
pub(crate) struct Catalogue(Vec<ResourceType>);

impl Catalogue {
    /// Reads all groups, the core group first: it wins if a name is ambiguous, as in kubectl.
    pub(crate) async fn load(session: &Session) -> anyhow::Result<Self> {
        let groups: APIGroupList = get(session, "/apis").await?;
        let preferred = groups.groups.into_iter().filter_map(|group| {
            let version = group.preferred_version.or_else(|| group.versions.into_iter().next())?;
            Some(format!("/apis/{}", version.group_version))
        });
        let paths: Vec<String> = std::iter::once("/api/v1".to_owned()).chain(preferred).collect();
        let lists = try_join_all(paths.iter().map(|path| get::<APIResourceList>(session, path))).await?;
        Ok(Catalogue(lists.into_iter().flat_map(types).collect()))
    }

    /// The kinds in `names` (`vm`, `vm,vmi`, `all`).
    pub(crate) fn find(&self, names: &str) -> anyhow::Result<Vec<ResourceType>> {
        let mut found = Vec::new();
        for name in names.split(',').filter(|name| !name.is_empty()) {
            let called = |resource: &&ResourceType| is_called(name, &resource.group, resource.names());
            match self.0.iter().find(called) {
                Some(resource) => found.push(resource.clone()),
                None => {
                    let category = self.0.iter().filter(|resource| resource.categories.iter().any(|each| each == name));
                    let before = found.len();
                    found.extend(category.cloned());
                    anyhow::ensure!(found.len() > before, "the server has no kind {name:?}{}", self.hint(name));
                }
            }
        }
        anyhow::ensure!(!found.is_empty(), "no kind was named");
        Ok(found)
    }

    /// Suggestions for an unknown name.
    fn hint(&self, name: &str) -> String {
        let word = name.split('.').next().unwrap_or_default();
        let near = nearest(word, self.0.iter().flat_map(ResourceType::names));
        if near.is_empty() { String::new() } else { format!("; did you mean {}?", near.join(", ")) }
    }
}

/// The kind of a manifest, with a single request.
pub(crate) async fn by_kind(session: &Session, api_version: &str, kind: &str) -> anyhow::Result<ResourceType> {
    let path = if api_version.contains('/') { format!("/apis/{api_version}") } else { format!("/api/{api_version}") };
    let unknown = || format!("the server has no kind {kind} in {api_version}");
    let request = Request::get(&path).body(Vec::new()).with_context(unknown)?;
    let list: APIResourceList = match session.client.request(request).await {
        Err(kube::Error::Api(status)) if status.code == 404 => anyhow::bail!(unknown()),
        other => other.map_err(|error| api_error(error, &session.server))?,
    };
    types(list).find(|resource| resource.kind == kind).with_context(unknown)
}

fn types(list: APIResourceList) -> impl Iterator<Item = ResourceType> {
    let group_version = list.group_version;
    let resources = list.resources.into_iter().filter(|resource| !resource.name.contains('/'));
    resources.map(move |resource| ResourceType::new(&group_version, resource))
}

async fn get<T: serde::de::DeserializeOwned>(session: &Session, path: &str) -> anyhow::Result<T> {
    let request = Request::get(path).body(Vec::new())?;
    session
        .client
        .request(request)
        .await
        .map_err(|error| api_error(error, &session.server))
        .with_context(|| format!("cannot read {path}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn catalogue() -> Catalogue {
        let list = |value| types(serde_json::from_value::<APIResourceList>(value).unwrap()).collect::<Vec<_>>();
        let core = list(json!({"groupVersion": "v1", "resources": [
            {"name": "pods", "singularName": "pod", "kind": "Pod", "namespaced": true, "shortNames": ["po"], "verbs": [],
             "categories": ["all"]},
            {"name": "pods/log", "singularName": "", "kind": "Pod", "namespaced": true, "verbs": []},
            {"name": "events", "singularName": "event", "kind": "Event", "namespaced": true, "verbs": []}]}));
        let kubevirt = list(json!({"groupVersion": "kubevirt.io/v1", "resources": [
            {"name": "virtualmachines", "singularName": "virtualmachine", "kind": "VirtualMachine", "namespaced": true,
             "shortNames": ["vm", "vms"], "verbs": [], "categories": ["all"]}]}));
        let events = list(json!({"groupVersion": "events.k8s.io/v1", "resources": [
            {"name": "events", "singularName": "event", "kind": "Event", "namespaced": true, "verbs": []}]}));
        Catalogue([core, kubevirt, events].concat())
    }

    fn one(name: &str) -> ResourceType {
        catalogue().find(name).unwrap().remove(0)
    }

    #[test]
    fn kinds_are_found_by_every_name() {
        let cases = [
            ("vm", "/apis/kubevirt.io/v1/virtualmachines"),
            ("vms", "/apis/kubevirt.io/v1/virtualmachines"),
            ("VirtualMachine", "/apis/kubevirt.io/v1/virtualmachines"),
            ("virtualmachines.kubevirt.io", "/apis/kubevirt.io/v1/virtualmachines"),
            ("vm.kubevirt.io", "/apis/kubevirt.io/v1/virtualmachines"),
            ("po", "/api/v1/pods"),
            ("event", "/api/v1/events"),
            ("events.events.k8s.io", "/apis/events.k8s.io/v1/events"),
        ];
        for (name, want) in cases {
            assert_eq!(one(name).path(None, None), want, "{name}");
        }
        let kinds: Vec<String> = catalogue().find("all").unwrap().into_iter().map(|resource| resource.kind).collect();
        assert_eq!(kinds, ["Pod", "VirtualMachine"]);
        assert_eq!(catalogue().find("vm,po").unwrap().len(), 2);
        assert_eq!(catalogue().find("nothing").unwrap_err().to_string(), "the server has no kind \"nothing\"");
        let error = catalogue().find("vn").unwrap_err().to_string();
        assert!(error.starts_with("the server has no kind \"vn\"; did you mean vm"), "{error}");
    }

    #[test]
    fn paths_follow_group_and_scope() {
        let vm = one("vm");
        assert_eq!(vm.path(Some("a"), Some("b")), "/apis/kubevirt.io/v1/namespaces/a/virtualmachines/b");
        assert_eq!(vm.path(None, None), "/apis/kubevirt.io/v1/virtualmachines");
        let pod = one("pod");
        assert_eq!(pod.path(Some("a"), None), "/api/v1/namespaces/a/pods");
    }
}
