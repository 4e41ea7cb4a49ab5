//! The CEL rules of the schemas.

use kube_cel::{CompiledSchema, ErrorKind, ValidationError, compile_schema, validate_compiled};
use machinery::field::{Cause, FieldError, FieldPath, Path};
use serde_json::Value;

use super::check::{json_type, type_name};
use super::openapi;
use super::routes::{Route, Rules, Stop, walk};

/// Evaluates the rules about an object. Transition rules only apply where the old value is known; an unchanged value
/// that already violated a rule is tolerated.
pub(super) fn validations(route: &'static Route, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    walk(Stop { route, value: object, old, around: None }, &Path::new(""), &mut |stop, path| {
        if let Some(rules) = &stop.route.rules {
            rules.judge(&stop, path, &mut errors);
        }
    });
    errors
}

impl Rules {
    fn judge(&self, stop: &Stop<'_>, path: &Path<'_>, errors: &mut Vec<FieldError>) {
        let compiled = self.compiled.get_or_init(|| self.compile());
        // The schema already reports a value of the wrong type.
        if self.type_name() != json_type(stop.value) {
            return;
        }
        let Err(failures) = validate_compiled(compiled, stop.value, stop.old) else { return };
        let unchanged = match stop.old {
            Some(old) => old == stop.value,
            None => stop.around.is_some_and(|(value, old)| value == old),
        };
        let stays = |failure: &ValidationError| unchanged && !failure.rule.contains("oldSelf");
        let told = failures.iter().filter(|failure| !stays(failure));
        errors.extend(told.map(|failure| self.field_error(failure, stop.value, path.into())));
    }

    /// The failure in Kubernetes' wording: a plain value is shown, an object or list is not.
    fn field_error(&self, failure: &ValidationError, value: &Value, path: FieldPath) -> FieldError {
        match failure.kind {
            ErrorKind::ValidationFailure if matches!(value, Value::Object(_) | Value::Array(_)) => {
                FieldError::new(Cause::Invalid, path, format!("Invalid value: {}", failure.message))
            }
            ErrorKind::ValidationFailure => FieldError::invalid(path, value.clone(), &failure.message),
            _ => {
                let rule = self.field.rules.iter().find(|(rule, _)| *rule == failure.rule);
                let message = rule.map_or(failure.rule.as_str(), |(_, message)| message);
                FieldError::invalid(
                    path,
                    self.type_name(),
                    format_args!("{} evaluating rule: {message}", failure.message),
                )
            }
        }
    }

    fn type_name(&self) -> &'static str {
        type_name(&self.field.node.shape)
    }

    /// Compiles the rules of this field alone: those of nested fields have routes of their own.
    fn compile(&self) -> CompiledSchema {
        let mut schema = Value::Object(openapi::of_field(self.field));
        if let Some(members) = schema.as_object_mut() {
            members.iter_mut().filter(|(key, _)| *key != RULES).for_each(|(_, value)| drop_rules(value));
        }
        compile_schema(&schema)
    }
}

const RULES: &str = "x-kubernetes-validations";

fn drop_rules(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            members.remove(RULES);
            members.values_mut().for_each(drop_rules);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_rules),
        _ => {}
    }
}
