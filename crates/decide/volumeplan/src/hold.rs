//! Volumes that somebody fills who is no Pod: an import.

use crate::existing::in_use;
use crate::id::{RequestName, VolumeId};
use crate::record::{Hold, Users, Volume};
use crate::refusal::{Code, Refusal, Result};

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding {
    pub hold: Hold,
    /// Whether the hold is on record already.
    pub recorded: bool,
}

/// Decides whether `holder` may fill a volume: nobody else uses it, and from now on nobody else will.
pub fn hold(volume: &Volume, users: &Users, holder: &str) -> Result<Holding> {
    let hold = Hold { holder: name(holder)? };
    let refused = |who: String| Err(Refusal::new(Code::FailedPrecondition, format!("volume {} {who}", volume.id)));
    match (&users.hold, users.publications.first()) {
        (Some(other), _) if other.holder != hold.holder => refused(format!("is in use by {}", other.holder)),
        (Some(_), _) => Ok(Holding { hold, recorded: true }),
        (None, Some(publication)) => refused(in_use(publication)),
        (None, None) => Ok(Holding { hold, recorded: false }),
    }
}

/// Decides whether there is a hold to forget.
pub fn release_hold(users: &Users, holder: &str) -> Result<bool> {
    let holder = name(holder)?;
    Ok(users.hold.as_ref().is_some_and(|hold| hold.holder == holder))
}

/// A holder's name ends up in messages and records, as a request's name does.
fn name(holder: &str) -> Result<String> {
    RequestName::parse(holder).map(|name| name.as_str().to_owned())
}

/// Refuses to copy what is being filled: the copy would be of something half done.
pub(crate) fn copyable(id: &VolumeId, hold: Option<&Hold>) -> Result<()> {
    match hold {
        None => Ok(()),
        Some(Hold { holder }) => Err(Refusal::new(
            Code::FailedPrecondition,
            format!("volume {id} is being filled by {holder}; it can be copied once that has ended"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Kind, Publication, Reach};
    use crate::request::AccessMode;
    use crate::{NodeName, PoolId as _};

    fn volume() -> Volume {
        let id = VolumeId::derive(&RequestName::parse("v").unwrap(), &Reach::Shared);
        Volume { id, name: "v".to_owned(), capacity: 4096, kind: Kind::Block, source: None }
    }

    fn held(holder: &str) -> Users {
        Users { hold: Some(Hold { holder: holder.to_owned() }), ..Users::default() }
    }

    fn published() -> Users {
        let publication = Publication {
            node: NodeName::parse("n1").unwrap(),
            target: "/a".to_owned(),
            read_only: true,
            mode: AccessMode::MultiNodeReaderOnly,
        };
        Users { publications: vec![publication], hold: None }
    }

    #[test]
    fn one_holder_at_a_time_and_no_pod_beside_it() {
        assert!(!hold(&volume(), &Users::default(), "import a").unwrap().recorded);
        assert!(hold(&volume(), &held("import a"), "import a").unwrap().recorded);
        for (users, word) in [(held("import b"), "in use by import b"), (published(), "on node n1 at /a")] {
            let refusal = hold(&volume(), &users, "import a").unwrap_err();
            assert_eq!(refusal.code, Code::FailedPrecondition);
            assert!(refusal.message.contains(word), "{refusal}");
        }
        for bad in ["", "a\nb"] {
            assert_eq!(hold(&volume(), &Users::default(), bad).unwrap_err().code, Code::InvalidArgument);
        }
    }

    #[test]
    fn only_the_holder_releases() {
        for (users, released) in [(held("a"), true), (held("b"), false), (published(), false)] {
            assert_eq!(release_hold(&users, "a"), Ok(released));
        }
    }

    #[test]
    fn a_held_volume_is_not_copied_and_a_message_names_the_holder() {
        let id = volume().id;
        assert_eq!(copyable(&id, None), Ok(()));
        let refusal = copyable(&id, held("import a").hold.as_ref()).unwrap_err();
        assert_eq!(refusal.code, Code::FailedPrecondition);
        assert!(refusal.message.contains("import a"), "{refusal}");
    }
}
