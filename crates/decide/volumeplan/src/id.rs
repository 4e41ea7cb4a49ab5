//! Names from requests and the IDs derived from them.
//!
//! An ID is the name of a directory in the pool. It is made of a prefix and hexadecimal digits, so no request can put a
//! slash, a dot or anything else of meaning into a path. The ID of a volume in a pool of one node ends with a tag of that
//! node: a request that reaches the wrong node is recognised instead of answered with "no such volume".

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::record::Reach;
use crate::refusal::{Code, Refusal, Result, quote};

/// CSI's limit for a string field, in bytes.
const NAME_MAX: usize = 128;
/// Kubernetes' limit for a label's value, which the node's topology becomes.
const NODE_MAX: usize = 63;
/// Hexadecimal digits of the hash of a name: 128 bits.
const DIGITS: usize = 32;
/// Hexadecimal digits of a node's tag.
const TAG_DIGITS: usize = 16;

/// The name of a volume or a snapshot, chosen by whoever asks for it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestName(String);

impl RequestName {
    pub fn parse(name: &str) -> Result<Self> {
        if name.is_empty() {
            return Err(Refusal::invalid("the request has no name"));
        }
        if name.len() > NAME_MAX {
            return Err(Refusal::invalid(format!(
                "the name {} has {} bytes; at most {NAME_MAX} are allowed",
                quote(name),
                name.len()
            )));
        }
        if name.chars().any(char::is_control) {
            return Err(Refusal::invalid(format!("the name {} contains control characters", quote(name))));
        }
        Ok(Self(name.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The name of a node: what Kubernetes accepts as a label's value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NodeName(String);

impl NodeName {
    pub fn parse(name: &str) -> Result<Self> {
        let alphanumeric = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
        let inner = name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
        let ends = alphanumeric(name.chars().next()) && alphanumeric(name.chars().next_back());
        if inner && ends && name.len() <= NODE_MAX {
            return Ok(Self(name.to_owned()));
        }
        Err(Refusal::invalid(format!(
            "the node ID {} cannot be the value of a label: use at most {NODE_MAX} letters, digits, '-', '_' and '.', \
             beginning and ending with a letter or digit",
            quote(name)
        )))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn tag(&self) -> NodeTag {
        NodeTag(digest("node", &self.0, TAG_DIGITS))
    }
}

impl TryFrom<String> for NodeName {
    type Error = Refusal;

    fn try_from(name: String) -> Result<Self> {
        Self::parse(&name)
    }
}

impl From<NodeName> for String {
    fn from(name: NodeName) -> String {
        name.0
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The name of a CSI driver: part of the names of sockets, and of StorageClasses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverName(String);

impl DriverName {
    pub fn parse(name: &str) -> Result<Self> {
        let part = |part: &str| {
            let inner = part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
            inner && !part.is_empty() && !part.starts_with('-') && !part.ends_with('-')
        };
        if name.len() <= NODE_MAX && name.split('.').all(part) {
            return Ok(Self(name.to_owned()));
        }
        Err(Refusal::invalid(format!(
            "the driver name {} is not a domain name: use at most {NODE_MAX} lowercase letters, digits, '-' and '.'",
            quote(name)
        )))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A node's name as 16 hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeTag(String);

impl NodeTag {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What a request's ID refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup<Id> {
    /// It would be in this pool.
    Here(Id),
    /// It would be in the pool of another node.
    Elsewhere(Id),
    /// No engine has ever made such an ID.
    Unknown,
}

/// What volume and snapshot IDs have in common.
pub trait PoolId: Sized + Ord + Clone + fmt::Display {
    /// What it identifies, in messages.
    const WHAT: &'static str;
    const PREFIX: &'static str;

    fn from_text(text: String) -> Self;
    fn as_str(&self) -> &str;

    /// The ID of what is asked for by this name.
    fn derive(name: &RequestName, reach: &Reach) -> Self {
        let hash = digest(Self::PREFIX, name.as_str(), DIGITS);
        Self::from_text(match reach {
            Reach::Local(node) => format!("{}{hash}-{}", Self::PREFIX, node.tag().as_str()),
            Reach::Shared => format!("{}{hash}", Self::PREFIX),
        })
    }

    /// The ID that this text is, if it is one.
    fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix(Self::PREFIX)?;
        let (hash, tag) = digits.split_once('-').map_or((digits, None), |(hash, tag)| (hash, Some(tag)));
        let fits = is_hex(hash, DIGITS) && tag.is_none_or(|tag| is_hex(tag, TAG_DIGITS));
        fits.then(|| Self::from_text(text.to_owned()))
    }

    /// Where a request's ID leads; refuses an empty one.
    fn look_up(text: &str, reach: &Reach) -> Result<Lookup<Self>> {
        if text.is_empty() {
            return Err(Refusal::invalid(format!("the request has no {} ID", Self::WHAT)));
        }
        let Some(id) = Self::parse(text) else { return Ok(Lookup::Unknown) };
        let tag = text.strip_prefix(Self::PREFIX).and_then(|digits| digits.split_once('-')).map(|(_, tag)| tag);
        Ok(match (reach, tag) {
            (Reach::Shared, None) => Lookup::Here(id),
            (Reach::Local(node), Some(tag)) if tag == node.tag().as_str() => Lookup::Here(id),
            (Reach::Local(_), Some(_)) => Lookup::Elsewhere(id),
            // Of a pool of the other kind.
            (Reach::Shared, Some(_)) | (Reach::Local(_), None) => Lookup::Unknown,
        })
    }

    /// The ID in this pool, for requests that make sense nowhere else.
    fn find(text: &str, reach: &Reach) -> Result<Self> {
        match Self::look_up(text, reach)? {
            Lookup::Here(id) => Ok(id),
            Lookup::Elsewhere(_) => {
                Err(Refusal::new(Code::NotFound, format!("{} {text} is in the pool of another node", Self::WHAT)))
            }
            Lookup::Unknown => Err(no_such::<Self>(text)),
        }
    }
}

/// The answer where an ID has to lead to something, and does not.
pub fn no_such<Id: PoolId>(id: &str) -> Refusal {
    Refusal::new(Code::NotFound, format!("there is no {} {}", Id::WHAT, quote(id)))
}

macro_rules! pool_id {
    ($(#[$meta:meta])* $name:ident, $what:literal, $prefix:literal) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl PoolId for $name {
            const WHAT: &'static str = $what;
            const PREFIX: &'static str = $prefix;

            fn from_text(text: String) -> Self {
                Self(text)
            }

            fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl TryFrom<String> for $name {
            type Error = Refusal;

            fn try_from(text: String) -> Result<Self> {
                Self::parse(&text).ok_or_else(|| no_such::<Self>(&text))
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.0
            }
        }
    };
}

pool_id!(
    /// Identifies a volume, and names its directory.
    VolumeId,
    "volume",
    "vol-"
);
pool_id!(
    /// Identifies a snapshot, and names its directory.
    SnapshotId,
    "snapshot",
    "snap-"
);

fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// The first digits of the SHA-256 of a text, which means another thing in each realm.
pub(crate) fn digest(realm: &str, text: &str, digits: usize) -> String {
    let hash = Sha256::new().chain_update(realm).chain_update([0]).chain_update(text).finalize();
    let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    hex[..digits].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn local(node: &str) -> Reach {
        Reach::Local(NodeName::parse(node).unwrap())
    }

    #[test]
    fn ids_never_change() {
        // They are the names of directories that exist on disks out there.
        let name = RequestName::parse("pvc-1").unwrap();
        assert_eq!(VolumeId::derive(&name, &Reach::Shared).as_str(), "vol-01de4acb860965d02fab88c811b9d498");
        assert_eq!(
            SnapshotId::derive(&name, &local("n1")).as_str(),
            "snap-fcde6870e47367718d3edd44a2486511-c0975b8bfbdee70d"
        );
    }

    #[test]
    fn an_id_is_recognised_here_and_on_other_nodes() {
        let name = RequestName::parse("pvc-1").unwrap();
        let (here, there) = (local("n1"), local("n2"));
        let id = VolumeId::derive(&name, &here);
        assert_eq!(VolumeId::look_up(id.as_str(), &here), Ok(Lookup::Here(id.clone())));
        assert_eq!(VolumeId::look_up(id.as_str(), &there), Ok(Lookup::Elsewhere(id.clone())));
        assert_eq!(VolumeId::look_up(id.as_str(), &Reach::Shared), Ok(Lookup::Unknown));
        let shared = VolumeId::derive(&name, &Reach::Shared);
        assert_eq!(VolumeId::look_up(shared.as_str(), &Reach::Shared), Ok(Lookup::Here(shared.clone())));
        assert_eq!(VolumeId::look_up(shared.as_str(), &here), Ok(Lookup::Unknown));
        assert!(VolumeId::look_up("", &here).is_err());
    }

    #[test]
    fn nothing_but_an_id_is_an_id() {
        let hash = "0".repeat(DIGITS);
        let tag = "f".repeat(TAG_DIGITS);
        assert!(VolumeId::parse(&format!("vol-{hash}")).is_some());
        assert!(VolumeId::parse(&format!("vol-{hash}-{tag}")).is_some());
        for text in [
            "..".to_owned(),
            "vol-".to_owned(),
            format!("snap-{hash}"),
            format!("vol-{hash}0"),
            format!("vol-{hash}-"),
            format!("vol-{hash}-{tag}-{tag}"),
            format!("vol-{}/", &hash[1..]),
            format!("vol-{}A", &hash[1..]),
            format!("vol-{}é", &hash[2..]),
        ] {
            assert_eq!(VolumeId::parse(&text), None, "{text}");
        }
    }

    #[test]
    fn names_are_bounded() {
        for good in ["a", &"x".repeat(NAME_MAX), "ü/..", "a b"] {
            assert!(RequestName::parse(good).is_ok(), "{good}");
        }
        for bad in ["", &"x".repeat(NAME_MAX + 1), "a\nb", "a\0"] {
            assert_eq!(RequestName::parse(bad).unwrap_err().code, Code::InvalidArgument, "{bad:?}");
        }
        for good in ["n1", "node-1.example", &"x".repeat(NODE_MAX)] {
            assert!(NodeName::parse(good).is_ok(), "{good}");
        }
        for bad in ["", "-a", "a.", "a/b", "a b", "é", &"x".repeat(NODE_MAX + 1)] {
            assert!(NodeName::parse(bad).is_err(), "{bad:?}");
        }
        assert!(DriverName::parse("csi.ferrovirt.io").is_ok());
        for bad in ["", "a/b", "..", "A", "-a", "a-", "a..b", &"x".repeat(NODE_MAX + 1)] {
            assert!(DriverName::parse(bad).is_err(), "{bad:?}");
        }
    }
}
