//! UIDs that are used as file and directory names on the node.
//!
//! UIDs come from objects that others write, so only plain ones are accepted. Pod and VMI UIDs are distinct types:
//! mixing them up would lead into another guest's directory.

use std::fmt;

use serde::{Deserialize, Serialize};

#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not a UID")]
pub(crate) struct InvalidUid(String);

macro_rules! uid {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub(crate) struct $name(String);

        impl $name {
            pub(crate) fn new(text: impl Into<String>) -> Result<Self, InvalidUid> {
                plain(text.into()).map($name)
            }

            pub(crate) fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidUid;

            fn try_from(text: String) -> Result<Self, Self::Error> {
                $name::new(text)
            }
        }

        impl From<$name> for String {
            fn from(uid: $name) -> String {
                uid.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

uid! {
    /// The UID of a launcher Pod.
    PodUid
}

uid! {
    /// The UID of a VirtualMachineInstance.
    VmiUid
}

fn plain(text: String) -> Result<String, InvalidUid> {
    let plain = (1..=64).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    if plain { Ok(text) } else { Err(InvalidUid(text)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_names_are_uids() {
        assert!(PodUid::new("0c1b5a3e-7a2f-4b0e-9d52-3a2f5f1f6c11").is_ok());
        for bad in ["", ".", "..", "../x", "a/b", "a b", "a\0", &"x".repeat(65)] {
            assert!(PodUid::new(bad).is_err() && VmiUid::new(bad).is_err(), "{bad:?}");
        }
    }
}
