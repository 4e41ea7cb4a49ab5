//! Reproducible randomness.
//!
//! Numbers are derived from a seed and a label, never from a shared stream: if a part of a history is left out, all
//! others keep their random values. That makes it possible to minimize a failing history.

/// SplitMix64: small, fast, and good enough here.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// FNV-1a, so that a label has the same hash on every machine.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(mix(seed ^ 0x9e37_79b9_7f4a_7c15))
    }

    /// An independent generator for one purpose.
    pub(crate) fn fork(&self, label: &str) -> Self {
        Self(mix(self.0 ^ hash(label)))
    }

    /// A number that depends only on the seed, the label and `n`.
    pub(crate) fn at(&self, label: &str, n: u64) -> u64 {
        mix(mix(self.0 ^ hash(label)).wrapping_add(n.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `limit`.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    /// A number from `low` to `high`, inclusive.
    pub(crate) fn within(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// True with a probability of `percent`.
    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers_on_every_machine() {
        let mut rng = Rng::new(7).fork("user");
        let drawn: Vec<u64> = (0..4).map(|_| rng.below(1000)).collect();
        assert_eq!(drawn, [881, 58, 588, 704]);
    }

    #[test]
    fn what_one_purpose_draws_does_not_depend_on_the_others() {
        let root = Rng::new(7);
        let (mut one, mut two) = (root.fork("one"), root.fork("two"));
        let first = two.next();
        one.next();
        assert_eq!(root.fork("two").next(), first);
    }
}
