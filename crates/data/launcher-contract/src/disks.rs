//! How large the disk images on claims are. virt-handler knows from it when a disk can grow, the launcher by how much.

/// Image sizes are multiples of this, unless the volume is smaller.
const MIB: u64 = 1 << 20;
/// What every storage can address.
const BLOCK: u64 = 4096;

/// A new disk image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Image {
    pub bytes: u64,
    /// The file system was too small for the image that was asked for, and that is tolerated.
    pub is_short: bool,
}

/// There is too little space for a disk image, even with the tolerated shortage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{available} bytes are free for a disk image of {asked} bytes, more than {tolerated_percent} % less than that")]
pub struct TooSmall {
    pub asked: u64,
    pub available: u64,
    pub tolerated_percent: u8,
}

/// The image to make on a file system with `free` bytes, of which `reserved` stay free, for a volume of `capacity` bytes.
pub fn image(capacity: u64, free: u64, reserved: u64, tolerated_percent: u8) -> Result<Image, TooSmall> {
    let (asked, available) = (aligned(capacity), free.saturating_sub(reserved));
    if asked <= available {
        return Ok(Image { bytes: asked, is_short: false });
    }
    let least = u128::from(asked) * u128::from(100 - tolerated_percent.min(100)) / 100;
    let bytes = aligned(available);
    if u128::from(available) < least || bytes == 0 {
        return Err(TooSmall { asked, available, tolerated_percent });
    }
    Ok(Image { bytes, is_short: true })
}

/// What of a claim in file system mode an image may use: all but the fraction that the file system needs for itself.
pub fn usable(capacity: u64, overhead: Option<&str>) -> u64 {
    let overhead = overhead.and_then(millionths).unwrap_or_default();
    let usable = u128::from(capacity) * u128::from(1_000_000 - overhead) / 1_000_000;
    aligned(u64::try_from(usable).unwrap_or(u64::MAX))
}

/// How large an image may become, of which `allocated` bytes are stored and beside which `free` bytes are left.
pub fn grown(capacity: u64, overhead: Option<&str>, allocated: u64, free: u64) -> u64 {
    usable(capacity.min(allocated.saturating_add(free)), overhead)
}

fn aligned(bytes: u64) -> u64 {
    let unit = if bytes >= MIB { MIB } else { BLOCK };
    bytes / unit * unit
}

/// A decimal fraction below 1, such as `0.055`, in millionths.
fn millionths(fraction: &str) -> Option<u32> {
    let (whole, rest) = fraction.split_once('.').unwrap_or((fraction, ""));
    if !whole.bytes().all(|digit| digit == b'0') || !rest.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let digits: String = rest.chars().chain("000000".chars()).take(6).collect();
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn a_new_image_is_as_large_as_its_claim_or_a_little_smaller() {
        let of = |capacity, free| image(capacity, free, 131_072, 10);
        assert_eq!(of(GIB, 10 * GIB), Ok(Image { bytes: GIB, is_short: false }));
        assert_eq!(of(GIB + 5, 10 * GIB), Ok(Image { bytes: GIB, is_short: false }), "whole MiB");
        assert_eq!(of(GIB, GIB), Ok(Image { bytes: GIB - MIB, is_short: true }), "the reserve stays free");
        assert_eq!(of(1000 * MIB, 900 * MIB + 131_072), Ok(Image { bytes: 900 * MIB, is_short: true }));
        assert!(of(1000 * MIB, 900 * MIB + 131_071).is_err());
        assert_eq!(of(8192, GIB), Ok(Image { bytes: 8192, is_short: false }));
        let none = image(0, 0, 0, 100).map(|image| image.bytes);
        assert_eq!(none, Ok(0), "the caller refuses a volume without a size");
        let full = image(GIB, 100, 131_072, 100).unwrap_err();
        assert_eq!((full.available, full.asked), (0, GIB));
        assert!(full.to_string().starts_with("0 bytes are free for a disk image of 1073741824 bytes"));
    }

    #[test]
    fn a_file_system_keeps_its_share() {
        for (overhead, expected) in [
            (None, 1000 * MIB),
            (Some("0"), 1000 * MIB),
            (Some("0.0"), 1000 * MIB),
            (Some("0.055"), 945 * MIB),
            (Some(".5"), 500 * MIB),
            (Some("0.9999999"), 0),
            (Some("1"), 1000 * MIB),
            (Some("-0.5"), 1000 * MIB),
            (Some("a lot"), 1000 * MIB),
        ] {
            assert_eq!(usable(1000 * MIB, overhead) / MIB, expected / MIB, "{overhead:?}");
        }
        assert_eq!(usable(u64::MAX, Some("0.055")) % MIB, 0);
    }

    #[test]
    fn an_image_grows_into_what_is_free_and_no_further() {
        assert_eq!(grown(2 * GIB, Some("0"), GIB, 10 * GIB), 2 * GIB);
        assert_eq!(grown(2 * GIB, Some("0"), GIB / 2, GIB), GIB + GIB / 2);
        assert_eq!(grown(2 * GIB, None, u64::MAX, 1), 2 * GIB);
    }
}
