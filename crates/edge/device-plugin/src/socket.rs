//! What is known about sockets in the kubelet's directory.

use devices::{Identity, Socket};
use kubelet_sockets::{Directory, Holds, Made};
use rustix::fs::{AtFlags, FileType, StatxFlags};

/// What has become of the socket that we made.
pub(crate) async fn state(dir: &Directory, name: &str, own: Made) -> Socket {
    match dir.holds(name, own) {
        Holds::Nothing => Socket::Gone,
        Holds::Ours => Socket::InPlace,
        Holds::Another => match dir.connect(name).await {
            Ok(_) => Socket::Taken,
            Err(_) => Socket::Gone,
        },
    }
}

/// The socket of this name, if there is one. It has no device number; the time it was made takes that place, because
/// the socket of the next kubelet may get the same inode.
pub(crate) fn identity(dir: &Directory, name: &str) -> Option<Identity> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    let stat = rustix::fs::statx(rustix::fs::CWD, dir.path(name), AtFlags::SYMLINK_NOFOLLOW, wanted).ok()?;
    let is_socket = FileType::from_raw_mode(stat.stx_mode.into()) == FileType::Socket;
    let born = stat.stx_btime.tv_sec.wrapping_mul(1_000_000_000).wrapping_add(stat.stx_btime.tv_nsec.into());
    is_socket.then_some(Identity {
        file_system: u64::from(stat.stx_dev_major) << 32 | u64::from(stat.stx_dev_minor),
        inode: stat.stx_ino,
        device: born.cast_unsigned(),
    })
}
