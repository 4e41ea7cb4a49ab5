//! Storage in detail: claims that bind late, mounts that fail, guests that keep a disk.
//!
//! All of it uses a separate random generator, so that the other deeds and faults of a seed stay the same.

use std::time::Duration;

use super::{ACTIVE, Profile, time};
use crate::rng::Rng;
use crate::script::{ClaimFate, Deed, EjectFate, Fault, MountFate};

/// The last deed of a user.
const LAST: Duration = Duration::from_millis(ACTIVE - 1_000);

impl Profile {
    pub(super) fn disks(&self, rng: &mut Rng, deeds: &mut Vec<(Duration, Deed)>, faults: &mut Vec<Fault>) {
        if self.disks == 0 {
            return;
        }
        for _ in 0..rng.within(0, self.disks) {
            let (vm, volume) = (rng.below(self.vms) as u8, rng.below(3) as u8);
            deeds.push((time(rng, 10_000, ACTIVE - 20_000), Deed::DeleteClaim { vm, volume }));
        }
        self.haste(rng, deeds);
        deeds.sort_by_key(|(at, _)| *at);
        for _ in 0..rng.within(0, self.disks) {
            let fate = match rng.chance(70) {
                true => ClaimFate::BindsLate(time(rng, 2_000, 60_000)),
                false => ClaimFate::NeverBinds,
            };
            faults.push(Fault::Claim { nth: rng.below(4), fate });
        }
        for _ in 0..rng.within(0, 2 * self.disks) {
            let fate = match rng.below(3) {
                0 => MountFate::Slow(time(rng, 1_000, 40_000)),
                1 => MountFate::Fails(time(rng, 1_000, 60_000)),
                _ => MountFate::Lingers(time(rng, 5_000, 60_000)),
            };
            faults.push(Fault::Mount { nth: rng.below(10), fate });
        }
        for _ in 0..rng.within(0, self.disks) {
            let fate = match rng.chance(75) {
                true => EjectFate::Slow(time(rng, 1_000, 60_000)),
                false => EjectFate::Ignored,
            };
            faults.push(Fault::Eject { nth: rng.below(4), fate });
        }
    }

    /// Disks are unplugged soon after they were plugged, and plugged again before they are gone.
    fn haste(&self, rng: &mut Rng, deeds: &mut Vec<(Duration, Deed)>) {
        let plugged = |(at, deed): &(Duration, Deed)| match deed {
            Deed::Plug { vm, volume } => Some((*at, *vm, *volume)),
            _ => None,
        };
        for (at, vm, volume) in deeds.iter().filter_map(plugged).collect::<Vec<_>>() {
            if rng.chance(50) {
                let longest = if rng.chance(50) { 15_000 } else { 60_000 };
                let unplugged = at + time(rng, 500, longest);
                let again = unplugged + time(rng, 500, 20_000);
                deeds.push((unplugged.min(LAST), Deed::Unplug { vm, volume }));
                if rng.chance(40) {
                    deeds.push((again.min(LAST), Deed::Plug { vm, volume }));
                }
            }
        }
    }
}
