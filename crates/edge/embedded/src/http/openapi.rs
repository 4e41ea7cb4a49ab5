//! The schemas of our own kinds, and enough of OpenAPI for clients to leave field validation to the server.
//!
//! `kubectl` before about 1.24 validates against `/openapi/v2` in protobuf and skips kinds that are absent there, so an
//! empty document is enough. Newer versions look for a PATCH with the parameter `fieldValidation` in `/openapi/v3` and,
//! if they find it, leave validation to the server. The schemas are for `kubectl explain` and for editors.

use api::schema::{METADATA, metadata, published};
use axum::body::Body;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::{Map, Value, json};

use super::discovery::{VERSION, groups};
use super::negotiate::prefers;
use super::respond::{Answer, answer as respond, json_answer};
use crate::kinds::Definition;
use crate::views::Served;

/// The new and the old spelling of one media type. Clients request the old one, but Go's parser rejects its `@` in a
/// response.
const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
const OLD_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";

pub(super) fn paths() -> Vec<String> {
    let mut paths: Vec<String> = vec!["/openapi/v2".into(), "/openapi/v3".into()];
    for (group, versions) in groups() {
        paths.extend(versions.iter().map(|version| format!("/openapi/v3/{}", base(group, version))));
    }
    paths
}

pub(super) fn answer(path: &str, headers: &HeaderMap) -> Option<Answer> {
    let document = match path.strip_prefix("/openapi/")? {
        "v2" if prefers(headers, PROTOBUF) || prefers(headers, OLD_PROTOBUF) => {
            // An empty protobuf document is encoded as no bytes at all.
            return Some(respond(StatusCode::OK, HeaderValue::from_static(PROTOBUF), Body::empty()));
        }
        "v2" => json!({"swagger": "2.0", "info": info(), "paths": {}, "definitions": definitions()}),
        "v3" => index(),
        rest => group_version(rest.strip_prefix("v3/")?)?,
    };
    Some(json_answer(StatusCode::OK, document.to_string().into()))
}

fn info() -> Value {
    json!({"title": "Kubernetes", "version": VERSION})
}

fn index() -> Value {
    let mut paths = Map::new();
    for (group, versions) in groups() {
        for version in versions {
            let path = base(group, version);
            paths.insert(path.clone(), json!({"serverRelativeURL": format!("/openapi/v3/{path}?hash={VERSION}")}));
        }
    }
    json!({"paths": paths})
}

fn base(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

/// The document of one group version.
fn group_version(path: &str) -> Option<Value> {
    let groups = groups();
    let known = |(group, versions): (&&str, &Vec<&str>)| versions.iter().any(|version| base(group, version) == path);
    if !groups.iter().any(known) {
        return None;
    }
    let here = |served: &&Served| base(served.definition.group, served.definition.version) == path;
    let (mut paths, mut schemas) = (Map::new(), Map::new());
    for definition in Served::all().iter().filter(here).map(|served| served.definition) {
        let namespace = if definition.namespaced { "/namespaces/{namespace}" } else { "" };
        let url = format!("/{path}{namespace}/{}/{{name}}", definition.plural);
        paths.insert(url, operations(definition));
        if let Some(schema) = schema(definition, "#/components/schemas/") {
            schemas.insert(schema_name(definition), schema);
            schemas.entry(METADATA).or_insert_with(metadata);
        }
    }
    Some(json!({"openapi": "3.0.0", "info": info(), "paths": paths, "components": {"schemas": schemas}}))
}

/// All schemas in one document, as in OpenAPI v2.
fn definitions() -> Map<String, Value> {
    let mut definitions = Map::new();
    for definition in Served::all().iter().map(|served| served.definition) {
        if let Some(schema) = schema(definition, "#/definitions/") {
            definitions.insert(schema_name(definition), schema);
        }
    }
    definitions.insert(METADATA.to_owned(), metadata());
    definitions
}

/// The schema of one of our kinds; `root` is the document's path to its schemas.
fn schema(definition: &Definition, root: &str) -> Option<Value> {
    let mut schema = definition.is_ours().then(|| published(definition.kind, root)).flatten()?;
    schema["x-kubernetes-group-version-kind"] = json!([group_version_kind(definition)]);
    Some(schema)
}

fn group_version_kind(definition: &Definition) -> Value {
    json!({"group": definition.group, "version": definition.version, "kind": definition.kind})
}

/// `io.example.pool.v1beta1.Widget`.
fn schema_name(definition: &Definition) -> String {
    let group: Vec<&str> = definition.group.split('.').rev().collect();
    format!("{}.{}.{}", group.join("."), definition.version, definition.kind)
}

fn operations(definition: &Definition) -> Value {
    let parameter =
        |name: &str| json!({"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": true}});
    json!({
        "patch": {
            "x-kubernetes-action": "patch",
            "x-kubernetes-group-version-kind": group_version_kind(definition),
            "parameters": [parameter("dryRun"), parameter("fieldValidation")],
            "responses": {"200": {"description": "OK"}},
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::resources::RESOURCES;

    #[test]
    fn every_listed_document_exists_and_tells_of_every_kind_in_it() {
        let index = index();
        for path in index["paths"].as_object().unwrap().keys() {
            let document = group_version(path).unwrap_or_else(|| panic!("{path}"));
            let schemas = document["components"]["schemas"].as_object().unwrap();
            let (group, version) = path.trim_start_matches("apis/").split_once('/').unwrap();
            let here =
                RESOURCES.iter().filter(|resource| resource.group == group && resource.version(version).is_some());
            for resource in here {
                let namespace = if resource.namespaced { "/namespaces/{namespace}" } else { "" };
                let url = format!("/{path}{namespace}/{}/{{name}}", resource.plural);
                assert_eq!(document["paths"][&url]["patch"]["parameters"][1]["name"], "fieldValidation", "{url}");
                let kind = json!({"group": group, "version": version, "kind": resource.kind});
                let mine = schemas.values().find(|schema| schema["x-kubernetes-group-version-kind"][0] == kind);
                let mine = mine.unwrap_or_else(|| panic!("{kind} has no schema"));
                assert_eq!(mine["properties"]["spec"]["type"], "object", "{kind}");
                let reference = mine["properties"]["metadata"]["allOf"][0]["$ref"].as_str().unwrap();
                assert!(schemas.contains_key(reference.rsplit('/').next().unwrap()), "{reference}");
            }
        }
        assert!(group_version("apis/nothing.here/v1").is_none());
        let pools = Served::find("pool.kubevirt.io", "v1beta1", "virtualmachinepools").unwrap().definition;
        assert_eq!(schema_name(pools), "io.kubevirt.pool.v1beta1.VirtualMachinePool");
    }
}
