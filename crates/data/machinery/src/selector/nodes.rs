//! Selectors of nodes by labels and by name: the node affinity of Pods and of volumes.

use k8s_openapi::api::core::v1::{Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};

use super::Labels;

/// Whether a term of the selector matches the node.
pub fn selects_node(selector: &NodeSelector, node: &Node) -> bool {
    selector.node_selector_terms.iter().any(|term| term_matches(term, node))
}

/// A term without requirements selects nothing.
fn term_matches(term: &NodeSelectorTerm, node: &Node) -> bool {
    let empty = Labels::new();
    let labels = node.metadata.labels.as_ref().unwrap_or(&empty);
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    let name = node.metadata.name.as_deref();
    let by_name = |field: &NodeSelectorRequirement| field.key == "metadata.name" && requirement_matches(field, name);
    !(expressions.is_empty() && fields.is_empty())
        && expressions.iter().all(|it| requirement_matches(it, labels.get(&it.key).map(String::as_str)))
        && fields.iter().all(by_name)
}

fn requirement_matches(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let listed = value.is_some_and(|value| values.iter().any(|wanted| wanted == value));
    let compare = |holds: fn(i64, i64) -> bool| {
        let own = value.and_then(|value| value.parse::<i64>().ok());
        let bound = values.first().and_then(|value| value.parse::<i64>().ok());
        own.zip(bound).is_some_and(|(own, bound)| holds(own, bound))
    };
    match requirement.operator.as_str() {
        "In" => listed,
        "NotIn" => !listed,
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compare(|own, bound| own > bound),
        "Lt" => compare(|own, bound| own < bound),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_node_is_selected_by_its_labels_and_its_name() {
        let node: Node =
            serde_json::from_value(json!({"metadata": {"name": "n1", "labels": {"zone": "a", "slots": "7"}}})).unwrap();
        let by = |part: &str, key: &str, operator: &str, values: Value| json!({"nodeSelectorTerms": [{part: [{"key": key, "operator": operator, "values": values}]}]});
        for (selector, matches) in [
            (by("matchExpressions", "zone", "In", json!(["b", "a"])), true),
            (by("matchExpressions", "zone", "NotIn", json!(["a"])), false),
            (by("matchExpressions", "zone", "Exists", json!(null)), true),
            (by("matchExpressions", "other", "DoesNotExist", json!(null)), true),
            (by("matchExpressions", "slots", "Gt", json!(["6"])), true),
            (by("matchExpressions", "slots", "Lt", json!(["6"])), false),
            (by("matchExpressions", "zone", "Gt", json!(["6"])), false),
            (by("matchExpressions", "zone", "Near", json!(["a"])), false),
            (by("matchFields", "metadata.name", "In", json!(["n1"])), true),
            (by("matchFields", "metadata.name", "In", json!(["n2"])), false),
            (by("matchFields", "spec.x", "In", json!(["n1"])), false),
            (json!({"nodeSelectorTerms": []}), false),
            (json!({"nodeSelectorTerms": [{}]}), false),
        ] {
            let parsed: NodeSelector = serde_json::from_value(selector.clone()).unwrap();
            assert_eq!(selects_node(&parsed, &node), matches, "{selector}");
        }
    }
}
