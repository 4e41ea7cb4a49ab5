//! The words that components share: keys are well formed, nothing is defined twice, and every word says what it means.

use std::collections::HashMap;

use machinery::names::check_qualified_name;

/// Names and values of a module's constants, read from its source.
fn constants(source: &'static str) -> Vec<(&'static str, &'static str)> {
    let mut found = Vec::new();
    let mut documented = false;
    for line in source.lines().map(str::trim_start) {
        if let Some((name, value)) = line.strip_prefix("pub const ").and_then(|rest| rest.split_once(": &str = ")) {
            assert!(documented, "{name} says nothing about itself");
            found.push((name, value.trim_matches(|c| c == '"' || c == ';')));
        }
        documented = line.starts_with("///");
    }
    found
}

fn each_is_defined_once(module: &str, words: &[(&'static str, &'static str)]) {
    let mut seen: HashMap<&str, &str> = HashMap::new();
    for (name, value) in words {
        if let Some(other) = seen.insert(value, name) {
            panic!("{module}: {name} and {other} are both {value:?}");
        }
    }
}

#[test]
fn labels_annotations_and_finalizers_are_names_kubernetes_accepts() {
    let modules = [
        ("labels", include_str!("../../src/labels.rs"), 50),
        ("annotations", include_str!("../../src/annotations.rs"), 70),
        ("finalizers", include_str!("../../src/finalizers.rs"), 14),
    ];
    for (module, source, at_least) in modules {
        let words = constants(source);
        assert!(words.len() >= at_least, "{module}: only {} words were found", words.len());
        each_is_defined_once(module, &words);
        for (name, value) in words {
            // A prefix waits for the rest of its name.
            let key = if name.ends_with("_PREFIX") { format!("{value}x") } else { value.to_owned() };
            assert_eq!(check_qualified_name(&key), Vec::<String>::new(), "{module}::{name}");
        }
    }
}

#[test]
fn conditions_reasons_and_events_are_each_defined_once() {
    let modules = [
        ("conditions", include_str!("../../src/conditions.rs")),
        ("reasons", include_str!("../../src/reasons.rs")),
        ("events", include_str!("../../src/events.rs")),
    ];
    for (module, source) in modules {
        each_is_defined_once(module, &constants(source));
    }
    let reasons = constants(include_str!("../../src/reasons.rs"));
    let events = constants(include_str!("../../src/events.rs"));
    let both: Vec<_> = events.iter().filter(|(_, value)| reasons.iter().any(|(_, reason)| reason == value)).collect();
    assert!(both.is_empty(), "events repeat reasons instead of borrowing them: {both:?}");
}
