use std::fmt;

use serde::{Deserialize, Serialize};

/// The UID of a Pod or VMI, safe to be the name of a file or directory.
///
/// UIDs come from objects that others write, and they become paths on the node.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Uid(String);

#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not a UID")]
pub(crate) struct InvalidUid(String);

impl Uid {
    pub(crate) fn new(text: impl Into<String>) -> Result<Self, InvalidUid> {
        let text = text.into();
        let plain = (1..=64).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        if plain { Ok(Uid(text)) } else { Err(InvalidUid(text)) }
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Uid {
    type Error = InvalidUid;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Uid::new(text)
    }
}

impl From<Uid> for String {
    fn from(uid: Uid) -> String {
        uid.0
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_names_are_uids() {
        assert!(Uid::new("0c1b5a3e-7a2f-4b0e-9d52-3a2f5f1f6c11").is_ok());
        for bad in ["", ".", "..", "../x", "a/b", "a b", "a\0", &"x".repeat(65)] {
            assert!(Uid::new(bad).is_err(), "{bad:?}");
        }
    }
}
