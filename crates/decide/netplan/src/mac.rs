use std::fmt;
use std::str::FromStr;

/// An Ethernet hardware address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MacAddr(pub [u8; 6]);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a MAC address: write six hexadecimal bytes such as 02:16:3e:00:00:01")]
pub struct InvalidMacAddr {
    text: String,
}

impl FromStr for MacAddr {
    type Err = InvalidMacAddr;

    /// Colons and dashes both separate bytes, as in the API.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || InvalidMacAddr { text: text.to_string() };
        let mut bytes = [0; 6];
        let mut parts = text.split([':', '-']);
        for byte in &mut bytes {
            let part = parts.next().filter(|p| is_hex_byte(p)).ok_or_else(invalid)?;
            *byte = u8::from_str_radix(part, 16).map_err(|_| invalid())?;
        }
        if parts.next().is_some() { Err(invalid()) } else { Ok(MacAddr(bytes)) }
    }
}

/// `from_str_radix` alone would also take a sign.
fn is_hex_byte(text: &str) -> bool {
    text.len() == 2 && text.bytes().all(|b| b.is_ascii_hexdigit())
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_separators_are_read_and_colons_are_written() {
        for text in ["02:16:3e:aa:BB:01", "02-16-3e-aa-bb-01"] {
            assert_eq!(text.parse::<MacAddr>().unwrap().to_string(), "02:16:3e:aa:bb:01");
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for text in
            ["", "02:16:3e:aa:bb", "02:16:3e:aa:bb:01:02", "2:16:3e:aa:bb:01", "02:16:3e:aa:bb:0g", "+2:16:3e:aa:bb:01"]
        {
            assert!(text.parse::<MacAddr>().is_err(), "{text}");
        }
    }
}
