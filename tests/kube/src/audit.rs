//! What was asked of an API server, by its audit log.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Seek as _, SeekFrom};
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use serde_json::Value;

/// Requests by verb and resource.
pub type Calls = BTreeMap<(String, String), usize>;

/// The audit log, read on from where it was left.
pub struct Audit {
    path: PathBuf,
    offset: u64,
}

impl Audit {
    pub fn new(path: PathBuf) -> Audit {
        Audit { path, offset: 0 }
    }

    /// What each user has asked since the last time. Leases depend on time alone and are left out.
    pub fn read(&mut self) -> Result<BTreeMap<String, Calls>> {
        let doing = || format!("cannot read {}", self.path.display());
        let mut file = File::open(&self.path).with_context(doing)?;
        file.seek(SeekFrom::Start(self.offset)).with_context(doing)?;
        let mut lines = BufReader::new(file);
        let (mut users, mut line) = (BTreeMap::<String, Calls>::new(), String::new());
        loop {
            line.clear();
            let length = lines.read_line(&mut line).with_context(doing)?;
            if !line.ends_with('\n') {
                return Ok(users);
            }
            self.offset += u64::try_from(length)?;
            if let Some((user, verb, resource)) = call(&line) {
                *users.entry(user).or_default().entry((verb, resource)).or_default() += 1;
            }
        }
    }
}

/// User, verb and resource of a request.
fn call(line: &str) -> Option<(String, String, String)> {
    let event: Value = serde_json::from_str(line).ok()?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    // A watch is told twice: when it begins, and when it ends.
    if event["verb"] == "watch" && event["stage"] == "ResponseStarted" {
        return None;
    }
    let object = &event["objectRef"];
    let resource = match (text(&object["resource"]), text(&object["subresource"])) {
        (resource, _) if resource == "leases" => return None,
        (resource, _) if resource.is_empty() => text(&event["requestURI"]),
        (resource, part) if part.is_empty() => resource,
        (resource, part) => format!("{resource}/{part}"),
    };
    Some((text(&event["user"]["username"]), text(&event["verb"]), resource))
}

/// Whether a verb changes something.
pub fn writes(verb: &str) -> bool {
    matches!(verb, "create" | "update" | "patch" | "delete" | "deletecollection")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn requests_are_counted_once_by_user_and_a_line_that_is_being_written_later() {
        let event = |user: &str, verb: &str, resource: &str, part: &str, stage: &str| {
            format!(
                r#"{{"user":{{"username":"{user}"}},"verb":"{verb}","stage":"{stage}","objectRef":{{"resource":"{resource}","subresource":"{part}"}}}}"#
            )
        };
        let lines = [
            event("a", "patch", "pods", "status", "ResponseComplete"),
            event("a", "patch", "pods", "status", "ResponseComplete"),
            event("a", "watch", "pods", "", "ResponseStarted"),
            event("a", "update", "leases", "", "ResponseComplete"),
            event("b", "get", "nodes", "", "ResponseComplete"),
        ];
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        let begun = event("b", "list", "nodes", "", "ResponseComplete");
        fs::write(&path, format!("{}\n{begun}", lines.join("\n"))).unwrap();
        let mut audit = Audit::new(path.clone());
        let calls = |verb: &str, resource: &str, count| Calls::from([((verb.to_owned(), resource.to_owned()), count)]);
        let seen = audit.read().unwrap();
        let expected = [("a".to_owned(), calls("patch", "pods/status", 2)), ("b".to_owned(), calls("get", "nodes", 1))];
        assert_eq!(seen, expected.into());
        fs::write(&path, format!("{}\n{begun}\n", lines.join("\n"))).unwrap();
        assert_eq!(audit.read().unwrap(), [("b".to_owned(), calls("list", "nodes", 1))].into());
        assert!(Audit::new(folder.path().join("none")).read().is_err());
    }
}
