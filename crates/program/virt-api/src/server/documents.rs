//! What the aggregator and generic clients read before they ask for anything: root paths and OpenAPI documents.

use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Map, Value, json};

use crate::discovery::{self, GROUP, VERSIONS};

pub(crate) fn router() -> Router {
    let mut router = Router::new()
        .route("/", get(async || Json(roots())))
        .route("/apis", get(async || Json(groups())))
        .route("/openapi/v2", get(async || Json(openapi_v2())))
        .route("/openapi/v3", get(async || Json(openapi_v3_index())));
    for version in VERSIONS {
        let path = format!("/openapi/v3/apis/{GROUP}/{version}");
        router = router.route(&path, get(async move || Json(openapi_v3(version))));
    }
    router
}

fn roots() -> Value {
    let group = format!("/apis/{GROUP}");
    let versions = VERSIONS.iter().map(|version| format!("{group}/{version}"));
    let paths: Vec<String> = ["/apis", "/openapi/v2", "/openapi/v3"]
        .map(str::to_owned)
        .into_iter()
        .chain([group.clone()])
        .chain(versions)
        .collect();
    json!({ "paths": paths })
}

fn groups() -> Value {
    json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": [discovery::group()] })
}

/// The title and version of every document.
fn info() -> Value {
    json!({ "title": "KubeVirt subresource API", "version": VERSIONS[0] })
}

/// Paths of one version, with what both OpenAPI versions say in the same words.
fn paths(version: &str, parameter: impl Fn(&str) -> Value) -> Map<String, Value> {
    let base = format!("/apis/{GROUP}/{version}");
    let mut paths = Map::new();
    for (path, method) in discovery::operations() {
        let id: String = path.split(['/', '-']).filter(|part| !part.starts_with('{')).map(capitalized).collect();
        let operation = json!({
            "operationId": format!("{version}{id}"),
            "tags": [version],
            "responses": { "200": { "description": "OK" }, "401": { "description": "Unauthorized" } },
        });
        let parameters: Vec<Value> = ["namespace", "name"].map(&parameter).into();
        let item = json!({ method: operation, "parameters": parameters });
        paths.insert(format!("{base}/namespaces/{{namespace}}/{path}"), item);
    }
    paths
}

fn capitalized(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

fn openapi_v2() -> Value {
    let parameter =
        |name: &str| json!({ "name": name, "in": "path", "required": true, "type": "string", "uniqueItems": true });
    json!({ "swagger": "2.0", "info": info(), "paths": paths(VERSIONS[0], parameter) })
}

fn openapi_v3(version: &str) -> Value {
    let parameter =
        |name: &str| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } });
    json!({ "openapi": "3.0.0", "info": info(), "paths": paths(version, parameter) })
}

fn openapi_v3_index() -> Value {
    let entry = |version: &&str| {
        let path = format!("apis/{GROUP}/{version}");
        let address = json!({ "serverRelativeURL": format!("/openapi/v3/{path}") });
        (path, address)
    };
    json!({ "paths": VERSIONS.iter().map(entry).collect::<Map<_, _>>() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listed_operation_is_described_once() {
        let document = openapi_v3("v1");
        let described = document["paths"].as_object().unwrap();
        let listed = discovery::resources("v1")["resources"].as_array().unwrap().len();
        assert_eq!(described.len(), listed);
        let start = &described["/apis/subresources.kubevirt.io/v1/namespaces/{namespace}/virtualmachines/{name}/start"];
        assert_eq!(start["put"]["operationId"], "v1VirtualmachinesStart");
        let mut ids: Vec<&str> = described
            .values()
            .flat_map(|item| ["get", "put"].map(|method| item[method]["operationId"].as_str()))
            .flatten()
            .collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), listed, "an operation's ID stands for one operation");
    }
}
