//! Eviction: the deletion of a Pod with a veto. Hooks are called first; what they allow, disruption budgets may still
//! block.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use placement::disruption::{self, Budget};
use review::{Operation, Review, SideEffect, Verdict};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{DeleteOptions, Part, Patch, PatchType, Registry, WriteContext};
use crate::auth::User;
use crate::cache::ObjectName;
use crate::errors::ApiError;
use crate::kinds::{KindId, text_at};
use crate::views::Served;

impl Registry {
    /// Deletes a Pod unless a hook rejects it or a budget blocks it.
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
        self.review_eviction(pods, name, eviction, cx).await?;
        self.ask_budgets(pods, name, &pod)?;
        self.delete(pods, name, options, cx).await.map(drop)
    }

    async fn review_eviction(
        &self,
        pods: KindId,
        name: &ObjectName,
        eviction: &Value,
        cx: &mut WriteContext,
    ) -> Result<(), ApiError> {
        let user = cx.user.reviewed();
        for hook in self.hooks.about(pods, Operation::Create, "eviction") {
            let definition = self.kinds.definition(pods);
            let review = Review {
                operation: Operation::Create,
                group: definition.group,
                version: definition.version,
                resource: definition.plural,
                subresource: "eviction",
                namespace: &name.namespace,
                name: &name.name,
                user: &user,
                old: None,
                object: eviction,
                dry_run: cx.dry_run,
                now: Time(Timestamp::now()),
            };
            let Verdict { object: _, mut warnings, mut refusal, side_effect } = hook.review(&review, &*self.cache);
            cx.warnings.append(&mut warnings);
            if let Some(effect) = side_effect.filter(|_| !cx.dry_run)
                && let Err(error) = self.carry_out(&effect).await
                && let Some(refusal) = &mut refusal
            {
                refusal.status = (effect.failed)(&error);
            }
            if let Some(refusal) = refusal {
                return Err(ApiError::refused(refusal));
            }
        }
        Ok(())
    }

    /// Performs a write requested by a hook, in the hook's own name.
    async fn carry_out(&self, effect: &SideEffect) -> Result<(), ApiError> {
        let SideEffect { group, resource, namespace, name, patch, user, failed: _ } = effect;
        let kind = self.kinds.find(group, resource).ok_or(ApiError::UnknownPath)?;
        let patch = Patch { kind: PatchType::Json, document: json!(patch) };
        let user = User { name: user.name.clone(), groups: user.groups.clone() };
        let mut cx = WriteContext { user, ..WriteContext::server() };
        let name = ObjectName::new(namespace, name);
        self.patch(&Served::stored(kind), &name, Part::Main, &patch, &mut cx).await.map(drop)
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
