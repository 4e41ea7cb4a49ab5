//! Shares of a whole against what Kubernetes answers.

use crate::recorded::cases;
use machinery::int_or_string::{IntOrString, Round, parse, scaled};

#[test]
fn shares_are_computed_as_in_kubernetes() {
    for case in cases(include_str!("recorded/shares.txt")) {
        let &[json, total, ref answer @ ..] = case.columns.as_slice() else { panic!("a case of {:?}", case.columns) };
        let total = total.parse().unwrap();
        let value: Result<IntOrString, _> = serde_json::from_str(json);
        match *answer {
            ["error: json"] => assert!(value.is_err(), "{json} was read"),
            [error] => {
                let found = scaled(&value.unwrap(), total, Round::Up).unwrap_err();
                assert_eq!(format!("error: {found}"), error, "{json} of {total}");
            }
            [down, up] => {
                let value = value.unwrap();
                assert_eq!(scaled(&value, total, Round::Down).unwrap().to_string(), down, "{json} of {total}");
                assert_eq!(scaled(&value, total, Round::Up).unwrap().to_string(), up, "{json} of {total}");
            }
            ref other => panic!("answers {other:?}"),
        }
    }
}

#[test]
fn a_text_that_is_a_number_is_one() {
    assert_eq!(parse("8080"), IntOrString::Int(8080));
    assert_eq!(parse("-1"), IntOrString::Int(-1));
    for text in ["http", "25%", "", "2147483648", "1.5"] {
        assert_eq!(parse(text), IntOrString::String(text.to_owned()));
    }
}

#[test]
fn a_share_beyond_all_numbers_stops_at_the_border() {
    let huge = IntOrString::String("9223372036854775807%".to_owned());
    assert_eq!(scaled(&huge, i64::MAX, Round::Up), Ok(i64::MAX));
    assert_eq!(scaled(&huge, i64::MIN, Round::Down), Ok(i64::MIN));
}
