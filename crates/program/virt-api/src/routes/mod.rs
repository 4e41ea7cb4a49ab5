//! Routes: fetch objects, ask [`subresources`], execute.

mod about;
mod migration;
mod vm;
mod vmi;
mod volumes;

use std::sync::Arc;

use api::v1::{VirtualMachine, VirtualMachineInstance};
use axum::Router;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, put};
use http::{HeaderValue, StatusCode, header};
use kube::api::Api;
use subresources::{Kind, Refusal};
use tokio_util::sync::CancellationToken;

use crate::discovery::{GROUP, UNSUPPORTED, VERSIONS};
use crate::handler::Handlers;

/// State shared by all routes.
pub(crate) struct Server {
    pub(crate) client: kube::Client,
    pub(crate) handlers: Handlers,
    pub(crate) namespace: String,
    pub(crate) version: crate::Version,
    pub(crate) shutdown: CancellationToken,
}

/// Namespace and name in a path.
pub(crate) type Target = axum::extract::Path<(String, String)>;
pub(crate) type Shared = axum::extract::State<Arc<Server>>;

pub(crate) fn router(server: Server) -> Router {
    let mut root =
        Router::new().route(&format!("/apis/{GROUP}"), get(about::group)).route("/healthz", get(about::healthz));
    for version in VERSIONS {
        let resources = move || about::resources(version);
        root = root.route(&format!("/apis/{GROUP}/{version}"), get(resources));
        root = root.nest(&format!("/apis/{GROUP}/{version}"), operations());
    }
    root.fallback(unknown)
        .method_not_allowed_fallback(wrong_method)
        .layer(axum::middleware::map_response(nosniff))
        .with_state(Arc::new(server))
}

fn operations() -> Router<Arc<Server>> {
    let vm = |operation: &str| format!("/namespaces/{{namespace}}/virtualmachines/{{name}}/{operation}");
    let vmi = |operation: &str| format!("/namespaces/{{namespace}}/virtualmachineinstances/{{name}}/{operation}");
    Router::new()
        .route("/version", get(about::version))
        .route("/healthz", get(about::healthz))
        .route(&vm("start"), put(vm::start))
        .route(&vm("stop"), put(vm::stop))
        .route(&vm("restart"), put(vm::restart))
        .route(&vm("migrate"), put(migration::migrate))
        .route(&vm("evacuate/cancel"), put(migration::cancel_vm_evacuation))
        .route(&vm("addvolume"), put(volumes::add_to_vm))
        .route(&vm("removevolume"), put(volumes::remove_from_vm))
        .route(&vm("memorydump"), put(volumes::dump_memory))
        .route(&vm("removememorydump"), put(volumes::remove_dump))
        .route(&vm("portforward/{port}"), get(vm::port_forward))
        .route(&vm("portforward/{port}/{protocol}"), get(vm::port_forward_protocol))
        .route(&vmi("console"), get(vmi::console))
        .route(&vmi("vnc"), get(vmi::vnc))
        .route(&vmi("portforward/{port}"), get(vmi::port_forward))
        .route(&vmi("portforward/{port}/{protocol}"), get(vmi::port_forward_protocol))
        .route(&vmi("evacuate/cancel"), put(migration::cancel_vmi_evacuation))
        .route(&vmi("addvolume"), put(volumes::add_to_vmi))
        .route(&vmi("removevolume"), put(volumes::remove_from_vmi))
        .route(&vmi("pause"), put(vmi::pause))
        .route(&vmi("unpause"), put(vmi::unpause))
        .route(&vmi("softreboot"), put(vmi::soft_reboot))
        .route(&vmi("reset"), put(vmi::reset))
        .route(&vmi("guestosinfo"), get(vmi::guest_os_info))
        .route(&vmi("migrationprogress"), get(vmi::migration_progress))
}

/// Fallback: distinguishes unimplemented subresources of KubeVirt from unknown ones.
async fn unknown(request: Request) -> Refused {
    let mut segments = request.uri().path().split('/').skip_while(|&segment| segment != "namespaces").skip(2);
    let operation = match (segments.next(), segments.next(), segments.next()) {
        (Some("virtualmachines" | "virtualmachineinstances"), Some(_), Some(operation)) => operation,
        (Some("expand-vm-spec"), None, None) => "expand-vm-spec",
        _ => return Refusal::no_such_path().into(),
    };
    if UNSUPPORTED.contains(&operation) || operation == "expand-vm-spec" || operation == "vnc" {
        return Refusal::not_implemented(format!("{operation} is not supported by this build")).into();
    }
    Refusal::no_such_path().into()
}

async fn wrong_method(request: Request) -> Response {
    let message = format!("the method {} is not allowed here", request.method());
    (StatusCode::METHOD_NOT_ALLOWED, message).into_response()
}

async fn nosniff(mut response: Response) -> Response {
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// The result of most routes.
pub(crate) type Answer = Result<StatusCode, Refused>;

/// A refusal as an HTTP response.
pub(crate) struct Refused(pub(crate) Refusal);

impl<E: Into<Refusal>> From<E> for Refused {
    fn from(error: E) -> Self {
        Refused(error.into())
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let code = StatusCode::from_u16(self.0.code()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (code, axum::Json(self.0.status())).into_response()
    }
}

impl Server {
    pub(crate) fn vms(&self, namespace: &str) -> Api<VirtualMachine> {
        Api::namespaced(self.client.clone(), namespace)
    }

    pub(crate) fn vmis(&self, namespace: &str) -> Api<VirtualMachineInstance> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Fetches the VM; 404 if it does not exist.
    pub(crate) async fn vm(&self, namespace: &str, name: &str) -> Result<VirtualMachine, Refusal> {
        self.find_vm(namespace, name).await?.ok_or_else(|| Refusal::not_found(Kind::VirtualMachine, name))
    }

    /// Fetches the VMI; 404 if it does not exist.
    pub(crate) async fn vmi(&self, namespace: &str, name: &str) -> Result<VirtualMachineInstance, Refusal> {
        self.find_vmi(namespace, name).await?.ok_or_else(|| Refusal::not_found(Kind::VirtualMachineInstance, name))
    }

    pub(crate) async fn find_vm(&self, namespace: &str, name: &str) -> Result<Option<VirtualMachine>, Refusal> {
        self.vms(namespace).get_opt(name).await.map_err(|error| unreadable("VM", namespace, name, &error))
    }

    pub(crate) async fn find_vmi(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<VirtualMachineInstance>, Refusal> {
        self.vmis(namespace).get_opt(name).await.map_err(|error| unreadable("VMI", namespace, name, &error))
    }
}

fn unreadable(kind: &str, namespace: &str, name: &str, error: &kube::Error) -> Refusal {
    tracing::warn!(namespace, name, %error, "failed to read a {kind}");
    Refusal::internal(format!("unable to retrieve {kind} [{name}]"))
}
