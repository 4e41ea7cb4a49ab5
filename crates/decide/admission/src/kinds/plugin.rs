//! Plugins.
//!
//! Besides what a webhook of KubeVirt checks, these rules contain the admission policies that its operator installs: a
//! cluster that evaluates those rejects the same objects, and others are not worse off.

use std::panic;

use api::plugin::{DomainHook, FailureStrategy, NodeHook, Plugin, PluginSpec};
use kube_cel::cel::Program;
use machinery::field::{Cause, FieldError, FieldPath};

use super::{Case, Found};
use crate::Refusal;

/// The maximum length of an expression, in characters.
const MAX_LENGTH: usize = 10_000;
/// The maximum number of conditionals in an expression. The parser overflows on long chains of them.
const MAX_CONDITIONALS: usize = 32;
/// The parser's stack size. Each level of nesting takes a fifth of a mebibyte, up to the parser's own limit.
const STACK: usize = 64 << 20;

/// The hook points of a VMI's lifecycle on the node.
const HOOKS: [&str; 8] = [
    "PreVMStart",
    "PostVMStart",
    "PreVMStop",
    "PostVMStop",
    "PreMigrationSource",
    "PostMigrationSource",
    "PreMigrationTarget",
    "PostMigrationTarget",
];

pub(super) fn rules(case: &Case<'_>, plugin: &mut Plugin, _old: Option<&Plugin>) -> Result<Found, Refusal> {
    case.gate("Plugins")?;
    let field = FieldPath::new("spec");
    let spec = &plugin.spec;
    let mut found = Found::default();
    found.causes.extend(common(&field, spec.condition.as_deref(), spec.failure_strategy.as_ref()));
    for (index, hook) in spec.domain_hooks.iter().enumerate() {
        found.causes.extend(domain_hook(&field.child("domainHooks").index(index), hook));
    }
    for (index, hook) in spec.node_hooks.iter().enumerate() {
        found.causes.extend(node_hook(&field.child("nodeHooks").index(index), hook));
    }
    if does_nothing(spec) {
        found.warnings.push("the plugin has neither hooks nor references to admission: it does nothing".to_owned());
    }
    Ok(found)
}

/// The rules common to the plugin as a whole and each of its hooks.
fn common(field: &FieldPath, condition: Option<&str>, strategy: Option<&FailureStrategy>) -> Vec<FieldError> {
    let condition = condition.filter(|condition| !condition.is_empty());
    let mut errors: Vec<FieldError> =
        condition.and_then(|condition| expression(&field.child("condition"), condition)).into_iter().collect();
    if let Some(FailureStrategy::Other(unknown)) = strategy.filter(|strategy| !strategy.as_str().is_empty()) {
        let field = field.child("failureStrategy");
        errors.push(FieldError::invalid(field, unknown.as_str(), "must be Fail or Ignore"));
    }
    errors
}

fn domain_hook(field: &FieldPath, hook: &DomainHook) -> Vec<FieldError> {
    let mut errors = common(field, hook.condition.as_deref(), hook.failure_strategy.as_ref());
    if hook.cel.is_some() == hook.sidecar.is_some() {
        errors.push(FieldError::new(Cause::Invalid, field.clone(), "exactly one of cel and sidecar has to be set"));
    }
    if let Some(cel) = &hook.cel {
        errors.extend(expression(&field.child("cel").child("expression"), &cel.expression));
    }
    if let Some(sidecar) = hook.sidecar.as_ref().filter(|sidecar| !is_clean(&sidecar.socket_path)) {
        let field = field.child("sidecar").child("socketPath");
        let detail = "must be a clean path, without empty parts, . and ..";
        errors.push(FieldError::invalid(field, sidecar.socket_path.as_str(), detail));
    }
    errors
}

fn node_hook(field: &FieldPath, hook: &NodeHook) -> Vec<FieldError> {
    let mut errors = common(field, hook.condition.as_deref(), hook.failure_strategy.as_ref());
    for (index, name) in hook.permitted_hooks.iter().enumerate().filter(|(_, name)| !HOOKS.contains(&name.as_str())) {
        let field = field.child("permittedHooks").index(index);
        let detail = format!("must be one of {}", HOOKS.join(", "));
        errors.push(FieldError::invalid(field, name.as_str(), detail));
    }
    errors
}

/// Checks the syntax of an expression. Undefined names are only detected when it is evaluated.
fn expression(field: &FieldPath, text: &str) -> Option<FieldError> {
    let problem = if text.chars().count() > MAX_LENGTH {
        Some(format!("is longer than {MAX_LENGTH} characters"))
    } else if text.matches('?').count() > MAX_CONDITIONALS {
        Some(format!("has more than {MAX_CONDITIONALS} conditionals"))
    } else {
        parse(text)
    };
    problem.map(|problem| FieldError::invalid(field.clone(), text, problem))
}

/// The syntax error of an expression. It is parsed on a stack of its own: a dozen brackets could overflow the caller's.
fn parse(text: &str) -> Option<String> {
    let parse = || Program::compile(text).err().map(|error| format!("does not compile: {error}"));
    // A panic of the parser also means that the expression is invalid.
    let parsed = stacker::grow(STACK, || panic::catch_unwind(parse));
    parsed.unwrap_or_else(|_| Some("does not compile".to_owned()))
}

/// Whether a path is in its shortest lexical form. Only leading `..` of a relative path cannot be shortened.
fn is_clean(path: &str) -> bool {
    let parts = path.strip_prefix('/').unwrap_or(path);
    let absolute = parts.len() != path.len();
    if path == "/" || path == "." {
        return true;
    }
    let mut above = !absolute;
    parts.split('/').all(|part| {
        above &= part == "..";
        !matches!(part, "" | ".") && (part != ".." || above)
    })
}

fn does_nothing(spec: &PluginSpec) -> bool {
    let references = [
        &spec.mutating_admission_policies,
        &spec.mutating_admission_webhooks,
        &spec.validating_admission_policies,
        &spec.validating_admission_webhooks,
    ];
    spec.domain_hooks.is_empty() && spec.node_hooks.is_empty() && references.iter().all(|list| list.is_empty())
}
