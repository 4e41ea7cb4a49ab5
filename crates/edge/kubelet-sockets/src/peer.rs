//! Who is at the other end of a socket.

use std::io;

use tokio::net::UnixStream;

/// Lets only root, and the user we run as, be the other end: what a kubelet is. The directory's permissions say the
/// same; this holds also while a socket has just been made.
pub fn check(stream: &UnixStream) -> io::Result<()> {
    let peer = stream.peer_cred()?.uid();
    if peer == 0 || peer == rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("the other end is user {peer}, not the kubelet")))
}
