//! Machines that cannot run, each for a reason of its own, which shows.

use anyhow::{Result, ensure};
use api::cdi::DataVolume;
use api::v1::{VirtualMachine, VirtualMachineInstance};
use api::{conditions, reasons};
use control_plane::Fate;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::{Value, json};

use crate::env::{Env, Shown, vm};

pub(super) async fn a_crash_loop_slows_down_and_recovers(env: Env) -> Result<()> {
    env.decide(Fate::End(1));
    env.create_vm(vm("vm", "Always", json!({}))).await?;
    let vm = env.wait_printable("vm", "CrashLoopBackOff").await?;
    let failure = vm.status.as_ref().and_then(|status| status.start_failure.clone()).unwrap_or_default();
    ensure!(failure.consecutive_fail_count == Some(1), "{failure:?}");
    ensure!(failure.retry_after_timestamp.is_some() && failure.last_failed_vmi_uid.is_some(), "{failure:?}");
    env.wait_shown("vm", &CRASHED).await?;
    env.decide(Fate::Run);
    let vm = env.wait_ready("vm").await?;
    ensure!(vm.status.as_ref().is_some_and(|status| status.start_failure.is_none()), "the count starts anew: {vm:?}");
    env.delete_vm("vm").await
}

const CRASHED: Shown = Shown {
    type_: conditions::READY,
    status: "False",
    reason: reasons::VMI_NOT_EXISTS,
    says: "the virtual machine has no instance: 1 starts in a row have failed; the next one is tried at ",
};

pub(super) async fn a_data_volume_that_is_not_ready_is_waited_for(env: Env) -> Result<()> {
    let template = json!({"metadata": {"name": "disk"}, "spec": {
        "source": {"blank": {}},
        "storage": {"resources": {"requests": {"storage": "64Mi"}}},
    }});
    let volume = json!({"name": "root", "dataVolume": {"name": "disk"}});
    let spec = json!({"spec": {"dataVolumeTemplates": [template], "template": {"spec": {"volumes": [volume]}}}});
    env.create_vm(vm("vm", "Always", spec)).await?;
    let made: DataVolume = env.wait("disk", "it is made from its template", |_| true).await?;
    ensure!(machinery::meta::controller_of(&made.metadata).is_some(), "it goes with the machine: {made:?}");
    env.patch_status::<DataVolume>("disk", json!({"status": {"phase": "ImportInProgress"}})).await?;
    env.wait_printable("vm", "Provisioning").await?;
    env.wait_shown("vm", &IMPORTING).await?;
    ensure!(env.api::<Pod>().list(&Default::default()).await?.items.is_empty(), "no Pod before the content is there");

    // The importer is done.
    let uid = made.metadata.uid.clone();
    let owner = json!([{"apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume", "name": "disk", "uid": uid,
                        "controller": true, "blockOwnerDeletion": true}]);
    add_claim(&env, "disk", json!({"ownerReferences": owner})).await?;
    let ready = json!({"type": "Ready", "status": "True"});
    env.patch_status::<DataVolume>(
        "disk",
        json!({"status": {"phase": "Succeeded", "claimName": "disk", "conditions": [ready]}}),
    )
    .await?;
    env.wait_ready("vm").await?;
    env.delete_vm("vm").await?;
    remove_volume(&env, "disk").await
}

const IMPORTING: Shown = Shown {
    type_: conditions::READY,
    status: "False",
    reason: reasons::VMI_NOT_EXISTS,
    says: "it waits for its volumes: DataVolume disk is in phase ImportInProgress",
};

pub(super) async fn a_missing_claim_is_waited_for(env: Env) -> Result<()> {
    let volume = json!({"name": "root", "persistentVolumeClaim": {"claimName": "disk"}});
    env.create_vm(vm("vm", "Always", json!({"spec": {"template": {"spec": {"volumes": [volume]}}}}))).await?;
    let missing =
        Shown { type_: conditions::SYNCHRONIZED, status: "False", reason: reasons::FAILED_PVC_NOT_FOUND, says: "disk" };
    env.wait_instance_shown("vm", &missing).await?;
    env.wait_shown("vm", &missing).await?;
    env.wait_printable("vm", "ErrorPvcNotFound").await?;
    env.wait_event("VirtualMachineInstance", reasons::FAILED_PVC_NOT_FOUND).await?;
    add_claim(&env, "disk", json!({})).await?;
    let vm = env.wait_ready("vm").await?;
    ensure!(vm.condition(conditions::SYNCHRONIZED).is_none_or(|shown| !shown.is_false()), "it is over: {vm:?}");
    env.delete::<VirtualMachine>("vm", &DeleteParams::default()).await?;
    env.wait_none::<Pod>().await?;
    env.delete::<PersistentVolumeClaim>("disk", &DeleteParams::default()).await?;
    env.nothing_is_left().await?;
    remove_volume(&env, "disk").await
}

pub(super) async fn a_pod_that_fits_nowhere_says_what_the_scheduler_said(env: Env) -> Result<()> {
    let nowhere = json!({"spec": {"template": {"spec": {"nodeSelector": {"nowhere": "at-all"}}}}});
    env.create_vm(vm("vm", "Always", nowhere)).await?;
    let unschedulable = Shown {
        type_: conditions::POD_SCHEDULED,
        status: "False",
        reason: reasons::UNSCHEDULABLE,
        says: "nodes are available",
    };
    env.wait_printable("vm", "ErrorUnschedulable").await?;
    env.wait_instance_shown("vm", &unschedulable).await?;
    env.wait_shown("vm", &unschedulable).await?;
    env.delete_vm("vm").await
}

pub(super) async fn an_image_that_cannot_be_had_is_named(env: Env) -> Result<()> {
    env.decide(Fate::NoImage);
    env.create_vm(vm("vm", "Always", json!({}))).await?;
    let no_image = Shown {
        type_: conditions::SYNCHRONIZED,
        status: "False",
        reason: reasons::ERR_IMAGE_PULL,
        says: "no such image",
    };
    env.wait_printable("vm", "ErrImagePull").await?;
    env.wait_instance_shown("vm", &no_image).await?;
    env.wait_shown("vm", &no_image).await?;
    let vmi: VirtualMachineInstance = env.api().get("vm").await?;
    ensure!(!vmi.is_final(), "the kubelet tries again, so we wait: {vmi:?}");
    env.delete_vm("vm").await
}

/// A claim, bound to a volume of its own.
async fn add_claim(env: &Env, name: &str, metadata: Value) -> Result<()> {
    let volumes: Api<PersistentVolume> = Api::all(env.admin());
    let (volume, modes) = (volume_name(env, name), json!(["ReadWriteOnce"]));
    let object: PersistentVolume = serde_json::from_value(json!({
        "metadata": {"name": volume},
        "spec": {"capacity": {"storage": "64Mi"}, "accessModes": modes, "storageClassName": "none",
                 "persistentVolumeReclaimPolicy": "Retain", "hostPath": {"path": "/nowhere"}},
    }))?;
    volumes.create(&PostParams::default(), &object).await?;
    let mut claim = json!({
        "metadata": {"name": name},
        "spec": {"accessModes": modes, "storageClassName": "none", "volumeName": volume,
                 "resources": {"requests": {"storage": "64Mi"}}},
    });
    machinery::patch::merge(&mut claim["metadata"], &metadata);
    let claims: Api<PersistentVolumeClaim> = env.api();
    claims.create(&PostParams::default(), &serde_json::from_value(claim)?).await?;
    let is_bound = |claim: &PersistentVolumeClaim| claim.status.iter().any(|s| s.phase.as_deref() == Some("Bound"));
    env.wait(name, "it is bound", is_bound).await.map(drop)
}

async fn remove_volume(env: &Env, name: &str) -> Result<()> {
    let volumes: Api<PersistentVolume> = Api::all(env.admin());
    volumes.delete(&volume_name(env, name), &DeleteParams::default()).await?;
    Ok(())
}

/// Volumes are in no namespace.
fn volume_name(env: &Env, name: &str) -> String {
    format!("{name}-of-{}", env.namespace)
}
