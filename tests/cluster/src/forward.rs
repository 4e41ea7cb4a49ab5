//! The way from the machine to the API server, which is in a network namespace of its own.

use std::io;
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use hostfs::ns::enter_netns;

/// A port of the machine's loopback that leads to the same port of the loopback of another network namespace. One kubeconfig
/// serves both sides.
pub(crate) struct Forward {
    listener: TcpListener,
    port: u16,
}

impl Forward {
    /// Takes a free port. Nobody is answered before [`start`](Self::start).
    pub(crate) fn reserve() -> Result<Forward> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot listen on loopback")?;
        let port = listener.local_addr().context("cannot read the port")?.port();
        Ok(Forward { listener, port })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Serves until the process ends. A socket stays in the namespace it was made in: the listener is the machine's, and
    /// what the thread and its own threads make is in the other namespace.
    pub(crate) fn start(&self, netns: OwnedFd) -> Result<()> {
        let (listener, port) = (self.listener.try_clone().context("cannot share a listener")?, self.port);
        let serve = move || match enter_netns(&netns) {
            Ok(()) => accept(&listener, port),
            Err(err) => eprintln!("nothing is forwarded: {err}"),
        };
        thread::Builder::new().name("forward".into()).spawn(serve).context("cannot start a thread")?;
        Ok(())
    }
}

impl Drop for Forward {
    /// Ends the thread that accepts.
    fn drop(&mut self) {
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both); // the thread may never have begun
    }
}

fn accept(listener: &TcpListener, port: u16) {
    loop {
        match listener.accept() {
            // A client whose connection fails tries again.
            Ok((near, _)) => _ = thread::Builder::new().spawn(move || _ = connect(near, port)),
            Err(err) if err.kind() == io::ErrorKind::InvalidInput => return, // shut down
            Err(_) => thread::sleep(Duration::from_millis(20)),
        }
    }
}

fn connect(near: TcpStream, port: u16) -> io::Result<()> {
    let far = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    let (from, to) = (near.try_clone()?, far.try_clone()?);
    let back = thread::Builder::new().spawn(move || copy(&far, &near))?;
    copy(&from, &to);
    let _ = back.join(); // it has nothing to say
    Ok(())
}

/// Until one side ends, which the other is told.
fn copy(mut from: &TcpStream, mut to: &TcpStream) {
    let _ = io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Write);
}
