//! Logging to standard error; `FERROVIRT_LOG` or `--v` sets the level.

use std::sync::OnceLock;

use tracing_subscriber::EnvFilter;

/// Changes the log level; unset while `FERROVIRT_LOG` takes precedence.
static LOG: OnceLock<Box<dyn Fn(EnvFilter) + Send + Sync>> = OnceLock::new();

/// kube's client logs each failed connection itself, even those that the caller expects and retries.
const NOT_KUBE: &str = "kube_client=off";

/// `FERROVIRT_LOG` takes tracing's filter syntax; by default a terminal gets warnings, a log file also progress.
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
        // Nobody else sets it; reloading the filter only fails at the end of the program.
        let _ = LOG.set(Box::new(move |filter| drop(handle.reload(filter))));
    }
    log.init();
}

/// Sets the level by klog's verbosity, unless `FERROVIRT_LOG` is set: up to 2 is for operators, up to 5 adds our
/// decisions, beyond that everything is logged.
pub fn at_verbosity(verbosity: u64) {
    let Some(change) = LOG.get() else { return };
    change(EnvFilter::new(match verbosity {
        0..=2 => format!("info,{NOT_KUBE}"),
        3..=5 => format!("info,virt_controller=debug,informer=debug,{NOT_KUBE}"),
        _ => "debug,hyper_util=info,h2=info,rustls=info,tower=info".to_owned(),
    }));
}
