//! The string patterns of the schemas.

use std::sync::LazyLock;

use regex::Regex;

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
    /// In the order of their definition.
    const ALL: [Pattern; 4] = [Pattern::Quantity, Pattern::Fraction, Pattern::ConditionReason, Pattern::ConditionType];

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
        static COMPILED: LazyLock<[Regex; 4]> = LazyLock::new(|| Pattern::ALL.map(Pattern::compiled));
        COMPILED[self as usize].is_match(text)
    }

    /// Kubernetes' classes of characters are those of ASCII.
    fn compiled(self) -> Regex {
        Regex::new(&format!("(?-u){}", self.regex())).expect("the published expressions are valid")
    }
}

#[cfg(test)]
mod tests {
    use super::Pattern;

    #[test]
    fn the_patterns_match_what_they_are_for() {
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
