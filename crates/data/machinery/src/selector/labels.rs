//! Label selectors: `app=web,tier in (front,back),!old,rank>5`.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use serde_json::Value;

use super::SelectorError;
use crate::field::{FieldError, FieldPath};
use crate::names::{check_label_value, check_qualified_name};

/// Labels of an object.
pub type Labels = BTreeMap<String, String>;

/// Requirements on labels that must all hold, sorted by key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    requirements: Vec<Requirement>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    operator: Operator,
    /// Sorted.
    values: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    /// The label exists and has the value; two spellings.
    Equals,
    DoubleEquals,
    /// The label does not exist or has another value.
    NotEquals,
    /// The label exists and has one of the values.
    In,
    /// The label does not exist or has none of the values.
    NotIn,
    Exists,
    DoesNotExist,
    /// The label is an integer, and larger.
    GreaterThan,
    /// The label is an integer, and smaller.
    LessThan,
}

impl Selector {
    /// Matches every object.
    pub fn everything() -> Self {
        Selector::default()
    }

    /// Parses the form used in queries: `a=b,c!=d,e in (f,g),!h,i>5`. The empty string matches everything.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let mut tokens = Tokens { rest: text };
        tokens.selector().map(Selector::sorted).map_err(SelectorError)
    }

    /// Converts the form used in objects. An empty selector matches everything.
    pub fn from_label_selector(selector: &LabelSelector) -> Result<Self, SelectorError> {
        let exact = selector.match_labels.iter().flatten().map(|(key, value)| {
            Requirement::new(FieldPath::from("key"), key.clone(), Operator::Equals, vec![value.clone()])
        });
        let expressions = selector.match_expressions.iter().flatten().map(|expression| {
            let LabelSelectorRequirement { key, operator, values } = expression;
            let operator = match operator.as_str() {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                other => return Err(format!("{other:?} is not a valid label selector operator")),
            };
            Requirement::new(FieldPath::from("key"), key.clone(), operator, values.clone().unwrap_or_default())
        });
        let requirements: Result<Vec<Requirement>, String> = exact.chain(expressions).collect();
        requirements.map(Selector::sorted).map_err(SelectorError)
    }

    /// Whether every requirement holds for these labels.
    pub fn matches(&self, labels: &Labels) -> bool {
        self.requirements.iter().all(|requirement| requirement.holds(labels))
    }

    /// Whether it matches everything.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    fn sorted(mut requirements: Vec<Requirement>) -> Self {
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Selector { requirements }
    }
}

impl Requirement {
    /// Validates key and values. `key_path` is the key's path in error messages.
    fn new(key_path: FieldPath, key: String, operator: Operator, mut values: Vec<String>) -> Result<Self, String> {
        let mut errors: Vec<FieldError> = check_key(key_path, &key).into_iter().collect();
        let path = FieldPath::from("values");
        let set = |detail: &str| FieldError::invalid(path.clone(), Value::from(values.clone()), detail);
        match operator {
            Operator::In | Operator::NotIn if values.is_empty() => {
                let detail = "for 'in', 'notin' operators, values set can't be empty";
                errors.push(FieldError::invalid(path.clone(), Value::Null, detail));
            }
            Operator::Exists | Operator::DoesNotExist if !values.is_empty() => {
                errors.push(set("values set must be empty for exists and does not exist"));
            }
            Operator::GreaterThan | Operator::LessThan => {
                let detail = "for 'Gt', 'Lt' operators, the value must be an integer";
                let wrong = values.iter().enumerate().filter(|(_, value)| value.parse::<i64>().is_err());
                errors.extend(wrong.map(|(i, value)| FieldError::invalid(path.index(i), value.as_str(), detail)));
            }
            _ => {}
        }
        for (index, value) in values.iter().enumerate() {
            let problems = check_label_value(value);
            if !problems.is_empty() {
                let path = path.index(index).key(&key);
                errors.push(FieldError::invalid(path, value.as_str(), problems.join("; ")));
            }
        }
        match errors.as_slice() {
            [] => {
                values.sort();
                Ok(Requirement { key, operator, values })
            }
            [error] => Err(error.to_string()),
            errors => Err(format!("[{}]", errors.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))),
        }
    }

    fn holds(&self, labels: &Labels) -> bool {
        let value = labels.get(&self.key);
        let bound = || self.values.first()?.parse::<i64>().ok();
        let number = || value?.parse::<i64>().ok();
        match self.operator {
            Operator::Equals | Operator::DoubleEquals | Operator::In => value.is_some_and(|v| self.values.contains(v)),
            Operator::NotEquals | Operator::NotIn => value.is_none_or(|value| !self.values.contains(value)),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::GreaterThan => number().zip(bound()).is_some_and(|(number, bound)| number > bound),
            Operator::LessThan => number().zip(bound()).is_some_and(|(number, bound)| number < bound),
        }
    }
}

fn check_key(path: FieldPath, key: &str) -> Option<FieldError> {
    let problems = check_qualified_name(key);
    (!problems.is_empty()).then(|| FieldError::invalid(path, key, problems.join("; ")))
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
        let Requirement { key, operator, values } = self;
        let values = values.join(",");
        match operator {
            Operator::Equals => write!(f, "{key}={values}"),
            Operator::DoubleEquals => write!(f, "{key}=={values}"),
            Operator::NotEquals => write!(f, "{key}!={values}"),
            Operator::In => write!(f, "{key} in ({values})"),
            Operator::NotIn => write!(f, "{key} notin ({values})"),
            Operator::Exists => write!(f, "{key}"),
            Operator::DoesNotExist => write!(f, "!{key}"),
            Operator::GreaterThan => write!(f, "{key}>{values}"),
            Operator::LessThan => write!(f, "{key}<{values}"),
        }
    }
}

/// The tokens of a selector, terminated by an empty one.
struct Tokens<'a> {
    rest: &'a str,
}

/// Longer ones first, so that `==` is not taken for two `=`.
const SYMBOLS: [&str; 9] = ["==", "!=", "=", "!", "(", ")", ",", ">", "<"];

fn is_word(token: &str) -> bool {
    !token.is_empty() && !SYMBOLS.contains(&token)
}

impl<'a> Tokens<'a> {
    fn split(&self) -> (&'a str, &'a str) {
        let text = self.rest.trim_start_matches([' ', '\t', '\r', '\n']);
        if let Some(symbol) = SYMBOLS.iter().find(|symbol| text.starts_with(**symbol)) {
            return text.split_at(symbol.len());
        }
        text.split_at(text.find([' ', '\t', '\r', '\n', '=', '!', '(', ')', ',', '>', '<']).unwrap_or(text.len()))
    }

    fn peek(&self) -> &'a str {
        self.split().0
    }

    fn next(&mut self) -> &'a str {
        let (token, rest) = self.split();
        self.rest = rest;
        token
    }

    fn selector(&mut self) -> Result<Vec<Requirement>, String> {
        let mut requirements = Vec::new();
        match self.peek() {
            "" => return Ok(requirements),
            token if token == "!" || is_word(token) => {}
            token => return Err(found(token, ", expected: !, identifier, or 'end of string'")),
        }
        loop {
            let requirement =
                self.requirement().map_err(|problem| format!("unable to parse requirement: {problem}"))?;
            requirements.push(requirement);
            match self.next() {
                "" => return Ok(requirements),
                "," => match self.peek() {
                    token if token == "!" || is_word(token) => {}
                    token => return Err(found(token, ", expected: identifier after ','")),
                },
                token => return Err(found(token, ", expected: ',' or 'end of string'")),
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let absent = self.peek() == "!";
        if absent {
            self.next();
        }
        let key = self.word()?.to_owned();
        // Kubernetes has no field path for a key in a query.
        let nowhere = || FieldPath::from("<nil>");
        if let Some(error) = check_key(nowhere(), &key) {
            return Err(error.to_string());
        }
        let (operator, values) = match self.peek() {
            _ if absent => (Operator::DoesNotExist, Vec::new()),
            "" | "," => (Operator::Exists, Vec::new()),
            _ => self.operator()?,
        };
        Requirement::new(nowhere(), key, operator, values)
    }

    fn operator(&mut self) -> Result<(Operator, Vec<String>), String> {
        let operator = match self.next() {
            "=" => Operator::Equals,
            "==" => Operator::DoubleEquals,
            "!=" => Operator::NotEquals,
            ">" => Operator::GreaterThan,
            "<" => Operator::LessThan,
            "in" => return Ok((Operator::In, self.set()?)),
            "notin" => return Ok((Operator::NotIn, self.set()?)),
            token => return Err(found(token, ", expected: in, notin, =, ==, !=, gt, lt")),
        };
        // A missing value is the empty one, as in `key=`.
        let value = if matches!(self.peek(), "" | ",") { "" } else { self.word()? };
        Ok((operator, vec![value.to_owned()]))
    }

    fn word(&mut self) -> Result<&'a str, String> {
        match self.next() {
            token if is_word(token) => Ok(token),
            token => Err(found(token, ", expected: identifier")),
        }
    }

    /// The values between brackets. A missing value, as between two commas, is the empty one.
    fn set(&mut self) -> Result<Vec<String>, String> {
        match self.next() {
            "(" => {}
            token => return Err(found(token, " expected: '('")),
        }
        let mut values = Vec::new();
        let mut expected = ", expected: ',', ')' or identifier";
        loop {
            match self.peek() {
                "," | ")" => values.push(String::new()),
                token if is_word(token) => {
                    values.push(self.next().to_owned());
                    expected = ", expected: ',' or ')'";
                }
                token => return Err(found(token, expected)),
            }
            match self.next() {
                "," => expected = ", expected: ',', or identifier",
                ")" => break,
                token => return Err(found(token, expected)),
            }
        }
        values.sort();
        values.dedup();
        Ok(values)
    }
}

fn found(token: &str, expected: &str) -> String {
    format!("found '{token}'{expected}")
}
