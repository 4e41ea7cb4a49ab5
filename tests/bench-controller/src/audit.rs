//! What a controller asked of the API server.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Seek as _, SeekFrom};
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use serde_json::Value;

/// Requests by verb and resource.
pub(crate) type Calls = BTreeMap<(String, String), usize>;

/// The audit log, read on from where it was left.
pub(crate) struct Audit {
    path: PathBuf,
    user: &'static str,
    offset: u64,
}

impl Audit {
    pub(crate) fn new(path: PathBuf, user: &'static str) -> Audit {
        Audit { path, user, offset: 0 }
    }

    /// What the user has asked since the last time. Its lease depends on time alone and is left out.
    pub(crate) fn read(&mut self) -> Result<Calls> {
        let doing = || format!("cannot read {}", self.path.display());
        let mut file = File::open(&self.path).with_context(doing)?;
        file.seek(SeekFrom::Start(self.offset)).with_context(doing)?;
        let mut lines = BufReader::new(file);
        let (mut calls, mut line) = (Calls::new(), String::new());
        loop {
            line.clear();
            let length = lines.read_line(&mut line).with_context(doing)?;
            if !line.ends_with('\n') {
                return Ok(calls);
            }
            self.offset += u64::try_from(length)?;
            if let Some(call) = self.call(&line) {
                *calls.entry(call).or_default() += 1;
            }
        }
    }

    fn call(&self, line: &str) -> Option<(String, String)> {
        let event: Value = serde_json::from_str(line).ok()?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        // A watch is told twice: when it begins, and when it ends.
        if event["user"]["username"] != self.user || event["verb"] == "watch" && event["stage"] == "ResponseStarted" {
            return None;
        }
        let object = &event["objectRef"];
        let resource = match (text(&object["resource"]), text(&object["subresource"])) {
            (resource, _) if resource == "leases" => return None,
            (resource, _) if resource.is_empty() => text(&event["requestURI"]),
            (resource, part) if part.is_empty() => resource,
            (resource, part) => format!("{resource}/{part}"),
        };
        Some((text(&event["verb"]), resource))
    }
}

/// Whether a verb changes something.
pub(crate) fn writes(verb: &str) -> bool {
    matches!(verb, "create" | "update" | "patch" | "delete" | "deletecollection")
}
