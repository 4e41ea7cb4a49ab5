//! Parsers of the largest kinds, compiled once.
//!
//! A parser is generic code: each crate that parses a kind compiles it again, with all types below that kind. In builds
//! that are optimised little or not at all, the compiler takes a parser that a crate further down has compiled already.
//! Nothing calls these here. They are from text, as clients read answers, and from values, as patches and hooks do.
//! docs/dev/testing.md has the sizes with and without.

use k8s_openapi::api::core::v1::{ConfigMap, Event, Namespace, Node, PersistentVolumeClaim, Pod, Secret};
use serde_json::{Value, from_str, from_value, to_string, to_value};

use crate::v1::{KubeVirt, VirtualMachine, VirtualMachineInstance, VirtualMachineInstanceMigration};

type Result<T> = serde_json::Result<T>;

macro_rules! compiled {
    ($($kind:ty),+ $(,)?) => {
        /// The addresses of what is compiled here, which keep it from being dropped.
        pub fn addresses() -> Vec<*const ()> {
            vec![$(
                from_str::<$kind> as fn(&'static str) -> Result<$kind> as *const (),
                from_value::<$kind> as fn(Value) -> Result<$kind> as *const (),
                to_string::<$kind> as fn(&$kind) -> Result<String> as *const (),
                to_value::<&$kind> as fn(&'static $kind) -> Result<Value> as *const (),
            )+]
        }
    };
}

compiled!(
    ConfigMap,
    Event,
    KubeVirt,
    Namespace,
    Node,
    PersistentVolumeClaim,
    Pod,
    Secret,
    VirtualMachine,
    VirtualMachineInstance,
    VirtualMachineInstanceMigration,
);
