//! Keeps the file with the guest's console output short. QEMU appends to it, `virt-tail` prints it, and the guest decides
//! how much is in it.

use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Far more than is written between two looks of `virt-tail`.
const LIMIT: u64 = 8 << 20;
const PERIOD: Duration = Duration::from_secs(1);

/// Empties the file whenever it is too long, for ever.
pub(crate) async fn keep_short(path: PathBuf) {
    loop {
        tokio::time::sleep(PERIOD).await;
        if let Err(error) = shorten(&path, LIMIT) {
            tracing::warn!(%error, path = %path.display(), "cannot shorten the console's log");
        }
    }
}

fn shorten(path: &Path, limit: u64) -> io::Result<()> {
    match std::fs::metadata(path) {
        Ok(found) if found.len() > limit => OpenOptions::new().write(true).open(path)?.set_len(0),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_above_its_limit_is_emptied_and_goes_on() {
        use std::io::Write as _;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        shorten(&path, 4).unwrap();
        let mut qemu = OpenOptions::new().create(true).append(true).open(&path).unwrap();
        qemu.write_all(b"1234").unwrap();
        shorten(&path, 4).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"1234");
        qemu.write_all(b"5").unwrap();
        shorten(&path, 4).unwrap();
        qemu.write_all(b"6").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"6");
    }
}
