//! KubeVirt's admission hooks under the current configuration: for an API server in the same process, and for
//! [`crate::server`]. Decisions are made in [`hooks`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use admission::{Shape, World};
use api::config::ClusterConfig;
use hooks::Settings;
use parking_lot::RwLock;
use review::{Hook, Objects, Review, Rule, Verdict};

/// Defaulting, validation and eviction admission under the current configuration.
pub struct Admission {
    shape: Shape,
    config: RwLock<Arc<ClusterConfig>>,
    pass_unsupported: AtomicBool,
}

/// For an embedded cluster, whose API server calls it in process.
impl Default for Admission {
    fn default() -> Self {
        Self::new(Shape::Embedded)
    }
}

impl Admission {
    fn new(shape: Shape) -> Self {
        Self { shape, config: RwLock::default(), pass_unsupported: AtomicBool::default() }
    }

    /// For an installation on Kubernetes.
    pub fn on_kubernetes() -> Self {
        Self::new(Shape::Kubernetes)
    }

    /// Sets the configuration for future reviews; until then the defaults apply.
    pub fn configure(&self, config: ClusterConfig) {
        *self.config.write() = Arc::new(config);
    }

    /// Accepts valid objects even if the nodes of this build do not support all of their fields. For control planes
    /// without such nodes: by default, a field that would be ignored is rejected.
    pub fn accept_unsupported(&self) {
        self.pass_unsupported.store(true, Ordering::Relaxed);
    }

    /// Reviews a write; the world holds what it needs.
    pub(crate) fn judge(&self, review: &Review<'_>, world: &World) -> Verdict {
        let pass_unsupported = self.pass_unsupported.load(Ordering::Relaxed);
        hooks::review(review, Settings { config: &self.config(), pass_unsupported, shape: self.shape }, world)
    }

    fn config(&self) -> Arc<ClusterConfig> {
        self.config.read().clone()
    }
}

impl Hook for Admission {
    fn rules(&self) -> &[Rule] {
        hooks::RULES
    }

    fn review(&self, review: &Review<'_>, objects: &dyn Objects) -> Verdict {
        self.judge(review, &world(review, objects))
    }
}

/// Gathers the objects a review needs, following references round by round.
fn world(review: &Review<'_>, objects: &dyn Objects) -> World {
    let mut world = World::default();
    loop {
        let wanted = hooks::wanted(review, &world);
        if wanted.is_empty() {
            return world;
        }
        for wanted in wanted {
            let found = objects.find(wanted.group, wanted.kind, &wanted.namespace, wanted.name.as_deref());
            world.learn(wanted, found);
        }
    }
}

/// Maps an image reference to one with a digest, if it is known.
pub type PinImage = Box<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// Pins the image volumes of new Pods to a digest.
pub struct PinImages(pub PinImage);

impl Hook for PinImages {
    fn rules(&self) -> &[Rule] {
        hooks::PIN_RULES
    }

    fn review(&self, review: &Review<'_>, _: &dyn Objects) -> Verdict {
        Verdict { object: hooks::pin_images(review.object, &self.0), ..Verdict::default() }
    }
}
