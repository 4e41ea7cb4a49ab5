//! What a domain's state means for who runs the guest.

use launcher_contract::types::{DomainReason as Reason, DomainStatus as Status};

use crate::event::Domain;

/// What the target's libvirt reports about the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word {
    /// It runs there, or ran there until it ended by itself: the copy on the source is outdated.
    Runs,
    /// It does not run there, and only the source would start it.
    DoesNotRun,
    /// QEMU is there and has not started the guest.
    NotYet,
    /// QEMU died there. The guest may have run before, and the target node may have taken it over: virt-handler knows.
    Died,
    /// It runs there, and needs memory from the source.
    Fetches,
    /// The same, but it no longer gets any.
    Starves,
}

/// `moved_paused`: the guest was paused by its user, and arrives paused.
pub fn word(domain: Option<Domain>, moved_paused: bool) -> Word {
    let Some(domain) = domain else { return Word::DoesNotRun };
    match domain {
        (Status::Running | Status::Blocked, Reason::Postcopy) | (Status::Paused, Reason::PausedPostcopy) => {
            Word::Fetches
        }
        (Status::Running | Status::Blocked, Reason::PostcopyFailed)
        | (Status::Paused, Reason::PausedPostcopyFailed) => Word::Starves,
        (Status::Running | Status::Blocked | Status::PMSuspended | Status::Shutdown, _) => Word::Runs,
        (Status::Shutoff | Status::Crashed, _) if ended_by_itself(domain) => Word::Runs,
        (Status::Shutoff | Status::Crashed, Reason::Crashed) => Word::Died,
        (Status::Shutoff | Status::Crashed, _) => Word::DoesNotRun,
        (Status::Paused, Reason::PausedUser) if moved_paused => Word::Runs,
        (Status::Paused, Reason::PausedIOError) => Word::Runs,
        (Status::Paused | Status::NoState | Status::Unknown, _) => Word::NotYet,
    }
}

/// Whether the guest ran and chose its own end: it powered off, or its kernel panicked.
pub fn ended_by_itself((status, reason): Domain) -> bool {
    status.is_down() && matches!(reason, Reason::Shutdown | Reason::Panicked)
}

/// Whether the source paused the guest for a migration and libvirt has left it paused.
pub(crate) fn is_left_standing(domain: Domain) -> bool {
    matches!(domain, (Status::Paused, Reason::PausedMigration | Reason::Unknown))
}

/// Whether the source has handed the guest over by post-copy.
pub(crate) fn is_handed_over(domain: Domain) -> bool {
    matches!(domain, (Status::Paused, Reason::PausedPostcopy | Reason::PausedPostcopyFailed))
}

/// Whether the source no longer sends anything.
pub(crate) fn is_broken(domain: Domain) -> bool {
    matches!(domain, (Status::Paused, Reason::PausedPostcopyFailed)) || domain.0.is_down()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_source_goes_on_only_on_the_targets_word() {
        for (status, reason, moved_paused, expected) in [
            (Status::Running, Reason::Migrated, false, Word::Runs),
            (Status::Running, Reason::Postcopy, false, Word::Fetches),
            (Status::Running, Reason::PostcopyFailed, false, Word::Starves),
            (Status::Paused, Reason::PausedMigration, false, Word::NotYet),
            (Status::Paused, Reason::PausedStartingUp, false, Word::NotYet),
            (Status::Paused, Reason::PausedUser, false, Word::NotYet),
            (Status::Paused, Reason::PausedUser, true, Word::Runs),
            (Status::Paused, Reason::PausedPostcopyFailed, false, Word::Starves),
            (Status::Shutoff, Reason::Failed, false, Word::DoesNotRun),
            (Status::Shutoff, Reason::Destroyed, false, Word::DoesNotRun),
            (Status::Shutoff, Reason::Shutdown, false, Word::Runs),
            (Status::Shutoff, Reason::Crashed, false, Word::Died),
            (Status::Crashed, Reason::Panicked, false, Word::Runs),
            (Status::Unknown, Reason::Unknown, false, Word::NotYet),
        ] {
            assert_eq!(word(Some((status, reason)), moved_paused), expected, "{status:?} {reason:?} {moved_paused}");
        }
        assert_eq!(word(None, false), Word::DoesNotRun);
    }
}
