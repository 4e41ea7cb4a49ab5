//! Subresources of VMIs.

use api::v1::VirtualMachineInstance;
use axum::body::Bytes;
use axum::extract::{Path, Query, Request, State};
use axum::response::{IntoResponse, Response};
use http::{Method, StatusCode, header};
use serde::Deserialize;
use subresources::options::{self, PauseOptions, is_dry_run};
use subresources::{Protocol, Refusal};

use super::{Answer, Refused, Server, Shared, Target};
use crate::portforward::{self, Port};
use crate::stream::{ClientUpgrade, splice};

pub(super) async fn console(
    State(server): Shared,
    Path((namespace, name)): Target,
    request: Request,
) -> Result<Response, Refused> {
    let vmi = server.vmi(&namespace, &name).await?;
    subresources::console(&vmi)?;
    server.join_stream(&vmi, "console", request).await
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct VncQuery {
    preserve_session: Option<String>,
}

pub(super) async fn vnc(
    State(server): Shared,
    Path((namespace, name)): Target,
    Query(query): Query<VncQuery>,
    request: Request,
) -> Result<Response, Refused> {
    let vmi = server.vmi(&namespace, &name).await?;
    subresources::vnc(&vmi)?;
    // The values Go's parser accepts as true; anything else is false.
    let yes = ["1", "t", "T", "true", "TRUE", "True"];
    let preserve = query.preserve_session.is_some_and(|text| yes.contains(&text.as_str()));
    server.join_stream(&vmi, &format!("vnc?preserveSession={preserve}"), request).await
}

pub(super) async fn port_forward(
    State(server): Shared,
    Path((namespace, name, port)): Path<(String, String, String)>,
    request: Request,
) -> Result<Response, Refused> {
    server.forward_port(&namespace, &name, &port, None, request).await
}

pub(super) async fn port_forward_protocol(
    State(server): Shared,
    Path((namespace, name, port, protocol)): Path<(String, String, String, String)>,
    request: Request,
) -> Result<Response, Refused> {
    server.forward_port(&namespace, &name, &port, Some(&protocol), request).await
}

pub(super) async fn pause(State(server): Shared, Path((namespace, name)): Target, body: Bytes) -> Answer {
    let options: PauseOptions = options::parse(&body)?;
    let vmi = server.vmi(&namespace, &name).await?;
    subresources::pause(&vmi)?;
    if is_dry_run(&options.dry_run)? { Ok(StatusCode::OK) } else { server.ask(&vmi, "pause").await }
}

pub(super) async fn unpause(State(server): Shared, Path((namespace, name)): Target, body: Bytes) -> Answer {
    let options: PauseOptions = options::parse(&body)?;
    let vm = server.find_vm(&namespace, &name).await?;
    let vmi = server.vmi(&namespace, &name).await?;
    subresources::unpause(&vmi, vm.as_ref())?;
    if is_dry_run(&options.dry_run)? { Ok(StatusCode::OK) } else { server.ask(&vmi, "unpause").await }
}

pub(super) async fn soft_reboot(State(server): Shared, Path((namespace, name)): Target) -> Answer {
    let vmi = server.vmi(&namespace, &name).await?;
    subresources::soft_reboot(&vmi)?;
    server.ask(&vmi, "softreboot").await
}

pub(super) async fn reset(State(server): Shared, Path((namespace, name)): Target) -> Answer {
    let vmi = server.vmi(&namespace, &name).await?;
    server.ask(&vmi, "reset").await.map_err(|Refused(refusal)| subresources::reset_failure(&vmi, refusal).into())
}

/// Guest agent information. KubeVirt answers every failure of this endpoint with code 500 and plain text.
pub(super) async fn guest_os_info(State(server): Shared, Path((namespace, name)): Target) -> Response {
    let told = async {
        let vmi = server.vmi(&namespace, &name).await?;
        subresources::guest_agent(&vmi)?;
        server.call(&vmi, Method::GET, "guestosinfo").await
    };
    match told.await {
        Ok(body) => ([(header::CONTENT_TYPE, "application/json")], body).into_response(),
        Err(refusal) => (StatusCode::INTERNAL_SERVER_ERROR, refusal.message().to_owned()).into_response(),
    }
}

/// Progress of the guest's migration, as reported by the source node. Not part of KubeVirt's API.
pub(super) async fn migration_progress(
    State(server): Shared,
    Path((namespace, name)): Target,
) -> Result<Response, Refused> {
    let vmi = server.vmi(&namespace, &name).await?;
    let body = server.call(&vmi, Method::GET, "migrationprogress").await?;
    Ok(([(header::CONTENT_TYPE, "application/json")], body).into_response())
}

impl Server {
    /// Sends a command to virt-handler.
    async fn ask(&self, vmi: &VirtualMachineInstance, operation: &str) -> Answer {
        self.call(vmi, Method::PUT, operation).await?;
        Ok(StatusCode::OK)
    }

    async fn call(&self, vmi: &VirtualMachineInstance, method: Method, operation: &str) -> Result<Bytes, Refusal> {
        let agent = self.handlers.of_node(subresources::handler_node(vmi)?).await?;
        Ok(self.handlers.request(&agent, method, &agent_path(vmi, operation), Bytes::new()).await?)
    }

    /// Connects the client to a stream of virt-handler, which is dialled first.
    async fn join_stream(
        &self,
        vmi: &VirtualMachineInstance,
        operation: &str,
        mut request: Request,
    ) -> Result<Response, Refused> {
        let client = ClientUpgrade::from_request(&mut request)?;
        let agent = self.handlers.of_node(subresources::handler_node(vmi)?).await?;
        let agent = self.handlers.stream(&agent, &agent_path(vmi, operation)).await?;
        let shutdown = self.shutdown.clone();
        Ok(client.accept(async move |client| splice(client, agent, &shutdown).await))
    }

    /// Connects the client to a port of the guest.
    pub(super) async fn forward_port(
        &self,
        namespace: &str,
        name: &str,
        port: &str,
        protocol: Option<&str>,
        mut request: Request,
    ) -> Result<Response, Refused> {
        let protocol = Protocol::parse(protocol)?;
        let vmi = self.vmi(namespace, name).await?;
        let address = subresources::port_forward(&vmi, port)?;
        let client = ClientUpgrade::from_request(&mut request)?;
        let dialled = match protocol {
            Protocol::Tcp => self.handlers.dialer.dial(address).await.map(Port::Tcp),
            Protocol::Udp => self.handlers.dialer.dial_udp(address).await.map(Port::Udp),
        };
        let port = dialled.map_err(|error| Refusal::internal(format!("dialling the guest at {address}: {error}")))?;
        let shutdown = self.shutdown.clone();
        Ok(client.accept(async move |client| portforward::forward(client, port, &shutdown).await))
    }
}

fn agent_path(vmi: &VirtualMachineInstance, operation: &str) -> String {
    let namespace = vmi.metadata.namespace.as_deref().unwrap_or_default();
    let name = vmi.metadata.name.as_deref().unwrap_or_default();
    format!("/v1/namespaces/{namespace}/virtualmachineinstances/{name}/{operation}")
}
