//! The rules of our own kinds: the `admission` crate, with the cluster's configuration and the objects of this server.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use admission::{Judged, Operation, Refusal, Request, Wanted, World};
use api::config::ClusterConfig;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::Value;

use crate::auth::User;
use crate::cache::{Cache, Object, ObjectName};
use crate::kinds::Kinds;
use crate::views::Served;

/// A node agent's certificate has a group that begins with this and ends with the node's name.
const NODE_GROUP: &str = "ferrovirt:node:";
/// Where a service account's token would tell the node.
const NODE_EXTRA: &str = "authentication.kubernetes.io/node-name";

/// Kinds whose deletion is judged, too.
const JUDGED_DELETIONS: &[&str] = &["kubevirts"];

/// Whether anything speaks for asking the rules before an object of this kind is deleted.
pub(crate) fn judges_deletion(plural: &str) -> bool {
    JUDGED_DELETIONS.contains(&plural)
}

/// The rules, under the configuration that is in force.
#[derive(Default)]
pub(crate) struct Rules {
    config: RwLock<Arc<ClusterConfig>>,
    /// Whether what is valid passes although this build's nodes do not honour it.
    pass_unsupported: AtomicBool,
}

/// One write to judge, objects in the stored form.
pub(crate) struct Change<'a> {
    pub(crate) operation: Operation,
    pub(crate) served: &'a Served,
    /// `status` or nothing.
    pub(crate) subresource: &'a str,
    pub(crate) user: &'a User,
    pub(crate) old: Option<&'a Value>,
    pub(crate) object: Value,
}

/// What the rules make of a write.
pub(crate) struct Verdict {
    /// The object with its defaults. One that cannot be read is as it was.
    pub(crate) object: Value,
    pub(crate) warnings: Vec<String>,
    /// Why it must not be stored, if so.
    pub(crate) refusal: Option<Refusal>,
}

impl Rules {
    pub(crate) fn configure(&self, config: ClusterConfig) {
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
    }

    pub(crate) fn pass_unsupported(&self) {
        self.pass_unsupported.store(true, Ordering::Relaxed);
    }

    pub(crate) fn config(&self) -> Arc<ClusterConfig> {
        self.config.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Judges a write with the other objects as they are in the cache now. Nothing is locked meanwhile: as with webhooks,
    /// what another write changes at the same moment is for the controllers to notice.
    pub(crate) fn judge(&self, cache: &Cache, change: Change<'_>) -> Verdict {
        let definition = change.served.definition;
        let user = identity(change.user);
        let request = Request {
            operation: change.operation,
            version: definition.version,
            resource: definition.plural,
            subresource: change.subresource,
            user: &user,
            old: change.old,
            object: &change.object,
            now: Time(Timestamp::now()),
        };
        let config = self.config();
        let world = world(cache, &request);
        match admission::judge(&request, &config, &world) {
            Err(refusal) => Verdict { object: change.object, warnings: Vec::new(), refusal: Some(refusal) },
            Ok(Judged { object, warnings, causes, .. }) if self.pass_unsupported.load(Ordering::Relaxed) => {
                let refusal = (!causes.is_empty()).then(|| Refusal::from(causes));
                Verdict { object, warnings, refusal }
            }
            Ok(Judged { object, warnings, causes, unsupported }) => {
                let clean = causes.is_empty() && unsupported.is_empty();
                // The facade knows how to word both lists as one refusal.
                let refusal = if clean { None } else { admission::admit(&request, &config, &world).err() };
                Verdict { object, warnings, refusal }
            }
        }
    }
}

/// Everything the judgement of a request looks at, in as many rounds as references have links.
fn world(cache: &Cache, request: &Request<'_>) -> World {
    let mut world = World::default();
    loop {
        let wanted = admission::wanted(request, &world);
        if wanted.is_empty() {
            return world;
        }
        for wanted in wanted {
            let found = find(cache, &wanted);
            world.learn(wanted, found);
        }
    }
}

/// What the cache has of it; nothing of a kind that this server does not know.
fn find(cache: &Cache, wanted: &Wanted) -> Vec<Value> {
    let kinds = Kinds::get();
    let kind = kinds.ids().find(|&id| {
        let definition = kinds.definition(id);
        (definition.group, definition.kind) == (wanted.group, wanted.kind)
    });
    let Some(kind) = kind else { return Vec::new() };
    let objects: Vec<Arc<Object>> = match &wanted.name {
        Some(name) => cache.get(kind, &ObjectName::new(&wanted.namespace, name)).into_iter().collect(),
        None => {
            let namespace = (!wanted.namespace.is_empty()).then_some(wanted.namespace.as_str());
            cache.list(kind, namespace).objects
        }
    };
    objects.iter().map(|object| object.value()).collect()
}

fn identity(user: &User) -> admission::User {
    let nodes: Vec<String> =
        user.groups.iter().filter_map(|group| group.strip_prefix(NODE_GROUP)).map(str::to_owned).collect();
    let extra = (!nodes.is_empty()).then(|| (NODE_EXTRA.to_owned(), nodes));
    admission::User { name: user.name.clone(), groups: user.groups.clone(), extra: extra.into_iter().collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn cache() -> Cache {
        let kinds = Kinds::get();
        let cache = Cache::new(kinds.len());
        for (namespace, name) in [("a", "x"), ("a", "y"), ("b", "x")] {
            let kind = kinds.find("", "persistentvolumeclaims").unwrap();
            let object = json!({"metadata": {"namespace": namespace, "name": name}});
            cache.load(kind, Object::encode(kinds.strategy(kind), object, 1));
        }
        cache
    }

    #[test]
    fn wanted_objects_are_found_alone_by_namespace_and_all_over() {
        let cache = cache();
        let count = |wanted: Wanted| find(&cache, &wanted).len();
        let kind = "PersistentVolumeClaim";
        assert_eq!(count(Wanted::one("", kind, "a", "x")), 1);
        assert_eq!(count(Wanted::one("", kind, "b", "y")), 0);
        assert_eq!(count(Wanted::all("", kind, "a")), 2);
        assert_eq!(count(Wanted::all("", kind, "")), 3);
        assert_eq!(count(Wanted::all("snapshot.storage.k8s.io", "VolumeSnapshot", "")), 0, "a kind that is not served");
    }

    #[test]
    fn a_node_agents_group_tells_its_node() {
        let user = |groups: &[&str]| {
            identity(&User { name: "u".into(), groups: groups.iter().map(|&group| group.to_owned()).collect() })
        };
        assert_eq!(user(&["ferrovirt:node:n1", "x"]).extra[NODE_EXTRA], ["n1"]);
        assert!(user(&["x"]).extra.is_empty());
    }
}
