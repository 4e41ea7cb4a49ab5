//! Whether new guests may come to the node, and how its labels change.

use std::collections::BTreeMap;

use api::labels;
use serde_json::{Map, Value, json};

/// Whether new guests may come to the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    Ready,
    /// The kubelet does not know all devices: either nobody has been ready here, or it has restarted.
    NotYet,
    Withdrawn,
}

/// Label prefixes managed here: labels that are not set again are removed.
const OWN: [&str; 4] = [
    labels::MACHINE_TYPE_PREFIX,
    labels::HOST_MODEL_CPU_PREFIX,
    labels::CPU_MODEL_MIGRATION_PREFIX,
    labels::CPU_VENDOR_PREFIX,
];

/// Changes to the labels that a node had before, for a merge patch; with the capabilities that it has now.
pub fn changes(offer: Offer, abilities: &[String], before: &BTreeMap<String, String>) -> Map<String, Value> {
    // Only once all are known: a restarting node keeps its labels.
    let mut changes = if offer == Offer::Ready { ability_labels(abilities, before) } else { Map::new() };
    if let Some(label) = offer.label(before.contains_key(labels::SCHEDULABLE)) {
        changes.insert(labels::SCHEDULABLE.to_owned(), json!(label));
    }
    changes
}

impl Offer {
    /// What the label `schedulable` becomes, if it changes. Launcher Pods select nodes by it, and a kubelet that restarts
    /// looks at the label anew and ends Pods that would not be scheduled to it any more. So only who leaves takes it back.
    /// Until the kubelet knows the devices again, nothing comes here either: the node has none to allocate.
    fn label(self, is_labelled: bool) -> Option<&'static str> {
        match self {
            Offer::Ready => Some("true"),
            Offer::NotYet => (!is_labelled).then_some("false"),
            Offer::Withdrawn => Some("false"),
        }
    }
}

/// Changes to the capability labels: those added, and those removed, for example with an older QEMU.
fn ability_labels(abilities: &[String], before: &BTreeMap<String, String>) -> Map<String, Value> {
    let came = abilities.iter().filter(|label| before.get(*label).map(String::as_str) != Some("true"));
    let known = before.keys().filter(|label| OWN.iter().any(|own| label.starts_with(own)));
    let gone = known.filter(|label| !abilities.contains(label));
    came.map(|label| (label.clone(), json!("true"))).chain(gone.map(|label| (label.clone(), Value::Null))).collect()
}

#[cfg(test)]
mod tests {
    use super::Offer::{NotYet, Ready, Withdrawn};
    use super::*;

    #[test]
    fn only_who_leaves_takes_the_label_back() {
        assert_eq!([true, false].map(|is_labelled| NotYet.label(is_labelled)), [None, Some("false")]);
        assert_eq!([Ready, Withdrawn].map(|offer| offer.label(true)), [Some("true"), Some("false")]);
    }

    #[test]
    fn labels_of_an_older_qemu_go_once_the_new_ones_are_known() {
        let label = |name: &str| format!("{}{name}", labels::MACHINE_TYPE_PREFIX);
        let before = ["pc-q35-6.2", "q35"].map(|name| (label(name), "true".to_owned()));
        let before = before.into_iter().chain([("zone".to_owned(), "a".to_owned())]).collect();
        let now = ["q35", "pc-q35-7.2"].map(label);
        let expected = json!({label("pc-q35-6.2"): null, label("pc-q35-7.2"): "true", labels::SCHEDULABLE: "true"});
        assert_eq!(Value::Object(changes(Ready, &now, &before)), expected);
        assert_eq!(Value::Object(changes(NotYet, &[], &before)), json!({labels::SCHEDULABLE: "false"}));
    }
}
