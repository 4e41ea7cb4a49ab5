//! Whole Pods, beside the shapes they come from.

#![allow(clippy::disallowed_methods, reason = "this test reads and rewrites golden files")]

use crate::shapes::{self, Shape};

#[test]
fn every_shape_renders_to_its_golden_pod() {
    let all = shapes::all();
    assert!(all.len() >= 40, "{} shapes", all.len());
    let wrong: Vec<String> = all.iter().filter_map(difference).collect();
    assert!(wrong.is_empty(), "review these and run with FERROVIRT_UPDATE=1:\n{}", wrong.join("\n"));
}

/// Where a shape's Pod is not what is written down. Writes it down instead if that was asked for.
fn difference(shape: &Shape) -> Option<String> {
    let mut pod = serde_json::to_value(shape.render().unwrap_or_else(|error| panic!("{}: {error}", shape.name)))
        .expect("a Pod encodes");
    pod["apiVersion"] = "v1".into();
    pod["kind"] = "Pod".into();
    let text = manifests::to_yaml(&pod).expect("a Pod encodes");
    let file = shapes::golden(shape);
    if std::env::var_os("FERROVIRT_UPDATE").is_some() {
        std::fs::create_dir_all(file.parent().expect("a folder")).expect("the folder can be made");
        std::fs::write(&file, text).expect("the file can be written");
        return None;
    }
    let written = std::fs::read_to_string(&file).unwrap_or_default();
    let mut lines = text.lines().zip(written.lines());
    let first =
        lines.position(|(now, then)| now != then).unwrap_or_else(|| text.lines().count().min(written.lines().count()));
    let line = |text: &str| text.lines().nth(first).unwrap_or("the end").to_owned();
    (text != written)
        .then(|| format!("{}, line {}:\n- {}\n+ {}", file.display(), first + 1, line(&written), line(&text)))
}

#[test]
fn rendering_draws_nothing() {
    for shape in shapes::all() {
        assert_eq!(shape.render(), shape.render(), "{}", shape.name);
    }
}

#[test]
fn every_golden_pod_has_a_shape() {
    let known: Vec<_> = shapes::all().iter().map(shapes::golden).collect();
    let folder = known[0].parent().expect("a folder");
    for file in std::fs::read_dir(folder).expect("there are golden Pods") {
        let file = file.expect("a file").path();
        assert!(known.contains(&file), "{} comes from no shape", file.display());
    }
}
