use std::io::Write;
use std::process::{Command, Stdio};

use crate::Error;

/// Passes a script (nft syntax, or JSON if it starts with `{`) to `nft`, which applies it as one transaction.
pub fn nft_apply(script: &str) -> Result<(), Error> {
    let mut nft = Command::new("nft");
    if script.trim_start().starts_with('{') {
        nft.arg("-j");
    }
    let mut child = nft
        .args(["-f", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(Error::NftStart)?;
    let mut input = child.stdin.take().expect("stdin was asked for above");
    let written = input.write_all(script.as_bytes());
    drop(input);
    let output = child.wait_with_output().map_err(Error::NftStart)?;
    if !output.status.success() {
        // nft's own message says more than the broken pipe it may have caused.
        let message = String::from_utf8_lossy(&output.stderr).trim().to_string();
        return Err(Error::Nft { message: if message.is_empty() { output.status.to_string() } else { message } });
    }
    written.map_err(Error::NftStart)
}
