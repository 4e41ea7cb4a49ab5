//! JSON patches that only apply to the state they were decided on.

use serde::Serialize;
use serde_json::{Value, json};

/// A JSON patch under construction.
#[derive(Default)]
pub(super) struct Patch(Vec<Value>);

impl Patch {
    /// Applies only if the field has this value; `None` stands for an absent field.
    pub(super) fn test(self, path: &str, value: &impl Serialize) -> Self {
        self.operation("test", path, Some(value))
    }

    /// Sets a field that may be absent.
    pub(super) fn add(self, path: &str, value: &impl Serialize) -> Self {
        self.operation("add", path, Some(value))
    }

    /// Sets a field that exists.
    pub(super) fn replace(self, path: &str, value: &impl Serialize) -> Self {
        self.operation("replace", path, Some(value))
    }

    /// Removes a field that exists.
    pub(super) fn remove(self, path: &str) -> Self {
        self.operation("remove", path, None::<&()>)
    }

    /// Moves an optional field from one value to another, guarded by the value it has.
    pub(super) fn change<T: Serialize>(self, path: &str, from: Option<&T>, to: Option<&T>) -> Self {
        let guarded = self.test(path, &from);
        match (from, to) {
            (None, None) => guarded,
            (None, Some(to)) => guarded.add(path, to),
            (Some(_), Some(to)) => guarded.replace(path, to),
            (Some(_), None) => guarded.remove(path),
        }
    }

    pub(super) fn operations(self) -> Value {
        Value::Array(self.0)
    }

    fn operation(mut self, op: &str, path: &str, value: Option<&impl Serialize>) -> Self {
        let mut operation = json!({ "op": op, "path": path });
        if let Some(value) = value {
            operation["value"] = serde_json::to_value(value).expect("API types have string keys and serialize");
        }
        self.0.push(operation);
        self
    }
}
