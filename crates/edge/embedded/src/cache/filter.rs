//! Which objects of a kind a list or watch returns.

use machinery::selector::{FieldSelector, FieldTerm, Selector};

use super::Object;

/// Namespace, labels and fields; empty parts match everything.
#[derive(Debug, Clone, Default)]
pub(crate) struct Filter {
    namespace: Option<String>,
    labels: Selector,
    fields: FieldSelector,
}

impl Filter {
    /// An empty namespace means all namespaces.
    pub(crate) fn new(namespace: &str, labels: Selector, fields: FieldSelector) -> Self {
        let namespace = (!namespace.is_empty()).then(|| namespace.to_owned());
        Self { namespace, labels, fields }
    }

    pub(crate) fn in_namespace(namespace: &str) -> Self {
        Self::new(namespace, Selector::everything(), FieldSelector::default())
    }

    pub(crate) fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// Whether it selects by anything but the namespace.
    pub(crate) fn is_selective(&self) -> bool {
        !self.labels.is_empty() || !self.fields.is_empty()
    }

    pub(crate) fn matches(&self, object: &Object) -> bool {
        self.namespace().is_none_or(|namespace| namespace == object.name.namespace)
            && self.labels.matches(&object.labels)
            && self.fields.terms().iter().all(|term| term_holds(term, object))
    }
}

fn term_holds(term: &FieldTerm, object: &Object) -> bool {
    let value = match term.field.as_str() {
        "metadata.name" => object.name.name.as_str(),
        "metadata.namespace" => object.name.namespace.as_str(),
        field => object.fields.iter().find(|(name, _)| *name == field).map_or("", |(_, value)| value),
    };
    (value == term.value) == term.equal
}
