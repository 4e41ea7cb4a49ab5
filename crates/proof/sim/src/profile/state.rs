//! Guests with backend storage, and later additions to histories with migrations.
//!
//! All of it uses a separate random generator, so that the other deeds and faults of a seed stay the same.

use std::time::Duration;

use super::{ACTIVE, Profile, time};
use crate::kinds::Kind;
use crate::rng::Rng;
use crate::script::{Deed, Fault, JobFate, JourneyFate};

impl Profile {
    /// Chooses the guests with backend storage.
    pub(super) fn state(&self, rng: &mut Rng, deeds: &mut Vec<(Duration, Deed)>, faults: &mut Vec<Fault>) -> Vec<u8> {
        if self.state == 0 {
            return Vec::new();
        }
        let keeps: Vec<u8> = (0..self.vms as u8).filter(|_| rng.chance(self.state)).collect();
        let vms: Vec<u8> = deeds.iter().map(|(_, deed)| deed.vm()).collect();
        for _ in 0..rng.within(0, 1) {
            let lasts = if rng.chance(70) { time(rng, 1_000, 60_000) } else { time(rng, 100_000, 200_000) };
            deeds.push((time(rng, 10_000, ACTIVE - 60_000), Deed::Utility { vm: *rng.pick(&vms), lasts }));
        }
        for _ in 0..rng.within(0, 1) {
            deeds.push((time(rng, 10_000, ACTIVE - 20_000), Deed::TryEvict { vm: *rng.pick(&vms) }));
        }
        deeds.sort_by_key(|(at, _)| *at);
        if !keeps.is_empty() {
            state_faults(rng, faults);
        }
        keeps
    }
}

fn state_faults(rng: &mut Rng, faults: &mut Vec<Fault>) {
    for _ in 0..rng.within(0, 2) {
        let from = time(rng, 0, ACTIVE - 40_000);
        let until = from + time(rng, 500, 40_000);
        faults.push(Fault::Lag { kind: Kind::Claim, from, until, by: time(rng, 100, 15_000) });
    }
    for _ in 0..rng.within(0, 1) {
        let at = time(rng, 0, ACTIVE - 40_000);
        faults.push(Fault::Outage { kind: Kind::Claim, at, lasts: time(rng, 500, 30_000) });
    }
    for _ in 0..rng.within(0, 2) {
        let fate = match rng.below(4) {
            0 => JourneyFate::TargetDies(time(rng, 100, 20_000)),
            1 => JourneyFate::SourceDies,
            _ => JourneyFate::BothDie,
        };
        faults.push(Fault::Journey { nth: rng.below(4), fate });
    }
    for _ in 0..rng.within(0, 2) {
        let fate = match rng.below(3) {
            0 => JobFate::Dies,
            1 => JobFate::Hangs,
            _ => JobFate::Slow(time(rng, 5_000, 25_000)),
        };
        faults.push(Fault::Job { nth: rng.below(3), fate });
    }
}
