use std::fmt;
use std::ops::Deref;
use std::str::FromStr;

/// The kernel's IFNAMSIZ without the terminating NUL.
const MAX_LEN: usize = 15;

/// The name of a network link.
///
/// Link names are used in nftables scripts and `/proc/sys` paths, and some of them come from an object's status. The
/// kernel allows nearly any byte; this type allows only those without a special meaning in either place (no quotes,
/// slashes, `*` wildcards or `%d` patterns).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkName(String);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is not a usable network link name: use 1 to 15 letters, digits, '.', '_' or '-'")]
pub struct InvalidLinkName {
    name: String,
}

impl LinkName {
    pub fn new(name: impl Into<String>) -> Result<Self, InvalidLinkName> {
        let name = name.into();
        let usable = (1..=MAX_LEN).contains(&name.len())
            && name != "."
            && name != ".."
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
        if usable { Ok(LinkName(name)) } else { Err(InvalidLinkName { name }) }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for LinkName {
    type Err = InvalidLinkName;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        LinkName::new(name)
    }
}

impl Deref for LinkName {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for LinkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for LinkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_a_meaning_elsewhere_are_refused() {
        for good in ["eth0", "k6t-eth0", "pod37a8eec1ce1", "eth0.100", "tap0", "123456789012345"] {
            assert!(LinkName::new(good).is_ok(), "{good} should be accepted");
        }
        for bad in
            ["", ".", "..", "1234567890123456", "a/b", "a b", "eth*", "tap%d", "x\"; flush ruleset", "ethö", "a:b"]
        {
            assert!(LinkName::new(bad).is_err(), "{bad:?} should be refused");
        }
    }
}
