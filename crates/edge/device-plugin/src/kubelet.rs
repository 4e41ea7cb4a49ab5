//! Registration with the kubelet.

use std::time::Duration;

use devices::Plugin;
use hyper_util::rt::TokioIo;
use kubelet_sockets::Directory;
use tonic::transport::Endpoint;

use crate::error::Error;
use crate::v1beta1::registration_client::RegistrationClient;
use crate::v1beta1::{DevicePluginOptions, RegisterRequest};

/// The kubelet's socket.
pub(crate) const SOCKET: &str = "kubelet.sock";
const VERSION: &str = "v1beta1";
const TIME_LIMIT: Duration = Duration::from_secs(5);
/// Its answer is empty.
const MESSAGE_MAX: usize = 4096;

/// What the kubelet may call: neither `PreStartContainer` nor `GetPreferredAllocation`, since all devices of a plugin
/// are the same.
pub(crate) const OPTIONS: DevicePluginOptions =
    DevicePluginOptions { pre_start_required: false, get_preferred_allocation_available: false };

/// Registers a plugin that already listens: the kubelet connects to it before it answers.
pub(crate) async fn register(dir: &Directory, plugin: &Plugin) -> Result<(), Error> {
    let path = dir.path(SOCKET);
    let resource = plugin.resource.clone();
    match tokio::time::timeout(TIME_LIMIT, call(dir, plugin)).await {
        Ok(result) => result,
        Err(_) => Err(Error::NoAnswer { path, resource, seconds: TIME_LIMIT.as_secs() }),
    }
}

async fn call(dir: &Directory, plugin: &Plugin) -> Result<(), Error> {
    let path = dir.path(SOCKET);
    let connector = {
        let dir = dir.clone();
        tower::service_fn(move |_| {
            let dir = dir.clone();
            async move {
                let stream = dir.connect(SOCKET).await?;
                kubelet_sockets::check(&stream)?;
                Ok::<_, std::io::Error>(TokioIo::new(stream))
            }
        })
    };
    // The address only becomes the name in requests.
    let endpoint = Endpoint::from_static("http://localhost");
    let channel =
        endpoint.connect_with_connector(connector).await.map_err(|err| Error::Connect { path: path.clone(), err })?;
    let request = RegisterRequest {
        version: VERSION.to_owned(),
        endpoint: plugin.socket(),
        resource_name: plugin.resource.clone(),
        options: Some(OPTIONS),
    };
    let mut client = RegistrationClient::new(channel).max_decoding_message_size(MESSAGE_MAX);
    let refused = |status| Error::Refused { path, resource: plugin.resource.clone(), status: Box::new(status) };
    client.register(request).await.map(drop).map_err(refused)
}
