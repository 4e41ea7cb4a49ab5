//! Subresources of VMs.

use axum::body::Bytes;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use http::StatusCode;
use kube::api::{Patch, PatchParams};
use subresources::options::{self, RestartOptions, StartOptions, StopOptions, is_dry_run};
use subresources::{Kind, Plan, Refusal, Step};

use super::{Answer, Refused, Server, Shared, Target};

pub(super) async fn start(State(server): Shared, Path((namespace, name)): Target, body: Bytes) -> Answer {
    let options: StartOptions = options::parse(&body)?;
    let vm = server.vm(&namespace, &name).await?;
    let vmi = server.find_vmi(&namespace, &name).await?;
    let plan = subresources::start(&vm, vmi.as_ref(), &options)?;
    server.carry_out(&namespace, &name, plan, is_dry_run(&options.dry_run)?).await
}

pub(super) async fn stop(State(server): Shared, Path((namespace, name)): Target, body: Bytes) -> Answer {
    let options: StopOptions = options::parse(&body)?;
    let vm = server.vm(&namespace, &name).await?;
    let vmi = server.find_vmi(&namespace, &name).await?;
    let plan = subresources::stop(&vm, vmi.as_ref(), &options)?;
    server.carry_out(&namespace, &name, plan, is_dry_run(&options.dry_run)?).await
}

pub(super) async fn restart(State(server): Shared, Path((namespace, name)): Target, body: Bytes) -> Answer {
    let options: RestartOptions = options::parse(&body)?;
    let vm = server.vm(&namespace, &name).await?;
    let vmi = server.find_vmi(&namespace, &name).await?;
    let plan = subresources::restart(&vm, vmi.as_ref(), &options)?;
    server.carry_out(&namespace, &name, plan, is_dry_run(&options.dry_run)?).await
}

pub(super) async fn port_forward(
    State(server): Shared,
    Path((namespace, name, port)): Path<(String, String, String)>,
    request: Request,
) -> Result<Response, Refused> {
    server.forward_vm_port(&namespace, &name, &port, None, request).await
}

pub(super) async fn port_forward_protocol(
    State(server): Shared,
    Path((namespace, name, port, protocol)): Path<(String, String, String, String)>,
    request: Request,
) -> Result<Response, Refused> {
    server.forward_vm_port(&namespace, &name, &port, Some(&protocol), request).await
}

impl Server {
    async fn forward_vm_port(
        &self,
        namespace: &str,
        name: &str,
        port: &str,
        protocol: Option<&str>,
        request: Request,
    ) -> Result<Response, Refused> {
        let vm = self.vm(namespace, name).await?;
        let vmi = self.find_vmi(namespace, name).await?;
        subresources::instance_of(&vm, vmi.as_ref())?;
        self.forward_port(namespace, name, port, protocol, request).await
    }

    /// Executes the writes in order. If one fails, the earlier ones are undone.
    async fn carry_out(&self, namespace: &str, name: &str, plan: Plan, dry_run: bool) -> Answer {
        for (index, step) in plan.steps.iter().enumerate() {
            let Err(refusal) = self.write(namespace, name, step, dry_run).await else { continue };
            if let (true, Some(undo)) = (index > 0, &plan.undo)
                && let Err(error) = self.write(namespace, name, undo, dry_run).await
            {
                tracing::warn!(namespace, name, %error, "failed to undo a partial request");
            }
            return Err(refusal.into());
        }
        Ok(StatusCode::ACCEPTED)
    }

    pub(super) async fn write(&self, namespace: &str, name: &str, step: &Step, dry_run: bool) -> Result<(), Refusal> {
        self.send(namespace, name, step, dry_run).await.map_err(|(kind, error)| not_written(kind, name, error))
    }

    /// The same, with the API server's own refusal of an object that is not valid.
    pub(super) async fn write_as_told(
        &self,
        namespace: &str,
        name: &str,
        step: &Step,
        dry_run: bool,
    ) -> Result<(), Refusal> {
        self.send(namespace, name, step, dry_run).await.map_err(|(kind, error)| match error {
            kube::Error::Api(status) if status.code == 422 && !test_failed(&status) => passed_on(&status),
            other => not_written(kind, name, other),
        })
    }

    async fn send(&self, namespace: &str, name: &str, step: &Step, dry_run: bool) -> Result<(), (Kind, kube::Error)> {
        let params = PatchParams { dry_run, ..PatchParams::default() };
        let (kind, written) = match step {
            Step::Vm(patch) => {
                let written = self.vms(namespace).patch(name, &params, &Patch::Json::<()>(patch.clone())).await;
                (Kind::VirtualMachine, written.map(drop))
            }
            Step::VmStatus(patch) => {
                let written = self.vms(namespace).patch_status(name, &params, &Patch::Json::<()>(patch.clone())).await;
                (Kind::VirtualMachine, written.map(drop))
            }
            Step::Vmi(patch) => {
                let written = self.vmis(namespace).patch(name, &params, &Patch::Json::<()>(patch.clone())).await;
                (Kind::VirtualMachineInstance, written.map(drop))
            }
        };
        written.map_err(|error| (kind, error))
    }
}

/// A failed `test` means that the object changed concurrently: a conflict, not an internal error.
fn not_written(kind: Kind, name: &str, error: kube::Error) -> Refusal {
    match error {
        kube::Error::Api(status) if status.code == 404 => Refusal::not_found(kind, name),
        kube::Error::Api(status) if test_failed(&status) => Refusal::conflict(kind, name, status.message),
        kube::Error::Api(status) => Refusal::internal(status.message),
        other => {
            tracing::warn!(name, error = %other, "failed to send a patch");
            Refusal::internal("unable to patch the object")
        }
    }
}

fn passed_on(status: &kube::core::Status) -> Refusal {
    let same = serde_json::to_value(status).and_then(serde_json::from_value);
    same.map_or_else(|_| Refusal::internal(&status.message), Refusal::passed_on)
}

/// API servers word a failed test differently and return 409 or 422.
fn test_failed(status: &kube::core::Status) -> bool {
    const WORDS: [&str; 4] = ["test operation does not apply", "test failed", "testing ", "test of "];
    let causes = status.details.iter().flat_map(|details| &details.causes).map(|cause| cause.message.as_str());
    let said = |text: &str| WORDS.iter().any(|words| text.contains(words));
    status.code == 409 || (status.code == 422 && causes.chain([status.message.as_str()]).any(said))
}
