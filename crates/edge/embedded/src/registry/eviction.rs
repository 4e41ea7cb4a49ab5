//! Eviction: the deletion of a Pod that others have a say in.
//!
//! The guest in a launcher Pod comes first: `plan::eviction` decides whether it is to be moved, then nothing is deleted and
//! the instance is marked. On Kubernetes this is a webhook's answer. What it lets through, disruption budgets may hold up.

use api::v1::VirtualMachineInstance;
use json_patch::Patch as JsonPatch;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use placement::disruption::{self, Budget};
use plan::eviction::{Subject, Verdict, World, judge, subject};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{DeleteOptions, Part, Patch, PatchType, Registry, WriteContext};
use crate::auth::User;
use crate::cache::ObjectName;
use crate::errors::ApiError;
use crate::kinds::{KindId, text_at};
use crate::views::Served;

/// After this many seconds it makes sense to ask again.
const RETRY_AFTER: i32 = 10;

impl Registry {
    /// Deletes a Pod unless its guest is to be moved or a budget keeps it.
    pub(crate) async fn evict(
        &self,
        pods: KindId,
        name: &ObjectName,
        eviction: &Value,
        options: &DeleteOptions,
        cx: &mut WriteContext,
    ) -> Result<(), ApiError> {
        let claimed = text_at(eviction, "metadata.name");
        if !claimed.is_empty() && claimed != name.name {
            return Err(ApiError::BadRequest("name in URL does not match name in Eviction object".into()));
        }
        let pod: Pod = read(&self.get(pods, name)?.value())?;
        self.ask_for_guest(pods, name, &pod, eviction, cx.dry_run).await?;
        self.ask_budgets(pods, name, &pod)?;
        self.delete(pods, name, options, cx).await.map(drop)
    }

    /// Whether the guest in the Pod, if there is one, may go with it.
    async fn ask_for_guest(
        &self,
        pods: KindId,
        name: &ObjectName,
        pod: &Pod,
        eviction: &Value,
        dry_run: bool,
    ) -> Result<(), ApiError> {
        let find_pod = |name: &ObjectName| self.cache.get(pods, name).and_then(|pod| read::<Pod>(&pod.value()).ok());
        let sibling = |other: &str| ObjectName::new(&name.namespace, other);
        let launcher = match subject(pod) {
            Subject::Attachment { launcher } => find_pod(&sibling(launcher)),
            Subject::Free | Subject::Launcher { .. } => None,
        };
        let guest_of = launcher.as_ref().unwrap_or(pod);
        let vmi_name = match subject(guest_of) {
            Subject::Launcher { vmi } => sibling(vmi),
            Subject::Free | Subject::Attachment { .. } => return Ok(()),
        };
        let vmis = self.kinds.find(api::v1::GROUP, "virtualmachineinstances").ok_or(ApiError::UnknownPath)?;
        let vmi: Option<VirtualMachineInstance> =
            self.cache.get(vmis, &vmi_name).map(|vmi| read(&vmi.value())).transpose()?;
        let annotations = serde_json::from_value(eviction["metadata"]["annotations"].clone()).ok();
        let config = self.rules.config();
        let world = World {
            pod,
            launcher: launcher.as_ref(),
            vmi: vmi.as_ref(),
            annotations: annotations.as_ref(),
            config: &config,
        };
        let verdict = judge(&world);
        let verdict = match if dry_run { verdict.without_effect() } else { verdict } {
            Verdict::Mark { patch, message } => {
                let user = User::component(&config.install_namespace, "kubevirt-apiserver");
                match self.mark(vmis, &vmi_name, &patch, user).await {
                    Ok(()) => Verdict::Deny(message),
                    Err(error) => Verdict::unknown("marking its instance for evacuation", &error),
                }
            }
            verdict => verdict,
        };
        match verdict {
            Verdict::Allow => Ok(()),
            Verdict::Deny(message) | Verdict::Mark { message, .. } => {
                Err(ApiError::TooManyRequests(message, RETRY_AFTER))
            }
        }
    }

    /// Writes the mark that the evacuation controller acts on.
    async fn mark(&self, vmis: KindId, name: &ObjectName, patch: &JsonPatch, user: User) -> Result<(), ApiError> {
        let patch = Patch { kind: PatchType::Json, document: json!(patch) };
        let mut cx = WriteContext { user, ..WriteContext::server() };
        self.patch(&Served::stored(vmis), name, Part::Main, &patch, &mut cx).await.map(drop)
    }

    fn ask_budgets(&self, pods: KindId, name: &ObjectName, pod: &Pod) -> Result<(), ApiError> {
        let Some(budgets) = self.kinds.find("policy", "poddisruptionbudgets") else { return Ok(()) };
        let budgets: Vec<PodDisruptionBudget> = self.objects(budgets, &name.namespace);
        if budgets.is_empty() {
            return Ok(());
        }
        match disruption::judge(pod, &budgets, &self.objects(pods, &name.namespace)) {
            Budget::Free => Ok(()),
            Budget::Exhausted { name, why } => Err(ApiError::DisruptionBudget { name, why }),
            Budget::Ambiguous => {
                let text =
                    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
                Err(ApiError::Internal(text.into()))
            }
        }
    }
}

fn read<T: DeserializeOwned>(value: &Value) -> Result<T, ApiError> {
    T::deserialize(value).map_err(|error| ApiError::Internal(format!("a stored object cannot be read: {error}")))
}
