//! A checksum of what is transferred: `algorithm:hexadecimal`.

use aws_lc_rs::digest;
use md5::Digest as _;

use crate::job::Failure;

pub(crate) struct Checksum {
    algorithm: &'static str,
    expected: String,
    hash: Hash,
}

enum Hash {
    Md5(md5::Md5),
    Other(digest::Context),
}

impl Checksum {
    pub(crate) fn parse(text: &str) -> Result<Self, Failure> {
        let bad =
            |why: &str| Failure::bad_job(format!("Unable to connect to http data source: invalid checksum: {why}"));
        let (algorithm, hex) = text.split_once(':').ok_or_else(|| bad("expected 'algorithm:hash'"))?;
        let of = |algorithm| Hash::Other(digest::Context::new(algorithm));
        let (algorithm, digits, hash) = match algorithm.to_ascii_lowercase().as_str() {
            "md5" => ("md5", 32, Hash::Md5(md5::Md5::new())),
            "sha1" => ("sha1", 40, of(&digest::SHA1_FOR_LEGACY_USE_ONLY)),
            "sha256" => ("sha256", 64, of(&digest::SHA256)),
            "sha512" => ("sha512", 128, of(&digest::SHA512)),
            _ => return Err(bad("unsupported algorithm; use md5, sha1, sha256 or sha512")),
        };
        let expected = hex.trim().to_ascii_lowercase();
        if expected.len() != digits || !expected.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(bad(&format!("{algorithm} has {digits} hexadecimal digits")));
        }
        Ok(Checksum { algorithm, expected, hash })
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        match &mut self.hash {
            Hash::Md5(hash) => hash.update(bytes),
            Hash::Other(hash) => hash.update(bytes),
        }
    }

    pub(crate) fn check(self) -> Result<(), Failure> {
        let calculated = match self.hash {
            Hash::Md5(hash) => hex(&hash.finalize()),
            Hash::Other(hash) => hex(hash.finish().as_ref()),
        };
        if calculated == self.expected {
            return Ok(());
        }
        let Checksum { algorithm, expected, .. } = self;
        Err(Failure::data(format!(
            "checksum validation failed: checksum mismatch: expected {algorithm}:{expected}, calculated {algorithm}:{calculated}"
        )))
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_algorithm_knows_its_own_sum_and_refuses_others() {
        let sums = [
            "md5:5eb63bbbe01eeed093cb22bb8f5acdc3",
            "sha1:2aae6c35c94fcfb415dbe95f408b9ce91ee846ed",
            "SHA256:B94D27B9934D3E08A52E52D7DA7DABFAC484EFE37A5380EE9088F7ACE2EFCDE9",
            "sha512:309ecc489c12d6eb4cc40f50c902f2b4d0ed77ee511a7c7a9bcd3ca86d4cd86f989dd35bc5ff499670da34255b45b0cfd830e81f605dcf7dc5542e93ae9cd76f",
        ];
        for sum in sums {
            let mut checksum = Checksum::parse(sum).unwrap();
            checksum.update(b"hello ");
            checksum.update(b"world");
            checksum.check().unwrap();
            let mut other = Checksum::parse(sum).unwrap();
            other.update(b"hello");
            let message = other.check().unwrap_err().message;
            assert!(message.contains("checksum mismatch: expected "), "{message}");
        }
        for bad in ["", "md5", "md5:12", "crc32:12345678", "sha1:zzae6c35c94fcfb415dbe95f408b9ce91ee846ed"] {
            assert!(Checksum::parse(bad).is_err(), "{bad}");
        }
    }
}
