//! Carries effects out.

use std::time::Duration;

use api::v1::{KubeVirt, KubeVirtStatus};
use informer::{EventType, Recorder};
use install::names;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use kube::{Client, Resource as _};
use operate::certificates::{DURATION_ANNOTATION, Renewal, text};
use operate::{Effect, Id, World, left_over};
use serde_json::{Value, json};

use crate::error::Error;
use crate::kinds::{Kind, of_kind};
use crate::observe::{is_ours, pair};
use crate::pki;

/// Field manager of applied objects.
const MANAGER: &str = names::app::OPERATOR;

pub(crate) struct Executor<'a> {
    pub(crate) client: &'a Client,
    pub(crate) recorder: &'a Recorder,
    pub(crate) world: &'a World<'a>,
}

impl Executor<'_> {
    /// All effects, until one fails.
    pub(crate) async fn run(&self, effects: Vec<Effect>) -> Result<(), Error> {
        for effect in effects {
            self.effect(effect).await?;
        }
        Ok(())
    }

    async fn effect(&self, effect: Effect) -> Result<(), Error> {
        match effect {
            Effect::Apply { object, because } => self.apply(&object, &because).await,
            Effect::Merge { id, patch, because } => {
                tracing::info!(object = %id, because, "patching");
                self.merge(&id, &patch).await
            }
            Effect::Delete { id, because } => self.delete(&id, &because).await,
            Effect::Renew(renewal) => self.renew(&renewal).await,
            Effect::Unlabel { node } => self.unlabel(&node).await,
            Effect::Status { namespace, name, status } => self.status(&namespace, &name, &status).await,
            Effect::Finalizers { namespace, name, old, new } => self.finalizers(&namespace, &name, &old, &new).await,
            Effect::Warn { reason, message } => {
                self.warn(reason, &message);
                Ok(())
            }
        }
    }

    /// Server-side apply. It keeps items that others added to lists with keys; a second patch removes those.
    async fn apply(&self, object: &Value, because: &str) -> Result<(), Error> {
        let id = Id::of(object);
        tracing::info!(object = %id, because, "applying");
        let params = PatchParams::apply(MANAGER).force();
        let applied = kind(&id)?.api(self.client, &id.namespace).patch(&id.name, &params, &Patch::Apply(object)).await;
        let applied = applied.map_err(|error| Error::api(format!("apply {id}"), error))?;
        let applied = serde_json::to_value(applied).unwrap_or_default();
        match left_over(object, &applied) {
            Some(patch) => self.merge(&id, &patch).await,
            None => Ok(()),
        }
    }

    async fn merge(&self, id: &Id, patch: &Value) -> Result<(), Error> {
        let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        let patched = kind(id)?.api(self.client, &id.namespace).patch(&id.name, &params, &Patch::Merge(patch)).await;
        patched.map(drop).map_err(|error| Error::api(format!("patch {id}"), error))
    }

    async fn delete(&self, id: &Id, because: &str) -> Result<(), Error> {
        tracing::info!(object = %id, because, "deleting");
        match kind(id)?.api(self.client, &id.namespace).delete(&id.name, &DeleteParams::foreground()).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => Err(Error::api(format!("delete {id}"), error)),
        }
    }

    async fn renew(&self, renewal: &Renewal) -> Result<(), Error> {
        let (settings, now) = (&self.world.operator.base, Timestamp::now());
        let (name, duration, because, made) = match renewal {
            Renewal::Authority { duration, because } => {
                (names::secret::CA, *duration, because, pki::make_authority(*duration, now))
            }
            Renewal::Leaf { certificate, duration, because } => {
                let authority = self.authority().ok_or(Error::NoAuthority)?;
                let made = pki::make_leaf(certificate, &settings.namespace, *duration, &authority, now);
                (certificate.secret, *duration, because, made)
            }
        };
        let made = made.map_err(|source| Error::Certificate { name: name.to_owned(), source })?;
        let annotation = (DURATION_ANNOTATION, &*text(duration));
        self.apply(&install::secret(settings, name, annotation, &made.cert, &made.key), because).await
    }

    fn authority(&self) -> Option<pki::Pair> {
        let (group, kind) = (String::new(), "Secret".to_owned());
        let namespace = self.world.operator.base.namespace.clone();
        let id = Id { group, kind, namespace, name: names::secret::CA.to_owned() };
        self.world.live.get(&id).and_then(pair).map(|(pair, _)| pair)
    }

    async fn unlabel(&self, node: &str) -> Result<(), Error> {
        tracing::info!(node, "removing labels");
        let (nodes, failed) = (Api::<Node>::all(self.client.clone()), |error| {
            Error::api(format!("remove the labels of node {node}"), error)
        });
        let Some(found) = nodes.get_metadata_opt(node).await.map_err(failed)? else { return Ok(()) };
        let nulls = |keys: Vec<String>| -> Value {
            keys.into_iter()
                .filter(|key| is_ours(key))
                .map(|key| (key, Value::Null))
                .collect::<serde_json::Map<_, _>>()
                .into()
        };
        let keys =
            |map: Option<std::collections::BTreeMap<String, String>>| map.unwrap_or_default().into_keys().collect();
        let labels = nulls(keys(found.metadata.labels));
        let annotations = nulls(keys(found.metadata.annotations));
        let patch = json!({"metadata": {"labels": labels, "annotations": annotations}});
        nodes.patch(node, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop).map_err(failed)
    }

    /// Only differences, so that fields of other writers are kept.
    async fn status(&self, namespace: &str, name: &str, status: &KubeVirtStatus) -> Result<(), Error> {
        let named = |one: &&KubeVirt| {
            one.metadata.name.as_deref() == Some(name) && one.metadata.namespace.as_deref() == Some(namespace)
        };
        let Some(kubevirt) = self.world.kubevirts.iter().find(named) else { return Ok(()) };
        let old = serde_json::to_value(kubevirt.status.clone().unwrap_or_default()).unwrap_or_default();
        let new = serde_json::to_value(status).unwrap_or_default();
        let mut patch = json!({"status": changes(&old, &new)});
        patch["metadata"] = json!({"resourceVersion": kubevirt.metadata.resource_version});
        let objects: Api<KubeVirt> = Api::namespaced(self.client.clone(), namespace);
        let phase = status.phase.as_ref().map(ToString::to_string).unwrap_or_default();
        tracing::info!(namespace, name, phase, "writing the status");
        match objects.patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(answer)) if answer.code == 404 => Ok(()),
            Err(error) => Err(Error::api(format!("write the status of KubeVirt {namespace}/{name}"), error)),
        }
    }

    async fn finalizers(&self, namespace: &str, name: &str, old: &[String], new: &[String]) -> Result<(), Error> {
        let objects: Api<KubeVirt> = Api::namespaced(self.client.clone(), namespace);
        let test = if old.is_empty() { Value::Null } else { json!(old) };
        let operations = json!([
            {"op": "test", "path": "/metadata/finalizers", "value": test},
            {"op": "add", "path": "/metadata/finalizers", "value": new},
        ]);
        let failed = |error| Error::api(format!("set the finalizers of KubeVirt {namespace}/{name}"), error);
        let patch: json_patch::Patch = serde_json::from_value(operations).unwrap_or_default();
        tracing::info!(namespace, name, ?new, "writing finalizers");
        objects.patch(name, &PatchParams::default(), &Patch::Json::<()>(patch)).await.map(drop).map_err(failed)
    }

    fn warn(&self, reason: &'static str, message: &str) {
        tracing::warn!(reason, message);
        let namespace = Some(&self.world.operator.base.namespace);
        if let Some(kubevirt) = self.world.kubevirts.iter().find(|one| one.metadata.namespace.as_ref() == namespace) {
            self.recorder.publish(kubevirt.object_ref(&()), EventType::Warning, reason, message);
        }
    }
}

fn kind(id: &Id) -> Result<&'static Kind, Error> {
    of_kind(&id.group, &id.kind).ok_or_else(|| Error::UnknownKind(id.to_string()))
}

/// A merge patch from one object to another, one level deep: lists and objects are replaced.
fn changes(old: &Value, new: &Value) -> Value {
    let empty = serde_json::Map::new();
    let (old, new) = (old.as_object().unwrap_or(&empty), new.as_object().unwrap_or(&empty));
    let gone = old.keys().filter(|name| !new.contains_key(*name)).map(|name| (name.clone(), Value::Null));
    let changed = new.iter().filter(|(name, value)| old.get(*name) != Some(value));
    gone.chain(changed.map(|(name, value)| (name.clone(), value.clone()))).collect::<serde_json::Map<_, _>>().into()
}

/// How long node certificates are valid.
pub(crate) fn node_duration(world_spec: Option<&KubeVirt>) -> Duration {
    let spec = world_spec.map(|kubevirt| kubevirt.spec.clone()).unwrap_or_default();
    let rotation = operate::certificates::Rotation::of(&spec);
    rotation.map_or(Duration::from_secs(24 * 3600), |rotation| rotation.duration)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_patch_holds_what_differs() {
        let (old, new) = (json!({"a": 1, "b": [1], "c": 1}), json!({"a": 1, "b": [2], "d": {"x": 1}}));
        assert_eq!(changes(&old, &new), json!({"b": [2], "c": null, "d": {"x": 1}}));
    }
}
