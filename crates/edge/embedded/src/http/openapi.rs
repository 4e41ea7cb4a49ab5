//! As much of OpenAPI as clients need to know that the server checks fields itself.
//!
//! `kubectl` before 1.24 or so validates against `/openapi/v2`, read as protobuf; kinds that are absent there it lets
//! pass, so an empty document is enough. Newer ones look in `/openapi/v3` for a PATCH with the parameter
//! `fieldValidation`, and when they find it leave the checking to the server. The schemas of our own kinds are there for
//! `kubectl explain`.

use axum::body::Body;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::{Map, Value, json};

use super::discovery::{VERSION, groups};
use super::negotiate::prefers;
use super::respond::{Answer, answer as respond, json_answer};
use crate::views::Served;

/// Two spellings of one media type, new and old. The old one is asked for, but its `@` makes Go's parser reject it in an
/// answer.
const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
const OLD_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";

pub(super) fn paths() -> Vec<String> {
    vec!["/openapi/v2".into(), "/openapi/v3".into()]
}

pub(super) fn answer(path: &str, headers: &HeaderMap) -> Option<Answer> {
    let document = match path.strip_prefix("/openapi/")? {
        "v2" if prefers(headers, PROTOBUF) || prefers(headers, OLD_PROTOBUF) => {
            // The encoding of a document in which every field is absent is no bytes at all.
            return Some(respond(StatusCode::OK, HeaderValue::from_static(PROTOBUF), Body::empty()));
        }
        "v2" => json!({"swagger": "2.0", "info": info(), "paths": {}, "definitions": {}}),
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

fn group_version(path: &str) -> Option<Value> {
    let groups = groups();
    let known = |(group, versions): (&&str, &Vec<&str>)| versions.iter().any(|version| base(group, version) == path);
    if !groups.iter().any(known) {
        return None;
    }
    let (mut paths, mut schemas) = (Map::new(), Map::new());
    for served in Served::all() {
        let definition = served.definition;
        if base(definition.group, definition.version) != path {
            continue;
        }
        let namespace = if definition.namespaced { "/namespaces/{namespace}" } else { "" };
        let url = format!("/{path}{namespace}/{}/{{name}}", definition.plural);
        let kind = json!({"group": definition.group, "version": definition.version, "kind": definition.kind});
        if definition.group == api::v1::GROUP
            && let Some(mut schema) = api::schema::openapi(definition.kind)
        {
            schema["x-kubernetes-group-version-kind"] = json!([kind]);
            schemas.insert(format!("io.kubevirt.{}.{}", definition.version, definition.kind), schema);
        }
        let operation = json!({
            "patch": {
                "x-kubernetes-action": "patch",
                "x-kubernetes-group-version-kind": kind,
                "parameters": [
                    {"name": "dryRun", "in": "query", "schema": {"type": "string", "uniqueItems": true}},
                    {"name": "fieldValidation", "in": "query", "schema": {"type": "string", "uniqueItems": true}},
                ],
                "responses": {"200": {"description": "OK"}},
            },
        });
        paths.insert(url, operation);
    }
    Some(json!({"openapi": "3.0.0", "info": info(), "paths": paths, "components": {"schemas": schemas}}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listed_document_exists_and_announces_field_validation() {
        let index = index();
        for path in index["paths"].as_object().unwrap().keys() {
            assert!(group_version(path).is_some(), "{path}");
        }
        let document = group_version("apis/kubevirt.io/v1").unwrap();
        let patch = &document["paths"]["/apis/kubevirt.io/v1/namespaces/{namespace}/virtualmachines/{name}"]["patch"];
        assert_eq!(patch["parameters"][1]["name"], "fieldValidation");
        assert!(group_version("apis/nothing.here/v1").is_none());
    }
}
