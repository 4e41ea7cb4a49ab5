//! The part of XDR (RFC 4506) that libvirt's messages use: big-endian integers, length-prefixed strings padded to four
//! bytes, fixed opaque data, optional values and arrays.

use uuid::Uuid;

use crate::types::Domain;

/// The longest string libvirt itself sends.
pub(crate) const STRING_MAX: usize = 4 << 20;
/// More entries than any list we request can have.
pub(crate) const LIST_MAX: usize = 16_384;

/// A reply that violates the protocol.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DecodeError {
    #[error("the message ends {missing} bytes early, in {what}")]
    Truncated { what: &'static str, missing: usize },
    #[error("{what} claims {length}, the limit is {limit}")]
    TooLong { what: &'static str, length: usize, limit: usize },
    #[error("a string is not UTF-8")]
    NotUtf8,
    #[error("{value} is not a value of {what}")]
    BadValue { what: &'static str, value: u32 },
    #[error("{0} bytes are left after the last field")]
    Trailing(usize),
}

/// Builds the body of a call.
#[derive(Debug, Default)]
pub(crate) struct Encoder(Vec<u8>);

impl Encoder {
    pub(crate) fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(crate) fn i32(mut self, value: i32) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(crate) fn u64(mut self, value: u64) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(crate) fn string(self, value: &str) -> Self {
        self.opaque(value.as_bytes())
    }

    /// Length-prefixed bytes, padded like a string.
    pub(crate) fn opaque(mut self, value: &[u8]) -> Self {
        self = self.u32(u32::try_from(value.len()).unwrap_or(u32::MAX));
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    pub(crate) fn optional_string(self, value: Option<&str>) -> Self {
        match value {
            Some(value) => self.u32(1).string(value),
            None => self.u32(0),
        }
    }

    pub(crate) fn domain(mut self, domain: &Domain) -> Self {
        self = self.string(&domain.name);
        self.0.extend(domain.uuid.as_bytes());
        // The daemon looks domains up by UUID; the ID only says whether the domain was running when we read it.
        self.i32(domain.id.unwrap_or(-1))
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.0
    }
}

/// Decodes a message; every read is bounds-checked.
#[derive(Debug)]
pub(crate) struct Decoder<'a>(&'a [u8]);

impl<'a> Decoder<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    fn take(&mut self, length: usize, what: &'static str) -> Result<&'a [u8], DecodeError> {
        let Some((head, tail)) = self.0.split_at_checked(length) else {
            return Err(DecodeError::Truncated { what, missing: length - self.0.len() });
        };
        self.0 = tail;
        Ok(head)
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], DecodeError> {
        let bytes = self.take(N, what)?;
        Ok(bytes.try_into().expect("take returned exactly N bytes"))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, DecodeError> {
        Ok(u32::from_be_bytes(self.array("an integer")?))
    }

    pub(crate) fn i32(&mut self) -> Result<i32, DecodeError> {
        Ok(i32::from_be_bytes(self.array("an integer")?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, DecodeError> {
        Ok(u64::from_be_bytes(self.array("a long integer")?))
    }

    fn count(&mut self, what: &'static str, limit: usize) -> Result<usize, DecodeError> {
        let length = self.u32()? as usize;
        if length > limit {
            return Err(DecodeError::TooLong { what, length, limit });
        }
        Ok(length)
    }

    pub(crate) fn string(&mut self) -> Result<String, DecodeError> {
        let bytes = self.counted("a string")?;
        String::from_utf8(bytes.to_vec()).map_err(|_| DecodeError::NotUtf8)
    }

    pub(crate) fn opaque(&mut self) -> Result<Vec<u8>, DecodeError> {
        self.counted("opaque data").map(<[u8]>::to_vec)
    }

    fn counted(&mut self, what: &'static str) -> Result<&'a [u8], DecodeError> {
        let length = self.count(what, STRING_MAX)?;
        let bytes = self.take(length, what)?;
        self.take(length.next_multiple_of(4) - length, "padding")?;
        Ok(bytes)
    }

    /// XDR's optional value: a flag, then the value if the flag is set.
    pub(crate) fn optional<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Option<T>, DecodeError> {
        match self.u32()? {
            0 => Ok(None),
            1 => read(self).map(Some),
            value => Err(DecodeError::BadValue { what: "an optional's flag", value }),
        }
    }

    /// An array. Grows with what is actually read, so a wrong count costs nothing.
    pub(crate) fn list<T>(
        &mut self,
        mut read: impl FnMut(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, DecodeError> {
        let count = self.count("a list", LIST_MAX)?;
        (0..count).map(|_| read(self)).collect()
    }

    pub(crate) fn domain(&mut self) -> Result<Domain, DecodeError> {
        let name = self.string()?;
        let uuid = Uuid::from_bytes(self.array("a UUID")?);
        let id = self.i32()?;
        Ok(Domain { name, uuid, id: (id >= 0).then_some(id) })
    }

    pub(crate) fn finish(self) -> Result<(), DecodeError> {
        if self.0.is_empty() { Ok(()) } else { Err(DecodeError::Trailing(self.0.len())) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_string_is_padded_to_four_bytes() {
        assert_eq!(Encoder::default().string("abcde").finish(), b"\0\0\0\x05abcde\0\0\0");
        assert_eq!(Encoder::default().string("").finish(), b"\0\0\0\0");
    }

    #[test]
    fn what_is_missing_is_named() {
        let error = Decoder::new(b"\0\0\0\x08abc").string().unwrap_err();
        assert_eq!(error, DecodeError::Truncated { what: "a string", missing: 5 });
    }

    #[test]
    fn a_huge_count_is_refused_before_anything_is_allocated() {
        assert!(matches!(Decoder::new(&[0xff; 8]).string(), Err(DecodeError::TooLong { .. })));
        assert!(matches!(Decoder::new(&[0xff; 8]).list(Decoder::u32), Err(DecodeError::TooLong { .. })));
    }

    #[test]
    fn an_optional_flag_other_than_zero_or_one_is_refused() {
        let error = Decoder::new(&[0, 0, 0, 2]).optional(Decoder::u32).unwrap_err();
        assert_eq!(error, DecodeError::BadValue { what: "an optional's flag", value: 2 });
    }

    proptest! {
        #[test]
        fn strings_and_domains_survive_the_round_trip(name in "\\PC{0,40}", uuid: u128, id in prop::option::of(0..i32::MAX)) {
            let domain = Domain { name, uuid: Uuid::from_u128(uuid), id };
            let bytes = Encoder::default().domain(&domain).optional_string(Some(&domain.name)).finish();
            let mut reader = Decoder::new(&bytes);
            prop_assert_eq!(reader.domain().unwrap(), domain.clone());
            prop_assert_eq!(reader.optional(Decoder::string).unwrap(), Some(domain.name));
            prop_assert!(reader.finish().is_ok());
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Decoder::new(&bytes).string();
            let _ = Decoder::new(&bytes).domain();
            let _ = Decoder::new(&bytes).list(Decoder::domain);
            let _ = Decoder::new(&bytes).optional(Decoder::domain);
            let _ = Decoder::new(&bytes).u64();
        }
    }
}
