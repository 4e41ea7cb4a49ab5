//! Strategic merge patch for the core kinds.
//!
//! A merge patch with special handling of lists: items of some lists are matched by a key and merged one by one, some
//! lists of plain values are sets, all others are replaced. Kubernetes keeps that information in tags on Go fields;
//! here it is a table by field name, sufficient for Pods, Nodes, Services and the like. Kinds defined by
//! CustomResourceDefinitions do not support strategic patches.

use serde_json::{Map, Value};

/// Why a strategic merge patch did not apply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StrategicError {
    /// An item of a keyed list lacks its key.
    #[error("an item of {field} lacks its merge key {key:?}")]
    MissingKey { field: String, key: &'static str },
    /// An unknown directive.
    #[error("unknown directive $patch: {0:?}")]
    UnknownDirective(String),
}

/// How a list is patched.
enum ListStrategy {
    /// Items with the same value of this field are merged.
    Keyed(&'static str),
    /// Values are added.
    Set,
    /// The patch's list replaces the old one.
    Replace,
}

fn list_strategy(kind: &str, field: &str) -> ListStrategy {
    match field {
        "containers"
        | "initContainers"
        | "ephemeralContainers"
        | "volumes"
        | "env"
        | "imagePullSecrets"
        | "resourceClaims"
        | "schedulingGates"
        | "secrets" => ListStrategy::Keyed("name"),
        "conditions" | "addresses" => ListStrategy::Keyed("type"),
        "ownerReferences" => ListStrategy::Keyed("uid"),
        "volumeMounts" => ListStrategy::Keyed("mountPath"),
        "volumeDevices" => ListStrategy::Keyed("devicePath"),
        "taints" => ListStrategy::Keyed("key"),
        "podIPs" | "hostIPs" | "hostAliases" => ListStrategy::Keyed("ip"),
        "topologySpreadConstraints" => ListStrategy::Keyed("topologyKey"),
        "ports" if kind == "Service" => ListStrategy::Keyed("port"),
        "ports" => ListStrategy::Keyed("containerPort"),
        "finalizers" => ListStrategy::Set,
        _ => ListStrategy::Replace,
    }
}

/// Applies a strategic merge patch to an object of this kind. The object is unchanged if the patch does not apply.
pub fn apply(kind: &str, object: &mut Value, patch: &Value) -> Result<(), StrategicError> {
    let mut changed = object.clone();
    merge_value(kind, "", &mut changed, patch)?;
    *object = changed;
    Ok(())
}

fn merge_value(kind: &str, field: &str, target: &mut Value, patch: &Value) -> Result<(), StrategicError> {
    match patch {
        Value::Object(patch) => merge_object(kind, target, patch),
        Value::Array(items) => merge_list(kind, field, target, items),
        other => {
            *target = other.clone();
            Ok(())
        }
    }
}

fn merge_object(kind: &str, target: &mut Value, patch: &Map<String, Value>) -> Result<(), StrategicError> {
    match directive(patch)? {
        Some(Directive::Replace) => *target = Value::Object(Map::new()),
        Some(Directive::Delete) => {
            *target = Value::Object(Map::new());
            return Ok(());
        }
        None => {}
    }
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(fields) = target else { return Ok(()) };
    if let Some(Value::Array(kept)) = patch.get("$retainKeys") {
        fields.retain(|name, _| kept.iter().any(|key| key == name));
    }
    for (name, value) in patch {
        if let Some(list) = name.strip_prefix("$deleteFromPrimitiveList/") {
            delete_from_set(fields, list, value);
        } else if name.starts_with('$') {
            // Handled above ($patch, $retainKeys), or only about the order of items ($setElementOrder), which is kept.
        } else if value.is_null() {
            fields.remove(name);
        } else {
            merge_value(kind, name, fields.entry(name.as_str()).or_insert(Value::Null), value)?;
        }
    }
    Ok(())
}

enum Directive {
    Replace,
    Delete,
}

fn directive(patch: &Map<String, Value>) -> Result<Option<Directive>, StrategicError> {
    match patch.get("$patch") {
        None => Ok(None),
        Some(Value::String(word)) if word == "merge" => Ok(None),
        Some(Value::String(word)) if word == "replace" => Ok(Some(Directive::Replace)),
        Some(Value::String(word)) if word == "delete" => Ok(Some(Directive::Delete)),
        Some(other) => Err(StrategicError::UnknownDirective(other.to_string())),
    }
}

fn delete_from_set(fields: &mut Map<String, Value>, list: &str, gone: &Value) {
    if let (Some(Value::Array(items)), Value::Array(gone)) = (fields.get_mut(list), gone) {
        items.retain(|item| !gone.contains(item));
    }
}

fn merge_list(kind: &str, field: &str, target: &mut Value, patch: &[Value]) -> Result<(), StrategicError> {
    let replaces =
        patch.iter().any(|item| item.get("$patch").is_some_and(|d| d == "replace") && is_lone_directive(item));
    let old = match target {
        Value::Array(items) if !replaces => std::mem::take(items),
        _ => Vec::new(),
    };
    let items = patch.iter().filter(|item| !(replaces && is_lone_directive(item)));
    *target = Value::Array(match list_strategy(kind, field) {
        ListStrategy::Replace => items.cloned().collect(),
        ListStrategy::Set => {
            let mut set = old;
            items.for_each(|item| {
                if !set.contains(item) {
                    set.push(item.clone());
                }
            });
            set
        }
        ListStrategy::Keyed(key) => merge_keyed(kind, field, key, old, items)?,
    });
    Ok(())
}

/// An item that only carries a directive for the whole list.
fn is_lone_directive(item: &Value) -> bool {
    item.as_object().is_some_and(|fields| fields.len() == 1 && fields.contains_key("$patch"))
}

fn merge_keyed<'a>(
    kind: &str,
    field: &str,
    key: &'static str,
    mut list: Vec<Value>,
    patch: impl Iterator<Item = &'a Value>,
) -> Result<Vec<Value>, StrategicError> {
    for item in patch {
        let missing = || StrategicError::MissingKey { field: field.to_owned(), key };
        let fields = item.as_object().ok_or_else(missing)?;
        let id = fields.get(key).ok_or_else(missing)?;
        let at = list.iter().position(|old| old.get(key) == Some(id));
        if matches!(directive(fields)?, Some(Directive::Delete)) {
            list.retain(|old| old.get(key) != Some(id));
            continue;
        }
        let mut merged = at.map_or(Value::Null, |at| list[at].take());
        merge_object(kind, &mut merged, fields)?;
        match at {
            Some(at) => list[at] = merged,
            None => list.push(merged),
        }
    }
    Ok(list)
}
