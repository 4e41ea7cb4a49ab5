//! Whatever an object says, it is judged.

use admission::{Operation, Review, Shape, World, judge};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{anywhere, examples};
use crate::properties::mangled;

/// An object of any other kind with a few fields replaced by anything.
fn any_object() -> impl Strategy<Value = (&'static str, Value, Value)> {
    let kinds: Vec<_> = examples()
        .into_iter()
        .map(|(resource, object)| {
            let kind = api::resources::RESOURCES.iter().find(|one| one.plural == resource).expect("ours").kind;
            mangled(kind, object.clone()).prop_map(move |mangled| (resource, object.clone(), mangled)).boxed()
        })
        .collect();
    prop::strategy::Union::new(kinds)
}

/// Pieces of expressions, in any order.
fn any_expression() -> impl Strategy<Value = String> {
    let names = r#"( ) [ ] { } , . ? : && || ! - + == in has( all( map( vmi x true null @ // é .? [? `a` \"#;
    let literals = r#"1 2u 0x 1e999 99999999999999999999 'a' " ''' r' b'\xff' '\u12' '\U00110000'"#;
    let pieces: Vec<&str> = names.split(' ').chain(literals.split(' ')).chain([" ", "\n", "\0"]).collect();
    prop::collection::vec(prop::sample::select(pieces), 0..24).prop_map(|pieces| pieces.concat())
}

proptest! {
    // Each case is a thread.
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn no_expression_makes_admission_panic(expression in prop_oneof![any_expression(), any::<String>()]) {
        let plugin = super::policies::plugin(json!({ "spec": { "condition": expression } }));
        let said = anywhere("plugins").create(&plugin);
        prop_assert!(said.is_empty() || said == ["FieldValueInvalid spec.condition"], "{said:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn no_object_makes_admission_panic((resource, fine, mangled) in any_object()) {
        let on = anywhere(resource);
        // The mangled object is also what everything else in the cluster looks like.
        let world = World::of([fine.clone(), mangled.clone()]);
        for (operation, old, object) in [
            (Operation::Create, None, &mangled),
            (Operation::Update, Some(&fine), &mangled),
            (Operation::Update, Some(&mangled), &fine),
            (Operation::Delete, Some(&mangled), &mangled),
        ] {
            let request = on.request(operation, old, object);
            let _ = admission::wanted(&request, &world);
            let _ = admission::wanted(&request, &World::default());
            let _ = judge(&request, Shape::Kubernetes, &on.config, &world);
            let _ = judge(&Review { subresource: "status", ..request }, Shape::Kubernetes, &on.config, &world);
        }
    }
}
