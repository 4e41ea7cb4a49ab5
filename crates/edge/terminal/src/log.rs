//! The log: on standard error, as detailed as `FERROVIRT_LOG` or `--v` says.

use std::sync::OnceLock;

use tracing_subscriber::EnvFilter;

/// Changes how much is logged; there is none while `FERROVIRT_LOG` decides.
static LOG: OnceLock<Box<dyn Fn(EnvFilter) + Send + Sync>> = OnceLock::new();

/// kube's client reports each failed connection by itself, also those that whoever asked expects and retries.
const NOT_KUBE: &str = "kube_client=off";

/// `FERROVIRT_LOG` takes tracing's filter language; by default people see what went wrong, logs what happened.
pub fn to_stderr() {
    use std::io::IsTerminal as _;
    let default = if std::io::stderr().is_terminal() { "warn" } else { "info" };
    let told = EnvFilter::try_from_env("FERROVIRT_LOG").ok();
    let free = told.is_none();
    let filter = told.unwrap_or_else(|| EnvFilter::new(format!("{default},{NOT_KUBE}")));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false);
    let log = log.with_filter_reloading();
    if free {
        let handle = log.reload_handle();
        // Nobody else sets it; a filter that cannot be changed any more is the end of the program.
        let _ = LOG.set(Box::new(move |filter| drop(handle.reload(filter))));
    }
    log.init();
}

/// Logs as much as klog's number says, unless `FERROVIRT_LOG` decides: up to 2 what operators want to know, up to 5 each
/// decision of ours, beyond that everything.
pub fn at_verbosity(verbosity: u64) {
    let Some(change) = LOG.get() else { return };
    change(EnvFilter::new(match verbosity {
        0..=2 => format!("info,{NOT_KUBE}"),
        3..=5 => format!("info,virt_controller=debug,informer=debug,{NOT_KUBE}"),
        _ => "debug,hyper_util=info,h2=info,rustls=info,tower=info".to_owned(),
    }));
}
