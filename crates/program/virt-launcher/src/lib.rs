//! virt-launcher: one unprivileged process per VMI, PID 1 of its container. It owns libvirt and, through it, QEMU;
//! converts the VMI to a domain; prepares disks and network services; and reports its state to virt-handler. It decides
//! little itself: [`lifecycle`] says what becomes of the guest and of the launcher, [`transfer`] how a guest moves.
//!
//! | module | |
//! |---|---|
//! | `life` | start, signals, exit: does what `lifecycle::Life` decides |
//! | `children` | child processes and the collecting of orphans |
//! | `libvirtd`, `session` | the daemon kept alive, the connection kept open, the state kept current |
//! | `manager` | what the handler asks for: does what `lifecycle::Guest` decides |
//! | `disks`, `podnet`, `dhcp` | what a guest needs before it starts |
//! | `dump` | dumps of the guest's memory |
//! | `plug` | disks that come and go while the guest runs |
//! | `migration` | migration: sends the guest, or receives one |
//! | `agent` | what the guest says about itself |
//! | `server`, `state` | the socket, and the document it shows |

mod agent;
mod args;
mod children;
mod console_log;
mod dhcp;
mod disks;
mod dump;
mod error;
mod libvirtd;
mod life;
mod manager;
mod migration;
mod plug;
mod podnet;
mod server;
mod session;
mod state;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;
use tracing_subscriber::EnvFilter;

/// Runs a launcher with this command line, including the program name. Returns when its work is done.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args = match args::Args::try_parse_from(args) {
        Ok(args) => args,
        Err(error) => {
            // Prints help to standard output and errors to standard error.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    // Keeps the caller's logging if it has already been set up.
    let _ = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).with_target(false).try_init();
    tracing::info!(namespace = args.namespace, name = args.name, uid = args.uid, "virt-launcher starts");
    // One thread: the launcher is mostly idle, and every thread counts against the guest's memory overhead.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let result = match runtime {
        Ok(runtime) => {
            let result = runtime.block_on(life::run(args));
            runtime.shutdown_background();
            result.map_err(|failure| error::chain(&failure))
        }
        Err(error) => Err(format!("cannot start the runtime: {error}")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error, "the launcher failed");
            ExitCode::FAILURE
        }
    }
}
