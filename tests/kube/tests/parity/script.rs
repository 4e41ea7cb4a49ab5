//! The script as data; `script.txt` explains how it is written.

use std::fmt;

use anyhow::{Context, Result, bail};

/// The requests, and the lines between them.
pub(super) struct Script(Vec<Part>);

enum Part {
    /// Comments and empty lines.
    Between(String),
    Request(Box<Request>),
}

#[derive(Default)]
pub(super) struct Request {
    pub(super) title: String,
    pub(super) verb: String,
    pub(super) path: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: String,
    /// The code to wait for.
    pub(super) until: Option<u16>,
    /// Names for values of the answer.
    pub(super) keep: Vec<(String, String)>,
    /// Code and reason of the answer.
    pub(super) expected: String,
}

impl Script {
    pub(super) fn parse(text: &str) -> Result<Script> {
        let mut parts = Vec::new();
        for block in text.split("\n\n") {
            parts.push(match block.strip_prefix("- ") {
                Some(request) => {
                    let doing = || format!("cannot read the request: {block}");
                    Part::Request(Box::new(Request::parse(request).with_context(doing)?))
                }
                None => Part::Between(block.trim_end().to_owned()),
            });
        }
        Ok(Script(parts))
    }

    pub(super) fn requests(&self) -> impl Iterator<Item = &Request> {
        self.0.iter().filter_map(|part| match part {
            Part::Request(request) => Some(&**request),
            Part::Between(_) => None,
        })
    }

    pub(super) fn requests_mut(&mut self) -> impl Iterator<Item = &mut Request> {
        self.0.iter_mut().filter_map(|part| match part {
            Part::Request(request) => Some(&mut **request),
            Part::Between(_) => None,
        })
    }
}

impl Request {
    fn parse(text: &str) -> Result<Request> {
        let mut lines = text.lines();
        let title = lines.next().unwrap_or_default().to_owned();
        let (verb, path) = lines.next().and_then(|line| line.split_once(' ')).context("there is no verb and path")?;
        let mut request = Request { title, verb: verb.to_owned(), path: path.to_owned(), ..Request::default() };
        let mut body = Vec::new();
        for line in lines {
            if let Some(header) = line.strip_prefix("@ ") {
                let (name, value) = header.split_once(": ").context("a header needs a value")?;
                request.headers.push((name.to_owned(), value.to_owned()));
            } else if let Some(code) = line.strip_prefix("until ") {
                request.until = Some(code.parse().context("a code is a number")?);
            } else if let Some(keep) = line.strip_prefix("keep ") {
                let (name, pointer) = keep.split_once(' ').context("what is kept needs a name and a place")?;
                request.keep.push((name.to_owned(), pointer.to_owned()));
            } else if let Some(expected) = line.strip_prefix("=> ") {
                request.expected = expected.to_owned();
            } else {
                body.push(line);
            }
        }
        if request.expected.is_empty() {
            bail!("it has no answer");
        }
        request.body = body.join("\n");
        Ok(request)
    }
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> = self
            .0
            .iter()
            .map(|part| match part {
                Part::Between(text) => text.clone(),
                Part::Request(request) => request.to_string(),
            })
            .collect();
        writeln!(f, "{}", parts.join("\n\n"))
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Request { title, verb, path, headers, body, until, keep, expected } = self;
        writeln!(f, "- {title}\n{verb} {path}")?;
        headers.iter().try_for_each(|(name, value)| writeln!(f, "@ {name}: {value}"))?;
        if !body.is_empty() {
            writeln!(f, "{body}")?;
        }
        until.iter().try_for_each(|code| writeln!(f, "until {code}"))?;
        keep.iter().try_for_each(|(name, pointer)| writeln!(f, "keep {name} {pointer}"))?;
        write!(f, "=> {expected}")
    }
}
