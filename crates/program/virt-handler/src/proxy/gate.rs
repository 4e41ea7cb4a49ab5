//! Who gets through a proxy: both sides of one migration.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use launcher_contract::Channel;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::OnceCell;

use super::Peers;
use super::arrivals::Spoke;
use super::bond::{Opening, Token, opening};

/// Timeout of everything before the first byte of the migration.
const HANDSHAKE: Duration = Duration::from_secs(10);
const DIAL: Duration = Duration::from_secs(10);
/// A peer that acknowledges no data or keep-alive probe for this long is considered dead.
const DEAD_AFTER: Duration = Duration::from_secs(10);
const PROBE_EVERY: Duration = Duration::from_secs(3);
const PROBES: u32 = 3;
/// What a TLS connection begins with.
const TLS_HANDSHAKE: u8 = 0x16;

/// The migration that a proxy is for, and its other side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bond {
    /// The migration's UID; between two VMIs that of the source's.
    pub(crate) migration: String,
    /// The node of the other side, if it is known.
    pub(crate) peer: Option<String>,
    /// Whether the data is encrypted. Who talks to whom is checked in any case.
    pub(crate) encrypted: bool,
}

/// A connection between two virt-handlers, encrypted or not.
pub(super) trait Outside: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Outside for T {}

/// The target's side.
pub(super) struct Entrance {
    peers: Peers,
    bond: Bond,
    token: Token,
}

impl Entrance {
    pub(super) fn new(peers: Peers, bond: Bond) -> io::Result<Entrance> {
        Ok(Entrance { peers, bond, token: Token::new()? })
    }

    /// A connection for data, if the peer takes part in the migration; `None` if it only came for the token.
    pub(super) async fn admit(
        &self,
        tcp: TcpStream,
        channel: Channel,
        spoke: &Spoke,
    ) -> io::Result<Option<Box<dyn Outside>>> {
        watch_peer(&tcp)?;
        within(HANDSHAKE, self.check(tcp, channel, spoke)).await
    }

    async fn check(&self, mut tcp: TcpStream, channel: Channel, spoke: &Spoke) -> io::Result<Option<Box<dyn Outside>>> {
        let mut first = [0];
        if tcp.peek(&mut first).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if first[0] != TLS_HANDSHAKE {
            let hello = match opening(&mut tcp).await? {
                Opening::Data(hello) if !self.bond.encrypted => hello,
                Opening::Data(_) => return Err(refused("the source does not encrypt")),
                Opening::Ticket(_) => return Err(refused("tokens are sent over TLS only")),
            };
            spoke.set();
            self.token.admit(&mut tcp, channel, &hello).await?;
            return Ok(Some(Box::new(tcp)));
        }
        let mut stream = self.peers.accept(tcp, self.bond.peer.as_deref()).await?;
        match opening(&mut stream).await? {
            Opening::Data(hello) => {
                spoke.set();
                self.token.admit(&mut stream, channel, &hello).await?;
                Ok(Some(Box::new(stream)))
            }
            Opening::Ticket(migration) if migration == self.bond.migration => {
                self.token.give(&mut stream).await.map(|()| None)
            }
            Opening::Ticket(_) => Err(refused("the source requested another migration")),
        }
    }
}

/// The source's side.
pub(super) struct Exit {
    peers: Peers,
    bond: Bond,
    token: OnceCell<Token>,
}

impl Exit {
    pub(super) fn new(peers: Peers, bond: Bond) -> Exit {
        Exit { peers, bond, token: OnceCell::new() }
    }

    /// A connection for data to a port of the target.
    pub(super) async fn connect(&self, to: SocketAddr, channel: Channel) -> io::Result<Box<dyn Outside>> {
        let token = self.token.get_or_try_init(|| self.ask(to)).await?;
        let mut tcp = dial(to).await?;
        let greet = async {
            if !self.bond.encrypted {
                token.prove(&mut tcp, channel).await?;
                return io::Result::Ok(Box::new(tcp) as Box<dyn Outside>);
            }
            let mut stream = self.peers.connect(tcp, to.ip(), self.bond.peer.as_deref()).await?;
            token.prove(&mut stream, channel).await?;
            Ok(Box::new(stream) as Box<dyn Outside>)
        };
        within(HANDSHAKE, greet).await
    }

    async fn ask(&self, to: SocketAddr) -> io::Result<Token> {
        let tcp = dial(to).await?;
        let ask = async {
            let mut stream = self.peers.connect(tcp, to.ip(), self.bond.peer.as_deref()).await?;
            Token::ask(&mut stream, &self.bond.migration).await
        };
        within(HANDSHAKE, ask).await
    }
}

async fn dial(to: SocketAddr) -> io::Result<TcpStream> {
    let tcp = within(DIAL, TcpStream::connect(to)).await?;
    watch_peer(&tcp)?;
    Ok(tcp)
}

fn refused(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}

async fn within<T>(limit: Duration, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::time::timeout(limit, work).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

/// Has the kernel detect a dead peer. Disables Nagle's algorithm, since libvirt waits for responses to small messages.
fn watch_peer(stream: &TcpStream) -> io::Result<()> {
    use rustix::net::sockopt;
    let socket = stream.as_fd();
    let milliseconds = u32::try_from(DEAD_AFTER.as_millis()).unwrap_or(u32::MAX);
    sockopt::set_tcp_nodelay(socket, true)?;
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, PROBE_EVERY)?;
    sockopt::set_tcp_keepintvl(socket, PROBE_EVERY)?;
    sockopt::set_tcp_keepcnt(socket, PROBES)?;
    sockopt::set_tcp_user_timeout(socket, milliseconds)?;
    Ok(())
}
