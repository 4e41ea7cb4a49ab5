//! `docs/ops/controller.md` says of each controller what its value in the list says.

use virt_controller::{ALL, docs};

use super::{up_to_date, workspace};

/// Replaces what is between two marks of a document.
fn with_section(document: &str, name: &str, section: &str) -> String {
    let (begin, end) = (format!("<!-- begin {name} -->\n"), format!("<!-- end {name} -->\n"));
    let (before, rest) = document.split_once(&begin).unwrap_or_else(|| panic!("no {begin}"));
    let (_, after) = rest.split_once(&end).unwrap_or_else(|| panic!("no {end}"));
    format!("{before}{begin}\n{section}\n{end}{after}")
}

#[test]
fn the_flags_and_queues_of_the_documentation_are_those_of_the_list() {
    let path = workspace().join("docs/ops/controller.md");
    let written = std::fs::read_to_string(&path).unwrap();
    let flags = format!("| flag | default | meaning |\n|---|---|---|\n{}", docs::flags(ALL));
    let wanted = with_section(&written, "worker flags", &flags);
    let wanted = with_section(&wanted, "controllers", &docs::controllers(ALL));
    up_to_date(&path, &wanted);
}
