//! Valid names and derived names.

use machinery::names::*;
use proptest::prelude::*;

#[test]
fn names_are_valid_or_say_why_not() {
    let long = "a".repeat(64);
    type Check = fn(&str) -> Vec<String>;
    let cases: [(&str, Check, &[&str], &[&str]); 4] = [
        ("label", check_dns1123_label, &["a", "1", "a-b", "123-abc"], &["", "-a", "a-", "A", "a_b", "a.b", &long]),
        ("subdomain", check_dns1123_subdomain, &["a", "a.b", "a-1.b-2"], &["", "a..b", ".a", "a.", "a.-b", "A.b"]),
        (
            "qualified name",
            check_qualified_name,
            &["a", "A_b.c-d", "kubevirt.io/nodeName"],
            &["", "/a", "a/", "a/b/c", "K.io/a", "-a", &long],
        ),
        ("label value", check_label_value, &["", "a", "A_b.c-1"], &["-a", "a-", "a b", "ä", &long]),
    ];
    for (what, check, valid, invalid) in cases {
        for value in valid {
            assert_eq!(check(value), Vec::<String>::new(), "{value:?} as {what}");
        }
        for value in invalid {
            assert!(!check(value).is_empty(), "{value:?} passed as {what}");
        }
    }
}

#[test]
fn problems_are_told_in_the_words_of_kubernetes() {
    assert_eq!(check_dns1123_label("a.b"), ["must not contain dots"]);
    assert_eq!(
        check_dns1123_label("A"),
        [
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
        ]
    );
    assert_eq!(
        check_label_value("-"),
        [
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
        ]
    );
    assert_eq!(check_qualified_name("/a"), ["prefix part must be non-empty"]);
}

#[test]
fn a_launcher_pod_is_named_after_its_instance_and_uid() {
    let name = launcher_pod_name("web", "6a1a24a1-4061-4607-8bf4-a3963d0c5895");
    assert_eq!(name, launcher_pod_name("web", "6a1a24a1-4061-4607-8bf4-a3963d0c5895"), "the same owner, the same name");
    assert_ne!(name, launcher_pod_name("web", "00000000-4061-4607-8bf4-a3963d0c5895"));
    assert_eq!(name.strip_prefix("virt-launcher-web-").map(str::len), Some(5));
}

#[test]
fn long_names_are_cut_and_keep_a_hash_of_what_is_lost() {
    assert_eq!(truncated_name("short", "x", 63), "short-x");
    let long = "a".repeat(80);
    let cut = truncated_name(&long, "xyz12", 63);
    assert_eq!(cut.len(), 63);
    assert!(cut.ends_with("-xyz12"));
    assert_ne!(cut, truncated_name(&format!("{long}b"), "xyz12", 63), "the lost part still counts");
    assert_eq!(truncated_name("prefix", &"s".repeat(70), 20).len(), 15);
    assert_ne!(truncated_name("p", &"s".repeat(70), 20), truncated_name("p", &"s".repeat(71), 20));
}

proptest! {
    #[test]
    fn launcher_pod_names_are_valid_for_every_instance(name in "[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?([.][a-z0-9]([-a-z0-9]{0,40}[a-z0-9])?){0,4}", uid in "[0-9a-f-]{36}") {
        let pod = launcher_pod_name(&name, &uid);
        prop_assert!(pod.len() <= LABEL_MAX);
        prop_assert_eq!(check_dns1123_subdomain(&pod), Vec::<String>::new(), "{}", pod);
    }
}
