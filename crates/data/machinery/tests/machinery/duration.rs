//! Durations against what Go answers.

use crate::recorded::cases;
use machinery::duration::Duration;
use proptest::prelude::*;

#[test]
fn durations_are_read_and_written_as_in_go() {
    for case in cases(include_str!("recorded/durations.txt")) {
        match case.columns.as_slice() {
            &[text, written, nanos] => {
                let duration: Duration = text.parse().unwrap_or_else(|e| panic!("{e}"));
                assert_eq!(
                    (duration.to_string().as_str(), duration.nanos().to_string().as_str()),
                    (written, nanos),
                    "{text}"
                );
            }
            &[text, error] => {
                let found = text.parse::<Duration>().unwrap_err();
                assert_eq!(format!("error: {found}"), error);
            }
            other => panic!("a case of {other:?}"),
        }
    }
}

#[test]
fn in_json_a_duration_is_its_text() {
    let duration: Duration = serde_json::from_str(r#""90s""#).unwrap();
    assert_eq!(serde_json::to_string(&duration).unwrap(), r#""1m30s""#);
    for wrong in [r#""1d""#, "90", "null", "{}"] {
        assert!(serde_json::from_str::<Duration>(wrong).is_err(), "{wrong} was read");
    }
}

#[test]
fn time_to_wait_is_never_negative() {
    assert_eq!("1.5s".parse::<Duration>().unwrap().to_std(), Some(std::time::Duration::from_millis(1500)));
    assert_eq!("-1s".parse::<Duration>().unwrap().to_std(), None);
    assert_eq!(Duration::from(std::time::Duration::from_secs(u64::MAX)), Duration::from_nanos(i64::MAX));
    assert_eq!(Duration::from_secs(i64::MAX).nanos(), i64::MAX);
    assert_eq!(Duration::from_secs(-2).to_string(), "-2s");
}

proptest! {
    #[test]
    fn printing_and_reading_gives_the_same_duration(nanos in any::<i64>(), shift in 0..63) {
        let duration = Duration::from_nanos(nanos >> shift);
        // The fraction goes through floating point, as in Go, which is exact to the nanosecond below a minute.
        prop_assert_eq!(duration.to_string().parse::<Duration>(), Ok(duration));
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "[-+]?([0-9.]{0,25}(h|m|s|ms|µs|us|ns|x|))*") {
        if let Ok(duration) = text.parse::<Duration>() {
            prop_assert_eq!(duration.to_string().parse::<Duration>(), Ok(duration));
        }
    }
}
