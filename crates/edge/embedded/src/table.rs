//! Tables for `kubectl get`: columns of a kind, cells of an object.

use jiff::Timestamp;
use machinery::age;
use serde_json::{Value, json};

use crate::kinds::{at, text_at};

/// A column of a kind's table.
pub(crate) struct Column {
    pub(crate) name: &'static str,
    /// `string`, `integer`, `boolean` or `date`, as in a CRD's printer columns.
    pub(crate) kind: &'static str,
    /// Shown only with `-o wide`.
    pub(crate) wide: bool,
    pub(crate) cell: Cell,
}

/// The source of a cell.
pub(crate) enum Cell {
    /// A JSONPath in the simple forms that printer columns use.
    Path(&'static str),
    /// A function of the object and the time.
    With(fn(&Value, Timestamp) -> Value),
}

pub(crate) const NAME: Column = Column::text("Name", ".metadata.name");
pub(crate) const AGE: Column =
    Column { name: "Age", kind: "string", wide: false, cell: Cell::With(|object, now| json!(age(object, now))) };
pub(crate) const CREATED_AT: Column = Column::text("Created At", ".metadata.creationTimestamp");

impl Column {
    pub(crate) const fn text(name: &'static str, path: &'static str) -> Self {
        Self { name, kind: "string", wide: false, cell: Cell::Path(path) }
    }

    pub(crate) const fn with(name: &'static str, cell: fn(&Value, Timestamp) -> Value) -> Self {
        Self { name, kind: "string", wide: false, cell: Cell::With(cell) }
    }

    pub(crate) const fn wide(self) -> Self {
        let Self { name, kind, wide: _, cell } = self;
        Self { name, kind, wide: true, cell }
    }

    fn definition(&self) -> Value {
        let format = if self.name == "Name" { "name" } else { "" };
        json!({
            "name": self.name,
            "type": self.kind,
            "format": format,
            "description": "",
            "priority": i32::from(self.wide),
        })
    }

    fn cell(&self, object: &Value, now: Timestamp) -> Value {
        match self.cell {
            Cell::With(function) => function(object, now),
            Cell::Path(path) => match (json_path(object, path), self.kind) {
                (Some(Value::String(time)), "date") => json!(since(time, now)),
                (Some(found @ (Value::String(_) | Value::Number(_) | Value::Bool(_))), _) => found.clone(),
                (Some(found), _) if !found.is_null() => json!(found.to_string()),
                _ if self.kind == "string" => json!(""),
                _ => Value::Null,
            },
        }
    }
}

/// How much of the object a row includes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IncludeObject {
    None,
    Metadata,
    Object,
}

/// A `Table` of objects in their served form.
pub(crate) fn table(
    columns: &[Column],
    header: bool,
    include: IncludeObject,
    list_meta: Value,
    objects: impl Iterator<Item = Value>,
    now: Timestamp,
) -> Value {
    let rows: Vec<Value> = objects.map(|object| row(columns, include, object, now)).collect();
    let columns: Vec<Value> = if header { columns.iter().map(Column::definition).collect() } else { vec![] };
    json!({
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": list_meta,
        "columnDefinitions": columns,
        "rows": rows,
    })
}

fn row(columns: &[Column], include: IncludeObject, object: Value, now: Timestamp) -> Value {
    let cells: Vec<Value> = columns.iter().map(|column| column.cell(&object, now)).collect();
    match include {
        IncludeObject::None => json!({"cells": cells}),
        IncludeObject::Metadata => json!({"cells": cells, "object": partial_metadata(&object)}),
        IncludeObject::Object => json!({"cells": cells, "object": object}),
    }
}

/// Only the object's metadata, as PartialObjectMetadata.
pub(crate) fn partial_metadata(object: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]})
}

/// Evaluates `.a.b`, `.a[0].b` and `.a[?(@.k=='v')].b`: the first match, or nothing.
fn json_path<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    let mut value = object;
    let mut rest = path;
    while !rest.is_empty() {
        if let Some(bracket) = rest.strip_prefix('[') {
            let (inside, after) = bracket.split_once(']')?;
            value = index(value, inside)?;
            rest = after;
        } else {
            let name = rest.strip_prefix('.')?;
            let end = name.find(['.', '[']).unwrap_or(name.len());
            value = value.get(&name[..end])?;
            rest = &name[end..];
        }
    }
    Some(value)
}

fn index<'a>(value: &'a Value, inside: &str) -> Option<&'a Value> {
    if let Some(condition) = inside.strip_prefix("?(@.").and_then(|text| text.strip_suffix(')')) {
        let (field, wanted) = condition.split_once("==")?;
        let wanted = wanted.trim_matches(['\'', '"']);
        return value.as_array()?.iter().find(|item| item[field].as_str() == Some(wanted));
    }
    value.get(inside.parse::<usize>().ok()?)
}

/// Time since creation.
pub(crate) fn age(object: &Value, now: Timestamp) -> String {
    since(text_at(object, "metadata.creationTimestamp"), now)
}

/// Time since an RFC 3339 timestamp, in human-readable form.
pub(crate) fn since(time: &str, now: Timestamp) -> String {
    match time.parse::<Timestamp>() {
        Ok(time) => age::since(time, now),
        Err(_) => "<unknown>".into(),
    }
}

/// `<none>` for an empty string, as in kubectl's own tables.
pub(crate) fn or_none(text: &str) -> Value {
    if text.is_empty() { json!("<none>") } else { json!(text) }
}

/// The map at a path as `a=b,c=d`.
pub(crate) fn pairs(object: &Value, path: &str) -> Value {
    let map = at(object, path).as_object();
    let pairs: Vec<String> =
        map.into_iter().flatten().map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    or_none(&pairs.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printer_column_paths_find_fields_indexes_and_conditions() {
        let object = json!({
            "status": {
                "phase": "Running",
                "interfaces": [{"ipAddress": "10.0.0.1"}],
                "conditions": [{"type": "A", "status": "False"}, {"type": "Ready", "status": "True"}],
            }
        });
        let find = |path| json_path(&object, path).cloned();
        assert_eq!(find(".status.phase"), Some(json!("Running")));
        assert_eq!(find(".status.interfaces[0].ipAddress"), Some(json!("10.0.0.1")));
        assert_eq!(find(".status.interfaces[1].ipAddress"), None);
        assert_eq!(find(".status.conditions[?(@.type=='Ready')].status"), Some(json!("True")));
        assert_eq!(find(".status.conditions[?(@.type=='Paused')].status"), None);
        assert_eq!(find(".spec.nothing"), None);
    }
}
