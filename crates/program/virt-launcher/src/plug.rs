//! Disks that come and go while the guest runs.
//!
//! The domain is made to have the volumes that virt-handler has mounted for it, whatever it had before: repeating a request
//! is harmless, and a request that was cut off is completed by the next one. Each disk is plugged by itself, so one that
//! libvirt refuses does not hold up others. A disk that the guest has not released is still there: only libvirt's own
//! description of the domain counts.

use std::collections::BTreeSet;

use domain::DiskChange;
use libvirt_io::{Connection, Domain, flags};

use crate::error::{Error, chain};

/// What came of the changes to a domain.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// What libvirt, or the conversion, refused.
    pub(crate) refused: Vec<String>,
    /// Volumes whose disks the guest still holds on to.
    pub(crate) held: Vec<String>,
}

impl Outcome {
    /// An error that says everything that is not as it should be.
    pub(crate) fn result(self) -> Result<(), Error> {
        let Outcome { mut refused, held } = self;
        let waits = refused.is_empty();
        if !held.is_empty() {
            refused.push(format!("the guest has not released {}", held.join(", ")));
        }
        if refused.is_empty() { Ok(()) } else { Err(Error::Plug { detail: refused.join("; "), waits }) }
    }
}

/// Makes the changes, all of them if possible.
pub(crate) async fn carry_out(
    connection: &Connection,
    domain: &Domain,
    changes: Vec<DiskChange>,
    outcome: &mut Outcome,
) -> Result<(), Error> {
    let mut detached = BTreeSet::new();
    for change in changes {
        let (action, done) = match &change {
            DiskChange::Attach { xml, .. } => {
                ("plug in", connection.attach_device(domain, xml, flags::DEVICE_MODIFY_LIVE).await)
            }
            DiskChange::Detach { xml, .. } => {
                ("unplug", connection.detach_device(domain, xml, flags::DEVICE_MODIFY_LIVE).await)
            }
            DiskChange::Medium { xml, .. } => {
                ("change the medium of", connection.update_device(domain, xml, flags::DEVICE_MODIFY_LIVE).await)
            }
        };
        let volume = change.volume();
        match done {
            Ok(()) => {
                tracing::info!(volume, action, "the guest's disks change");
                if matches!(change, DiskChange::Detach { .. }) {
                    detached.insert(volume.to_owned());
                }
            }
            // What was done is in the domain; the next request finds it there.
            Err(source) if source.is_closed() => return Err(Error::Libvirt { action, source }),
            Err(error) => outcome.refused.push(format!("cannot {action} volume {volume}: {}", chain(&error))),
        }
    }
    if detached.is_empty() {
        return Ok(());
    }
    let xml = connection.xml_desc(domain, 0).await;
    let xml = xml.map_err(|source| Error::Libvirt { action: "read the domain's disks", source })?;
    let left = domain::Observed::parse(&xml).map_err(Error::Convert)?.disks;
    outcome.held.extend(left.into_iter().map(|disk| disk.name).filter(|name| detached.contains(name)));
    Ok(())
}

#[cfg(test)]
mod tests {
    use launcher_contract::types::RefusalCode;

    use super::*;

    #[test]
    fn a_guest_that_holds_on_is_waited_for_and_a_refusal_is_told() {
        let outcome = |refused: &[&str], held: &[&str]| {
            let owned = |words: &[&str]| words.iter().map(ToString::to_string).collect();
            let refusal = Outcome { refused: owned(refused), held: owned(held) }.result().err().map(|e| e.refusal());
            refusal.map(|refusal| (refusal.code, refusal.message))
        };
        assert_eq!(outcome(&[], &[]), None);
        let waits = "the guest does not have the volumes of its VMI yet: the guest has not released a, b".to_owned();
        assert_eq!(outcome(&[], &["a", "b"]), Some((RefusalCode::NotReady, waits)));
        let (code, message) = outcome(&["cannot plug in volume c: no"], &["a"]).unwrap();
        assert_eq!(code, RefusalCode::Libvirt);
        assert!(message.ends_with("cannot plug in volume c: no; the guest has not released a"), "{message}");
    }
}
