//! How large a claim has to be for a disk, and how large the disk in a claim is.

/// Disks in file systems are multiples of this.
const ALIGNMENT: i64 = 1 << 20;
/// The smallest disk.
pub(crate) const LEAST: i64 = 1 << 20;

/// The space that a file system claim needs for a disk of this size, as upstream counts it: the overhead is a share of
/// the disk, and nothing is larger than an `i64`.
pub fn required(overhead: f64, disk: i64) -> i64 {
    let aligned = round_up(disk);
    let with_overhead = (aligned as f64 * (1.0 + share(overhead))).ceil();
    // A float conversion saturates.
    (with_overhead as i64).max(aligned)
}

/// A share from 0 to 1; what is no such number is none.
pub(crate) fn share(overhead: f64) -> f64 {
    if overhead.is_finite() { overhead.clamp(0.0, 1.0) } else { 0.0 }
}

fn round_up(size: i64) -> i64 {
    let rest = size.rem_euclid(ALIGNMENT);
    if rest == 0 { size } else { size.saturating_add(ALIGNMENT - rest) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_claim_has_room_for_the_disk_and_the_file_system() {
        const GIB: i64 = 1 << 30;
        for (overhead, disk, claim) in [
            (0.0, GIB, GIB),
            (0.055, GIB, 1_132_797_625),
            (0.055, 1_000_000, 1_106_248),
            (2.0, GIB, 2 * GIB),
            (f64::NAN, GIB, GIB),
            (-1.0, GIB, GIB),
            (0.055, i64::MAX, i64::MAX),
        ] {
            assert_eq!(required(overhead, disk), claim, "{overhead} {disk}");
        }
    }

    proptest! {
        #[test]
        fn a_larger_disk_never_needs_less(overhead in 0.0..1.0f64, disk in 1i64..1 << 50, more in 0i64..1 << 40) {
            prop_assert!(required(overhead, disk) >= disk);
            prop_assert!(required(overhead, disk + more) >= required(overhead, disk));
        }
    }
}
