//! The patterns that the schemas hold texts against. Each is published as a regular expression and checked by hand-written
//! code: there are four of them, and a check runs for every object that comes in.

/// A pattern by its name in the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pattern {
    /// What Kubernetes accepts as a quantity.
    Quantity,
    /// A number from 0 to 1 with up to three decimals.
    Fraction,
    /// The reason of a condition: a word in which underscores, commas and colons may stand.
    ConditionReason,
    /// The type of a condition: a name with an optional DNS subdomain before it.
    ConditionType,
}

impl Pattern {
    pub(super) fn named(name: &str) -> Option<Self> {
        match name {
            "quantity" => Some(Pattern::Quantity),
            "fraction" => Some(Pattern::Fraction),
            "condition-reason" => Some(Pattern::ConditionReason),
            "condition-type" => Some(Pattern::ConditionType),
            _ => None,
        }
    }

    /// The regular expression, as published.
    pub(super) fn regex(self) -> &'static str {
        match self {
            Pattern::Quantity => {
                r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
            }
            Pattern::Fraction => r"^(0(?:\.\d{1,3})?|1)$",
            Pattern::ConditionReason => r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
            Pattern::ConditionType => {
                r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
            }
        }
    }

    /// Whether the regular expression matches the text.
    pub(super) fn matches(self, text: &str) -> bool {
        match self {
            Pattern::Quantity => is_quantity(text),
            Pattern::Fraction => {
                let decimals = |rest: &str| (1..=3).contains(&rest.len()) && all(rest, u8::is_ascii_digit);
                text == "0" || text == "1" || text.strip_prefix("0.").is_some_and(decimals)
            }
            Pattern::ConditionReason => {
                let word = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_';
                text.starts_with(|c: char| c.is_ascii_alphabetic())
                    && text.bytes().last().is_some_and(|b| word(&b))
                    && all(text, |b| word(b) || b",:".contains(b))
            }
            Pattern::ConditionType => match text.split_once('/') {
                Some((domain, name)) => domain.split('.').all(is_dns_label) && is_name(name),
                None => is_name(text),
            },
        }
    }
}

fn all(text: &str, test: impl Fn(&u8) -> bool) -> bool {
    text.as_bytes().iter().all(test)
}

/// Whether `test` holds for the first and the last of at least one byte.
fn ends(text: &str, test: impl Fn(&u8) -> bool) -> bool {
    text.as_bytes().first().is_some_and(&test) && text.as_bytes().last().is_some_and(&test)
}

fn is_dns_label(label: &str) -> bool {
    let plain = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    ends(label, plain) && all(label, |b| plain(b) || *b == b'-')
}

fn is_name(name: &str) -> bool {
    ends(name, u8::is_ascii_alphanumeric) && all(name, |b| b.is_ascii_alphanumeric() || b"-_.".contains(b))
}

fn is_quantity(text: &str) -> bool {
    let Some(suffix) = after_number(text.strip_prefix(['+', '-']).unwrap_or(text)) else { return false };
    match suffix.as_bytes() {
        [] | [b'K' | b'M' | b'G' | b'T' | b'P' | b'E', b'i'] => true,
        [unit] if b"numkMGTPE".contains(unit) => true,
        [b'e' | b'E', ..] => {
            let exponent = &suffix[1..];
            after_number(exponent.strip_prefix(['+', '-']).unwrap_or(exponent)) == Some("")
        }
        _ => false,
    }
}

/// What follows the decimal number a text begins with; `None` if it begins with something else.
fn after_number(text: &str) -> Option<&str> {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let whole = digits(text);
    let rest = &text[whole..];
    match rest.strip_prefix('.') {
        Some(decimals) => {
            let count = digits(decimals);
            (whole + count > 0).then(|| &decimals[count..])
        }
        None => (whole > 0).then_some(rest),
    }
}

#[cfg(test)]
mod tests {
    use super::Pattern;

    #[test]
    fn the_code_agrees_with_the_regular_expressions() {
        let cases = [
            (Pattern::Quantity, "0 1Gi +1.5 -.5 1. 1e3 1E-3 1e.5 12E 5k 7n", "Gi . 1GB 1K 1ki 1e 1e+ 1_0 +-1 1.2.3"),
            (Pattern::Fraction, "0 1 0.1 0.055", "00 0. 1.0 0.1234 .5 2"),
            (Pattern::ConditionReason, "A Ab_c A:b,c_ Foo1", "1A _a A: A, A-b é"),
            (Pattern::ConditionType, "Ready a.b/C-d_e.f kubevirt.io/virtual-x 1", "-a a- /a a/ A/b a..b/c a//b é"),
        ];
        for (pattern, good, bad) in cases {
            good.split(' ').for_each(|text| assert!(pattern.matches(text), "{pattern:?} {text:?}"));
            bad.split(' ').for_each(|text| assert!(!pattern.matches(text), "{pattern:?} {text:?}"));
            assert!(!pattern.matches(""), "{pattern:?} of nothing");
        }
    }
}
