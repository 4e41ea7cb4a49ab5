//! How large a volume becomes.

use crate::refusal::{Code, Refusal, Result};

/// Of a volume whose claim names no size.
pub const DEFAULT_SIZE: u64 = 1 << 30;
/// One pebibyte: more than any file system below the pool can hold in one file.
pub const MAX_SIZE: u64 = 1 << 50;
/// Guests and loop devices may have sectors of this size.
const STEP: u64 = 4096;

/// The sizes that a request accepts, in bytes; 0 is no bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range {
    pub required: i64,
    pub limit: i64,
}

/// A range that makes sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) least: u64,
    most: u64,
}

impl Range {
    pub(crate) fn bounds(self) -> Result<Bounds> {
        let bytes = |what: &str, value: i64| {
            u64::try_from(value).map_err(|_| Refusal::invalid(format!("the {what} of {value} bytes is negative")))
        };
        let (least, limit) = (bytes("required size", self.required)?, bytes("limit", self.limit)?);
        let most = if limit == 0 { u64::MAX } else { limit };
        if least > most {
            return Err(Refusal::invalid(format!("the required size of {least} bytes is above the limit of {most}")));
        }
        Ok(Bounds { least, most })
    }
}

impl Bounds {
    pub(crate) fn fits(self, size: u64) -> bool {
        (self.least..=self.most).contains(&size)
    }

    pub(crate) fn is_given(self) -> bool {
        self.least > 0 || self.most < u64::MAX
    }

    /// The size of a new volume that holds `content` bytes at least.
    pub(crate) fn choose(self, content: Option<u64>) -> Result<u64> {
        let wanted = match (self.least, content) {
            (0, Some(content)) => content,
            (0, None) => DEFAULT_SIZE.min(self.most / STEP * STEP).max(1),
            (least, Some(content)) if least < content => {
                return Err(Refusal::new(
                    Code::OutOfRange,
                    format!("{least} bytes are too small for a copy of {content} bytes"),
                ));
            }
            (least, _) => least,
        };
        let size = round_up(wanted)?;
        if size > self.most {
            return Err(Refusal::new(
                Code::OutOfRange,
                format!(
                    "sizes are multiples of {STEP}, so the volume would have {size} bytes: more than the limit of {}",
                    self.most
                ),
            ));
        }
        Ok(size)
    }
}

fn round_up(size: u64) -> Result<u64> {
    if size > MAX_SIZE {
        return Err(Refusal::new(
            Code::OutOfRange,
            format!("{size} bytes are more than a volume can have ({MAX_SIZE})"),
        ));
    }
    Ok(size.next_multiple_of(STEP))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_chosen_within_the_range() {
        const GIB: i64 = 1 << 30;
        let default = DEFAULT_SIZE;
        for (required, limit, content, expected) in [
            (0, 0, None, Ok(default)),
            (0, 10_000, None, Ok(8192)),
            (0, 100, None, Err(Code::OutOfRange)),
            (1, 0, None, Ok(4096)),
            (GIB, GIB, None, Ok(default)),
            (5000, 5000, None, Err(Code::OutOfRange)),
            (2, 1, None, Err(Code::InvalidArgument)),
            (-1, 0, None, Err(Code::InvalidArgument)),
            (0, -1, None, Err(Code::InvalidArgument)),
            (i64::MAX, 0, None, Err(Code::OutOfRange)),
            (0, 0, Some(8192), Ok(8192)),
            (0, 4096, Some(8192), Err(Code::OutOfRange)),
            (4096, 0, Some(8192), Err(Code::OutOfRange)),
            (GIB, 0, Some(8192), Ok(default)),
        ] {
            let chosen = Range { required, limit }.bounds().and_then(|bounds| bounds.choose(content));
            assert_eq!(chosen.map_err(|refusal| refusal.code), expected, "{required} {limit} {content:?}");
        }
    }
}
