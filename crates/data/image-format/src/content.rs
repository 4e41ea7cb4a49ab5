//! Access to the bytes of an image.

use crate::Error;

/// The bytes of an image.
pub trait Content {
    type Error;

    fn length(&self) -> u64;

    /// Reads what is at this position into the buffer; fewer bytes than asked for only at the end.
    fn read_at(&mut self, at: u64, buffer: &mut [u8]) -> Result<usize, Self::Error>;
}

impl Content for &[u8] {
    type Error = std::convert::Infallible;

    fn length(&self) -> u64 {
        self.len() as u64
    }

    fn read_at(&mut self, at: u64, buffer: &mut [u8]) -> Result<usize, Self::Error> {
        let rest = usize::try_from(at).ok().and_then(|at| self.get(at..)).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }
}

/// Reads until the buffer is full or the content ends.
pub(crate) fn fill<C: Content>(content: &mut C, at: u64, buffer: &mut [u8]) -> Result<usize, Error<C::Error>> {
    let mut filled = 0;
    while filled < buffer.len() {
        match content.read_at(at.saturating_add(filled as u64), &mut buffer[filled..]).map_err(Error::Read)? {
            0 => break,
            count => filled += count.min(buffer.len() - filled),
        }
    }
    Ok(filled)
}

/// Reads exactly this, or the image is damaged.
pub(crate) fn exactly<C: Content>(
    content: &mut C,
    at: u64,
    buffer: &mut [u8],
    what: &'static str,
) -> Result<(), Error<C::Error>> {
    match fill(content, at, buffer)? {
        count if count == buffer.len() => Ok(()),
        _ => Err(Error::Damaged(what)),
    }
}

/// Calls `each` for the words of a table, which lies inside of the image.
pub(crate) fn table<C: Content, const WIDTH: usize>(
    content: &mut C,
    at: u64,
    count: u64,
    outside: &'static str,
    mut each: impl FnMut([u8; WIDTH]) -> Result<(), Error<C::Error>>,
) -> Result<(), Error<C::Error>> {
    const CHUNK: u64 = 64 * 1024;
    let end = count.checked_mul(WIDTH as u64).and_then(|bytes| bytes.checked_add(at));
    let end = end.filter(|end| *end <= content.length()).ok_or(Error::Damaged(outside))?;
    let mut buffer = vec![0; CHUNK as usize];
    let mut at = at;
    while at < end {
        let chunk = &mut buffer[..(end - at).min(CHUNK) as usize];
        exactly(content, at, chunk, outside)?;
        at += chunk.len() as u64;
        for word in chunk.chunks_exact(WIDTH) {
            let mut bytes = [0; WIDTH];
            bytes.copy_from_slice(word);
            each(bytes)?;
        }
    }
    Ok(())
}

/// Keeps what tables take in sum below the image's length: tables that overlap would take more.
pub(crate) struct Budget(u64);

impl Budget {
    pub(crate) fn of<C: Content>(content: &C) -> Self {
        // Some slack: the last table may be padded.
        Budget(content.length().saturating_add(1 << 21))
    }

    pub(crate) fn spend<E>(&mut self, bytes: u64) -> Result<(), Error<E>> {
        self.0 = self.0.checked_sub(bytes).ok_or(Error::Damaged("its tables overlap"))?;
        Ok(())
    }
}

macro_rules! readers {
    ($($name:ident: $type:ty, $from:ident;)*) => {$(
        /// The number at this position; zero beyond the end, so check the length first.
        pub(crate) fn $name(bytes: &[u8], at: usize) -> $type {
            let word = bytes.get(at..).and_then(|rest| rest.first_chunk());
            word.map_or(0, |word| <$type>::$from(*word))
        }
    )*};
}

readers! {
    be32: u32, from_be_bytes;
    be64: u64, from_be_bytes;
    le16: u16, from_le_bytes;
    le32: u32, from_le_bytes;
    le64: u64, from_le_bytes;
}
