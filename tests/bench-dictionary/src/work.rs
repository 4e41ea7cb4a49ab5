//! What is measured: an instance as bytes, and what is done with it.

use std::path::Path;

use admission::{Operation, Review, Shape, User, World};
use anyhow::{Context as _, Result};
use api::config::ClusterConfig;
use api::resources;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

/// An instance to judge.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) small: bool,
}

pub(crate) const CASES: &[Case] = &[
    Case { name: "small", title: "smallest example", small: true },
    Case { name: "full", title: "every field set", small: false },
];

impl Case {
    /// The instance as a request's body.
    pub(crate) fn bytes(&self) -> Result<Vec<u8>> {
        let object = if self.small { example()? } else { full()? };
        serde_json::to_vec(&object).context("cannot write the instance")
    }
}

fn example() -> Result<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/vmi-containerdisk.yaml");
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let documents = manifests::parse("vmi-containerdisk.yaml", &text)?;
    Ok(documents.into_iter().next().context("the example is empty")?.object)
}

/// The schema lets the object pass, so all of it goes through the defaults and the rules.
fn full() -> Result<Value> {
    let resource =
        resources::of_kind(api::v1::GROUP, "VirtualMachineInstance").context("instances are a kind of ours")?;
    Ok(objects::full(resource))
}

/// What is done with the bytes of one instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    Judge,
    Reference,
}

impl Work {
    pub(crate) fn of(name: &str) -> Option<Self> {
        [Work::Judge, Work::Reference].into_iter().find(|work| work.name() == name)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Work::Judge => "judge",
            Work::Reference => "reference",
        }
    }

    pub(crate) fn run(self, bytes: &[u8]) -> Vec<u8> {
        let object: Value = serde_json::from_slice(bytes).expect("the instance is JSON");
        let object = match self {
            Work::Judge => judge(&object),
            Work::Reference => object,
        };
        serde_json::to_vec(&object).expect("JSON can be written")
    }
}

/// A user creates the instance in a namespace where nothing else is.
fn judge(object: &Value) -> Value {
    thread_local! {
        static CONFIG: ClusterConfig = ClusterConfig::default();
    }
    let user = User { name: "alice".to_owned(), ..User::default() };
    let (version, resource, now) = (api::v1::VERSION, "virtualmachineinstances", Time(Timestamp::UNIX_EPOCH));
    let request = Review::of(Operation::Create, version, resource, &user, object, now);
    let mut world = World::default();
    for wanted in admission::wanted(&request, &world) {
        world.learn(wanted, []);
    }
    let judged = CONFIG.with(|config| admission::judge(&request, Shape::Kubernetes, config, &world));
    judged.unwrap_or_else(|refusal| panic!("the instance does not get to the rules: {refusal}")).object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_instance_gets_to_the_rules_and_comes_back_with_defaults() {
        for case in CASES {
            let bytes = case.bytes().expect("the instance can be made");
            assert_ne!(Work::Judge.run(&bytes), Work::Reference.run(&bytes), "{}", case.name);
        }
    }
}
