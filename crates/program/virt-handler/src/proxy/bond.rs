//! Binds the connections of one migration to its two virt-handlers.
//!
//! ```text
//!   source's virt-handler                              target's virt-handler
//!   ── TLS, each side knows the other's node ──────────────────────────────
//!   TICKET, migration's UID ─────────────────────────►  is it mine, and the source the right node?
//!                           ◄───────────────────────── token
//!   ── each connection of the migration, encrypted or not ─────────────────
//!   DATA, channel, challenge ────────────────────────►
//!                           ◄───────────────────────── challenge, proof of the token
//!   proof of the token ──────────────────────────────►  only now the Pod is connected
//! ```
//!
//! The target makes a token when it begins to listen for a migration. Only the two sides ever have it, and neither
//! sends it outside of TLS, so whoever reads a migration that is not encrypted cannot join it or take the place of one
//! side. Without the token, a virt-handler that is not part of the migration, or comes late to a port that belongs to
//! another migration now, reaches nothing.

use std::io;

use aws_lc_rs::{hmac, rand};
use launcher_contract::Channel;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// The first byte differs from that of TLS, so a port can take both.
const TICKET: &[u8; 8] = b"fv-tick1";
const DATA: &[u8; 8] = b"fv-data1";
/// Longer than any UID.
const UID_MAX: usize = 64;
const SIZE: usize = 32;

/// What only the two sides of a migration know.
#[derive(Clone)]
pub(super) struct Token([u8; SIZE]);

/// What a connection begins with.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Opening {
    /// Asks for the token of this migration.
    Ticket(String),
    Data(Hello),
}

/// The source's first words on a connection for data.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Hello {
    channel: u16,
    challenge: [u8; SIZE],
}

fn refused(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}

fn random() -> io::Result<[u8; SIZE]> {
    let mut bytes = [0; SIZE];
    rand::fill(&mut bytes).map_err(|_| io::Error::other("failed to read random numbers"))?;
    Ok(bytes)
}

impl Token {
    pub(super) fn new() -> io::Result<Token> {
        random().map(Token)
    }

    fn proof(&self, side: &[u8; 6], channel: u16, source: &[u8; SIZE], target: &[u8; SIZE]) -> hmac::Tag {
        let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, &self.0));
        for part in [&side[..], &channel.to_be_bytes(), source, target] {
            context.update(part);
        }
        context.sign()
    }

    /// Whether the other side has the token. Takes the same time wherever a proof differs.
    fn check(expected: &hmac::Tag, proof: &[u8; SIZE]) -> io::Result<()> {
        aws_lc_rs::constant_time::verify_slices_are_equal(expected.as_ref(), proof)
            .map_err(|_| refused("the other side is not part of this migration"))
    }

    /// The source asks for it, over TLS.
    pub(super) async fn ask(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), migration: &str) -> io::Result<Token> {
        let length = u8::try_from(migration.len()).ok().filter(|length| usize::from(*length) <= UID_MAX);
        let length = length.ok_or_else(|| io::Error::other("the migration has no UID"))?;
        let mut words = TICKET.to_vec();
        words.push(length);
        words.extend_from_slice(migration.as_bytes());
        stream.write_all(&words).await?;
        stream.flush().await?;
        let mut token = [0; SIZE];
        match stream.read_exact(&mut token).await {
            Ok(_) => Ok(Token(token)),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(refused("the target expects another migration, or another node"))
            }
            Err(error) => Err(error),
        }
    }

    /// The target gives it, over TLS, after it has checked who asks.
    pub(super) async fn give(&self, stream: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        stream.write_all(&self.0).await?;
        stream.flush().await?;
        stream.shutdown().await
    }

    /// The source's side of a connection for data.
    pub(super) async fn prove(
        &self,
        stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
        channel: Channel,
    ) -> io::Result<()> {
        let (own, channel) = (random()?, channel.number());
        stream.write_all(&[&DATA[..], &channel.to_be_bytes(), &own].concat()).await?;
        stream.flush().await?;
        let (mut other, mut proof) = ([0; SIZE], [0; SIZE]);
        stream.read_exact(&mut other).await?;
        stream.read_exact(&mut proof).await?;
        Token::check(&self.proof(b"target", channel, &own, &other), &proof)?;
        stream.write_all(self.proof(b"source", channel, &own, &other).as_ref()).await?;
        stream.flush().await
    }

    /// The target's side of a connection for data.
    pub(super) async fn admit(
        &self,
        stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
        channel: Channel,
        hello: &Hello,
    ) -> io::Result<()> {
        if hello.channel != channel.number() {
            return Err(refused("the source used this port for another channel"));
        }
        let own = random()?;
        let proof = self.proof(b"target", hello.channel, &hello.challenge, &own);
        stream.write_all(&[&own[..], proof.as_ref()].concat()).await?;
        stream.flush().await?;
        let mut answer = [0; SIZE];
        stream.read_exact(&mut answer).await?;
        Token::check(&self.proof(b"source", hello.channel, &hello.challenge, &own), &answer)
    }
}

/// Reads what a connection begins with.
pub(super) async fn opening(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Opening> {
    let mut words = [0; 8];
    stream.read_exact(&mut words).await?;
    match &words {
        TICKET => {
            let length = usize::from(stream.read_u8().await?);
            if length > UID_MAX {
                return Err(refused("that is not the UID of a migration"));
            }
            let mut uid = vec![0; length];
            stream.read_exact(&mut uid).await?;
            String::from_utf8(uid).map(Opening::Ticket).map_err(|_| refused("that is not the UID of a migration"))
        }
        DATA => {
            let channel = stream.read_u16().await?;
            let mut challenge = [0; SIZE];
            stream.read_exact(&mut challenge).await?;
            Ok(Opening::Data(Hello { channel, challenge }))
        }
        _ => Err(refused("the other side uses another protocol")),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;

    /// Both sides of a connection for data, each with its token and what it takes for the channel.
    async fn meet(source: (Token, Channel), target: (Token, Channel)) -> (io::Result<()>, io::Result<()>) {
        let (mut here, mut there) = duplex(256);
        let sends = async move { source.0.prove(&mut here, source.1).await };
        let receives = async move {
            let Opening::Data(hello) = opening(&mut there).await? else { panic!("not data") };
            target.0.admit(&mut there, target.1, &hello).await
        };
        tokio::join!(sends, receives)
    }

    #[tokio::test]
    async fn both_sides_must_have_the_token() {
        let (token, other) = (Token::new().unwrap(), Token::new().unwrap());
        let memory = Channel::Memory;
        let (sent, received) = meet((token.clone(), memory), (token.clone(), memory)).await;
        assert!(sent.is_ok() && received.is_ok(), "{sent:?} {received:?}");
        let (sent, received) = meet((token.clone(), memory), (other, memory)).await;
        assert!(sent.is_err() && received.is_err(), "another migration");
        let (sent, received) = meet((token.clone(), Channel::Disks), (token, memory)).await;
        assert!(sent.is_err() && received.is_err(), "another channel");
    }

    #[tokio::test]
    async fn a_proof_that_was_read_on_the_way_opens_nothing() {
        let token = Token::new().unwrap();
        // What the source of one connection said.
        let (mut here, mut there) = duplex(256);
        let sends = {
            let token = token.clone();
            async move { token.prove(&mut here, Channel::Memory).await }
        };
        let receives = async {
            let Opening::Data(hello) = opening(&mut there).await? else { panic!("not data") };
            let own = [7; SIZE];
            let proof = token.proof(b"target", hello.channel, &hello.challenge, &own);
            there.write_all(&[&own[..], proof.as_ref()].concat()).await?;
            let mut answer = [0; SIZE];
            there.read_exact(&mut answer).await?;
            io::Result::Ok((hello, answer))
        };
        let (sent, heard) = tokio::join!(sends, receives);
        sent.unwrap();
        let (hello, answer) = heard.unwrap();
        // Said again on another connection.
        let (mut here, mut there) = duplex(256);
        here.write_all(&answer).await.unwrap();
        assert!(token.admit(&mut there, Channel::Memory, &hello).await.is_err());
    }

    #[tokio::test]
    async fn a_ticket_is_asked_for_by_uid_and_what_is_not_one_is_refused() {
        let token = Token::new().unwrap();
        let (mut here, mut there) = duplex(256);
        let gives = async {
            let asked = opening(&mut there).await.unwrap();
            assert_eq!(asked, Opening::Ticket("migration-1".to_owned()));
            token.give(&mut there).await.unwrap();
        };
        let (got, ()) = tokio::join!(Token::ask(&mut here, "migration-1"), gives);
        assert_eq!(got.unwrap().0, token.0);
        for nonsense in [&b"GET / HTTP/1.1\r\n"[..], b"fv-tick1\xff", b"fv-tick1\x02\xff\xfe", b"fv"] {
            let mut words = nonsense;
            assert!(opening(&mut words).await.is_err(), "{nonsense:?}");
        }
    }
}
