//! `virtctl version`.

use anyhow::Context as _;

use crate::args::VersionArgs;
use crate::connect::ConnectArgs;
use crate::subresource;

pub(crate) async fn run(connect: &ConnectArgs, args: VersionArgs) -> anyhow::Result<()> {
    println!("Client Version: v{}", env!("CARGO_PKG_VERSION"));
    if args.client {
        return Ok(());
    }
    let session = connect.connect().await?;
    let version = subresource::server_version(&session).await.context("cannot read the server's version")?;
    match version.get("gitVersion").and_then(|version| version.as_str()) {
        Some(version) => println!("Server Version: {version}"),
        None => println!("Server Version: {version}"),
    }
    Ok(())
}
