//! Tables: objects and options in, patches or a refusal out.

mod instance;
mod lifecycle;
mod memory_dump;
mod migration;
mod volumes;

use api::v1::{VirtualMachine, VirtualMachineInstance};
use serde_json::{Value, json};

/// A virtual machine named `vm`; `over` is merged over it.
fn vm(over: Value) -> VirtualMachine {
    object(json!({ "metadata": { "name": "vm", "namespace": "ns", "uid": "vm-uid" } }), over)
}

/// An instance named `vm`; `over` is merged over it.
fn vmi(over: Value) -> VirtualMachineInstance {
    let base = json!({ "metadata": { "name": "vm", "namespace": "ns", "uid": "vmi-uid" } });
    object(base, over)
}

fn in_phase(phase: &str) -> VirtualMachineInstance {
    vmi(json!({ "status": { "phase": phase } }))
}

fn object<T: serde::de::DeserializeOwned>(mut base: Value, over: Value) -> T {
    merge(&mut base, over);
    serde_json::from_value(base).expect("a test's object decodes")
}

fn merge(base: &mut Value, over: Value) {
    match (base, over) {
        (Value::Object(base), Value::Object(over)) => {
            for (key, value) in over {
                merge(base.entry(key).or_insert(Value::Null), value);
            }
        }
        (base, over) => *base = over,
    }
}
