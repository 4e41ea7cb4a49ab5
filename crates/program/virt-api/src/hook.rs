//! The hooks of KubeVirt for an API server in the same process. What they answer is decided in [`hooks`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use admission::World;
use api::config::ClusterConfig;
use hooks::Settings;
use parking_lot::RwLock;
use review::{Hook, Objects, Review, Rule, Verdict};

/// Defaults, rules and evictions, under the configuration that is in force.
#[derive(Default)]
pub struct Admission {
    config: RwLock<Arc<ClusterConfig>>,
    pass_unsupported: AtomicBool,
}

impl Admission {
    /// Reviews under this configuration from now on; until then under the defaults.
    pub fn configure(&self, config: ClusterConfig) {
        *self.config.write() = Arc::new(config);
    }

    /// From now on accepts objects that are valid although the nodes of this build do not honour all of their fields. For
    /// control planes without such nodes: by default a field that would be ignored is refused.
    pub fn accept_unsupported(&self) {
        self.pass_unsupported.store(true, Ordering::Relaxed);
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
        let world = world(review, objects);
        let pass_unsupported = self.pass_unsupported.load(Ordering::Relaxed);
        hooks::review(review, Settings { config: &self.config(), pass_unsupported }, &world)
    }
}

/// Everything a review looks at, in as many rounds as references have links.
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

/// From a reference of an image to one with its digest, if that is known.
pub type PinImage = Box<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// Has image volumes of new Pods refer to their images by digest.
pub struct PinImages(pub PinImage);

impl Hook for PinImages {
    fn rules(&self) -> &[Rule] {
        hooks::PIN_RULES
    }

    fn review(&self, review: &Review<'_>, _: &dyn Objects) -> Verdict {
        Verdict { object: hooks::pin_images(review.object, &self.0), ..Verdict::default() }
    }
}
