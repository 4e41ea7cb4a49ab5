//! Reading manifests: files, directories and standard input, with several YAML or JSON documents each.
//!
//! Strict where a mistake would otherwise be lost (a key written twice, a document that is no object), and every error
//! names the file, the document and the line.

use std::fmt;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde_json::Value;
use serde_saphyr::options::DuplicateKeyPolicy;

/// Where a document was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    /// The file, or "standard input".
    pub(crate) file: String,
    /// Counted from one.
    pub(crate) document: usize,
    /// The line the document begins on, counted from one.
    pub(crate) line: usize,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, document {} (line {})", self.file, self.document, self.line)
    }
}

/// One object of a manifest.
#[derive(Clone, Debug)]
pub(crate) struct Document {
    pub(crate) origin: Origin,
    pub(crate) object: Value,
}

impl Document {
    pub(crate) fn api_version(&self) -> &str {
        self.text("/apiVersion")
    }

    pub(crate) fn kind(&self) -> &str {
        self.text("/kind")
    }

    pub(crate) fn name(&self) -> &str {
        self.text("/metadata/name")
    }

    pub(crate) fn namespace(&self) -> Option<&str> {
        Some(self.text("/metadata/namespace")).filter(|namespace| !namespace.is_empty())
    }

    fn text(&self, pointer: &str) -> &str {
        self.object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }
}

/// Input that is no manifest.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    #[error("cannot read {file}")]
    Io {
        file: String,
        #[source]
        error: std::io::Error,
    },
    #[error("{file}, document {document}, line {line}: {problem}")]
    Syntax { file: String, document: usize, line: usize, problem: String },
    #[error("{origin}: {problem}")]
    Object { origin: Origin, problem: String },
    #[error("{0} has no objects")]
    Empty(String),
}

/// Reads what `-f` names: files, directories (their .yaml, .yml and .json files, with `recursive` also below), `-`.
pub(crate) fn read(paths: &[PathBuf], recursive: bool) -> Result<Vec<Document>, ReadError> {
    let mut documents = Vec::new();
    for path in paths {
        let before = documents.len();
        if path == Path::new("-") {
            let mut text = String::new();
            std::io::stdin()
                .read_to_string(&mut text)
                .map_err(|error| ReadError::Io { file: "standard input".into(), error })?;
            documents.extend(parse("standard input", &text)?);
        } else {
            for file in files(path, recursive)? {
                let name = file.display().to_string();
                let text =
                    std::fs::read_to_string(&file).map_err(|error| ReadError::Io { file: name.clone(), error })?;
                documents.extend(parse(&name, &text)?);
            }
        }
        if documents.len() == before {
            return Err(ReadError::Empty(path.display().to_string()));
        }
    }
    Ok(documents)
}

/// The file itself, or a directory's manifests in the order of their names.
fn files(path: &Path, recursive: bool) -> Result<Vec<PathBuf>, ReadError> {
    let failed = |error| ReadError::Io { file: path.display().to_string(), error };
    if !std::fs::metadata(path).map_err(failed)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut entries: Vec<PathBuf> =
        std::fs::read_dir(path).and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect()).map_err(failed)?;
    entries.sort();
    let mut found = Vec::new();
    for entry in entries {
        if entry.is_dir() {
            if recursive {
                found.extend(files(&entry, true)?);
            }
        } else if entry
            .extension()
            .is_some_and(|extension| extension == "yaml" || extension == "yml" || extension == "json")
        {
            found.push(entry);
        }
    }
    Ok(found)
}

/// The documents of one text. Items of a `List` are documents of their own.
pub(crate) fn parse(file: &str, text: &str) -> Result<Vec<Document>, ReadError> {
    let mut documents = Vec::new();
    for (number, (first_line, chunk)) in split(text).into_iter().enumerate() {
        let origin = Origin { file: file.to_owned(), document: number + 1, line: first_line };
        let value: Value =
            serde_saphyr::from_str_with_options(chunk, options()).map_err(|error| ReadError::Syntax {
                file: file.to_owned(),
                document: origin.document,
                line: first_line + error.location().map_or(0, |location| location.line() as usize).saturating_sub(1),
                problem: problem(&error),
            })?;
        if !value.is_null() {
            documents.extend(objects(origin, value)?);
        }
    }
    Ok(documents)
}

fn options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        duplicate_keys: DuplicateKeyPolicy::Error,
        with_snippet: false,
    }
}

/// The parser's message for users, without the position, which we tell ourselves: it counts from the document's start.
fn problem(error: &serde_saphyr::Error) -> String {
    let text = error.render_with_formatter(&serde_saphyr::UserMessageFormatter);
    let text = text.lines().next().unwrap_or_default();
    match text.find(" at line ") {
        Some(position) => text[..position].to_owned(),
        None => text.to_owned(),
    }
}

/// Cuts a stream at its document markers. A marker cannot occur inside a document, not even in a block of text.
fn split(text: &str) -> Vec<(usize, &str)> {
    let mut chunks = Vec::new();
    let (mut start, mut first_line, mut offset) = (0, 1, 0);
    for (index, line) in text.split_inclusive('\n').enumerate() {
        let marker =
            line.strip_prefix("---").is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace));
        if marker && offset > start {
            chunks.push((first_line, &text[start..offset]));
            (start, first_line) = (offset, index + 1);
        }
        offset += line.len();
    }
    chunks.push((first_line, &text[start..]));
    chunks.retain(|(_, chunk)| chunk.lines().any(has_content));
    chunks
}

fn has_content(line: &str) -> bool {
    let line = line.trim();
    !(line.is_empty() || line.starts_with('#') || line.starts_with('%') || line == "---" || line == "...")
}

/// A document's objects: itself, or the items of a list.
fn objects(origin: Origin, value: Value) -> Result<Vec<Document>, ReadError> {
    let refuse = |problem: &str| Err(ReadError::Object { origin: origin.clone(), problem: problem.to_owned() });
    if !value.is_object() {
        return refuse("is not an object; a manifest is a mapping with apiVersion, kind and metadata");
    }
    let document = Document { origin: origin.clone(), object: value };
    if document.api_version().is_empty() {
        return refuse("apiVersion is not set");
    }
    if document.kind().is_empty() {
        return refuse("kind is not set");
    }
    if document.kind() != "List" {
        return Ok(vec![document]);
    }
    match document.object.get("items") {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(items)) => {
            let each = items.iter().map(|item| objects(origin.clone(), item.clone()));
            Ok(each.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
        }
        Some(_) => refuse("items is not a list"),
    }
}

/// An object as a manifest that reads well.
pub(crate) fn to_yaml(value: &impl serde::Serialize) -> anyhow::Result<String> {
    // Long lines stay as they are: folding them would make them hard to search for.
    let options = serde_saphyr::ser_options! { folded_wrap_chars: usize::MAX };
    Ok(serde_saphyr::to_string_with_options(value, options)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Vec<(String, usize)> {
        let documents = parse("m.yaml", text).unwrap();
        documents.iter().map(|document| (document.kind().to_owned(), document.origin.line)).collect()
    }

    #[test]
    fn documents_know_their_lines() {
        let text =
            "# first\napiVersion: v1\nkind: A\n---\n\n---\n# nothing here\n--- # second\napiVersion: v1\nkind: B\n";
        assert_eq!(kinds(text), [("A".into(), 1), ("B".into(), 8)]);
        assert_eq!(kinds("{\"apiVersion\": \"v1\", \"kind\": \"C\"}"), [("C".into(), 1)]);
        assert_eq!(kinds("---\napiVersion: v1\nkind: A\ndata: |\n  --- not a marker\n"), [("A".into(), 1)]);
        assert_eq!(kinds(""), []);
    }

    #[test]
    fn the_items_of_a_list_are_objects() {
        let text = "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: A}\n- {apiVersion: v1, kind: B}\n";
        assert_eq!(kinds(text), [("A".into(), 1), ("B".into(), 1)]);
    }

    #[test]
    fn mistakes_are_named_with_file_document_and_line() {
        let good = "apiVersion: v1\nkind: A\n---\n";
        let cases = [
            ("apiVersion: v1\nkind: A\nkind: B\n", "m.yaml, document 2, line 6: duplicate mapping key: kind"),
            ("apiVersion: v1\nkind: [A\n", "m.yaml, document 2, line "),
            ("kind: A\n", "m.yaml, document 2 (line 3): apiVersion is not set"),
            ("apiVersion: v1\n", "m.yaml, document 2 (line 3): kind is not set"),
            ("- a\n", "m.yaml, document 2 (line 3): is not an object"),
        ];
        for (bad, want) in cases {
            let error = parse("m.yaml", &format!("{good}{bad}")).unwrap_err().to_string();
            assert!(error.starts_with(want), "{bad:?}: {error}");
        }
    }

    #[test]
    fn a_directory_is_read_in_order_and_only_below_if_asked() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, kind: &str| {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, format!("apiVersion: v1\nkind: {kind}\n")).unwrap();
        };
        write("b.yaml", "B");
        write("a.yml", "A");
        write("notes.txt", "N");
        write("below/c.json", "C");
        let kinds = |recursive| {
            let documents = read(&[dir.path().to_owned()], recursive).unwrap();
            documents.iter().map(|document| document.kind().to_owned()).collect::<String>()
        };
        assert_eq!(kinds(false), "AB");
        assert_eq!(kinds(true), "ABC");
        let missing = read(&[dir.path().join("missing.yaml")], false).unwrap_err();
        assert!(missing.to_string().ends_with("missing.yaml"), "{missing}");
    }

    #[test]
    fn yaml_output_keeps_text_blocks_and_types() {
        let value = serde_json::json!({"text": "#!/bin/sh\necho hi\n", "yes": "yes", "number": "12", "long": "word ".repeat(40)});
        let yaml = to_yaml(&value).unwrap();
        assert!(yaml.contains("text: |\n  #!/bin/sh\n  echo hi\n"), "{yaml}");
        let back: Value = serde_saphyr::from_str(&yaml).unwrap();
        assert_eq!(back, value, "{yaml}");
    }
}
