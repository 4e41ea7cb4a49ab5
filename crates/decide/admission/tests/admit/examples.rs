//! The examples that come with the project are admitted, and so run.

#![allow(clippy::disallowed_methods, reason = "this test reads the examples")]

use std::path::Path;

use serde_json::Value;

use crate::{config, judge, someone, told};

#[test]
fn every_example_passes() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../examples");
    let mut judged = 0;
    for entry in std::fs::read_dir(&directory).expect("the examples are there") {
        let path = entry.expect("an example").path();
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("the example can be read");
        let objects: Vec<Value> = serde_saphyr::from_multiple(&text).expect("the example is YAML");
        for object in objects.iter().filter(|object| object["apiVersion"] == "kubevirt.io/v1") {
            let resource = format!("{}s", object["kind"].as_str().expect("a kind").to_lowercase());
            let errors = told(judge(&resource, &someone(), None, object, &config()));
            assert_eq!(errors, Vec::<String>::new(), "{}", path.display());
            judged += 1;
        }
    }
    assert!(judged >= 3, "only {judged} objects of ours among the examples");
}
