//! Field selectors: exact values, equal or not equal.

use std::fmt;

use serde_json::Value;

use super::SelectorError;

/// Exact requirements on fields that must all hold, such as `metadata.name=a,spec.nodeName!=b`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector {
    terms: Vec<FieldTerm>,
}

/// One field and the value it must or must not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldTerm {
    pub field: String,
    pub value: String,
    pub equal: bool,
}

impl FieldSelector {
    /// Parses the form used in queries. The empty string matches everything.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let mut parts = split_unescaped(text);
        parts.sort_unstable();
        let mut terms = Vec::new();
        for part in parts.into_iter().filter(|part| !part.is_empty()) {
            let (field, value, equal) = split_term(part)
                .ok_or_else(|| SelectorError(format!("invalid selector: '{text}'; can't understand '{part}'")))?;
            let term = FieldTerm { field: field.to_owned(), value: unescape(value)?, equal };
            // A lone `=` is ignored.
            if !(term.field.is_empty() && term.value.is_empty()) {
                terms.push(term);
            }
        }
        Ok(FieldSelector { terms })
    }

    /// Whether every requirement holds for this object. An absent field counts as the empty string.
    pub fn matches(&self, object: &Value) -> bool {
        self.terms.iter().all(|term| (field_text(object, &term.field) == term.value) == term.equal)
    }

    /// Its requirements, for a server to check which fields it can select by.
    pub fn terms(&self) -> &[FieldTerm] {
        &self.terms
    }

    /// Whether it matches everything.
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }
}

impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, FieldTerm { field, value, equal }) in self.terms.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            let operator = if *equal { "=" } else { "!=" };
            write!(f, "{comma}{field}{operator}")?;
            for character in value.chars() {
                let escape = if matches!(character, '\\' | ',' | '=') { "\\" } else { "" };
                write!(f, "{escape}{character}")?;
            }
        }
        Ok(())
    }
}

fn field_text(object: &Value, field: &str) -> String {
    match field.split('.').try_fold(object, |value, name| value.get(name)) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

/// Splits at commas that are not escaped by a backslash.
fn split_unescaped(text: &str) -> Vec<&str> {
    let mut terms = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (index, character) in text.char_indices() {
        if character == ',' && !escaped {
            terms.push(&text[start..index]);
            start = index + 1;
        }
        escaped = character == '\\' && !escaped;
    }
    terms.push(&text[start..]);
    terms
}

/// Splits at the first operator into field, value and whether they must be equal.
fn split_term(term: &str) -> Option<(&str, &str, bool)> {
    let at = term
        .char_indices()
        .map(|(at, _)| at)
        .find(|&at| term[at..].starts_with("!=") || term[at..].starts_with('='))?;
    let (field, rest) = term.split_at(at);
    if let Some(value) = rest.strip_prefix("!=") {
        return Some((field, value, false));
    }
    let value = rest.strip_prefix("==").or_else(|| rest.strip_prefix('='))?;
    Some((field, value, true))
}

fn unescape(value: &str) -> Result<String, SelectorError> {
    let wrong = |sequence: &str| SelectorError(format!("invalid field selector: invalid escape sequence: {sequence}"));
    let mut text = String::new();
    let mut characters = value.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => match characters.next() {
                Some(escaped @ ('\\' | ',' | '=')) => text.push(escaped),
                Some(other) => return Err(wrong(&format!("\\{other}"))),
                None => return Err(wrong("\\")),
            },
            // Kubernetes prints the code point.
            '=' => {
                let problem = "invalid field selector: unescaped character in value: 61";
                return Err(SelectorError(problem.to_owned()));
            }
            other => text.push(other),
        }
    }
    Ok(text)
}
