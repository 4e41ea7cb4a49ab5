//! Values that are a number or a string: ports by number or name, amounts or percentages.

pub use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// How a percentage that yields a fraction is rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Round {
    Down,
    Up,
}

/// Why a string is not a percentage, with Kubernetes' messages.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScaleError {
    /// A string without a percent sign.
    #[error("invalid value for IntOrString: invalid type: string is not a percentage")]
    NoPercentage,
    /// A percent sign after something that is not a number.
    #[error("invalid value for IntOrString: invalid value {value:?}: strconv.Atoi: parsing {number:?}: {problem}")]
    NoNumber { value: String, number: String, problem: &'static str },
}

/// The number that a string spells, or the string itself.
pub fn parse(text: &str) -> IntOrString {
    text.parse().map_or_else(|_| IntOrString::String(text.to_owned()), IntOrString::Int)
}

/// The resulting share of `total`: a number means itself, `25%` a quarter.
pub fn scaled(value: &IntOrString, total: i64, round: Round) -> Result<i64, ScaleError> {
    let text = match value {
        IntOrString::Int(number) => return Ok(i64::from(*number)),
        IntOrString::String(text) => text,
    };
    let number = text.strip_suffix('%').ok_or(ScaleError::NoPercentage)?;
    let percent: i64 = number.parse().map_err(|error: std::num::ParseIntError| {
        use std::num::IntErrorKind::{NegOverflow, PosOverflow};
        let too_large = matches!(error.kind(), PosOverflow | NegOverflow);
        let problem = if too_large { "value out of range" } else { "invalid syntax" };
        ScaleError::NoNumber { value: text.clone(), number: number.to_owned(), problem }
    })?;
    let hundredths = i128::from(percent) * i128::from(total);
    let share = match round {
        Round::Down => hundredths.div_euclid(100),
        Round::Up => -(-hundredths).div_euclid(100),
    };
    Ok(i64::try_from(share).unwrap_or(if share < 0 { i64::MIN } else { i64::MAX }))
}
