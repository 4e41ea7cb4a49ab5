//! Quantities against what Kubernetes' own implementation answers.
//!
//! The expected values were printed by `k8s.io/apimachinery` v0.34, with the string it remembers from parsing forgotten,
//! so that what is compared is the canonical form.

use machinery::quantity::{Format, ParseError, Quantity};
use proptest::prelude::*;

fn parse(text: &str) -> Quantity {
    text.parse().unwrap_or_else(|e| panic!("{e}"))
}

/// Text, canonical form, value, value in thousandths.
const READ: &[(&str, &str, i64, i64)] = &[
    ("0", "0", 0, 0),
    ("1", "1", 1, 1000),
    ("-1", "-1", -1, -1000),
    ("+1", "1", 1, 1000),
    ("100", "100", 100, 100000),
    ("1000", "1k", 1000, 1000000),
    ("1024", "1024", 1024, 1024000),
    ("1500", "1500", 1500, 1500000),
    ("1k", "1k", 1000, 1000000),
    ("1Ki", "1Ki", 1024, 1024000),
    ("1.5", "1500m", 2, 1500),
    ("1.5Gi", "1536Mi", 1610612736, 1610612736000),
    ("0.5", "500m", 1, 500),
    ("0.1", "100m", 1, 100),
    ("0.01", "10m", 1, 10),
    ("0.001", "1m", 1, 1),
    ("0.0001", "100u", 1, 1),
    ("0.1m", "100u", 1, 1),
    ("1m", "1m", 1, 1),
    ("100m", "100m", 1, 100),
    ("1500m", "1500m", 2, 1500),
    ("1000m", "1", 1, 1000),
    ("2000m", "2", 2, 2000),
    ("1n", "1n", 1, 1),
    ("1u", "1u", 1, 1),
    ("1000000n", "1m", 1, 1),
    ("1500000n", "1500u", 1, 2),
    ("1e3", "1e3", 1000, 1000000),
    ("1E3", "1e3", 1000, 1000000),
    ("1e-3", "1e-3", 1, 1),
    ("1.5e3", "1500", 1500, 1500000),
    ("12e6", "12e6", 12000000, 12000000000),
    ("1e0", "1", 1, 1000),
    ("5e9", "5e9", 5000000000, 5000000000000),
    ("1G", "1G", 1000000000, 1000000000000),
    ("1Gi", "1Gi", 1073741824, 1073741824000),
    ("1.1Gi", "1181116006400m", 1181116007, 1181116006400),
    ("0.3Gi", "322122547200m", 322122548, 322122547200),
    ("1.000001Gi", "1073742897741824u", 1073742898, 1073742897742),
    ("1025Ki", "1025Ki", 1049600, 1049600000),
    ("1024Mi", "1Gi", 1073741824, 1073741824000),
    ("1023Mi", "1023Mi", 1072693248, 1072693248000),
    ("2048Mi", "2Gi", 2147483648, 2147483648000),
    ("100Mi", "100Mi", 104857600, 104857600000),
    ("1Mi", "1Mi", 1048576, 1048576000),
    ("1M", "1M", 1000000, 1000000000),
    ("1.5M", "1500k", 1500000, 1500000000),
    ("0.1Mi", "104857600m", 104858, 104857600),
    ("0.0001Mi", "104857600u", 105, 104858),
    ("1Ti", "1Ti", 1099511627776, 1099511627776000),
    ("1Pi", "1Pi", 1125899906842624, 1125899906842624000),
    ("1T", "1T", 1000000000000, 1000000000000000),
    ("1P", "1P", 1000000000000000, 1000000000000000000),
    ("0Ki", "0", 0, 0),
    ("0m", "0", 0, 0),
    ("-1.5Gi", "-1536Mi", -1610612736, -1610612736000),
    ("-0.1m", "-100u", -1, -1),
    ("-0.0001", "-100u", -1, -1),
    ("-1Ki", "-1Ki", -1024, -1024000),
    ("00010", "10", 10, 10000),
    ("01.50", "1500m", 2, 1500),
    ("1.", "1", 1, 1000),
    ("1.0", "1", 1, 1000),
    (".5", "500m", 1, 500),
    ("-.5", "-500m", -1, -500),
    ("+.5Gi", "512Mi", 536870912, 536870912000),
    ("3.141592653589793238", "3141592654n", 4, 3142),
    ("123456789.123456789", "123456789123456789n", 123456790, 123456789124),
    ("0.000000001", "1n", 1, 1),
    ("0.0000000001", "1n", 1, 1),
    ("1.0000000001", "1000000001n", 2, 1001),
    ("1e-9", "1e-9", 1, 1),
    ("1e-10", "1e-9", 1, 1),
    ("1.5n", "2n", 1, 1),
    ("1e+3", "1e3", 1000, 1000000),
    ("4.0e2", "400", 400, 400000),
    ("512Ki", "512Ki", 524288, 524288000),
    ("1e6", "1e6", 1000000, 1000000000),
    ("1000k", "1M", 1000000, 1000000000),
    ("1000000", "1M", 1000000, 1000000000),
    ("1234567k", "1234567k", 1234567000, 1234567000000),
    ("1.25k", "1250", 1250, 1250000),
    ("1.2345k", "1234500m", 1235, 1234500),
    ("Ki", "0", 0, 0),
    ("m", "0", 0, 0),
    ("e3", "0", 0, 0),
    ("0.9Ki", "921600m", 922, 921600),
    ("500e-3", "500e-3", 1, 500),
    ("0.00000000000000001", "1n", 1, 1),
    ("-1n", "-1n", -1, -1),
    ("0.1n", "1n", 1, 1),
    ("1.1n", "2n", 1, 1),
    ("999999999999999999n", "999999999999999999n", 1000000000, 1000000000000),
    ("1.00Ki", "1Ki", 1024, 1024000),
    ("2e-1", "200e-3", 1, 200),
    ("20e-1", "2", 2, 2000),
];

/// Amounts whose value or thousandths no `i64` holds; Go's accessors overflow here, ours stop at the border.
const HUGE: &[(&str, &str)] = &[
    ("1E", "1E"),
    ("1Ei", "1Ei"),
    ("0.5Ei", "512Pi"),
    ("8Ei", "9223372036854775807"),
    ("7Ei", "7Ei"),
    ("-8Ei", "-9223372036854775807"),
    ("10Ei", "9223372036854775807"),
    ("9223372036854775807", "9223372036854775807"),
    ("9223372036854775808", "9223372036854775808"),
    ("1e18", "1e18"),
    ("1.123456789123Ei", "1295257491676466356137962243n"),
    ("99999999999999999999", "99999999999999999999"),
    ("12345678901234567890Ki", "9223372036854775807"),
    ("-9223372036854775808", "-9223372036854775808"),
    ("-9223372036854775809", "-9223372036854775809"),
    ("18446744073709551616", "18446744073709551616"),
    ("999E", "999E"),
    ("1e19", "10e18"),
];

const REFUSED: &[&str] =
    &["1K", "1e3.5", "1Kii", "", "1 Gi", "1gi", "1GiB", "--1", "1..5", "1e", "1eE", "0x10", "1i", "10e-3Ki", "1k1"];

/// Left, right, sum, difference, three times left, order of left and right.
const ARITHMETIC: &[(&str, &str, &str, &str, &str, i32)] = &[
    ("1Gi", "1G", "2073741824", "73741824", "3Gi", 1),
    ("1500m", "1", "2500m", "500m", "4500m", 1),
    ("1", "1Ki", "1025", "-1023", "3", -1),
    ("100m", "0.1", "200m", "0", "300m", 0),
    ("1e3", "1Ki", "2024", "-24", "3e3", -1),
    ("0", "1Ki", "1Ki", "-1Ki", "0", -1),
    ("0", "1e3", "1e3", "-1e3", "0", -1),
    ("0", "5", "5", "-5", "0", -1),
    ("8Ei", "8Ei", "18446744073709551614", "0", "27670116110564327421", 0),
    ("-1", "1", "0", "-2", "-3", -1),
    ("1Mi", "1M", "2048576", "48576", "3Mi", 1),
    ("1n", "1", "1000000001n", "-999999999n", "3n", -1),
    ("9223372036854775807", "1", "9223372036854775808", "9223372036854775806", "27670116110564327421", 1),
    ("0.5Gi", "512Mi", "1Gi", "0", "1536Mi", 0),
    ("1.5", "1.5", "3", "0", "4500m", 0),
    ("1Ki", "-1Ki", "0", "2Ki", "3Ki", 1),
    ("1k", "-1k", "0", "2k", "3k", 1),
    ("2e3", "1", "2001", "1999", "6e3", 1),
    ("1u", "1m", "1001u", "-999u", "3u", -1),
    ("7Ei", "1m", "8070450532247928832001m", "8070450532247928831999m", "21Ei", 1),
];

#[test]
fn quantities_read_and_print_as_in_kubernetes() {
    for &(text, canonical, value, milli) in READ {
        let quantity = parse(text);
        assert_eq!(quantity.to_string(), canonical, "canonical form of {text}");
        assert_eq!(quantity.value(), value, "value of {text}");
        assert_eq!(quantity.milli_value(), milli, "thousandths of {text}");
    }
}

#[test]
fn amounts_beyond_i64_keep_their_digits_and_saturate() {
    for &(text, canonical) in HUGE {
        let quantity = parse(text);
        assert_eq!(quantity.to_string(), canonical, "canonical form of {text}");
        assert_eq!(quantity.milli_value(), if text.starts_with('-') { i64::MIN } else { i64::MAX }, "{text}");
    }
    assert_eq!(parse("999E").value(), i64::MAX);
    assert_eq!(parse("-999E").value(), i64::MIN);
    assert!(matches!("1e100".parse::<Quantity>(), Err(ParseError::TooLarge(_))));
}

#[test]
fn what_is_no_quantity_is_refused() {
    for &text in REFUSED {
        assert!(text.parse::<Quantity>().is_err(), "{text:?} was read");
    }
}

#[test]
fn amounts_finer_than_a_billionth_round_away_from_zero_on_both_sides() {
    assert_eq!(parse("-0.1n").to_string(), "-1n");
    assert_eq!(parse("-0.1n").value(), -1);
    assert_eq!(parse("0.1n").value(), 1);
}

#[test]
fn arithmetic_answers_as_in_kubernetes() {
    for &(left, right, sum, difference, triple, order) in ARITHMETIC {
        let (a, b) = (parse(left), parse(right));
        assert_eq!((a + b).to_string(), sum, "{left} + {right}");
        assert_eq!((a - b).to_string(), difference, "{left} - {right}");
        assert_eq!((a * 3).to_string(), triple, "3 * {left}");
        assert_eq!(a.cmp(&b) as i32, order, "{left} <=> {right}");
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

fn any_quantity() -> impl Strategy<Value = Quantity> {
    let format = prop_oneof![Just(Format::DecimalSi), Just(Format::BinarySi), Just(Format::DecimalExponent)];
    (any::<i64>(), format, any::<bool>()).prop_map(|(amount, format, milli)| {
        if milli { Quantity::from_milli(amount, format) } else { Quantity::new(amount, format) }
    })
}

proptest! {
    #[test]
    fn printing_and_reading_gives_the_same_amount(quantity in any_quantity()) {
        // Binary amounts past the largest i64 are cut off when read; none here is that large.
        let again = parse(&quantity.to_string());
        prop_assert_eq!(again, quantity);
        prop_assert_eq!(again.to_string(), quantity.to_string());
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
            let _ = (quantity.value(), quantity.milli_value(), quantity.to_string());
        }
    }
}
