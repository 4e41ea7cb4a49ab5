//! Durations in Go's format: `1h30m0s`, `1.5s`, `250ms`.
//!
//! Kubernetes uses this format in objects, flags and configuration. A 64-bit number of nanoseconds covers 292 years.

use std::fmt::{self, Write as _};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A signed span of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration {
    nanos: i64,
}

/// Why a string is not a duration, with Go's messages.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// Not numbers with units, or more than 64 bits of nanoseconds.
    #[error("time: invalid duration {}", Quoted(.0))]
    Invalid(String),
    /// A number without a unit.
    #[error("time: missing unit in duration {}", Quoted(.0))]
    MissingUnit(String),
    /// An unknown unit. There are no days: not all of them have 24 hours.
    #[error("time: unknown unit {} in duration {}", Quoted(.unit), Quoted(.duration))]
    UnknownUnit { unit: String, duration: String },
}

const SECOND: u64 = 1_000_000_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;

/// Units with their length in nanoseconds. Micro is spelled with the sign and with the Greek letter.
const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", SECOND),
    ("m", MINUTE),
    ("h", HOUR),
];

/// The magnitude of the most negative duration, one more than that of the most positive.
const LIMIT: u64 = 1 << 63;

impl Duration {
    /// Zero.
    pub const ZERO: Duration = Duration { nanos: 0 };

    /// A number of nanoseconds.
    pub const fn from_nanos(nanos: i64) -> Self {
        Duration { nanos }
    }

    /// A number of seconds; saturates.
    pub const fn from_secs(seconds: i64) -> Self {
        Duration { nanos: seconds.saturating_mul(SECOND as i64) }
    }

    /// In nanoseconds.
    pub const fn nanos(self) -> i64 {
        self.nanos
    }

    /// As a standard duration; `None` if negative.
    pub fn to_std(self) -> Option<std::time::Duration> {
        u64::try_from(self.nanos).ok().map(std::time::Duration::from_nanos)
    }
}

/// Saturates.
impl From<std::time::Duration> for Duration {
    fn from(duration: std::time::Duration) -> Self {
        Duration { nanos: i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX) }
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.nanos.unsigned_abs();
        if self.nanos < 0 {
            f.write_char('-')?;
        }
        match nanos {
            0 => f.write_str("0s"),
            1..1_000 => write!(f, "{nanos}ns"),
            1_000..1_000_000 => write!(f, "{}µs", Decimal { amount: nanos, unit: 1_000 }),
            1_000_000..SECOND => write!(f, "{}ms", Decimal { amount: nanos, unit: 1_000_000 }),
            _ => {
                if nanos >= HOUR {
                    write!(f, "{}h", nanos / HOUR)?;
                }
                if nanos >= MINUTE {
                    write!(f, "{}m", nanos % HOUR / MINUTE)?;
                }
                write!(f, "{}s", Decimal { amount: nanos % MINUTE, unit: SECOND })
            }
        }
    }
}

/// An amount in a unit of a power of ten, without trailing zeros.
struct Decimal {
    amount: u64,
    unit: u64,
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.amount / self.unit)?;
        let digits = self.unit.ilog10() as usize;
        let fraction = format!("{:0digits$}", self.amount % self.unit);
        match fraction.trim_end_matches('0') {
            "" => Ok(()),
            fraction => write!(f, ".{fraction}"),
        }
    }
}

impl FromStr for Duration {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let invalid = || ParseError::Invalid(text.to_owned());
        let (negative, mut rest) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        if rest == "0" {
            return Ok(Duration::ZERO);
        }
        if rest.is_empty() {
            return Err(invalid());
        }
        let mut total = 0_u64;
        while !rest.is_empty() {
            let (part, after) = read_part(text, rest)?;
            total = total.checked_add(part).filter(|&total| total <= LIMIT).ok_or_else(invalid)?;
            rest = after;
        }
        match (i64::try_from(total), negative) {
            (Ok(nanos), false) => Ok(Duration { nanos }),
            (Ok(nanos), true) => Ok(Duration { nanos: -nanos }),
            (Err(_), true) => Ok(Duration { nanos: i64::MIN }),
            (Err(_), false) => Err(invalid()),
        }
    }
}

/// Parses one number and its unit, in nanoseconds, and returns the rest of the text.
fn read_part<'a>(text: &str, rest: &'a str) -> Result<(u64, &'a str), ParseError> {
    let invalid = || ParseError::Invalid(text.to_owned());
    let (whole, rest) = split_digits(rest);
    let (fraction, rest) = rest.strip_prefix('.').map_or(("", rest), split_digits);
    if whole.is_empty() && fraction.is_empty() {
        return Err(invalid());
    }
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| invalid())? };
    let (unit, rest) = rest.split_at(rest.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(rest.len()));
    if unit.is_empty() {
        return Err(ParseError::MissingUnit(text.to_owned()));
    }
    let (_, length) = UNITS
        .iter()
        .find(|(name, _)| *name == unit)
        .ok_or_else(|| ParseError::UnknownUnit { unit: unit.to_owned(), duration: text.to_owned() })?;
    let nanos = whole.checked_mul(*length).and_then(|nanos| nanos.checked_add(fraction_of(fraction, *length)));
    Ok((nanos.filter(|&nanos| nanos <= LIMIT).ok_or_else(invalid)?, rest))
}

fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

/// `0.fraction` of a unit. As in Go, digits beyond 63 bits do not count and the product is a floating-point one.
fn fraction_of(fraction: &str, length: u64) -> u64 {
    let (mut numerator, mut scale) = (0_u64, 1_f64);
    for digit in fraction.bytes() {
        let next = numerator.checked_mul(10).and_then(|n| n.checked_add(u64::from(digit - b'0')));
        match next.filter(|&next| numerator <= (LIMIT - 1) / 10 && next <= LIMIT) {
            Some(next) => numerator = next,
            None => break,
        }
        scale *= 10.0;
    }
    (numerator as f64 * (length as f64 / scale)) as u64
}

impl Serialize for Duration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Duration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// A quoted string, with every byte escaped that is not printable ASCII.
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for byte in self.0.bytes() {
            match byte {
                b'"' | b'\\' => write!(f, "\\{}", char::from(byte))?,
                b' '..=b'~' => f.write_char(char::from(byte))?,
                _ => write!(f, "\\x{byte:02x}")?,
            }
        }
        f.write_char('"')
    }
}
