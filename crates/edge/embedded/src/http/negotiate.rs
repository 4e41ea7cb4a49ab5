//! Content negotiation of requests and responses.

use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_TYPE};

use crate::errors::ApiError;
use crate::registry::PatchType;

/// The form of an object in a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    Object,
    Table,
    /// Metadata only.
    Metadata,
}

/// One alternative of an `Accept` header.
struct Clause<'a> {
    media: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
}

impl Clause<'_> {
    fn get(&self, name: &str) -> &str {
        self.parameters.iter().find(|(key, _)| *key == name).map_or("", |(_, value)| value)
    }

    fn is_json(&self) -> bool {
        matches!(self.media, "application/json" | "application/*" | "*/*" | "")
    }
}

fn clauses(accept: &str) -> impl Iterator<Item = Clause<'_>> {
    accept.split(',').map(|clause| {
        let mut parts = clause.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default();
        Clause { media, parameters: parts.filter_map(|part| part.split_once('=')).collect() }
    })
}

fn accept(headers: &HeaderMap) -> &str {
    headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// The first supported form in the client's order.
pub(crate) fn shape(headers: &HeaderMap) -> Result<Shape, ApiError> {
    for clause in clauses(accept(headers)).filter(Clause::is_json) {
        match (clause.get("as"), clause.get("g"), clause.get("v")) {
            ("", _, _) => return Ok(Shape::Object),
            ("Table", "meta.k8s.io", "v1") => return Ok(Shape::Table),
            ("PartialObjectMetadata" | "PartialObjectMetadataList", "meta.k8s.io", "v1") => return Ok(Shape::Metadata),
            _ => {}
        }
    }
    Err(ApiError::NotAcceptable)
}

/// Whether the client supports aggregated discovery.
pub(crate) fn wants_aggregated_discovery(headers: &HeaderMap) -> bool {
    clauses(accept(headers)).any(|clause| {
        clause.media == "application/json"
            && (clause.get("g"), clause.get("v"), clause.get("as"))
                == ("apidiscovery.k8s.io", "v2", "APIGroupDiscoveryList")
    })
}

/// Whether the client prefers this media type to JSON.
pub(crate) fn prefers(headers: &HeaderMap, media: &str) -> bool {
    clauses(accept(headers)).next().is_some_and(|clause| clause.media == media)
}

/// Encoding of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    Json,
    Yaml,
    Protobuf,
}

fn content_type(headers: &HeaderMap) -> &str {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim()
}

pub(crate) fn encoding(headers: &HeaderMap) -> Result<Encoding, ApiError> {
    match content_type(headers) {
        "" | "application/json" => Ok(Encoding::Json),
        "application/yaml" | "application/x-yaml" | "text/yaml" => Ok(Encoding::Yaml),
        "application/vnd.kubernetes.protobuf" => Ok(Encoding::Protobuf),
        _ => Err(unsupported_body()),
    }
}

pub(crate) fn unsupported_body() -> ApiError {
    ApiError::UnsupportedMediaType(vec!["application/json", "application/yaml"])
}

/// The patch types a kind supports; lists of our own kinds have no merge keys, so they do not support strategic
/// patches.
pub(crate) fn patch_type(headers: &HeaderMap, strategic: bool) -> Result<PatchType, ApiError> {
    match content_type(headers) {
        "application/json-patch+json" => Ok(PatchType::Json),
        "application/merge-patch+json" => Ok(PatchType::Merge),
        "application/strategic-merge-patch+json" if strategic => Ok(PatchType::Strategic),
        _ => {
            let mut types = vec!["application/json-patch+json", "application/merge-patch+json"];
            if strategic {
                types.push("application/strategic-merge-patch+json");
            }
            Err(ApiError::UnsupportedMediaType(types))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: http::HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, value.parse().unwrap())])
    }

    #[test]
    fn the_first_known_form_wins() {
        let kubectl = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        let table = [
            ("", Some(Shape::Object)),
            ("*/*", Some(Shape::Object)),
            ("application/json", Some(Shape::Object)),
            ("application/vnd.kubernetes.protobuf,application/json", Some(Shape::Object)),
            (kubectl, Some(Shape::Table)),
            ("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", Some(Shape::Metadata)),
            ("application/json;as=Surprise;g=x;v=v1, application/json", Some(Shape::Object)),
            ("application/vnd.kubernetes.protobuf", None),
        ];
        for (accept, expected) in table {
            assert_eq!(shape(&headers(ACCEPT, accept)).ok(), expected, "{accept}");
        }
        assert_eq!(shape(&HeaderMap::new()).ok(), Some(Shape::Object));
    }

    #[test]
    fn aggregated_discovery_is_asked_for_by_name() {
        let new = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
        assert!(wants_aggregated_discovery(&headers(ACCEPT, new)));
        let old = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";
        assert!(!wants_aggregated_discovery(&headers(ACCEPT, old)));
    }

    #[test]
    fn patch_types_by_content_type() {
        let of = |value, strategic| patch_type(&headers(CONTENT_TYPE, value), strategic).ok();
        assert_eq!(of("application/merge-patch+json", false), Some(PatchType::Merge));
        assert_eq!(of("application/json-patch+json; charset=utf-8", false), Some(PatchType::Json));
        assert_eq!(of("application/strategic-merge-patch+json", true), Some(PatchType::Strategic));
        assert_eq!(of("application/strategic-merge-patch+json", false), None);
        assert_eq!(of("application/apply-patch+yaml", true), None);
    }
}
