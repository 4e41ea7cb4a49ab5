//! Reading manifests: files, directories and standard input.

use std::io::Read as _;
use std::path::{Path, PathBuf};

pub(crate) use manifests::{Document, Origin, to_yaml};

/// Input that is not a manifest.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    #[error("cannot read {file}")]
    Io {
        file: String,
        #[source]
        error: std::io::Error,
    },
    #[error(transparent)]
    Manifest(#[from] manifests::ReadError),
    #[error("{0} has no objects")]
    Empty(String),
}

/// Reads the files of `-f`: files, directories (their .yaml, .yml and .json files, recursively with `recursive`), `-`.
pub(crate) fn read(paths: &[PathBuf], recursive: bool) -> Result<Vec<Document>, ReadError> {
    let mut documents = Vec::new();
    for path in paths {
        let before = documents.len();
        if path == Path::new("-") {
            let mut bytes = Vec::new();
            std::io::stdin()
                .read_to_end(&mut bytes)
                .map_err(|error| ReadError::Io { file: "standard input".into(), error })?;
            documents.extend(manifests::parse_bytes("standard input", &bytes)?);
        } else {
            for file in files(path, recursive)? {
                let name = file.display().to_string();
                let bytes = std::fs::read(&file).map_err(|error| ReadError::Io { file: name.clone(), error })?;
                documents.extend(manifests::parse_bytes(&name, &bytes)?);
            }
        }
        if documents.len() == before {
            return Err(ReadError::Empty(path.display().to_string()));
        }
    }
    Ok(documents)
}

/// The file itself, or a directory's manifests sorted by name.
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
