//! Quantities against what Kubernetes' own implementation answers, and their properties.

use crate::recorded::cases;
use machinery::quantity::{Format, ParseError, Quantity, rewritten};
use proptest::prelude::*;

fn parse(text: &str) -> Quantity {
    text.parse().unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn quantities_read_and_print_as_in_kubernetes() {
    let cases = cases(include_str!("recorded/quantities.txt"));
    assert!(cases.len() > 200, "the table has {} cases", cases.len());
    for case in cases {
        match case.columns.as_slice() {
            &[text, written, canonical, value, milli] => {
                let quantity = parse(text);
                assert_eq!(rewritten(text).unwrap(), written, "what is written after reading {text}");
                assert_eq!(quantity.to_string(), canonical, "canonical form of {text}");
                if value != "-" {
                    assert_eq!(quantity.value().to_string(), value, "value of {text}");
                }
                if milli != "-" {
                    assert_eq!(quantity.milli_value().to_string(), milli, "thousandths of {text}");
                }
            }
            &[text, "error: format"] => {
                assert_eq!(text.parse::<Quantity>(), Err(ParseError::Format(text.to_owned())));
                assert!(rewritten(text).is_err(), "{text:?} was read");
            }
            &[text, "error: suffix"] => {
                let error = text.parse::<Quantity>().unwrap_err();
                assert!(matches!(error, ParseError::Suffix { .. }), "{text:?}: {error}");
            }
            other => panic!("a case of {other:?}"),
        }
    }
}

#[test]
fn amounts_beyond_i64_saturate() {
    for (text, value, milli) in [
        ("999E", i64::MAX, i64::MAX),
        ("-999E", i64::MIN, i64::MIN),
        ("1E", 1_000_000_000_000_000_000, i64::MAX),
        ("9223372036854775808", i64::MAX, i64::MAX),
        ("-9223372036854775808", i64::MIN, i64::MIN),
        ("-1E", -1_000_000_000_000_000_000, i64::MIN),
    ] {
        assert_eq!((parse(text).value(), parse(text).milli_value()), (value, milli), "{text}");
    }
    for text in ["1e100", "1e99999999999", "1e30"] {
        assert!(matches!(text.parse::<Quantity>(), Err(ParseError::TooLarge(_))), "{text}");
    }
}

#[test]
fn amounts_finer_than_a_billionth_round_away_from_zero_on_both_sides() {
    assert_eq!(parse("-0.1n").to_string(), "-1n");
    assert_eq!(parse("-0.1n").value(), -1);
    assert_eq!(parse("-0.0001Ki").milli_value(), -103);
    assert_eq!(parse("0.1n").value(), 1);
}

#[test]
fn arithmetic_answers_as_in_kubernetes() {
    for case in cases(include_str!("recorded/quantity_arithmetic.txt")) {
        let &[left, right, sum, difference, triple, negative, whole, order] = case.columns.as_slice() else {
            panic!("a case of {:?}", case.columns)
        };
        let (a, b) = (parse(left), parse(right));
        assert_eq!((a + b).to_string(), sum, "{left} + {right}");
        assert_eq!((a - b).to_string(), difference, "{left} - {right}");
        assert_eq!((a * 3).to_string(), triple, "3 * {left}");
        assert_eq!((-a).to_string(), negative, "-({left})");
        assert_eq!(a.round_up().to_string(), whole, "{left} rounded up");
        assert_eq!((a.cmp(&b) as i32).to_string(), order, "{left} <=> {right}");
    }
}

#[test]
fn made_quantities_print_in_their_family() {
    assert_eq!(Quantity::bytes(1536 * 1024 * 1024).to_string(), "1536Mi");
    assert_eq!(Quantity::new(1536 * 1024 * 1024, Format::DecimalSi).to_string(), "1610612736");
    assert_eq!(Quantity::new(1000, Format::DecimalExponent).to_string(), "1e3");
    assert_eq!(Quantity::from_milli(1500, Format::DecimalSi).to_string(), "1500m");
    assert_eq!(Quantity::from_milli(100, Format::BinarySi).to_string(), "100m");
    assert_eq!(parse("1500m").round_up().to_string(), "2");
    assert_eq!(parse("-1500m").round_up().to_string(), "-2");
}

fn any_format() -> impl Strategy<Value = Format> {
    prop_oneof![Just(Format::DecimalSi), Just(Format::BinarySi), Just(Format::DecimalExponent)]
}

fn any_quantity() -> impl Strategy<Value = Quantity> {
    (any::<i64>(), any_format(), any::<bool>()).prop_map(|(amount, format, milli)| {
        if milli { Quantity::from_milli(amount, format) } else { Quantity::new(amount, format) }
    })
}

proptest! {
    #[test]
    fn printing_and_reading_gives_the_same_amount(quantity in any_quantity()) {
        // Binary amounts past the largest i64 are cut off when read; none here is that large.
        let again = parse(&quantity.to_string());
        prop_assert_eq!(again, quantity);
        // A binary amount that is no multiple of 1024 has no suffix: it reads as a decimal one, which may be written shorter.
        prop_assert_eq!(parse(&again.to_string()), quantity);
    }

    #[test]
    fn what_was_rewritten_once_stays(quantity in any_quantity(), text in "[-+]?[0-9]{1,6}([.][0-9]{0,4})?(n|u|m|k|M|G|Ki|Mi|Gi|Ti|e[0-9]|e-[0-9])?") {
        for text in [quantity.to_string(), text] {
            let written = rewritten(&text).unwrap();
            prop_assert_eq!(parse(&written), parse(&text), "{} was changed", text);
            prop_assert_eq!(rewritten(&written).unwrap(), written.clone());
        }
    }

    #[test]
    fn the_order_is_that_of_the_amounts(a in any::<i64>(), b in any::<i64>(), format in any_format()) {
        let order = a.cmp(&b);
        prop_assert_eq!(Quantity::new(a, format).cmp(&Quantity::new(b, Format::DecimalSi)), order);
        prop_assert_eq!(Quantity::from_milli(a, format).cmp(&Quantity::from_milli(b, Format::BinarySi)), order);
        prop_assert_eq!(parse(&a.to_string()).cmp(&parse(&b.to_string())), order);
    }

    #[test]
    fn sums_do_not_depend_on_the_order_of_their_parts(a in any_quantity(), b in any_quantity(), c in any_quantity()) {
        prop_assert_eq!(a + b, b + a);
        prop_assert_eq!((a + b) + c, a + (b + c));
        prop_assert_eq!(a - b, -(b - a));
        prop_assert_eq!(a * 3, a + a + a);
        prop_assert_eq!((a > b).then_some(a - b > Quantity::ZERO), (a > b).then_some(true));
    }

    #[test]
    fn subtracting_undoes_adding(a in any_quantity(), b in any_quantity()) {
        prop_assert_eq!(a + b - b, a);
        prop_assert_eq!(a - b + b, a);
    }

    #[test]
    fn value_is_the_smallest_integer_not_below_the_magnitude(milli in any::<i64>()) {
        let quantity = Quantity::from_milli(milli, Format::DecimalSi);
        let value = i128::from(quantity.value());
        let exact = i128::from(milli);
        prop_assert!(value.abs() * 1000 >= exact.abs());
        prop_assert!((value.abs() - 1) * 1000 < exact.abs() || milli == 0);
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "[-+]?[0-9.]{0,30}[a-zA-Z]{0,3}[-+]?[0-9]{0,12}") {
        if let Ok(quantity) = text.parse::<Quantity>() {
            let _ = (quantity.value(), quantity.milli_value(), quantity.to_string(), rewritten(&text));
        }
    }
}
