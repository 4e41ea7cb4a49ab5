use std::fs;
use std::path::Path;

use crate::Error;

/// Writes a setting below `/proc/sys/net`, given with slashes (`net/ipv4/ip_forward`), if it differs.
pub fn sysctl(key: &str, value: &str) -> Result<(), Error> {
    let below_net = key.strip_prefix("net/").is_some_and(|rest| {
        !rest.is_empty() && rest.split('/').all(|part| !part.is_empty() && part != "." && part != "..")
    });
    if !below_net {
        return Err(Error::BadSysctl { key: key.to_string() });
    }
    let path = Path::new("/proc/sys").join(key);
    let failed = |err| Error::Sysctl { key: key.to_string(), value: value.to_string(), err };
    let present = fs::read_to_string(&path).map_err(failed)?;
    if present.split_whitespace().eq(value.split_whitespace()) {
        return Ok(()); // also avoids the write where /proc/sys is read-only
    }
    fs::write(&path, value).map_err(failed)
}
