//! Volumes of a running guest, and dumps of its memory.

use api::cdi::{CDIConfig, CONFIG_NAME};
use axum::body::Bytes;
use axum::extract::{Path, State};
use http::StatusCode;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::Api;
use subresources::options::{self, MemoryDumpOptions};
use subresources::{DumpFacts, Kind, Refusal, VolumeChange};

use super::{Answer, Server, Shared, Target};

/// Attempts to write a change before another one gets the better of it. Every status that is written in between costs one.
const ATTEMPTS: usize = 10;
const CONFLICT: u16 = 409;

pub(super) async fn add_to_vm(State(server): Shared, Path((namespace, name)): Target, body: Bytes) -> Answer {
    server.change_vm(&namespace, &name, &VolumeChange::add(&body)?).await
}

pub(super) async fn remove_from_vm(State(server): Shared, Path((namespace, name)): Target, body: Bytes) -> Answer {
    server.change_vm(&namespace, &name, &VolumeChange::remove(&body)?).await
}

pub(super) async fn add_to_vmi(State(server): Shared, Path((namespace, name)): Target, body: Bytes) -> Answer {
    server.change_vmi(&namespace, &name, &VolumeChange::add(&body)?).await
}

pub(super) async fn remove_from_vmi(State(server): Shared, Path((namespace, name)): Target, body: Bytes) -> Answer {
    server.change_vmi(&namespace, &name, &VolumeChange::remove(&body)?).await
}

pub(super) async fn dump_memory(State(server): Shared, Path((namespace, name)): Target, body: Bytes) -> Answer {
    let options: Option<MemoryDumpOptions> = options::parse_present(&body)?;
    let options = options.ok_or_else(|| Refusal::bad_request("Request with no body, a claim name is expected"))?;
    let config = server.configuration().await?;
    let vm = server.vm(&namespace, &name).await?;
    let claim_name = subresources::dump_claim(&vm, &options)?;
    let vmi = server.find_vmi(&namespace, &name).await?;
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(server.client.clone(), &namespace);
    let claim = claims.get_opt(claim_name).await.map_err(|error| {
        tracing::warn!(namespace, claim = claim_name, %error, "failed to read a claim");
        Refusal::internal(format!("unable to retrieve PersistentVolumeClaim [{claim_name}]"))
    })?;
    // Without the importer, or if it does not say, its default applies.
    let importer = Api::<CDIConfig>::all(server.client.clone()).get_opt(CONFIG_NAME).await.ok().flatten();
    let overhead = importer.as_ref().and_then(|config| config.status.as_ref()?.filesystem_overhead.as_ref());
    let facts = DumpFacts { vmi: vmi.as_ref(), claim: claim.as_ref(), overhead };
    let step = subresources::dump_memory(&vm, claim_name, facts, &config)?;
    server.write(&namespace, &name, &step, false).await?;
    Ok(StatusCode::ACCEPTED)
}

pub(super) async fn remove_dump(State(server): Shared, Path((namespace, name)): Target) -> Answer {
    let config = server.configuration().await?;
    let vm = server.vm(&namespace, &name).await?;
    let step = subresources::remove_dump(&vm, &config)?;
    server.write(&namespace, &name, &step, false).await?;
    Ok(StatusCode::ACCEPTED)
}

impl Server {
    async fn change_vm(&self, namespace: &str, name: &str, change: &VolumeChange) -> Answer {
        self.change(Kind::VirtualMachine, namespace, name, change).await
    }

    async fn change_vmi(&self, namespace: &str, name: &str, change: &VolumeChange) -> Answer {
        self.change(Kind::VirtualMachineInstance, namespace, name, change).await
    }

    /// Decides and writes; again if the object has changed in between, which the next decision takes into account.
    async fn change(&self, kind: Kind, namespace: &str, name: &str, change: &VolumeChange) -> Answer {
        let config = self.configuration().await?;
        let dry_run = change.is_dry_run()?;
        let mut attempt = 1;
        loop {
            let step = match kind {
                Kind::VirtualMachineInstance => change.of_instance(&self.vmi(namespace, name).await?, &config)?,
                _ => change.of_machine(&self.vm(namespace, name).await?, &config)?,
            };
            match self.write_as_told(namespace, name, &step, dry_run).await {
                Err(refusal) if refusal.code() == CONFLICT && attempt < ATTEMPTS => attempt += 1,
                other => return Ok(other.map(|()| StatusCode::ACCEPTED)?),
            }
        }
    }
}
