//! Authentication and authorisation.

mod rbac;
mod reviews;
mod user;

use std::sync::Arc;

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;

use crate::cache::Cache;
use crate::kinds::{KindId, Kinds};

pub use rbac::{Attributes, Decision, Rules, Target, authorize};
pub(crate) use reviews::review;
pub use user::User;

/// The group with unrestricted access.
pub(crate) const MASTERS: &str = "system:masters";

/// Authorises by the cached roles and bindings, which are re-read only when one of them changes.
pub(crate) struct Authorizer {
    cache: Arc<Cache>,
    cluster_roles: KindId,
    cluster_bindings: KindId,
    roles: KindId,
    bindings: KindId,
    /// The rules, and the revisions of the four kinds they were read at.
    current: Mutex<([u64; 4], Arc<Rules>)>,
}

impl Authorizer {
    pub(crate) fn new(cache: Arc<Cache>, kinds: &'static Kinds) -> Self {
        let find =
            |plural| kinds.find("rbac.authorization.k8s.io", plural).expect("the RBAC kinds are in the registry");
        let (cluster_roles, cluster_bindings) = (find("clusterroles"), find("clusterrolebindings"));
        let (roles, bindings) = (find("roles"), find("rolebindings"));
        // No revision is this large, so the first request reads the rules.
        let current = Mutex::new(([u64::MAX; 4], Arc::default()));
        Self { cache, cluster_roles, cluster_bindings, roles, bindings, current }
    }

    pub(crate) fn decide(&self, attributes: &Attributes) -> Decision {
        authorize(attributes, &self.rules())
    }

    fn rules(&self) -> Arc<Rules> {
        let kinds = [self.cluster_roles, self.cluster_bindings, self.roles, self.bindings];
        let seen = kinds.map(|kind| self.cache.changed_at(kind));
        let mut current = self.current.lock();
        if current.0 != seen {
            let rules = Rules::new(
                self.all::<ClusterRole>(self.cluster_roles),
                self.all::<ClusterRoleBinding>(self.cluster_bindings),
                self.all::<Role>(self.roles),
                self.all::<RoleBinding>(self.bindings),
            );
            *current = (seen, Arc::new(rules));
        }
        current.1.clone()
    }

    fn all<T: DeserializeOwned>(&self, kind: KindId) -> Vec<T> {
        let objects = self.cache.list(kind, None).objects;
        // Objects passed the same decoder when written; one that no longer does grants nothing.
        objects.iter().filter_map(|object| serde_json::from_slice(&object.json).ok()).collect()
    }
}
