//! Names: validation, derived names, and types for names that must not be mixed up.
//!
//! Derived names are used instead of generated ones: the same owner gives the same name, so a second create from a
//! stale cache collides with the first object instead of creating a duplicate.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::field::{FieldError, FieldPath};

/// Longest DNS label, which also bounds label values and most names of Pods.
pub const LABEL_MAX: usize = 63;
/// Longest DNS subdomain.
pub const SUBDOMAIN_MAX: usize = 253;
/// The maximum total size of an object's annotations, keys and values.
pub const ANNOTATIONS_MAX: usize = 256 << 10;

const LABEL_FORMAT: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const DNS1035_FORMAT: &str = "[a-z]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN_FORMAT: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const NAME_FORMAT: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const NAME_RULE: &str =
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";

macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            pub fn new(name: impl Into<String>) -> Self {
                Self(name.into())
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name! {
    /// The name of a Node, as the API server has it.
    NodeName
}

name! {
    /// The name of a Pod, as the API server has it.
    PodName
}

/// Validates a DNS label, with Kubernetes' messages; empty if valid.
pub fn check_dns1123_label(value: &str) -> Vec<String> {
    let mut problems = too_long(value, LABEL_MAX, "characters");
    if is_dns_label(value) {
        return problems;
    }
    if is_dns_subdomain(value) {
        problems.push("must not contain dots".to_owned());
    } else {
        let rule = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character";
        problems.push(pattern_error(rule, LABEL_FORMAT, &["my-name", "123-abc"]));
    }
    problems
}

/// Validates a DNS label that begins with a letter, like names of Services; empty if valid.
pub fn check_dns1035_label(value: &str) -> Vec<String> {
    let mut problems = too_long(value, LABEL_MAX, "characters");
    if !is_dns_label(value) || !value.starts_with(|c: char| c.is_ascii_lowercase()) {
        let rule = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character";
        problems.push(pattern_error(rule, DNS1035_FORMAT, &["my-name", "abc-123"]));
    }
    problems
}

/// Validates a DNS subdomain, with Kubernetes' messages; empty if valid.
pub fn check_dns1123_subdomain(value: &str) -> Vec<String> {
    subdomain_problems(value, "characters")
}

fn subdomain_problems(value: &str, counted: &str) -> Vec<String> {
    let mut problems = too_long(value, SUBDOMAIN_MAX, counted);
    if !is_dns_subdomain(value) {
        let rule = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character";
        problems.push(pattern_error(rule, SUBDOMAIN_FORMAT, &["example.com"]));
    }
    problems
}

/// Validates a label or annotation key, with Kubernetes' messages; empty if valid.
pub fn check_qualified_name(value: &str) -> Vec<String> {
    let name_rule = || pattern_error(NAME_RULE, NAME_FORMAT, &["MyName", "my.name", "123-abc"]);
    let mut problems = Vec::new();
    let parts: Vec<&str> = value.split('/').collect();
    let name = match parts.as_slice() {
        [name] => name,
        [prefix, name] => {
            if prefix.is_empty() {
                problems.push("prefix part must be non-empty".to_owned());
            } else {
                problems.extend(subdomain_problems(prefix, "bytes").into_iter().map(|p| format!("prefix part {p}")));
            }
            name
        }
        _ => {
            return vec![format!(
                "a valid label key {} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
                name_rule()
            )];
        }
    };
    if name.is_empty() {
        problems.push("name part must be non-empty".to_owned());
    }
    problems.extend(too_long(name, LABEL_MAX, "bytes").into_iter().map(|p| format!("name part {p}")));
    if !is_name_part(name) {
        problems.push(format!("name part {}", name_rule()));
    }
    problems
}

/// Validates a label value, with Kubernetes' messages; empty if valid.
pub fn check_label_value(value: &str) -> Vec<String> {
    let mut problems = too_long(value, LABEL_MAX, "bytes");
    if !value.is_empty() && !is_name_part(value) {
        let rule = format!("a valid label must be an empty string or {}", &NAME_RULE["must ".len()..]);
        problems.push(pattern_error(&rule, &format!("({NAME_FORMAT})?"), &["MyValue", "my_value", "12345"]));
    }
    problems
}

/// Validates the labels at `path`.
pub fn check_labels(path: &FieldPath, labels: &BTreeMap<String, String>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (key, value) in labels {
        let problems = |text: &str, problems: Vec<String>| -> Vec<FieldError> {
            problems.into_iter().map(|problem| FieldError::invalid(path.clone(), text, problem)).collect()
        };
        errors.extend(problems(key, check_qualified_name(key)));
        errors.extend(problems(value, check_label_value(value)));
    }
    errors
}

/// Validates the annotations at `path`. Their keys may have upper-case prefixes, and their values are arbitrary.
pub fn check_annotations(path: &FieldPath, annotations: &BTreeMap<String, String>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for key in annotations.keys() {
        let problems = check_qualified_name(&key.to_lowercase());
        errors.extend(problems.into_iter().map(|problem| FieldError::invalid(path.clone(), key.as_str(), problem)));
    }
    if annotations.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>() > ANNOTATIONS_MAX {
        errors.push(FieldError::too_long(path.clone(), ANNOTATIONS_MAX));
    }
    errors
}

/// The launcher Pod of a VMI.
///
/// It looks like a generated name, but the suffix is a hash of the VMI's UID.
pub fn launcher_pod_name(vmi_name: &str, vmi_uid: &str) -> String {
    truncated_name(&format!("virt-launcher-{vmi_name}"), &suffix(vmi_uid), LABEL_MAX)
}

/// `prefix-suffix`, shortened to `max` characters if necessary. A hash of the part that is cut off keeps it unique.
pub fn truncated_name(prefix: &str, suffix: &str, max: usize) -> String {
    let full = format!("{prefix}-{suffix}");
    if full.len() <= max {
        return full;
    }
    match max.checked_sub(10 + suffix.len()) {
        Some(room) if room > 0 => format!("{}-{:08x}-{suffix}", cut(prefix, room), fnv1a(prefix)),
        _ => {
            let name = format!("{}-{:08x}", cut(prefix, max.saturating_sub(9)), fnv1a(&full));
            cut(&name, max).to_owned()
        }
    }
}

/// A hash of `seed` in five characters, in the alphabet of generated names (no vowels, so no words).
pub fn suffix(seed: &str) -> String {
    const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    let digest = Sha256::digest(seed.as_bytes());
    let mut number = digest.iter().take(8).fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    let mut next = || {
        let character = ALPHABET[(number % 27) as usize];
        number /= 27;
        char::from(character)
    };
    [next(), next(), next(), next(), next()].iter().collect()
}

/// At most `max` bytes of `text`, without a trailing separator, which is invalid at the end of a name's part.
fn cut(text: &str, max: usize) -> &str {
    let end = (0..=max.min(text.len())).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
    text[..end].trim_end_matches(['-', '.'])
}

/// The 32-bit Fowler–Noll–Vo hash, variant 1a.
fn fnv1a(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

fn is_dns_label(value: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    !value.is_empty() && value.bytes().all(inner) && !value.starts_with('-') && !value.ends_with('-')
}

fn is_dns_subdomain(value: &str) -> bool {
    value.split('.').all(is_dns_label)
}

fn is_name_part(value: &str) -> bool {
    let ends = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_alphanumeric());
    let inner = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    value.bytes().all(inner) && ends(value.bytes().next()) && ends(value.bytes().last())
}

fn too_long(value: &str, max: usize, counted: &str) -> Vec<String> {
    if value.len() > max { vec![format!("must be no more than {max} {counted}")] } else { Vec::new() }
}

fn pattern_error(rule: &str, format: &str, examples: &[&str]) -> String {
    let examples: Vec<String> = examples.iter().map(|example| format!("'{example}', ")).collect();
    format!("{rule} (e.g. {}regex used for validation is '{format}')", examples.join(" or "))
}
