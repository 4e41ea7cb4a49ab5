//! Applying JSON patches the way Kubernetes does.
//!
//! More lenient than the standard: `replace` adds a missing field, `copy` of one gives `null`, `test` for `null` holds
//! where there is none, and negative indices count from the end of a list. The messages are Kubernetes' own.

use json_patch::jsonptr::Pointer;
use json_patch::{Patch, PatchOperation};
use serde_json::Value;

use super::{MAX_COPIED_BYTES, MAX_OPERATIONS, PatchError};

/// Applies a JSON patch atomically.
pub fn apply(document: &mut Value, patch: &Patch) -> Result<(), PatchError> {
    if patch.0.len() > MAX_OPERATIONS {
        return Err(PatchError::TooManyOperations(patch.0.len()));
    }
    let mut changed = document.clone();
    let mut copied = 0;
    for (index, operation) in patch.0.iter().enumerate() {
        run(&mut changed, operation, &mut copied).map_err(|failure| match failure {
            Failure::Test(path) => PatchError::TestFailed { index, path },
            Failure::Inapplicable(why) => PatchError::Inapplicable { index, why },
        })?;
        if copied > MAX_COPIED_BYTES {
            return Err(PatchError::CopiesTooMuch(copied));
        }
    }
    *document = changed;
    Ok(())
}

enum Failure {
    Test(String),
    Inapplicable(String),
}

fn run(document: &mut Value, operation: &PatchOperation, copied: &mut usize) -> Result<(), Failure> {
    match operation {
        PatchOperation::Test(test) => return run_test(document, &test.path, &test.value),
        PatchOperation::Add(add) => {
            let path = &add.path;
            match place(document, path) {
                Some(place) => {
                    place.add(add.value.clone()).map_err(|why| format!("error in add for path: '{path}': {why}"))
                }
                None => Err(format!("add operation does not apply: doc is missing path: \"{path}\": {MISSING}")),
            }
        }
        PatchOperation::Remove(remove) => {
            let path = &remove.path;
            match place(document, path) {
                Some(place) => {
                    place.remove().map(drop).map_err(|why| format!("error in remove for path: '{path}': {why}"))
                }
                None => Err(format!("remove operation does not apply: doc is missing path: \"{path}\": {MISSING}")),
            }
        }
        PatchOperation::Replace(replace) => run_replace(document, &replace.path, &replace.value),
        PatchOperation::Move(shift) => run_move(document, &shift.from, &shift.path),
        PatchOperation::Copy(copy) => run_copy(document, &copy.from, &copy.path, copied),
    }
    .map_err(Failure::Inapplicable)
}

const MISSING: &str = "missing value";

fn run_test(document: &mut Value, path: &Pointer, wanted: &Value) -> Result<(), Failure> {
    let found = if path.is_root() {
        document.clone()
    } else {
        let place = place(document, path).ok_or_else(|| {
            Failure::Inapplicable(format!("test operation does not apply: is missing path: {path}: {MISSING}"))
        })?;
        place.get().map_err(|why| Failure::Inapplicable(format!("error in test for path: '{path}': {why}")))?
    };
    if found == *wanted { Ok(()) } else { Err(Failure::Test(path.to_string())) }
}

fn run_replace(document: &mut Value, path: &Pointer, value: &Value) -> Result<(), String> {
    if path.is_root() {
        if !matches!(value, Value::Object(_) | Value::Array(_)) {
            return Err("replace operation value must be object or array".to_owned());
        }
        *document = value.clone();
        return Ok(());
    }
    let place = place(document, path)
        .ok_or_else(|| format!("replace operation does not apply: doc is missing path: {path}: {MISSING}"))?;
    place
        .set(value.clone())
        .ok_or_else(|| format!("replace operation does not apply: doc is missing key: {path}: {MISSING}"))
}

fn run_move(document: &mut Value, from: &Pointer, path: &Pointer) -> Result<(), String> {
    let source = place(document, from)
        .ok_or_else(|| format!("move operation does not apply: doc is missing from path: {from}: {MISSING}"))?;
    let key = source.key.clone();
    let value = source.remove().map_err(|why| format!("error in move for path: '{key}': {why}"))?;
    place(document, path)
        .ok_or_else(|| format!("move operation does not apply: doc is missing destination path: {path}: {MISSING}"))?
        .add(value)
        .map_err(|why| format!("error in move for path: '{path}': {why}"))
}

fn run_copy(document: &mut Value, from: &Pointer, path: &Pointer, copied: &mut usize) -> Result<(), String> {
    let source = place(document, from)
        .ok_or_else(|| format!("copy operation does not apply: doc is missing from path: {from}: {MISSING}"))?;
    let value = source.get().map_err(|why| format!("error in copy for from: '{from}': {why}"))?;
    let target = place(document, path)
        .ok_or_else(|| format!("copy operation does not apply: doc is missing destination path: {path}: {MISSING}"))?;
    *copied += value.to_string().len();
    target.add(value).map_err(|why| format!("error while adding value during copy: {why}"))
}

/// The location that a path refers to: an object or list, and the last part of the path, which need not exist in it.
struct Place<'a> {
    parent: &'a mut Value,
    key: String,
}

/// Resolves a path; `None` if an object or list on the way is missing.
fn place<'a>(document: &'a mut Value, path: &Pointer) -> Option<Place<'a>> {
    let (parent, last) = path.split_back()?;
    let mut value = document;
    for token in parent.tokens() {
        let key = token.decoded();
        value = match value {
            Value::Object(fields) => fields.get_mut(key.as_ref())?,
            Value::Array(items) => {
                let index = index(&key, items.len()).ok()?;
                items.get_mut(index)?
            }
            _ => return None,
        };
    }
    matches!(value, Value::Object(_) | Value::Array(_))
        .then(|| Place { parent: value, key: last.decoded().into_owned() })
}

impl Place<'_> {
    /// The value there; `null` for a missing field of an object.
    fn get(self) -> Result<Value, String> {
        match self.parent {
            Value::Array(items) => index(&self.key, items.len()).map(|index| items[index].clone()),
            fields => Ok(fields.get(&self.key).cloned().unwrap_or_default()),
        }
    }

    /// Replaces the value there; in an object, also a missing one.
    fn set(self, value: Value) -> Option<()> {
        match self.parent {
            Value::Array(items) => {
                let index = index(&self.key, items.len()).ok()?;
                items[index] = value;
            }
            fields => fields[&self.key] = value,
        }
        Some(())
    }

    /// Sets a field, or inserts an item.
    fn add(self, value: Value) -> Result<(), String> {
        match self.parent {
            Value::Array(items) if self.key == "-" => items.push(value),
            Value::Array(items) => {
                // The position after the last item is valid for an insertion.
                let place = index(&self.key, items.len() + 1).map_err(|why| {
                    let syntax = why.starts_with("strconv");
                    if syntax { format!("value was not a proper array index: '{}': {why}", self.key) } else { why }
                })?;
                items.insert(place, value);
            }
            fields => fields[&self.key] = value,
        }
        Ok(())
    }

    fn remove(self) -> Result<Value, String> {
        match self.parent {
            Value::Object(fields) => fields
                .remove(&self.key)
                .ok_or_else(|| format!("Unable to remove nonexistent key: {}: {MISSING}", self.key)),
            Value::Array(items) => index(&self.key, items.len()).map(|index| items.remove(index)),
            _ => unreachable!("a place is in an object or a list"),
        }
    }
}

/// The index that a part of a path refers to in a list; a negative one counts from its end.
fn index(key: &str, length: usize) -> Result<usize, String> {
    let number: i64 = key.parse().map_err(|_| format!("strconv.Atoi: parsing {key:?}: invalid syntax"))?;
    let from_start = if number < 0 { number + length as i64 } else { number };
    usize::try_from(from_start)
        .ok()
        .filter(|&index| index < length)
        .ok_or_else(|| format!("Unable to access invalid index: {number}: invalid index referenced"))
}
