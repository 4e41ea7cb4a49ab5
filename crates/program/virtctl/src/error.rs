//! Error messages for users: one sentence, with the remedy if there is one.

use std::process::ExitCode;

use machinery::error::causes;

/// Prints an error with its causes on standard error; returns the exit code of a failed command.
pub fn report(error: &anyhow::Error) -> ExitCode {
    eprintln!("error: {error:#}");
    ExitCode::FAILURE
}

/// A client error for users: the server's message, or why the server was not reached.
pub fn api_error(error: kube::Error, server: &str) -> anyhow::Error {
    match error {
        kube::Error::Api(status) if status.message.is_empty() => {
            anyhow::anyhow!("the server answered {} {}", status.code, status.reason)
        }
        kube::Error::Api(status) => anyhow::anyhow!("{}", status.message),
        kube::Error::Service(_) | kube::Error::HyperError(_) => unreachable_server(&error, server),
        other => anyhow::Error::new(other),
    }
}

fn unreachable_server(error: &kube::Error, server: &str) -> anyhow::Error {
    let cause = innermost(error);
    let refused = find::<std::io::Error>(error).is_some_and(|io| io.kind() == std::io::ErrorKind::ConnectionRefused);
    let remedy =
        if refused { "; is the cluster running? `ferrovirt status` tells, `ferrovirt up` starts it" } else { "" };
    anyhow::anyhow!("cannot reach the API server at {server}: {cause}{remedy}")
}

fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    causes(error).last().map(ToString::to_string).unwrap_or_default()
}

fn find<'a, E: std::error::Error + 'static>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a E> {
    causes(error).find_map(|error| error.downcast_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_told_in_the_words_of_the_server() {
        let status = kube::core::Status::failure("virtualmachines.kubevirt.io \"demo\" not found", "NotFound");
        let error = api_error(kube::Error::Api(status.boxed()), "https://here");
        assert_eq!(error.to_string(), "virtualmachines.kubevirt.io \"demo\" not found");
    }

    #[tokio::test]
    async fn a_server_that_does_not_listen_is_named_with_a_remedy() {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        // A port that was free a moment ago and that nobody listens on.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let server = format!("http://127.0.0.1:{port}");
        let client = kube::Client::try_from(kube::Config::new(server.parse().unwrap())).unwrap();
        let error = client.apiserver_version().await.unwrap_err();
        let text = api_error(error, &server).to_string();
        assert!(text.starts_with(&format!("cannot reach the API server at {server}: ")), "{text}");
        assert!(text.contains("ferrovirt up"), "{text}");
    }
}
