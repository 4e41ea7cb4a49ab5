//! Connections that have arrived at a target's port and are not yet joined with the Pod.
//!
//! Anybody on the network may connect, so none of them waits for another's handshake, and there are limits: over a limit
//! the oldest leaves. The source speaks at once, so its connections are never the oldest for long.
//!
//! Those that are admitted go on in the order of their arrival. A silent stranger before them must not delay them, so
//! they wait only for connections that may be the source's: from the same address, and past the source's first words.
//! The source dials again only after the target has answered those, so nothing else of it can have arrived before.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::future::AbortHandle;

/// Maximum number of connections in their handshake, per port.
pub(super) const WAITING: usize = 64;
/// The same from one address. The source has one at a time; behind its address there may be other clients of its node.
pub(super) const WAITING_PER_ADDRESS: usize = 16;

/// Says that the peer has sent the first words of a connection for data.
#[derive(Clone, Debug, Default)]
pub(super) struct Spoke(Arc<AtomicBool>);

impl Spoke {
    pub(super) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

struct Arrival<T> {
    from: IpAddr,
    spoke: Spoke,
    handshake: AbortHandle,
    admitted: Option<T>,
}

/// The connections of one port, by their order.
pub(super) struct Arrivals<T> {
    next: u64,
    all: BTreeMap<u64, Arrival<T>>,
}

impl<T> Default for Arrivals<T> {
    fn default() -> Self {
        Self { next: 0, all: BTreeMap::new() }
    }
}

impl<T> Arrivals<T> {
    /// Adds a connection whose handshake begins. Returns its number, and who had to leave for it.
    pub(super) fn arrive(&mut self, from: IpAddr, spoke: Spoke, handshake: AbortHandle) -> (u64, Option<IpAddr>) {
        let number = self.next;
        self.next += 1;
        let left = self.make_room(from);
        self.all.insert(number, Arrival { from, spoke, handshake, admitted: None });
        (number, left)
    }

    /// Ends the oldest handshake over a limit: of this address, or of the one with the most.
    fn make_room(&mut self, from: IpAddr) -> Option<IpAddr> {
        let mut waiting: BTreeMap<IpAddr, usize> = BTreeMap::new();
        for arrival in self.in_handshake() {
            *waiting.entry(arrival.1.from).or_default() += 1;
        }
        let crowded = match waiting.get(&from) {
            Some(count) if *count >= WAITING_PER_ADDRESS => from,
            _ if waiting.values().sum::<usize>() >= WAITING => *waiting.iter().max_by_key(|(_, count)| **count)?.0,
            _ => return None,
        };
        let of_it = self.in_handshake().filter(|(_, arrival)| arrival.from == crowded);
        // False comes before true: who has said nothing leaves first.
        let oldest = *of_it.min_by_key(|(number, arrival)| (arrival.spoke.get(), **number))?.0;
        self.all.remove(&oldest)?.handshake.abort();
        Some(crowded)
    }

    fn in_handshake(&self) -> impl Iterator<Item = (&u64, &Arrival<T>)> {
        self.all.iter().filter(|(_, arrival)| arrival.admitted.is_none())
    }

    /// Notes that a handshake has ended, with the connection if it is admitted.
    pub(super) fn settle(&mut self, number: u64, admitted: Option<T>) {
        match (admitted, self.all.get_mut(&number)) {
            (Some(connection), Some(arrival)) => arrival.admitted = Some(connection),
            _ => drop(self.all.remove(&number)),
        }
    }

    /// The next admitted connection whose turn it is.
    pub(super) fn take(&mut self) -> Option<T> {
        let is_before = |(number, arrival): (&u64, &Arrival<T>)| {
            let mut earlier = self.all.range(..number);
            earlier.any(|(_, other)| other.from == arrival.from && other.admitted.is_none() && other.spoke.get())
        };
        let mut admitted = self.all.iter().filter(|(_, arrival)| arrival.admitted.is_some());
        let turn = *admitted.find(|one| !is_before(*one))?.0;
        self.all.remove(&turn)?.admitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    fn arrive(arrivals: &mut Arrivals<&'static str>, from: u8, has_spoken: bool) -> (u64, Option<IpAddr>, AbortHandle) {
        let spoke = Spoke::default();
        if has_spoken {
            spoke.set();
        }
        let handle = AbortHandle::new_pair().0;
        let (number, left) = arrivals.arrive(address(from), spoke, handle.clone());
        (number, left, handle)
    }

    #[test]
    fn admitted_connections_go_on_in_the_order_of_their_arrival() {
        // Each with its address and whether it has spoken; which are admitted, one after the other; who goes on when.
        type Row =
            (&'static str, &'static [(u8, bool)], &'static [(u64, Option<&'static str>)], &'static [&'static str]);
        let table: [Row; 6] = [
            ("one", &[(1, true)], &[(0, Some("a"))], &["a"]),
            ("the second is faster", &[(1, true), (1, true)], &[(1, Some("b"))], &[]),
            ("and waits", &[(1, true), (1, true)], &[(1, Some("b")), (0, Some("a"))], &["a", "b"]),
            ("not for one that fails", &[(1, true), (1, true)], &[(1, Some("b")), (0, None)], &["b"]),
            ("nor for a silent one", &[(1, false), (1, true)], &[(1, Some("b"))], &["b"]),
            ("nor for another address", &[(2, true), (1, true)], &[(1, Some("b"))], &["b"]),
        ];
        for (case, arrived, settled, expected) in table {
            let mut arrivals = Arrivals::default();
            for (from, has_spoken) in arrived {
                arrive(&mut arrivals, *from, *has_spoken);
            }
            for (number, admitted) in settled {
                arrivals.settle(*number, *admitted);
            }
            let taken: Vec<&str> = std::iter::from_fn(|| arrivals.take()).collect();
            assert_eq!(taken, expected, "{case}");
        }
    }

    #[test]
    fn over_a_limit_the_oldest_silent_connection_of_the_busiest_address_leaves() {
        let mut arrivals = Arrivals::default();
        let (_, _, spoken) = arrive(&mut arrivals, 1, true);
        let (number, _, silent) = arrive(&mut arrivals, 1, false);
        for _ in 2..WAITING_PER_ADDRESS {
            assert_eq!(arrive(&mut arrivals, 1, false).1, None);
        }
        assert_eq!(arrive(&mut arrivals, 2, false).1, None, "another address");
        assert_eq!(arrive(&mut arrivals, 1, false).1, Some(address(1)));
        assert!(silent.is_aborted() && !spoken.is_aborted());
        arrivals.settle(number, Some("too late"));
        assert_eq!(arrivals.take(), None, "who has left does not come back");
        let mut from = (3..).flat_map(|address| [address; 4]);
        while arrivals.in_handshake().count() < WAITING {
            assert_eq!(arrive(&mut arrivals, from.next().unwrap(), false).1, None);
        }
        assert_eq!(arrive(&mut arrivals, 200, false).1, Some(address(1)), "the busiest address makes room");
        assert_eq!(arrivals.in_handshake().count(), WAITING);
    }

    #[test]
    fn connections_that_are_admitted_make_no_room_and_need_none() {
        let mut arrivals = Arrivals::default();
        for _ in 0..WAITING_PER_ADDRESS {
            let (number, left, _) = arrive(&mut arrivals, 1, true);
            arrivals.settle(number, Some("data"));
            assert_eq!(left, None);
        }
        assert_eq!(arrive(&mut arrivals, 1, true).1, None);
        assert_eq!(std::iter::from_fn(|| arrivals.take()).count(), WAITING_PER_ADDRESS);
    }
}
