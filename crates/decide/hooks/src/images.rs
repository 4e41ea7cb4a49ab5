//! Pins the image volumes of new Pods by digest: a migrated guest must find the same files on its target, even if the
//! image's tag was moved meanwhile.

use review::{Operation, Phase, Rule};
use serde_json::{Value, json};

/// Applies to new Pods. Not in KubeVirt: kubelets resolve an image once per node.
pub const PIN_RULES: &[Rule] = &[Rule {
    name: "image-pinner.ferrovirt.io",
    phase: Phase::Mutating,
    group: "",
    resource: "pods",
    subresource: "",
    operations: &[Operation::Create],
}];

/// The Pod with its image volumes pinned to the digests known to `pinned`; `None` if there is nothing to change.
pub fn pin_images(pod: &Value, pinned: impl Fn(&str) -> Option<String>) -> Option<Value> {
    let volumes = pod["spec"]["volumes"].as_array()?;
    let references: Vec<(usize, String)> = volumes
        .iter()
        .enumerate()
        .filter_map(|(index, volume)| Some((index, pinned(volume["image"]["reference"].as_str()?)?)))
        .collect();
    if references.is_empty() {
        return None;
    }
    let mut changed = pod.clone();
    for (index, reference) in references {
        changed["spec"]["volumes"][index]["image"]["reference"] = json!(reference);
    }
    Some(changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_image_volumes_with_a_known_digest_change() {
        let pinned = |reference: &str| (reference == "a").then(|| "a@sha256:1".to_owned());
        let pod = |first: &str| {
            json!({"spec": {"volumes": [
                {"name": "x", "image": {"reference": first}},
                {"name": "y", "image": {"reference": "b"}},
                {"name": "z", "emptyDir": {}},
            ]}})
        };
        assert_eq!(pin_images(&pod("a"), pinned), Some(pod("a@sha256:1")));
        assert_eq!(pin_images(&pod("c"), pinned), None);
        assert_eq!(pin_images(&json!({"spec": {}}), pinned), None);
    }
}
