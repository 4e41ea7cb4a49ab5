//! Discovery, in both the aggregated and the unaggregated form.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::LazyLock;

use api::resources::maturity;
use axum::body::Body;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::{Value, json};

use super::negotiate::wants_aggregated_discovery;
use super::path::SUBRESOURCES;
use super::respond::{Answer, answer as respond, json_answer};
use super::{REVIEWS, openapi};
use crate::kinds::{Definition, api_version};
use crate::views::Served;

/// The Kubernetes release whose behaviour this server follows.
pub(super) const VERSION: &str = "v1.34.0+ferrovirt";

const VERBS: &[&str] = &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
const READ_VERBS: &[&str] = &["get", "list", "watch"];
const REQUEST_VERBS: &[&str] = &["create"];
const STATUS_VERBS: &[&str] = &["get", "patch", "update"];

/// A path below a resource.
struct Subresource {
    name: &'static str,
    kind: &'static str,
    /// Group and version of its responses, if different from the resource's.
    group_version: Option<(&'static str, &'static str)>,
    verbs: &'static [&'static str],
}

/// A resource in a group version.
struct Resource {
    group: &'static str,
    version: &'static str,
    plural: &'static str,
    singular: &'static str,
    kind: &'static str,
    namespaced: bool,
    verbs: &'static [&'static str],
    short_names: &'static [&'static str],
    categories: &'static [&'static str],
    subresources: Vec<Subresource>,
}

static RESOURCES: LazyLock<Vec<Resource>> = LazyLock::new(|| {
    let kinds = Served::all().iter().map(|served| of_kind(served.definition));
    let reviews =
        [("selfsubjectaccessreviews", "SelfSubjectAccessReview"), ("subjectaccessreviews", "SubjectAccessReview")];
    let reviews = reviews.into_iter().map(|(plural, kind)| Resource {
        group: REVIEWS,
        version: "v1",
        plural,
        singular: "",
        kind,
        namespaced: false,
        verbs: &["create"],
        short_names: &[],
        categories: &[],
        subresources: vec![],
    });
    kinds.chain(reviews).collect()
});

fn of_kind(definition: &'static Definition) -> Resource {
    let mut subresources = vec![];
    let mut add = |name, kind, verbs, group_version| {
        subresources.push(Subresource { name, kind, group_version, verbs });
    };
    if definition.status {
        add("status", definition.kind, if definition.writable { STATUS_VERBS } else { &["get"] }, None);
    }
    if definition.scale.is_some() {
        add("scale", "Scale", STATUS_VERBS, Some(("autoscaling", "v1")));
    }
    match definition.plural {
        "pods" => {
            add("binding", "Binding", &["create"], None);
            add("eviction", "Eviction", &["create"], Some(("policy", "v1")));
        }
        "namespaces" => add("finalize", "Namespace", &["update"], None),
        _ => {}
    }
    Resource {
        group: definition.group,
        version: definition.version,
        plural: definition.plural,
        singular: definition.singular,
        kind: definition.kind,
        namespaced: definition.namespaced,
        verbs: match (definition.stored, definition.writable) {
            (false, _) => REQUEST_VERBS,
            (true, true) => VERBS,
            (true, false) => READ_VERBS,
        },
        short_names: definition.short_names,
        categories: definition.categories,
        subresources,
    }
}

/// All groups with their versions, preferred one first.
pub(super) fn groups() -> BTreeMap<&'static str, Vec<&'static str>> {
    let mut groups: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for resource in RESOURCES.iter() {
        let versions = groups.entry(resource.group).or_default();
        if !versions.contains(&resource.version) {
            versions.push(resource.version);
        }
    }
    for versions in groups.values_mut() {
        versions.sort_by_key(|version| Reverse(maturity(version)));
    }
    groups
}

/// `subresources` are the resource lists of the aggregated group, by version.
pub(super) fn answer(path: &str, headers: &HeaderMap, subresources: &[(String, Value)]) -> Option<Answer> {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let aggregated = wants_aggregated_discovery(headers);
    let document = match parts.as_slice() {
        [""] => json!({"paths": root_paths()}),
        ["version"] => version(),
        ["api"] if aggregated => return Some(aggregated_answer(aggregated_groups(|group| group.is_empty()))),
        ["apis"] if aggregated => {
            let mut groups = aggregated_groups(|group| !group.is_empty());
            groups.extend(aggregated_subresources(subresources));
            return Some(aggregated_answer(groups));
        }
        ["api"] => json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}),
        ["apis"] => json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": group_list(subresources)}),
        ["api", version] => resource_list("", version)?,
        ["apis", group] => group_document(group)?,
        ["apis", group, version] => resource_list(group, version)?,
        _ => return None,
    };
    Some(json_answer(StatusCode::OK, document.to_string().into()))
}

fn root_paths() -> Vec<String> {
    let mut paths: Vec<String> = ["/api", "/api/v1", "/apis"].map(Into::into).into();
    for (group, versions) in groups().into_iter().filter(|(group, _)| !group.is_empty()) {
        paths.push(format!("/apis/{group}"));
        paths.extend(versions.iter().map(|version| format!("/apis/{group}/{version}")));
    }
    paths.extend(["/healthz", "/livez", "/readyz"].map(Into::into));
    paths.extend(openapi::paths());
    paths.push("/version".into());
    paths
}

fn version() -> Value {
    json!({
        "major": "1",
        "minor": "34",
        "gitVersion": VERSION,
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "rustc",
        "platform": format!("linux/{}", if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" }),
    })
}

fn group_list(subresources: &[(String, Value)]) -> Vec<Value> {
    let named = groups().into_iter().filter(|(group, _)| !group.is_empty());
    let mut list: Vec<Value> = named.map(|(group, versions)| group_entry(group, &versions)).collect();
    if !subresources.is_empty() {
        let versions: Vec<&str> = subresources.iter().map(|(version, _)| version.as_str()).collect();
        list.push(group_entry(SUBRESOURCES, &versions));
    }
    list
}

fn group_entry(group: &str, versions: &[&str]) -> Value {
    let entry = |version: &str| json!({"groupVersion": api_version(group, version), "version": version});
    let versions: Vec<Value> = versions.iter().map(|version| entry(version)).collect();
    json!({"name": group, "versions": versions, "preferredVersion": versions.first()})
}

fn group_document(group: &str) -> Option<Value> {
    let groups = groups();
    let (group, versions) = groups.get_key_value(group).filter(|(group, _)| !group.is_empty())?;
    let mut document = group_entry(group, versions);
    document["kind"] = json!("APIGroup");
    document["apiVersion"] = json!("v1");
    Some(document)
}

fn resource_list(group: &str, version: &str) -> Option<Value> {
    let mut entries = vec![];
    let here = |resource: &&Resource| resource.group == group && resource.version == version;
    for resource in RESOURCES.iter().filter(here) {
        let mut entry = json!({
            "name": resource.plural,
            "singularName": resource.singular,
            "namespaced": resource.namespaced,
            "kind": resource.kind,
            "verbs": resource.verbs,
        });
        for (name, list) in [("shortNames", resource.short_names), ("categories", resource.categories)] {
            if !list.is_empty() {
                entry[name] = json!(list);
            }
        }
        entries.push(entry);
        entries.extend(resource.subresources.iter().map(|subresource| {
            let mut entry = json!({
                "name": format!("{}/{}", resource.plural, subresource.name),
                "singularName": "",
                "namespaced": resource.namespaced,
                "kind": subresource.kind,
                "verbs": subresource.verbs,
            });
            if let Some((group, version)) = subresource.group_version {
                entry["group"] = json!(group);
                entry["version"] = json!(version);
            }
            entry
        }));
    }
    if entries.is_empty() {
        return None;
    }
    let group_version = api_version(group, version);
    Some(json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": entries}))
}

fn aggregated_groups(wanted: impl Fn(&str) -> bool) -> Vec<Value> {
    groups()
        .into_iter()
        .filter(|(group, _)| wanted(group))
        .map(|(group, versions)| {
            let versions: Vec<Value> = versions.iter().map(|version| aggregated_version(group, version)).collect();
            aggregated_group(group, &versions)
        })
        .collect()
}

fn aggregated_group(group: &str, versions: &[Value]) -> Value {
    json!({"metadata": {"name": group}, "versions": versions})
}

/// The plain lists name `parent/child`; here a child is part of its parent.
fn aggregated_subresources(lists: &[(String, Value)]) -> Option<Value> {
    let response_kind = |version: &str| json!({"group": SUBRESOURCES, "version": version, "kind": ""});
    let mut versions = vec![];
    for (version, list) in lists {
        let mut parents: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
        for name in list["resources"].as_array().into_iter().flatten().filter_map(|entry| entry["name"].as_str()) {
            let (parent, child) = name.split_once('/').unwrap_or((name, ""));
            let children = parents.entry(parent).or_default();
            if !child.is_empty() {
                children.push(json!({"subresource": child, "responseKind": response_kind(version), "verbs": []}));
            }
        }
        let resources: Vec<Value> = parents
            .into_iter()
            .map(|(name, children)| {
                json!({
                    "resource": name,
                    "responseKind": response_kind(version),
                    "scope": "Namespaced",
                    "singularResource": "",
                    "verbs": [],
                    "subresources": children,
                })
            })
            .collect();
        versions.push(json!({"version": version, "resources": resources, "freshness": "Current"}));
    }
    (!versions.is_empty()).then(|| aggregated_group(SUBRESOURCES, &versions))
}

fn aggregated_version(group: &str, version: &str) -> Value {
    let response_kind = |kind: &str, of: Option<(&str, &str)>| {
        let (group, version) = of.unwrap_or((group, version));
        json!({"group": group, "version": version, "kind": kind})
    };
    let here = |resource: &&Resource| resource.group == group && resource.version == version;
    let resources: Vec<Value> = RESOURCES
        .iter()
        .filter(here)
        .map(|resource| {
            let subresources: Vec<Value> = resource
                .subresources
                .iter()
                .map(|subresource| {
                    json!({
                        "subresource": subresource.name,
                        "responseKind": response_kind(subresource.kind, subresource.group_version),
                        "verbs": subresource.verbs,
                    })
                })
                .collect();
            json!({
                "resource": resource.plural,
                "responseKind": response_kind(resource.kind, None),
                "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
                "singularResource": resource.singular,
                "verbs": resource.verbs,
                "shortNames": resource.short_names,
                "categories": resource.categories,
                "subresources": subresources,
            })
        })
        .collect();
    json!({"version": version, "resources": resources, "freshness": "Current"})
}

fn aggregated_answer(groups: Vec<Value>) -> Answer {
    let document = json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": groups,
    });
    let content_type = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    respond(StatusCode::OK, HeaderValue::from_static(content_type), Body::from(document.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_group_has_its_documents() {
        for (group, versions) in groups() {
            for version in versions {
                let list = resource_list(group, version).unwrap_or_else(|| panic!("{group}/{version} lists nothing"));
                assert!(!list["resources"].as_array().unwrap().is_empty());
            }
        }
        assert!(resource_list("nothing.here", "v1").is_none());
        assert!(group_document("nothing.here").is_none());
        assert_eq!(group_document("kubevirt.io").unwrap()["preferredVersion"]["groupVersion"], "kubevirt.io/v1");
    }

    #[test]
    fn the_most_mature_version_is_preferred() {
        let groups = groups();
        assert_eq!(groups["kubevirt.io"], ["v1", "v1alpha3"]);
        assert_eq!(groups["pool.kubevirt.io"], ["v1beta1", "v1alpha1"]);
        assert_eq!(groups["export.kubevirt.io"], ["v1", "v1beta1"]);
    }

    #[test]
    fn a_scale_is_announced_with_its_own_group() {
        let list = resource_list("pool.kubevirt.io", "v1alpha1").unwrap();
        let scale = &list["resources"][2];
        assert_eq!(scale["name"], "virtualmachinepools/scale");
        assert_eq!((&scale["group"], &scale["kind"]), (&json!("autoscaling"), &json!("Scale")));
        let aggregated = aggregated_version("pool.kubevirt.io", "v1alpha1");
        let scale = &aggregated["resources"][0]["subresources"][1];
        assert_eq!(scale["responseKind"], json!({"group": "autoscaling", "version": "v1", "kind": "Scale"}));
    }

    #[test]
    fn subresources_become_parts_of_their_parents() {
        let list = json!({"resources": [{"name": "expand-vm-spec"}, {"name": "virtualmachines/start"}, {"name": "virtualmachines/stop"}]});
        let group = aggregated_subresources(&[("v1".into(), list)]).unwrap();
        let resources = group["versions"][0]["resources"].as_array().unwrap();
        let names: Vec<&str> = resources.iter().map(|resource| resource["resource"].as_str().unwrap()).collect();
        assert_eq!(names, ["expand-vm-spec", "virtualmachines"]);
        assert_eq!(resources[1]["subresources"][1]["subresource"], "stop");
        assert_eq!(aggregated_subresources(&[]), None);
    }
}
