//! Histories written by hand, with recorded output. `UPDATE_SCENARIOS=1` records anew.

use std::fs;
use std::path::{Path, PathBuf};

fn scripts() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let entries = fs::read_dir(folder).expect("the folder of scenarios");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("a scenario").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "txt"));
    paths.sort();
    paths
}

#[test]
fn every_scenario_plays_as_recorded() {
    let update = std::env::var_os("UPDATE_SCENARIOS").is_some();
    let scripts = scripts();
    assert!(scripts.len() >= 18, "scenarios are missing");
    for path in scripts {
        let told = sim::scenario::tell(&fs::read_to_string(&path).unwrap()).unwrap();
        assert!(!told.contains("is violated"), "{}:\n{told}", path.display());
        let golden = path.with_extension("out");
        if update {
            fs::write(&golden, &told).unwrap();
        }
        let recorded = fs::read_to_string(&golden).unwrap_or_default();
        assert_eq!(told, recorded, "{} has changed; UPDATE_SCENARIOS=1 records it anew", golden.display());
    }
}

#[test]
fn a_script_with_a_mistake_names_the_line() {
    let error = sim::scenario::parse("at 0 create vm0 Always Image\nat 5 juggle vm0\n").unwrap_err();
    assert_eq!(error.to_string(), "line 2: at 5 juggle vm0");
}
