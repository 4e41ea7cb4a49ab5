//! The dictionary as users see it: `ferrovirt validate`, and the documents that are generated from its tables.
//!
//! Generated files are compared with what they should be now; `cargo xtask docs` writes them anew.

mod api_document;
mod controllers_document;
mod examples;
mod render;
mod rights_document;
mod validate;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..").canonicalize().unwrap()
}

/// The manifests of KubeVirt, or a word that the comparison with them is skipped: in CI, too, since they are not part of
/// the project.
fn kubevirt_examples() -> Option<Vec<PathBuf>> {
    let Some(shared) = std::env::var_os("FERROVIRT_SHARED") else {
        eprintln!("skipped: FERROVIRT_SHARED is not set, so KubeVirt's examples are not there");
        return None;
    };
    Some(manifests_in(&Path::new(&shared).join("data/kubevirt-examples")))
}

fn own_examples() -> Vec<PathBuf> {
    manifests_in(&workspace().join("examples"))
}

/// A folder's manifests in the order of their names.
fn manifests_in(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    assert!(!files.is_empty(), "{} has no manifests", folder.display());
    files
}

fn name_of(file: &Path) -> &str {
    file.file_name().unwrap().to_str().unwrap()
}

/// What `ferrovirt validate` says.
struct Ran {
    code: i32,
    out: String,
    err: String,
}

impl Ran {
    fn of(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Ran { code: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) }
    }
}

fn validate(words: &[&str]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ferrovirt"));
    Ran::of(command.arg("validate").args(words).env("FERROVIRT_LOG", "off").output().unwrap())
}

/// Compares a generated file with what it should be, or writes it if that was asked for.
#[track_caller]
fn up_to_date(path: &Path, wanted: &str) {
    if std::env::var_os("FERROVIRT_UPDATE").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, wanted).unwrap();
        return;
    }
    let written = std::fs::read_to_string(path).unwrap_or_default();
    if written == wanted {
        return;
    }
    let pairs = written.lines().zip(wanted.lines()).enumerate();
    let first = pairs.into_iter().find(|(_, (written, wanted))| written != wanted);
    let (line, (written, wanted)) = first.map_or((0, ("", "")), |(index, lines)| (index + 1, lines));
    panic!(
        "{} is out of date; run `cargo xtask docs` and review what changed.\nfirst difference, line {line}:\n\
         - {written}\n+ {wanted}",
        path.display()
    );
}
