//! Plugging and unplugging volumes, and memory dumps.

use std::time::Duration;

use anyhow::{Context as _, bail};
use api::cdi::DataVolume;
use api::v1::{VirtualMachine, VirtualMachineInstance};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Map, Value, json};

use crate::api_error;
use crate::args::{AddVolumeArgs, DiskType, MemoryDumpArgs, MemoryDumpCommand, RemoveVolumeArgs};
use crate::connect::{ConnectArgs, Session};
use crate::lifecycle::options;
use crate::subresource::{self, Kind};

/// The longest name of a volume.
const NAME_MAX: usize = 63;
/// Attempts while the object changes on the server.
const ATTEMPTS: u32 = 15;
const PAUSE: Duration = Duration::from_millis(100);

pub(crate) async fn add(connect: &ConnectArgs, args: AddVolumeArgs) -> anyhow::Result<()> {
    let session = connect.connect().await?;
    let AddVolumeArgs {
        vmi,
        volume_name,
        disk_name,
        serial,
        cache,
        disk_type,
        bus,
        persist: _,
        concurrent: _,
        dry_run,
    } = args;
    let name = disk_name.unwrap_or_else(|| volume_name.clone());
    if name.is_empty() || name.len() > NAME_MAX {
        bail!("the name of a disk has 1 to {NAME_MAX} characters, {name:?} has {}: set --disk-name", name.len());
    }
    if disk_type == DiskType::Lun && bus != "scsi" {
        bail!("invalid bus type {bus:?} for LUN disk. Only scsi bus is supported");
    }
    let what = || format!("error adding volume, {volume_name}");
    let source = source(&session, &volume_name).await.with_context(what)?;
    let mut disk = Map::from_iter([
        ("name".to_owned(), json!(name)),
        ("serial".to_owned(), json!(serial.unwrap_or_else(|| name.clone()))),
        (disk_type.field().to_owned(), json!({ "bus": bus })),
    ]);
    disk.extend(cache.map(|cache| ("cache".to_owned(), json!(cache.as_str()))));
    let mut request = options(dry_run);
    request.extend([
        ("name".to_owned(), json!(name)),
        ("disk".to_owned(), Value::Object(disk)),
        ("volumeSource".to_owned(), source),
    ]);
    ask(&session, &vmi, "addvolume", &Value::Object(request)).await.with_context(what)?;
    println!("Successfully submitted add volume request to VM {vmi} for volume {volume_name}");
    Ok(())
}

pub(crate) async fn remove(connect: &ConnectArgs, args: RemoveVolumeArgs) -> anyhow::Result<()> {
    let session = connect.connect().await?;
    let RemoveVolumeArgs { vmi, volume_name, persist: _, dry_run } = args;
    let mut request = options(dry_run);
    request.insert("name".to_owned(), json!(volume_name));
    ask(&session, &vmi, "removevolume", &Value::Object(request))
        .await
        .with_context(|| format!("error removing volume, {volume_name}"))?;
    println!("Successfully submitted remove volume request to VM {vmi} for volume {volume_name}");
    Ok(())
}

/// The DataVolume of this name, or else the claim.
async fn source(session: &Session, name: &str) -> anyhow::Result<Value> {
    let data_volumes: Api<DataVolume> = Api::namespaced(session.client.clone(), &session.namespace);
    match data_volumes.get_opt(name).await {
        Ok(Some(_)) => return Ok(json!({ "dataVolume": { "name": name, "hotpluggable": true } })),
        // The kind may not be served.
        Ok(None) => {}
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        Err(error) => return Err(api_error(error, &session.server)),
    }
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(session.client.clone(), &session.namespace);
    match claims.get_opt(name).await.map_err(|error| api_error(error, &session.server))? {
        Some(_) => Ok(json!({ "persistentVolumeClaim": { "claimName": name, "hotpluggable": true } })),
        None => bail!("volume {name} is not a DataVolume or PersistentVolumeClaim"),
    }
}

/// Asks for the VM, or for an instance that has none.
async fn ask(session: &Session, name: &str, operation: &str, request: &Value) -> anyhow::Result<()> {
    let put = async |kind| {
        let path = subresource::path(kind, &session.namespace, name, operation);
        let mut attempt = 1;
        loop {
            match subresource::put(session, &path, request).await {
                Err(kube::Error::Api(status)) if has_changed(&status) && attempt < ATTEMPTS => {
                    tokio::time::sleep(PAUSE * attempt).await;
                    attempt += 1;
                }
                other => return other,
            }
        }
    };
    let result = match put(Kind::VirtualMachine).await {
        Err(kube::Error::Api(status)) if status.code == 404 => put(Kind::VirtualMachineInstance).await,
        other => other,
    };
    result.map_err(|error| api_error(error, &session.server))
}

/// Whether the object on the server changed while the request was served, which helps only to ask again.
fn has_changed(status: &kube::core::Status) -> bool {
    status.code == 422 && status.message.contains("the server rejected our request due to an error in our request")
}

pub(crate) async fn memory_dump(connect: &ConnectArgs, args: MemoryDumpArgs) -> anyhow::Result<()> {
    let session = connect.connect().await?;
    match args.command {
        MemoryDumpCommand::Get { vm, claim_name, create_claim, storage_class, access_mode } => {
            let what = || format!("error dumping the memory of VirtualMachine {vm}");
            if create_claim {
                let name = claim_name.as_deref().context("--create-claim needs --claim-name")?;
                create_dump_claim(&session, &vm, name, storage_class, access_mode).await.with_context(what)?;
            }
            let request = json!({ "claimName": claim_name.unwrap_or_default() });
            dump_operation(&session, &vm, "memorydump", &request).await.with_context(what)?;
            println!("Successfully submitted memory dump request of VM {vm}");
        }
        MemoryDumpCommand::Remove { vm } => {
            let what = || format!("error removing the memory dump of VirtualMachine {vm}");
            dump_operation(&session, &vm, "removememorydump", &json!({})).await.with_context(what)?;
            println!("Successfully submitted remove memory dump association of VM {vm}");
        }
    }
    Ok(())
}

async fn dump_operation(session: &Session, vm: &str, operation: &str, request: &Value) -> anyhow::Result<()> {
    let path = subresource::path(Kind::VirtualMachine, &session.namespace, vm, operation);
    subresource::put(session, &path, request).await.map_err(|error| api_error(error, &session.server))
}

/// A claim that the dump fits on.
async fn create_dump_claim(
    session: &Session,
    vm: &str,
    name: &str,
    storage_class: Option<String>,
    access_mode: Option<String>,
) -> anyhow::Result<()> {
    let failed = |error| api_error(error, &session.server);
    let vms: Api<VirtualMachine> = Api::namespaced(session.client.clone(), &session.namespace);
    vms.get(vm).await.map_err(failed)?;
    let vmis: Api<VirtualMachineInstance> = Api::namespaced(session.client.clone(), &session.namespace);
    let vmi = vmis.get_opt(vm).await.map_err(failed)?;
    let vmi = vmi.with_context(|| format!("VirtualMachine {vm} does not run"))?;
    let bytes = subresources::dump_claim_bytes(&vmi, None, storage_class.as_deref().unwrap_or_default());
    let claim: PersistentVolumeClaim = serde_json::from_value(json!({
        "metadata": { "name": name },
        "spec": {
            "accessModes": [access_mode.as_deref().unwrap_or("ReadWriteOnce")],
            "storageClassName": storage_class,
            "resources": { "requests": { "storage": bytes.to_string() } },
        },
    }))?;
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(session.client.clone(), &session.namespace);
    claims.create(&PostParams::default(), &claim).await.map_err(failed)?;
    println!("PVC {}/{name} created", session.namespace);
    Ok(())
}
