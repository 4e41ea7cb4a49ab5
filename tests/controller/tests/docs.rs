//! `docs/controllers.md` has every condition, reason, event, phase and word that the controllers use, and no others.
//!
//! A binary of its own: the `main` of the other one builds kube-apiserver first, and this only reads files.

#![allow(clippy::unwrap_used, reason = "the helpers of a test may panic like the test itself")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use regex::Regex;

/// Where constants are used by what writes conditions and events of virtual machines, instances and nodes.
const USERS: [&str; 6] = [
    "crates/decide/plan/src",
    "crates/decide/instancetype/src",
    "crates/decide/render/src",
    "crates/decide/vmstate/src",
    "crates/program/virt-controller/src",
    "crates/program/virt-handler/src",
];

type Words = BTreeSet<String>;

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    fs::read_to_string(workspace().join(path)).unwrap_or_else(|err| panic!("{path}: {err}"))
}

/// The Rust code below a folder, without its tests.
fn sources(folder: &Path, into: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let (path, name) = (entry.path(), entry.file_name().into_string().unwrap());
        if path.is_dir() && name != "tests" {
            sources(&path, into);
        } else if name.ends_with(".rs") && name != "tests.rs" {
            let text = fs::read_to_string(&path).unwrap();
            into.push(text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default().to_owned());
        }
    }
}

fn code() -> Vec<String> {
    let mut all = vec![];
    USERS.iter().for_each(|user| sources(&workspace().join(user), &mut all));
    assert!(!all.is_empty());
    all
}

/// The string constants of a module of `api`, by name.
fn constants(module: &str) -> BTreeMap<String, String> {
    let constant = Regex::new(r#"pub const ([A-Z_0-9]+): &str = "([^"]+)";"#).unwrap();
    let text = read(&format!("crates/data/api/src/{module}.rs"));
    let found = constant.captures_iter(&text).map(|found| (found[1].to_owned(), found[2].to_owned())).collect();
    assert_ne!(found, BTreeMap::new(), "{module}");
    found
}

/// The values of those constants of a module that the code names, alone or in an import of several.
fn used(code: &[String], module: &str, known: &BTreeMap<String, String>) -> Words {
    let path = Regex::new(&format!(r"\b{module}::(?:\{{([^}}]*)\}}|([A-Z][A-Z_0-9]+)\b)")).unwrap();
    let mut values = Words::new();
    for found in code.iter().flat_map(|text| path.captures_iter(text)) {
        let names = found.get(1).or(found.get(2)).map_or("", |names| names.as_str()).split(',').map(str::trim);
        for name in
            names.filter(|name| name.starts_with(|c: char| c.is_ascii_uppercase()) && *name == name.to_uppercase())
        {
            values.insert(known.get(name).unwrap_or_else(|| panic!("{module}::{name} is not known")).clone());
        }
    }
    values
}

/// Reasons that only the node agent knows.
fn of_the_node_agent() -> Words {
    let own = Regex::new(r#"\nconst [A-Z_]+: &str = "([^"]+)";"#).unwrap();
    let reasons = read("crates/decide/vmstate/src/conditions.rs");
    let event = Regex::new(r#"\b(?:normal|warning)\(\s*"([A-Za-z]+)""#).unwrap();
    let mut code = vec![];
    sources(&workspace().join("crates/decide/vmstate/src"), &mut code);
    let events = code.iter().flat_map(|text| event.captures_iter(text)).map(|found| found[1].to_owned());
    own.captures_iter(&reasons).map(|found| found[1].to_owned()).chain(events).collect()
}

/// What stands in backticks in the columns of this name, over all tables.
fn column(text: &str, name: &str) -> Words {
    let (mut words, mut place) = (Words::new(), None);
    let word = Regex::new("`([^`]+)`").unwrap();
    for line in text.lines() {
        let Some(row) = line.strip_prefix('|') else {
            place = None;
            continue;
        };
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        match place {
            None => place = Some(cells.iter().position(|cell| *cell == name)),
            Some(Some(column)) => {
                words.extend(word.captures_iter(cells[column]).map(|found| found[1].to_owned()));
            }
            Some(None) => {}
        }
    }
    words
}

/// The variants of an enumeration of the API.
fn variants(name: &str) -> Words {
    let text = read("crates/data/api/src/v1/enums.rs");
    let start = text.find(&format!("    {name} {{")).unwrap_or_else(|| panic!("{name} is not there"));
    let body = text[start..].split("\n    }").next().unwrap().lines().skip(1);
    let variant =
        |line: &str| line.trim().strip_suffix(',').filter(|_| !line.trim().starts_with("//")).map(str::to_owned);
    body.filter_map(variant).collect()
}

fn compare(what: &str, documented: &Words, real: &Words) {
    let missing: Vec<_> = real.difference(documented).collect();
    let invented: Vec<_> = documented.difference(real).collect();
    assert!(missing.is_empty(), "docs/controllers.md lacks {what} {missing:?}");
    assert!(invented.is_empty(), "docs/controllers.md has {what} that nothing uses: {invented:?}");
}

#[test]
fn every_condition_is_in_the_book() {
    let book = read("docs/controllers.md");
    compare("conditions", &column(&book, "Condition"), &used(&code(), "conditions", &constants("conditions")));
}

#[test]
fn every_reason_and_event_is_in_the_book() {
    let (book, code) = (read("docs/controllers.md"), code());
    let reasons = constants("reasons");
    // The events' module has those of the conditions, too.
    let events = constants("events").into_iter().chain(reasons.clone()).collect();
    let real = &(&used(&code, "reasons", &reasons) | &used(&code, "events", &events)) | &of_the_node_agent();
    compare("reasons", &(&column(&book, "Reason") | &column(&book, "Event")), &real);
}

#[test]
fn every_phase_and_word_is_in_the_book() {
    let book = read("docs/controllers.md");
    compare("phases", &column(&book, "Phase"), &variants("VirtualMachineInstancePhase"));
    compare("words", &column(&book, "Word"), &variants("VirtualMachinePrintableStatus"));
}

#[test]
fn no_reason_hides_in_a_string_of_its_own() {
    let literal = Regex::new(r#"(SyncError::(new|caused_by)|Note::(normal|warning))\(\s*"[^"]*""#).unwrap();
    let code = code();
    let hidden: Vec<_> = code.iter().flat_map(|text| literal.find_iter(text)).map(|found| found.as_str()).collect();
    assert!(hidden.is_empty(), "reasons belong into api::reasons or api::events: {hidden:?}");
}

#[test]
fn every_link_of_the_book_leads_somewhere() {
    let book = read("docs/controllers.md");
    let link = Regex::new(r"\]\(([^)#]*)(?:#([^)]*))?\)").unwrap();
    let headings: Words = book
        .lines()
        .filter_map(|line| line.strip_prefix("## "))
        .map(|heading| heading.to_lowercase().replace(' ', "-"))
        .collect();
    for found in link.captures_iter(&book) {
        let (file, anchor) = (&found[1], found.get(2).map(|anchor| anchor.as_str()));
        assert!(file.is_empty() || workspace().join("docs").join(file).exists(), "{file} is not there");
        if let (true, Some(anchor)) = (file.is_empty(), anchor) {
            assert!(headings.contains(anchor), "#{anchor} is not there");
        }
    }
}
