//! UIDs that are used as names of files, directories and cgroups on a node.
//!
//! UIDs come from objects that others write, so only plain ones are accepted. Those of different kinds are distinct types:
//! mixing them up would lead into another object's directory.

/// A text that is no UID, or that would be more than a name in a path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a UID: 1 to 64 letters, digits and hyphens")]
pub struct InvalidUid(String);

/// The text, if it is safe as a name.
pub fn plain(text: String) -> Result<String, InvalidUid> {
    let plain = (1..=64).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    if plain { Ok(text) } else { Err(InvalidUid(text)) }
}

/// Declares the type of one kind's UIDs. The crate that uses it depends on serde.
#[macro_export]
macro_rules! uid {
    ($(#[$doc:meta])* $visible:vis $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, ::serde::Serialize, ::serde::Deserialize)]
        #[serde(try_from = "String", into = "String")]
        $visible struct $name(String);

        impl $name {
            $visible fn new(text: impl Into<String>) -> Result<Self, $crate::uid::InvalidUid> {
                $crate::uid::plain(text.into()).map($name)
            }

            $visible fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl ::std::str::FromStr for $name {
            type Err = $crate::uid::InvalidUid;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                $name::new(text)
            }
        }

        impl TryFrom<String> for $name {
            type Error = $crate::uid::InvalidUid;

            fn try_from(text: String) -> Result<Self, Self::Error> {
                $name::new(text)
            }
        }

        impl From<$name> for String {
            fn from(uid: $name) -> String {
                uid.0
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

uid! {
    /// The UID of a Pod.
    pub PodUid
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_names_are_uids() {
        assert!(PodUid::new("0c1b5a3e-7a2f-4b0e-9d52-3a2f5f1f6c11").is_ok());
        for bad in ["", ".", "..", "../x", "a/b", "a b", ".hidden", "a\0", &"x".repeat(65)] {
            assert!(PodUid::new(bad).is_err() && bad.parse::<PodUid>().is_err(), "{bad:?}");
            assert!(serde_json::from_value::<PodUid>(bad.into()).is_err(), "{bad:?}");
        }
    }
}
