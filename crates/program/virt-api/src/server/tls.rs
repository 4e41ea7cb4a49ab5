//! TLS of the listener: asks clients for a certificate, and tells front proxies from everybody else.

use std::sync::Arc;

use role_tls::{Certificate, CertificateError, Certificates};
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::server::WebPkiClientVerifier;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::front_proxy::{FrontProxies, FrontProxy};

/// Who is at the other end of a connection.
#[derive(Clone, Debug)]
pub(crate) enum Peer {
    /// kube-apiserver, which says in headers for whom it asks; by the record it was let in with.
    FrontProxy(Arc<FrontProxy>),
    /// Somebody without a certificate: a probe, or kube-apiserver with a webhook's question.
    Anybody,
}

pub(crate) struct Tls {
    provider: Arc<CryptoProvider>,
    certificates: Arc<Certificates>,
    proxies: FrontProxies,
}

impl Tls {
    pub(crate) fn new(certificate: Certificate, proxies: FrontProxies) -> Result<Tls, CertificateError> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let certificates = Arc::new(Certificates::new(certificate, &provider)?);
        Ok(Tls { provider, certificates, proxies })
    }

    pub(crate) async fn accept(&self, stream: TcpStream) -> std::io::Result<(TlsStream<TcpStream>, Peer)> {
        let proxy = self.proxies.current();
        let acceptor = TlsAcceptor::from(Arc::new(self.config(&proxy).map_err(std::io::Error::other)?));
        let stream = acceptor.accept(stream).await?;
        let peer = match stream.get_ref().1.peer_certificates() {
            Some([certificate, ..]) => match role_tls::common_name(certificate) {
                Some(name) if proxy.is_named(&name) => Peer::FrontProxy(proxy),
                name => {
                    let name = name.unwrap_or_default();
                    return Err(std::io::Error::other(format!("{name:?} is not a front proxy of this cluster")));
                }
            },
            _ => Peer::Anybody,
        };
        Ok((stream, peer))
    }

    /// A certificate is optional, because probes and webhook calls come without one; if there is one, it is a front
    /// proxy's.
    fn config(&self, proxy: &FrontProxy) -> Result<ServerConfig, Box<dyn std::error::Error + Send + Sync>> {
        let verifier = WebPkiClientVerifier::builder_with_provider(proxy.roots.clone(), self.provider.clone())
            .allow_unauthenticated()
            .build()?;
        let mut config = ServerConfig::builder_with_provider(self.provider.clone())
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(self.certificates.clone());
        // Streams are upgraded connections, which HTTP/2 does not have.
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }
}
