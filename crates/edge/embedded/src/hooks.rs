//! The admission hooks of the server, indexed by kind.

use std::sync::Arc;

use review::{Hook, Objects, Operation, Rule};
use serde_json::Value;

use crate::cache::{Cache, Object, ObjectName};
use crate::kinds::{KindId, Kinds};

/// A hook and its rules for one kind.
struct Interest {
    hook: Arc<dyn Hook>,
    rules: Vec<Rule>,
}

/// All hooks by the kind that is written. Kinds without hooks cost nothing.
pub(crate) struct Hooks {
    by_kind: Vec<Vec<Interest>>,
}

impl Hooks {
    pub(crate) fn new(kinds: &'static Kinds, hooks: &[Arc<dyn Hook>]) -> Self {
        let interests = |kind: KindId| {
            let definition = kinds.definition(kind);
            let interest = |hook: &Arc<dyn Hook>| {
                let about = |rule: &&Rule| rule.is_about(definition.group, definition.plural);
                let rules: Vec<Rule> = hook.rules().iter().filter(about).copied().collect();
                (!rules.is_empty()).then(|| Interest { hook: hook.clone(), rules })
            };
            hooks.iter().filter_map(interest).collect()
        };
        Self { by_kind: kinds.ids().map(interests).collect() }
    }

    /// The hooks for a write, in the order in which they were registered.
    pub(crate) fn about<'a>(
        &'a self,
        kind: KindId,
        operation: Operation,
        subresource: &'a str,
    ) -> impl Iterator<Item = &'a dyn Hook> {
        let covers = move |interest: &&Interest| interest.rules.iter().any(|rule| rule.covers(operation, subresource));
        self.by_kind[kind].iter().filter(covers).map(|interest| interest.hook.as_ref())
    }
}

/// Hooks read the current cache without locking it: controllers have to deal with concurrent writes.
impl Objects for Cache {
    /// Returns nothing for a kind that this server does not know.
    fn find(&self, group: &str, kind: &str, namespace: &str, name: Option<&str>) -> Vec<Value> {
        let kinds = Kinds::get();
        let known = kinds.ids().find(|&id| {
            let definition = kinds.definition(id);
            (definition.group, definition.kind) == (group, kind)
        });
        let Some(kind) = known else { return Vec::new() };
        let objects: Vec<Arc<Object>> = match name {
            Some(name) => self.get(kind, &ObjectName::new(namespace, name)).into_iter().collect(),
            None => self.list(kind, (!namespace.is_empty()).then_some(namespace)).objects,
        };
        objects.iter().map(|object| object.value()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use review::{Phase, Review, Verdict};
    use serde_json::json;

    #[test]
    fn objects_are_found_alone_by_namespace_and_all_over() {
        let kinds = Kinds::get();
        let cache = Cache::new(kinds.len());
        for (namespace, name) in [("a", "x"), ("a", "y"), ("b", "x")] {
            let kind = kinds.find("", "persistentvolumeclaims").unwrap();
            let object = json!({"metadata": {"namespace": namespace, "name": name}});
            cache.load(kind, Object::encode(kinds.strategy(kind), object, 1));
        }
        let count = |kind, namespace, name| cache.find("", kind, namespace, name).len();
        let kind = "PersistentVolumeClaim";
        assert_eq!(count(kind, "a", Some("x")), 1);
        assert_eq!(count(kind, "b", Some("y")), 0);
        assert_eq!(count(kind, "a", None), 2);
        assert_eq!(count(kind, "", None), 3);
        assert_eq!(count("VolumeSnapshot", "", None), 0, "a kind that is not served");
    }

    struct Nobody(Vec<Rule>);

    impl Hook for Nobody {
        fn rules(&self) -> &[Rule] {
            &self.0
        }

        fn review(&self, _: &Review<'_>, _: &dyn Objects) -> Verdict {
            Verdict::default()
        }
    }

    #[test]
    fn a_hook_is_asked_once_however_many_of_its_rules_match() {
        let rule = |phase, subresource, operations| Rule {
            name: "x.example.com",
            phase,
            group: "",
            resource: "pods",
            subresource,
            operations,
        };
        let rules = vec![
            rule(Phase::Mutating, "", &[Operation::Create]),
            rule(Phase::Validating, "", &[Operation::Create, Operation::Update]),
            rule(Phase::Validating, "eviction", &[Operation::Create]),
        ];
        let kinds = Kinds::get();
        let hooks = Hooks::new(kinds, &[Arc::new(Nobody(rules))]);
        let count = |plural, operation, subresource| {
            hooks.about(kinds.find("", plural).unwrap(), operation, subresource).count()
        };
        assert_eq!(count("pods", Operation::Create, ""), 1);
        assert_eq!(count("pods", Operation::Create, "eviction"), 1);
        assert_eq!(count("pods", Operation::Delete, ""), 0);
        assert_eq!(count("pods", Operation::Update, "status"), 0);
        assert_eq!(count("nodes", Operation::Create, ""), 0);
    }

    fn sources(folder: &std::path::Path, found: &mut Vec<std::path::PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { sources(&path, found) } else { found.push(path) }
        }
    }

    #[test]
    fn this_server_knows_no_kubevirt() {
        let own = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        let manifest = std::fs::read_to_string(own.join("Cargo.toml")).unwrap();
        let needs = manifest.split("[dev-dependencies]").next().unwrap();
        for name in ["admission", "hooks", "plan", "render", "instancetype", "virt-api"] {
            assert!(!needs.contains(&format!("\n{name}.workspace")), "embedded depends on {name}");
        }
        let mut found = Vec::new();
        sources(&own.join("src"), &mut found);
        assert!(found.len() > 30, "the sources are looked at");
        for path in &found {
            let text = std::fs::read_to_string(path).unwrap();
            let code = text.split("#[cfg(test)]").next().unwrap_or_default().to_lowercase();
            assert!(!code.contains("kubevirt"), "{} speaks of KubeVirt", path.display());
            // What is KubeVirt's in `api`, but for its kinds.
            for part in ["api::users", "api::v1", "api::config", "api::reasons", "api::labels", "api::annotations"] {
                assert!(!code.contains(part), "{} knows {part}", path.display());
            }
        }
    }
}
