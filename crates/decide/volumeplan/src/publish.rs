//! Volumes at paths of nodes.

use crate::existing::{in_use, mismatch};
use crate::id::NodeName;
use crate::record::{Hold, Publication, Reach, Users, Volume};
use crate::refusal::{Code, Refusal, Result};
use crate::request::{Capability, MountFlag};

/// A request for a volume at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publish {
    pub target: String,
    pub read_only: bool,
    pub capability: Capability,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publishing {
    pub publication: Publication,
    pub flags: Vec<MountFlag>,
    /// Whether the publication is on record already. It is carried out again all the same: a crash may have left it half
    /// done, and what is done stays as it is.
    pub recorded: bool,
}

/// Decides whether a volume may appear at a path of `node`, where others use it already.
pub fn publish(
    volume: &Volume,
    users: &Users,
    node: &NodeName,
    reach: &Reach,
    request: &Publish,
) -> Result<Publishing> {
    let granted = request.capability.grant(reach)?;
    if granted.kind != volume.kind {
        return Err(Refusal::invalid(mismatch(volume)));
    }
    if let Some(Hold { holder }) = &users.hold {
        let message = format!("volume {} is being filled by {holder}; Pods can use it once that has ended", volume.id);
        return Err(Refusal::new(Code::FailedPrecondition, message));
    }
    let read_only = request.read_only || granted.mode.only_reads() || granted.flags.contains(&MountFlag::ReadOnly);
    let publication = Publication { node: node.clone(), target: request.target.clone(), read_only, mode: granted.mode };
    let mut recorded = false;
    for other in &users.publications {
        if other.node == *node && other.target == request.target {
            if *other != publication {
                return Err(Refusal::new(
                    Code::AlreadyExists,
                    format!("volume {} is at {} already, with other options", volume.id, request.target),
                ));
            }
            recorded = true;
        } else if let Some(why) = conflict(&publication, other) {
            return Err(Refusal::new(
                Code::FailedPrecondition,
                format!("volume {} {}, {why}", volume.id, in_use(other)),
            ));
        }
    }
    Ok(Publishing { publication, flags: granted.flags, recorded })
}

/// Why two publications of a volume cannot be at the same time. Each side's mode counts: the first one must not find
/// that a second one had looser ideas.
fn conflict(new: &Publication, old: &Publication) -> Option<&'static str> {
    use crate::request::AccessMode::{MultiNodeSingleWriter, SingleNodeSingleWriter};
    let modes = [new.mode, old.mode];
    if modes.contains(&SingleNodeSingleWriter) {
        return Some("and only one Pod may use it at a time (ReadWriteOncePod)");
    }
    if new.node == old.node {
        return None;
    }
    if modes.iter().any(|mode| !mode.many_nodes()) {
        return Some("and only one node may use it at a time");
    }
    let two_writers = !new.read_only && !old.read_only;
    (two_writers && modes.contains(&MultiNodeSingleWriter)).then_some("and only one node may write to it at a time")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Kind;
    use crate::request::Access;
    use crate::request::AccessMode::{self, *};
    use crate::{PoolId, RequestName, VolumeId};

    fn volume(kind: Kind) -> Volume {
        let name = RequestName::parse("v").unwrap();
        Volume { id: VolumeId::derive(&name, &Reach::Shared), name: "v".to_owned(), capacity: 4096, kind, source: None }
    }

    fn used(publications: Vec<Publication>) -> Users {
        Users { publications, hold: None }
    }

    fn node(name: &str) -> NodeName {
        NodeName::parse(name).unwrap()
    }

    fn request(target: &str, read_only: bool, mode: AccessMode) -> Publish {
        let capability = Capability { access: Some(Access::Block), mode: Some(mode) };
        Publish { target: target.to_owned(), read_only, capability }
    }

    #[test]
    fn a_second_user_is_let_in_only_where_both_allow_it() {
        // First user's mode and whether it only reads, second user's node, mode and whether it only reads.
        for (first, second, expected) in [
            ((SingleNodeMultiWriter, false), ("n1", SingleNodeMultiWriter, false), None),
            ((SingleNodeWriter, false), ("n1", SingleNodeWriter, false), None),
            ((SingleNodeWriter, false), ("n2", SingleNodeWriter, false), Some("only one node")),
            ((SingleNodeWriter, false), ("n2", MultiNodeMultiWriter, false), Some("only one node")),
            ((MultiNodeMultiWriter, false), ("n2", SingleNodeWriter, false), Some("only one node")),
            ((SingleNodeSingleWriter, false), ("n1", SingleNodeMultiWriter, false), Some("only one Pod")),
            ((SingleNodeMultiWriter, false), ("n1", SingleNodeSingleWriter, false), Some("only one Pod")),
            ((MultiNodeMultiWriter, false), ("n2", MultiNodeMultiWriter, false), None),
            ((MultiNodeReaderOnly, false), ("n2", MultiNodeReaderOnly, false), None),
            ((MultiNodeSingleWriter, false), ("n2", MultiNodeSingleWriter, true), None),
            ((MultiNodeSingleWriter, true), ("n2", MultiNodeSingleWriter, false), None),
            ((MultiNodeSingleWriter, false), ("n2", MultiNodeMultiWriter, false), Some("may write")),
        ] {
            let volume = volume(Kind::Block);
            let made =
                publish(&volume, &used(vec![]), &node("n1"), &Reach::Shared, &request("/a", first.1, first.0)).unwrap();
            let second_request = request("/b", second.2, second.1);
            let users = used(vec![made.publication]);
            let result = publish(&volume, &users, &node(second.0), &Reach::Shared, &second_request);
            match (expected, result) {
                (None, Ok(_)) => {}
                (Some(expected), Err(refusal)) => {
                    assert_eq!(refusal.code, Code::FailedPrecondition);
                    assert!(refusal.message.contains(expected), "{first:?} {second:?}: {refusal}");
                }
                (_, result) => panic!("{first:?} {second:?}: {result:?}"),
            }
        }
    }

    #[test]
    fn a_repeated_publication_is_the_same_one_and_another_at_its_path_is_refused() {
        let (volume, here, reach) = (volume(Kind::Block), node("n1"), Reach::Local(node("n1")));
        let first = request("/a", false, SingleNodeSingleWriter);
        let made = publish(&volume, &used(vec![]), &here, &reach, &first).unwrap();
        assert!(!made.recorded);
        let recorded = used(vec![made.publication.clone()]);
        let again = publish(&volume, &recorded, &here, &reach, &first).unwrap();
        assert!(again.recorded);
        assert_eq!(again.publication, made.publication);
        let other = request("/a", true, SingleNodeSingleWriter);
        assert_eq!(publish(&volume, &recorded, &here, &reach, &other).unwrap_err().code, Code::AlreadyExists);
    }

    #[test]
    fn a_volume_that_is_being_filled_is_not_published() {
        let hold = Some(Hold { holder: "import a".to_owned() });
        let users = Users { publications: vec![], hold };
        let request = request("/a", true, MultiNodeReaderOnly);
        let refusal = publish(&volume(Kind::Block), &users, &node("n1"), &Reach::Shared, &request).unwrap_err();
        assert_eq!(refusal.code, Code::FailedPrecondition);
        assert!(refusal.message.contains("import a"), "{refusal}");
    }

    #[test]
    fn what_a_volume_cannot_be_is_refused() {
        let (block, files) = (volume(Kind::Block), volume(Kind::Filesystem));
        let reach = Reach::Local(node("n1"));
        let mount = |fs_type: &str, flags: &[&str]| Publish {
            target: "/a".to_owned(),
            read_only: false,
            capability: Capability {
                access: Some(Access::Mount {
                    fs_type: fs_type.to_owned(),
                    flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
                }),
                mode: Some(SingleNodeWriter),
            },
        };
        let ask = |volume: &Volume, request: &Publish| publish(volume, &used(vec![]), &node("n1"), &reach, request);
        assert!(ask(&files, &mount("", &["ro", "rw", "nosuid"])).unwrap().publication.read_only);
        for (volume, request) in [
            (&block, mount("", &[])),
            (&files, request("/a", false, SingleNodeWriter)),
            (&files, mount("ext4", &[])),
            (&files, mount("", &["discard"])),
            (&block, request("/a", false, MultiNodeMultiWriter)),
        ] {
            assert_eq!(ask(volume, &request).unwrap_err().code, Code::InvalidArgument, "{request:?}");
        }
    }
}
