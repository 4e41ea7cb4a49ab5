//! VSOCK context IDs of guests.

use machinery::names;

/// Lower ones are reserved for the host, the hypervisor and local communication.
const FIRST: u32 = 3;
/// The next one is the wildcard address.
const LAST: u32 = u32::MAX - 1;

/// A free CID for the guest with this UID: the first free one from a starting point derived from the UID. `None` only
/// if all are taken.
pub fn vsock_cid(uid: &str, is_taken: impl Fn(u32) -> bool) -> Option<u32> {
    // One suffix of five characters out of 27 does not cover all CIDs; two do.
    let draw = |seed: &str| names::suffix(seed).bytes().fold(0_u64, |sum, byte| sum * 27 + u64::from(byte) % 27);
    let place = draw(uid) * 14_348_907 + draw(&format!("{uid}/vsock"));
    let start = u32::try_from(place % u64::from(LAST - FIRST)).unwrap_or_default() + FIRST;
    free_from(start, is_taken)
}

fn free_from(start: u32, is_taken: impl Fn(u32) -> bool) -> Option<u32> {
    (start..=LAST).chain(FIRST..start).find(|cid| !is_taken(*cid))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn the_same_guest_gets_the_same_address_and_others_get_others() {
        let nobody = |_| false;
        assert_eq!(vsock_cid("a", nobody), vsock_cid("a", nobody));
        let mut taken = HashSet::new();
        for uid in 0..1000 {
            let cid = vsock_cid(&uid.to_string(), |cid| taken.contains(&cid)).unwrap();
            assert!((FIRST..=LAST).contains(&cid));
            assert!(taken.insert(cid));
        }
    }

    #[test]
    fn a_taken_address_gives_way_to_the_next_and_the_last_to_the_first() {
        let first = vsock_cid("a", |_| false).unwrap();
        assert_eq!(vsock_cid("a", |cid| cid == first), Some(first + 1));
        assert_eq!(free_from(LAST, |cid| cid == LAST), Some(FIRST));
    }
}
