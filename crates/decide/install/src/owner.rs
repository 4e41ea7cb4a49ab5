//! Whose an object is. KubeVirt's objects have the names and labels of ours, and must survive our removal.

use serde_json::Value;

use crate::names::{HASH, INSTALLATION_LABEL};

/// Whose an object is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Ferrovirt's installation in this namespace.
    Installation(String),
    /// Ferrovirt's, applied by a version that did not say the namespace.
    Ferrovirt,
    /// Another KubeVirt's, or anybody's.
    Other,
}

impl Owner {
    /// By the object's metadata.
    pub fn of(object: &Value) -> Self {
        let metadata = &object["metadata"];
        match metadata["labels"][INSTALLATION_LABEL].as_str() {
            Some(namespace) => Self::Installation(namespace.to_owned()),
            None if metadata["annotations"][HASH].is_string() => Self::Ferrovirt,
            None => Self::Other,
        }
    }

    /// Whether the installation in this namespace may change and delete the object.
    pub fn is_in(&self, namespace: &str) -> bool {
        match self {
            Self::Installation(installation) => installation == namespace,
            Self::Ferrovirt => true,
            Self::Other => false,
        }
    }

    /// Why the installation in this namespace must not be removed, given whose an object of its names is, and what to do.
    pub fn refusal(&self, object: &str, namespace: &str) -> Option<String> {
        match self {
            _ if self.is_in(namespace) => None,
            Self::Installation(other) => {
                Some(format!("{object} belongs to the installation in namespace {other}; pass --namespace {other}"))
            }
            Self::Ferrovirt | Self::Other => Some(format!(
                "{object} is not Ferrovirt's: it has no label {INSTALLATION_LABEL}. If it is another KubeVirt's, remove that \
                 as its own documentation says. If it is of an earlier version of Ferrovirt, update it first: ferrovirt \
                 install --namespace {namespace} | kubectl apply -f -"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_marker_tells_our_objects_from_kubevirts() {
        let of_kubevirt = json!({"app.kubernetes.io/managed-by": "virt-operator", "kubevirt.io": "virt-operator"});
        let table = [
            // Labels and annotations, whose it is, whether an installation in `here` owns it, and what the refusal says.
            (json!({INSTALLATION_LABEL: "here"}), json!({}), Owner::Installation("here".to_owned()), true, ""),
            (
                json!({INSTALLATION_LABEL: "there"}),
                json!({HASH: "x"}),
                Owner::Installation("there".to_owned()),
                false,
                "pass --namespace there",
            ),
            (of_kubevirt.clone(), json!({HASH: "x"}), Owner::Ferrovirt, true, ""),
            (of_kubevirt, json!({}), Owner::Other, false, "it has no label ferrovirt.io/installation"),
            (Value::Null, Value::Null, Owner::Other, false, "remove that as its own documentation says"),
        ];
        for (labels, annotations, owner, is_in, refusal) in table {
            let object = json!({"metadata": {"labels": labels, "annotations": annotations}});
            let found = Owner::of(&object);
            assert_eq!((&found, found.is_in("here")), (&owner, is_in), "{object}");
            let said = found.refusal("Deployment here/virt-operator", "here").unwrap_or_default();
            assert!(said.is_empty() == is_in && said.contains(refusal), "{object}: {said}");
        }
    }
}
