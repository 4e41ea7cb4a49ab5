//! Quantities: amounts of memory, CPU and the like, parsed and formatted exactly as Kubernetes does.
//!
//! Kubernetes never keeps more than nine decimal places (finer amounts are rounded away from zero), so every quantity
//! is a whole number of billionths. A 128-bit integer of billionths reaches 1.7 · 10²⁹, far beyond any practical
//! amount, and needs neither floating point nor big numbers. Larger values are rejected instead of wrapping: Go's
//! `Value()` returns 0 for `999E`, ours the largest `i64`.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Wire;

/// The family of suffixes a quantity is written with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `n`, `u`, `m`, none, `k`, `M`, `G`, `T`, `P`, `E`.
    DecimalSi,
    /// `Ki`, `Mi`, `Gi`, `Ti`, `Pi`, `Ei`.
    BinarySi,
    /// `e3`, `e6`, `e-3`.
    DecimalExponent,
}

/// An exact amount that remembers the format of its suffix. Two quantities are equal if their amounts are.
#[derive(Clone, Copy, Debug)]
pub struct Quantity {
    /// Billionths of the unit.
    nanos: i128,
    format: Format,
}

/// Why a string is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// Not a number followed by a suffix.
    #[error("{0:?} is not a quantity: write a number with an optional suffix, such as 500m, 1.5 or 2Gi")]
    Format(String),
    /// A number with an unknown suffix.
    #[error("{quantity:?} has the unknown suffix {suffix:?}: use one of m, k, M, G, T, P, E, Ki, Mi, Gi, Ti, Pi, Ei")]
    Suffix { quantity: String, suffix: String },
    /// Out of range.
    #[error("{0:?} is larger than any quantity can be")]
    TooLarge(String),
}

const NANOS: i128 = 1_000_000_000;
const NANO_DIGITS: i64 = 9;
/// Decimal suffixes from 10⁻⁹ up, each a thousand times the one before.
const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
/// Binary suffixes from 2⁰ up, each 1024 times the one before.
const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
/// Fractional digits that can still matter under the largest binary suffix; what follows only rounds up.
const BINARY_FRACTION_DIGITS: usize = 20;

impl Quantity {
    /// Zero.
    pub const ZERO: Quantity = Quantity { nanos: 0, format: Format::DecimalSi };

    /// A whole number of units.
    pub fn new(value: i64, format: Format) -> Self {
        Quantity { nanos: i128::from(value) * NANOS, format }
    }

    /// A number of thousandths.
    pub fn from_milli(value: i64, format: Format) -> Self {
        Quantity { nanos: i128::from(value) * (NANOS / 1000), format }
    }

    /// A number of bytes, written with binary suffixes.
    pub fn bytes(value: i64) -> Self {
        Quantity::new(value, Format::BinarySi)
    }

    /// The family of suffixes it is written with.
    pub fn format(self) -> Format {
        self.format
    }

    /// In whole units, rounded away from zero; saturates at the bounds of `i64`.
    pub fn value(self) -> i64 {
        saturate(div_away_from_zero(self.nanos, NANOS))
    }

    /// In thousandths, rounded away from zero; saturates at the bounds of `i64`.
    pub fn milli_value(self) -> i64 {
        saturate(div_away_from_zero(self.nanos, NANOS / 1000))
    }

    /// Whether it is zero.
    pub fn is_zero(self) -> bool {
        self.nanos == 0
    }

    /// Whether it is negative.
    pub fn is_negative(self) -> bool {
        self.nanos < 0
    }

    /// The same amount in whole units, rounded away from zero.
    pub fn round_up(self) -> Self {
        Quantity { nanos: div_away_from_zero(self.nanos, NANOS).saturating_mul(NANOS), ..self }
    }

    /// Zero takes the other operand's format, so that a sum started from zero looks like its parts.
    fn format_with(self, other: Self) -> Format {
        if self.is_zero() { other.format } else { self.format }
    }
}

impl std::ops::Add for Quantity {
    type Output = Quantity;

    fn add(self, other: Quantity) -> Quantity {
        Quantity { nanos: self.nanos.saturating_add(other.nanos), format: self.format_with(other) }
    }
}

impl std::ops::Sub for Quantity {
    type Output = Quantity;

    fn sub(self, other: Quantity) -> Quantity {
        Quantity { nanos: self.nanos.saturating_sub(other.nanos), format: self.format_with(other) }
    }
}

impl std::ops::Mul<i64> for Quantity {
    type Output = Quantity;

    fn mul(self, factor: i64) -> Quantity {
        Quantity { nanos: self.nanos.saturating_mul(i128::from(factor)), ..self }
    }
}

impl std::ops::Neg for Quantity {
    type Output = Quantity;

    fn neg(self) -> Quantity {
        Quantity { nanos: self.nanos.saturating_neg(), ..self }
    }
}

impl std::ops::AddAssign for Quantity {
    fn add_assign(&mut self, other: Quantity) {
        *self = *self + other;
    }
}

impl std::ops::SubAssign for Quantity {
    fn sub_assign(&mut self, other: Quantity) {
        *self = *self - other;
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl Default for Quantity {
    fn default() -> Self {
        Quantity::ZERO
    }
}

impl fmt::Display for Quantity {
    /// The canonical form: no fraction, no loss of precision, the largest suffix that allows both.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos == 0 {
            return f.write_str("0");
        }
        let whole = self.nanos % NANOS == 0;
        let below_a_kibi = self.nanos.abs() < 1024 * NANOS;
        if self.format == Format::BinarySi && whole && !below_a_kibi {
            let (amount, steps) = strip(self.nanos / NANOS, 1024, BINARY.len() - 1);
            return write!(f, "{amount}{}", BINARY[steps]);
        }
        if self.format == Format::DecimalExponent {
            let (amount, steps) = strip(self.nanos, 1000, usize::MAX);
            let exponent = 3 * steps as i64 - NANO_DIGITS;
            return if exponent == 0 { write!(f, "{amount}") } else { write!(f, "{amount}e{exponent}") };
        }
        let (amount, steps) = strip(self.nanos, 1000, DECIMAL.len() - 1);
        write!(f, "{amount}{}", DECIMAL[steps])
    }
}

impl FromStr for Quantity {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let Parts { negative, whole, fraction, unit } = Parts::split(text)?;
        let too_large = || ParseError::TooLarge(text.to_owned());
        let (magnitude, format) = match unit {
            Unit::Decimal(exponent, format) => {
                (decimal_nanos(whole, fraction, exponent).ok_or_else(too_large)?, format)
            }
            Unit::Binary(shift) => (binary_nanos(whole, fraction, shift), Format::BinarySi),
        };
        // A fraction of one unit has no binary representation.
        let format = if format == Format::BinarySi && magnitude < NANOS { Format::DecimalSi } else { format };
        Ok(Quantity { nanos: if negative { -magnitude } else { magnitude }, format })
    }
}

/// How Kubernetes writes a quantity parsed from this text.
///
/// That is the text itself if a heuristic finds it canonical, else the canonical form. The heuristic is rough: `+1`,
/// `007` and `1.` pass it.
pub fn rewritten(text: &str) -> Result<Cow<'_, str>, ParseError> {
    if text == "0" || Parts::split(text)?.look_canonical() {
        return Ok(Cow::Borrowed(text));
    }
    Ok(Cow::Owned(text.parse::<Quantity>()?.to_string()))
}

/// The parts of a quantity.
struct Parts<'a> {
    negative: bool,
    whole: &'a str,
    fraction: &'a str,
    unit: Unit,
}

impl<'a> Parts<'a> {
    fn split(text: &'a str) -> Result<Self, ParseError> {
        let wrong = || ParseError::Format(text.to_owned());
        let (negative, rest) = match text.as_bytes().first().ok_or_else(wrong)? {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        let (whole, rest) = split_digits(rest);
        let (fraction, suffix) = rest.strip_prefix('.').map_or(("", rest), split_digits);
        if !is_suffix_shaped(suffix) {
            return Err(wrong());
        }
        let unit = Unit::of(suffix)
            .ok_or_else(|| ParseError::Suffix { quantity: text.to_owned(), suffix: suffix.to_owned() })?;
        Ok(Parts { negative, whole: whole.trim_start_matches('0'), fraction, unit })
    }

    /// Whether digits and unit look canonical to Kubernetes, which only considers numbers that surely fit 64 bits.
    fn look_canonical(&self) -> bool {
        let digits = self.whole.len() + self.fraction.len();
        match self.unit {
            Unit::Decimal(exponent, _) => {
                let exponent = exponent.saturating_sub(self.fraction.len() as i64);
                let thousands = self.whole.bytes().chain(self.fraction.bytes()).rev().take(3).filter(|&b| b == b'0');
                !self.whole.is_empty()
                    && digits <= 18
                    && exponent >= -NANO_DIGITS
                    && exponent % 3 == 0
                    && thousands.count() < 3
            }
            Unit::Binary(shift) => {
                self.fraction.is_empty()
                    && digits + 3 * shift as usize / 10 < 15
                    && self.whole.parse::<u64>().is_ok_and(|number| number % 8 != 0)
            }
        }
    }
}

impl TryFrom<&Wire> for Quantity {
    type Error = ParseError;

    fn try_from(wire: &Wire) -> Result<Self, ParseError> {
        wire.0.parse()
    }
}

impl From<Quantity> for Wire {
    fn from(quantity: Quantity) -> Wire {
        Wire(quantity.to_string())
    }
}

/// The factor of a suffix: a power of ten, or a power of two.
enum Unit {
    Decimal(i64, Format),
    Binary(u32),
}

impl Unit {
    fn of(suffix: &str) -> Option<Unit> {
        if let Some(step) = DECIMAL.iter().position(|s| *s == suffix) {
            return Some(Unit::Decimal(3 * step as i64 - NANO_DIGITS, Format::DecimalSi));
        }
        if let Some(step) = BINARY.iter().position(|s| *s == suffix) {
            return Some(Unit::Binary(10 * step as u32));
        }
        let exponent = suffix.strip_prefix(['e', 'E'])?;
        Some(Unit::Decimal(exponent.parse().ok()?, Format::DecimalExponent))
    }
}

fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

/// Letters that occur in suffixes, then perhaps a signed exponent.
fn is_suffix_shaped(suffix: &str) -> bool {
    let exponent = suffix.trim_start_matches(|c| "eEinumkKMGTP".contains(c));
    let digits = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
    digits.bytes().all(|b| b.is_ascii_digit())
}

/// `whole.fraction × 10^exponent` in billionths, rounded up; `None` if out of range.
fn decimal_nanos(whole: &str, fraction: &str, exponent: i64) -> Option<i128> {
    let digits = format!("{whole}{fraction}");
    if digits.bytes().all(|digit| digit == b'0') {
        return Some(0);
    }
    let shift = NANO_DIGITS.checked_add(exponent)?.checked_sub(i64::try_from(fraction.len()).ok()?)?;
    if shift >= 0 {
        let scale = 10_i128.checked_pow(u32::try_from(shift).ok()?)?;
        return digits.parse::<i128>().ok()?.checked_mul(scale);
    }
    let dropped = usize::try_from(shift.unsigned_abs()).ok()?.min(digits.len());
    let (kept, dropped) = digits.split_at(digits.len() - dropped);
    let kept: i128 = if kept.is_empty() { 0 } else { kept.parse().ok()? };
    kept.checked_add(i128::from(dropped.bytes().any(|digit| digit != b'0')))
}

/// `whole.fraction × 2^shift` in billionths, rounded up. Kubernetes caps binary quantities at the largest `i64`.
fn binary_nanos(whole: &str, fraction: &str, shift: u32) -> i128 {
    let limit = i128::from(i64::MAX) * NANOS;
    let whole: Option<i128> = if whole.is_empty() { Some(0) } else { whole.parse().ok() };
    let Some(whole) = whole.and_then(|units| units.checked_mul(NANOS << shift)) else {
        return limit;
    };
    let (kept, dropped) = fraction.split_at(fraction.len().min(BINARY_FRACTION_DIGITS));
    let numerator = kept.bytes().fold(0_i128, |sum, digit| sum * 10 + i128::from(digit - b'0')) << shift;
    let digits = kept.len() as u32;
    let part = if digits <= 9 {
        numerator * 10_i128.pow(9 - digits)
    } else {
        div_away_from_zero(numerator, 10_i128.pow(digits - 9))
    };
    let rest = i128::from(dropped.bytes().any(|digit| digit != b'0'));
    whole.saturating_add(part + rest).min(limit)
}

/// Divides by `factor` as long as there is no remainder, at most `limit` times.
fn strip(mut amount: i128, factor: i128, limit: usize) -> (i128, usize) {
    let mut steps = 0;
    while steps < limit && amount % factor == 0 {
        amount /= factor;
        steps += 1;
    }
    (amount, steps)
}

fn div_away_from_zero(amount: i128, divisor: i128) -> i128 {
    amount / divisor + (amount % divisor).signum()
}

fn saturate(amount: i128) -> i64 {
    i64::try_from(amount).unwrap_or(if amount < 0 { i64::MIN } else { i64::MAX })
}
