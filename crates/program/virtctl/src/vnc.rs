//! `virtctl vnc`: the guest's display through a local port.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use futures::{SinkExt as _, StreamExt as _};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::tungstenite::Message;

use crate::args::VncArgs;
use crate::connect::ConnectArgs;
use crate::subresource::{self, Kind, Stream};

/// How long a started viewer may take to connect.
const VIEWER_TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) async fn run(connect: &ConnectArgs, args: VncArgs) -> anyhow::Result<()> {
    let session = connect.connect().await?;
    let operation = if args.preserve_session { "vnc?preserveSession=true" } else { "vnc" };
    let path = subresource::path(Kind::VirtualMachineInstance, &session.namespace, &args.name, operation);
    // Before the port is announced, so that a refusal is reported here instead of breaking the viewer's connection.
    let stream = subresource::stream(&session, &path)
        .await
        .map_err(|error| error.describe(&session.server))
        .with_context(|| format!("cannot open a VNC connection to {}", args.name))?;
    let listener = TcpListener::bind((args.address, args.port))
        .await
        .with_context(|| format!("cannot listen on {}:{}", args.address, args.port))?;
    let address = listener.local_addr().context("cannot read the local address")?;
    let viewer = if args.proxy_only {
        println!("{}", json!({"port": address.port()}));
        listener.accept().await
    } else {
        start_viewer(address)?;
        tokio::time::timeout(VIEWER_TIMEOUT, listener.accept())
            .await
            .context("the viewer did not connect within a minute")?
    };
    let (viewer, _) = viewer.context("cannot accept the viewer's connection")?;
    drop(listener);
    splice(viewer, stream).await
}

fn start_viewer(address: SocketAddr) -> anyhow::Result<()> {
    let (program, argument) =
        [("remote-viewer", format!("vnc://{address}")), ("vncviewer", format!("{}::{}", address.ip(), address.port()))]
            .into_iter()
            .find_map(|(name, argument)| Some((in_path(name)?, argument)))
            .context(
                "neither remote-viewer nor vncviewer is installed; use --proxy-only and connect a viewer of your own",
            )?;
    Command::new(&program).arg(argument).spawn().with_context(|| format!("cannot start {}", program.display()))?;
    Ok(())
}

fn in_path(program: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?).map(|dir| dir.join(program)).find(|path| path.is_file())
}

/// Copies in both directions until one side closes.
async fn splice(mut viewer: TcpStream, stream: Stream) -> anyhow::Result<()> {
    let (mut to_guest, mut from_guest) = stream.split();
    let (mut from_viewer, mut to_viewer) = viewer.split();
    let up = async {
        let mut buffer = vec![0; 32 * 1024];
        loop {
            let length = from_viewer.read(&mut buffer).await.context("the viewer's connection broke")?;
            if length == 0 {
                return Ok(());
            }
            let data = Bytes::copy_from_slice(&buffer[..length]);
            to_guest.send(Message::Binary(data)).await.context("the connection to the guest broke")?;
        }
    };
    let down = async {
        while let Some(message) = from_guest.next().await {
            match message.context("the connection to the guest broke")? {
                Message::Binary(data) => to_viewer.write_all(&data).await.context("the viewer's connection broke")?,
                Message::Close(frame) => match subresource::expulsion(frame) {
                    Some(why) => anyhow::bail!("disconnected from the guest's screen: {why}"),
                    None => break,
                },
                _ => {}
            }
        }
        Ok(())
    };
    tokio::select! {
        ended = up => ended,
        ended = down => ended,
    }
}
