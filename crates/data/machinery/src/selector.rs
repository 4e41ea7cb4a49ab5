//! Selectors over labels and fields.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::Value;

use crate::names::{check_label_value, check_qualified_name};

/// Labels of an object.
pub type Labels = BTreeMap<String, String>;

/// Why a selector cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unable to parse selector {selector:?}: {problem}")]
pub struct SelectorError {
    selector: String,
    problem: String,
}

/// Requirements on labels that must all hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    requirements: Vec<Requirement>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    /// The label exists and has one of these values.
    In(Vec<String>),
    /// The label does not exist or has none of these values.
    NotIn(Vec<String>),
    Exists,
    DoesNotExist,
    GreaterThan(i64),
    LessThan(i64),
}

impl Selector {
    /// Matches every object.
    pub fn everything() -> Self {
        Selector::default()
    }

    /// Reads the form used in queries: `a=b,c!=d,e in (f,g),!h,i>5`. The empty string matches everything.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let mut requirements = Vec::new();
        let mut tokens = Tokens { rest: text };
        let fail = |problem: String| SelectorError { selector: text.to_owned(), problem };
        if tokens.peek().is_none() {
            return Ok(Selector::default());
        }
        loop {
            let requirement = tokens.requirement().map_err(fail)?;
            check(&requirement).map_err(fail)?;
            requirements.push(requirement);
            match tokens.next() {
                None => return Ok(Selector { requirements }),
                Some(",") => {}
                Some(other) => return Err(fail(format!("found '{other}', expected: ',' or end"))),
            }
        }
    }

    /// Reads the form used in objects. An empty selector matches everything.
    pub fn from_label_selector(selector: &LabelSelector) -> Result<Self, SelectorError> {
        let exact = selector.match_labels.iter().flatten();
        let mut requirements: Vec<Requirement> =
            exact.map(|(key, value)| Requirement { key: key.clone(), test: Test::In(vec![value.clone()]) }).collect();
        for expression in selector.match_expressions.iter().flatten() {
            let values = expression.values.clone().unwrap_or_default();
            let fail = |problem: &str| SelectorError {
                selector: format!("{} {} ({})", expression.key, expression.operator, values.join(",")),
                problem: problem.to_owned(),
            };
            let test = match (expression.operator.as_str(), values.is_empty()) {
                ("In", false) => Test::In(values),
                ("NotIn", false) => Test::NotIn(values),
                ("In" | "NotIn", true) => return Err(fail("the operators In and NotIn need values")),
                ("Exists", true) => Test::Exists,
                ("DoesNotExist", true) => Test::DoesNotExist,
                ("Exists" | "DoesNotExist", false) => {
                    return Err(fail("the operators Exists and DoesNotExist take no values"));
                }
                _ => return Err(fail("the operator must be In, NotIn, Exists or DoesNotExist")),
            };
            requirements.push(Requirement { key: expression.key.clone(), test });
        }
        for requirement in &requirements {
            check(requirement).map_err(|problem| SelectorError { selector: requirement.to_string(), problem })?;
        }
        Ok(Selector { requirements })
    }

    /// Whether every requirement holds for these labels.
    pub fn matches(&self, labels: &Labels) -> bool {
        self.requirements.iter().all(|requirement| requirement.holds(labels))
    }

    /// Whether it matches everything.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }
}

impl Requirement {
    fn holds(&self, labels: &Labels) -> bool {
        let value = labels.get(&self.key);
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match &self.test {
            Test::In(values) => value.is_some_and(|value| values.contains(value)),
            Test::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
            Test::Exists => value.is_some(),
            Test::DoesNotExist => value.is_none(),
            Test::GreaterThan(bound) => number().is_some_and(|number| number > *bound),
            Test::LessThan(bound) => number().is_some_and(|number| number < *bound),
        }
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, requirement) in self.requirements.iter().enumerate() {
            write!(f, "{}{requirement}", if index == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = &self.key;
        match &self.test {
            Test::In(values) if values.len() == 1 => write!(f, "{key}={}", values[0]),
            Test::NotIn(values) if values.len() == 1 => write!(f, "{key}!={}", values[0]),
            Test::In(values) => write!(f, "{key} in ({})", values.join(",")),
            Test::NotIn(values) => write!(f, "{key} notin ({})", values.join(",")),
            Test::Exists => write!(f, "{key}"),
            Test::DoesNotExist => write!(f, "!{key}"),
            Test::GreaterThan(bound) => write!(f, "{key}>{bound}"),
            Test::LessThan(bound) => write!(f, "{key}<{bound}"),
        }
    }
}

fn check(requirement: &Requirement) -> Result<(), String> {
    if let Some(problem) = check_qualified_name(&requirement.key).first() {
        return Err(format!("key {:?}: {problem}", requirement.key));
    }
    let values = match &requirement.test {
        Test::In(values) | Test::NotIn(values) => values.as_slice(),
        _ => &[],
    };
    for value in values {
        if let Some(problem) = check_label_value(value).first() {
            return Err(format!("value {value:?} of key {:?}: {problem}", requirement.key));
        }
    }
    Ok(())
}

/// The words and symbols of a selector.
struct Tokens<'a> {
    rest: &'a str,
}

const SYMBOLS: [&str; 9] = ["==", "!=", "=", "!", "(", ")", ",", ">", "<"];

impl<'a> Tokens<'a> {
    fn split(&self) -> Option<(&'a str, &'a str)> {
        let text = self.rest.trim_start();
        if text.is_empty() {
            return None;
        }
        if let Some(symbol) = SYMBOLS.iter().find(|symbol| text.starts_with(**symbol)) {
            return Some(text.split_at(symbol.len()));
        }
        let end = text.find(|c: char| c.is_ascii_whitespace() || "=!(),><".contains(c)).unwrap_or(text.len());
        Some(text.split_at(end))
    }

    fn peek(&self) -> Option<&'a str> {
        self.split().map(|(token, _)| token)
    }

    fn next(&mut self) -> Option<&'a str> {
        let (token, rest) = self.split()?;
        self.rest = rest;
        Some(token)
    }

    fn word(&mut self) -> Option<&'a str> {
        let token = self.peek().filter(|token| !SYMBOLS.contains(token))?;
        self.next();
        Some(token)
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let negated = self.peek() == Some("!");
        if negated {
            self.next();
        }
        let key = self.word().ok_or_else(|| self.found("identifier"))?.to_owned();
        if negated {
            return Ok(Requirement { key, test: Test::DoesNotExist });
        }
        let test = match self.peek() {
            None | Some(",") => Test::Exists,
            Some(operator) => {
                self.next();
                self.operand(operator)?
            }
        };
        Ok(Requirement { key, test })
    }

    fn operand(&mut self, operator: &str) -> Result<Test, String> {
        let number = |text: &str| text.parse().map_err(|_| format!("'{text}' is not an integer"));
        match operator {
            // A missing value is the empty string, as in `key=`.
            "=" | "==" => Ok(Test::In(vec![self.word().unwrap_or_default().to_owned()])),
            "!=" => Ok(Test::NotIn(vec![self.word().unwrap_or_default().to_owned()])),
            ">" => number(self.word().unwrap_or_default()).map(Test::GreaterThan),
            "<" => number(self.word().unwrap_or_default()).map(Test::LessThan),
            "in" => self.set().map(Test::In),
            "notin" => self.set().map(Test::NotIn),
            other => Err(format!("found '{other}', expected: in, notin, =, ==, !=, >, <")),
        }
    }

    fn set(&mut self) -> Result<Vec<String>, String> {
        if self.next() != Some("(") {
            return Err(self.found("'('"));
        }
        let mut values = Vec::new();
        loop {
            // Between two commas stands the empty value.
            values.push(self.word().unwrap_or_default().to_owned());
            match self.next() {
                Some(",") => {}
                Some(")") => break,
                _ => return Err(self.found("',' or ')'")),
            }
        }
        values.sort();
        values.dedup();
        Ok(values)
    }

    fn found(&self, expected: &str) -> String {
        format!("found '{}', expected: {expected}", self.peek().unwrap_or_default())
    }
}

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
    /// Reads the form used in queries. The empty string matches everything.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let fail = |problem: String| SelectorError { selector: text.to_owned(), problem };
        let mut terms = Vec::new();
        for term in split_unescaped(text).into_iter().filter(|term| !term.is_empty()) {
            let (field, value, equal) = split_term(term)
                .ok_or_else(|| fail(format!("{term:?} is not of the form field=value or field!=value")))?;
            terms.push(FieldTerm { field: field.trim().to_owned(), value: unescape(value).map_err(fail)?, equal });
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

fn field_text(object: &Value, field: &str) -> String {
    match field.split('.').try_fold(object, |value, name| value.get(name)) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

/// Splits at commas that no backslash protects.
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

fn split_term(term: &str) -> Option<(&str, &str, bool)> {
    let at = term.find(['=', '!'])?;
    let (field, rest) = term.split_at(at);
    if let Some(value) = rest.strip_prefix("!=") {
        return Some((field, value, false));
    }
    let value = rest.strip_prefix("==").or_else(|| rest.strip_prefix('='))?;
    Some((field, value, true))
}

fn unescape(value: &str) -> Result<String, String> {
    let mut text = String::new();
    let mut characters = value.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => match characters.next() {
                Some(escaped @ ('\\' | ',' | '=')) => text.push(escaped),
                Some(other) => return Err(format!("invalid escape '\\{other}'")),
                None => return Err("ends in a lone backslash".to_owned()),
            },
            '=' => return Err(format!("{value:?} holds an unescaped '='")),
            other => text.push(other),
        }
    }
    Ok(text)
}
