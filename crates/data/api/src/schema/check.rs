//! Validates an object against the tables, with Kubernetes' own messages.

use std::collections::HashMap;

use k8s_openapi::jiff::civil::Date;
use machinery::field::{FieldError, FieldPath, Path, quoted, shown};
use machinery::quantity::Quantity;
use serde_json::{Map, Number, Value};

use super::pattern::Pattern;
use super::table::{Merge, Node, Shape, Type, named};

/// Adds the errors in the known fields of an object to `errors`. Unchanged errors of `old` are tolerated.
pub(super) fn check_type(
    type_: &Type,
    fields: &Map<String, Value>,
    old: Option<&Value>,
    path: &Path<'_>,
    errors: &mut Vec<FieldError>,
) {
    for (name, value) in fields {
        if let Some(field) = type_.field(name) {
            let old = old.and_then(|old| old.get(name));
            check_node(&field.node, value, old, &path.child(name), errors);
        }
    }
    // A missing value has a default.
    let needed = type_.fields.iter().filter(|field| field.required && field.node.default.is_none());
    let missing = needed.filter(|field| !fields.contains_key(field.name));
    errors.extend(missing.map(|field| FieldError::required((&path.child(field.name)).into(), "")));
}

fn check_node(node: &Node, value: &Value, old: Option<&Value>, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let before = errors.len();
    check_value(node, value, old, path, errors);
    let chosen = || value.as_str().is_some_and(|text| node.choices.contains(&text));
    if !node.choices.is_empty() && !chosen() {
        errors.push(FieldError::not_supported(path.into(), value.clone(), &node.choices));
    }
    // Only invalid values are compared with the old ones, which keeps validation of valid objects fast.
    if errors.len() > before && old == Some(value) {
        errors.truncate(before);
    }
}

fn check_value(node: &Node, value: &Value, old: Option<&Value>, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    match (&node.shape, value) {
        (_, Value::Null) if node.nullable => {}
        (Shape::String, Value::String(text)) => errors.extend(text_error(node, text, path)),
        (Shape::Time, Value::String(text)) if is_date_time(text) => {}
        (Shape::Time, Value::String(text)) => errors.push(type_error(path, "date-time", text)),
        (Shape::Bool, Value::Bool(_)) | (Shape::IntOrString, Value::String(_)) => {}
        (Shape::Int(bits), Value::Number(number)) => check_integer(node, *bits, number, path, errors),
        (Shape::Number, Value::Number(number)) => check_bounds(node, number, path, errors),
        (Shape::IntOrString | Shape::Quantity, Value::Number(number)) if integer(number).is_some() => {}
        (Shape::Quantity, Value::String(text)) => errors.extend(quantity_error(node, text, path)),
        (Shape::List(item), Value::Array(items)) => check_list(node, item, items, old, path, errors),
        (Shape::Map(entry), Value::Object(entries)) => entries.iter().for_each(|(key, value)| {
            let old = old.and_then(|old| old.get(key));
            check_node(entry, value, old, &path.child(key), errors);
        }),
        (Shape::Object | Shape::AnyObject | Shape::Metadata, Value::Object(_)) => {}
        (Shape::Named(name), Value::Object(fields)) => check_type(named(name), fields, old, path, errors),
        (Shape::IntOrString | Shape::Quantity, other) if !other.is_null() => {
            check_alternatives(other, path, errors);
        }
        (shape, other) => {
            let (expected, got) = mismatch(shape, other);
            errors.push(type_error(path, expected, got));
        }
    }
}

/// Kubernetes' names for the expected and the actual type. A schema with a format names formats, unless the value is a
/// string or a list; of formats, only numbers have one.
fn mismatch(shape: &Shape, value: &Value) -> (&'static str, &'static str) {
    let format = match shape {
        Shape::Int(Some(32)) => Some("int32"),
        Shape::Int(Some(_)) => Some("int64"),
        Shape::Time => Some("date-time"),
        _ => None,
    };
    match (format, value) {
        (Some(format), Value::Number(number)) if number.as_i64().is_some() => (format, "int64"),
        (Some(format), Value::Number(_)) => (format, "float64"),
        (Some(format), Value::Bool(_) | Value::Object(_)) => (format, ""),
        _ => (type_name(shape), json_type(value)),
    }
}

pub(super) fn type_name(shape: &Shape) -> &'static str {
    match shape {
        Shape::String | Shape::Time => "string",
        Shape::Bool => "boolean",
        Shape::Int(_) => "integer",
        Shape::Number => "number",
        Shape::Quantity | Shape::IntOrString => "integer,string",
        Shape::List(_) => "array",
        Shape::Map(_) | Shape::Object | Shape::AnyObject | Shape::Metadata | Shape::Named(_) => "object",
    }
}

/// The JSON type of a value. An integer beyond 64 bits is just a number.
pub(super) fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.as_i64().is_some() => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

pub(super) fn type_error(path: &Path<'_>, expected: &str, got: &str) -> FieldError {
    let field = FieldPath::from(path);
    let detail = format!("{field} in body must be of type {expected}: {}", quoted(got));
    FieldError::type_invalid(field, got, detail)
}

fn invalid(path: &Path<'_>, value: impl Into<Value>, problem: impl std::fmt::Display) -> FieldError {
    let field = FieldPath::from(path);
    let detail = format!("{field} in body {problem}");
    FieldError::invalid(field, value, detail)
}

/// The first error in a string.
fn text_error(node: &Node, text: &str, path: &Path<'_>) -> Option<FieldError> {
    if let Some(max) = node.max_length.filter(|&max| text.len() > max && text.chars().count() > max) {
        return Some(FieldError::too_long(path.into(), max));
    }
    if let Some(min) = node.min_length.filter(|&min| text.chars().count() < min) {
        return Some(invalid(path, text, format_args!("should be at least {min} chars long")));
    }
    let pattern = node.pattern.filter(|pattern| !pattern.matches(text))?;
    Some(invalid(path, text, format_args!("should match '{}'", pattern.regex())))
}

fn quantity_error(node: &Node, text: &str, path: &Path<'_>) -> Option<FieldError> {
    if !Pattern::Quantity.matches(text) {
        return Some(invalid(path, text, format_args!("should match '{}'", Pattern::Quantity.regex())));
    }
    // The pattern accepts a few strings that cannot be parsed, such as 1e1.5.
    let unreadable = text.parse::<Quantity>().err().map(|error| FieldError::invalid(path.into(), text, error));
    unreadable.or_else(|| text_error(node, text, path))
}

/// The largest floating-point number up to which all integers are exact.
const EXACT: f64 = ((1_i64 << 53) - 1) as f64;

/// The value as an integer, if it is one: 2.0 is, and nothing past what a floating-point number holds exactly.
pub(super) fn integer(number: &Number) -> Option<i64> {
    number.as_i64().or_else(|| whole(number).filter(|float| float.abs() <= EXACT).map(|float| float as i64))
}

fn whole(number: &Number) -> Option<f64> {
    number.as_f64().filter(|float| float.fract() == 0.0)
}

/// Whether Kubernetes accepts the value as an integer. It ignores the fraction of large numbers.
fn counts_as_integer(number: &Number) -> bool {
    let nearly = |float: f64| float > 0.0 && float <= EXACT && float.fract() / (float + float.trunc()) < 1e-9;
    integer(number).is_some() || number.as_f64().is_some_and(nearly)
}

/// Whether the value is an integer that fits this many bits.
fn fits(number: &Number, bits: Option<u8>) -> bool {
    let float = || whole(number).filter(|float| (i64::MIN as f64..i64::MAX as f64).contains(float));
    let value = number.as_i64().or_else(|| float().map(|float| float as i64));
    value.is_some_and(|value| bits != Some(32) || i32::try_from(value).is_ok())
}

fn check_integer(node: &Node, bits: Option<u8>, number: &Number, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    if !counts_as_integer(number) {
        let (expected, got) = mismatch(&node.shape, &Value::Number(number.clone()));
        errors.push(type_error(path, expected, got));
    }
    if !fits(number, bits) {
        let format = bits.map_or("(default format)".to_owned(), |bits| format!("with format int{bits}"));
        errors.push(out_of_range(path, &format));
    }
    check_bounds(node, number, path, errors);
}

/// Kubernetes reports only a message without a field; ours names the field in the message.
fn out_of_range(path: &Path<'_>, format: &str) -> FieldError {
    let field = FieldPath::from(path);
    let detail = format!("Checked value must be of type integer {format} in {field}");
    FieldError::invalid(field, "", detail)
}

fn check_bounds(node: &Node, number: &Number, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let below = |bound: i64| number.as_i64().map_or_else(|| as_float(number) < bound as f64, |value| value < bound);
    let above = |bound: i64| number.as_i64().map_or_else(|| as_float(number) > bound as f64, |value| value > bound);
    // A bound is formatted like the compared number: two million is 2e+06 as a floating-point number.
    let told = |bound: i64| match number.as_i64() {
        Some(_) => bound.to_string(),
        None => shown(&Value::from(bound as f64)),
    };
    if let Some(min) = node.min.filter(|&min| below(min)) {
        errors.push(invalid(path, number.clone(), format_args!("should be greater than or equal to {}", told(min))));
    }
    if let Some(max) = node.max.filter(|&max| above(max)) {
        errors.push(invalid(path, number.clone(), format_args!("should be less than or equal to {}", told(max))));
    }
}

fn as_float(number: &Number) -> f64 {
    number.as_f64().unwrap_or(f64::NAN)
}

/// Neither an integer nor a string. Kubernetes reports it three times: for the types, for the alternatives, and for the
/// first one.
fn check_alternatives(value: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let got = json_type(value);
    errors.push(type_error(path, "integer,string", got));
    let field = FieldPath::from(path);
    let detail = format!("\"{field}\" must validate at least one schema (anyOf)");
    errors.push(FieldError::invalid(field, "", detail));
    errors.push(type_error(path, "integer", got));
    if value.as_number().is_some_and(|number| !fits(number, None)) {
        errors.push(out_of_range(path, "(default format)"));
    }
}

fn check_list(
    node: &Node,
    item: &Node,
    items: &[Value],
    old: Option<&Value>,
    path: &Path<'_>,
    errors: &mut Vec<FieldError>,
) {
    let before = ItemsBefore::new(&node.merge, old);
    for (index, value) in items.iter().enumerate() {
        check_node(item, value, before.of(value), &path.index(index), errors);
    }
    if let Some(max) = node.max_items.filter(|&max| items.len() > max) {
        errors.push(FieldError::too_many(path.into(), items.len(), max));
    }
    if let Some(min) = node.min_items.filter(|&min| items.len() < min) {
        errors.push(invalid(path, items.len(), format_args!("should have at least {min} items")));
    }
}

/// The items of a list before an update, by their keys, which identify items across updates.
pub(super) struct ItemsBefore<'a> {
    keys: &'a [&'static str],
    items: HashMap<String, &'a Value>,
}

impl<'a> ItemsBefore<'a> {
    pub(super) fn new(merge: &'a Merge, old: Option<&'a Value>) -> Self {
        let (Merge::Keyed(keys), Some(Value::Array(old))) = (merge, old) else {
            return ItemsBefore { keys: &[], items: HashMap::new() };
        };
        let mut items = HashMap::new();
        old.iter().for_each(|item| _ = items.entry(identity(keys, item).to_string()).or_insert(item));
        ItemsBefore { keys, items }
    }

    /// The old version of this item, if it has all its keys.
    pub(super) fn of(&self, item: &Value) -> Option<&'a Value> {
        let plain = |value: &Value| !matches!(value, Value::Null | Value::Array(_) | Value::Object(_));
        let keyed = !self.items.is_empty() && self.keys.iter().all(|key| item.get(key).is_some_and(plain));
        keyed.then(|| self.items.get(&identity(self.keys, item).to_string()).copied()).flatten()
    }
}

/// The keys of an item that it has.
fn identity(keys: &[&'static str], item: &Value) -> Value {
    keys.iter().filter_map(|&key| Some((key.to_owned(), item.get(key)?.clone()))).collect()
}

/// Checks items for uniqueness: those of a set must differ, those of a keyed list in their keys.
pub(super) fn check_unique(merge: &Merge, items: &[Value], path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let keys = match merge {
        Merge::Set => None,
        Merge::Keyed(keys) => Some(keys),
        Merge::Unstated | Merge::Atomic => return,
    };
    let odd = items.iter().position(|item| !item.is_object() && !item.is_null());
    if let (Some(_), Some(odd)) = (keys, odd) {
        let detail = "must be an object for an array of list-type map";
        errors.push(FieldError::invalid((&path.index(odd)).into(), items[odd].clone(), detail));
        return;
    }
    if items.len() < 2 {
        return;
    }
    let mut seen: HashMap<String, usize> = HashMap::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        let identity = keys.map_or_else(|| item.clone(), |keys| identity(keys, item));
        let count = seen.entry(identity.to_string()).or_default();
        *count += 1;
        // Reported at the second occurrence, and not again at the third.
        if *count == 2 {
            errors.push(FieldError::duplicate((&path.index(index)).into(), identity));
        }
    }
}

/// Whether a text is a time such as `2006-01-02T15:04:05Z`, with perhaps a fraction and an offset instead of the `Z`.
fn is_date_time(text: &str) -> bool {
    let Some((date, time)) = text.split_once(['T', 't']) else { return false };
    is_date(date) && is_time(time).is_some()
}

fn is_date(date: &str) -> bool {
    let shaped = date.len() == 10
        && date.bytes().enumerate().all(|(at, b)| if at == 4 || at == 7 { b == b'-' } else { b.is_ascii_digit() });
    shaped && date.parse::<Date>().is_ok()
}

/// Hours, minutes, seconds, fraction and zone.
fn is_time(time: &str) -> Option<()> {
    let two_digits = |text: &str, most: u8| -> bool {
        text.len() == 2 && text.bytes().all(|b| b.is_ascii_digit()) && text.parse::<u8>().is_ok_and(|n| n <= most)
    };
    let (clock, rest) = time.split_at_checked(8)?;
    let mut parts = clock.split(':');
    let valid = two_digits(parts.next()?, 23) && two_digits(parts.next()?, 59) && two_digits(parts.next()?, 59);
    let zone = rest.strip_prefix('.').map_or(rest, |rest| rest.trim_start_matches(|c: char| c.is_ascii_digit()));
    let fraction = rest.len() - zone.len();
    let zoned = matches!(zone, "Z" | "z")
        || zone
            .strip_prefix(['+', '-'])
            .and_then(|offset| offset.split_once(':'))
            .is_some_and(|(hours, minutes)| two_digits(hours, 99) && two_digits(minutes, 99));
    (valid && zoned && fraction != 1).then_some(())
}
