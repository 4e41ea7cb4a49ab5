//! 10: `status.activePods` names the Pods of the instance that the pass had in its cache, or has created itself.

use std::collections::BTreeMap;


use super::support::{cached_pods_of, ensure, name, pass_of, pods_of, vmi_change};
use super::{Invariant, Scene, Verdict};
use crate::controllers;
use crate::actors::node_of;
use crate::kinds::uid;
use crate::server::Change;

#[derive(Default)]
pub(crate) struct Rule;

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "active_pods"
    }

    fn change(&mut self, scene: &Scene<'_>, change: &Change) -> Verdict {
        let Some((Some(was), is)) = vmi_change(change) else { return Ok(()) };
        let Some(pass) = pass_of(scene, change, controllers::VMI) else { return Ok(()) };
        let pods = |vmi: &api::v1::VirtualMachineInstance| vmi.status.as_ref().map(|status| status.active_pods.clone()).unwrap_or_default();
        if pods(was) == pods(is) {
            return Ok(());
        }
        let entry = |pod: &k8s_openapi::api::core::v1::Pod| {
            (uid(&pod.metadata).to_owned(), node_of(pod).unwrap_or_default().to_owned())
        };
        let seen: BTreeMap<_, _> = cached_pods_of(scene, pass, uid(&is.metadata)).iter().map(|pod| entry(pod)).collect();
        let mut with_own = seen.clone();
        with_own.extend(pods_of(scene.server, uid(&is.metadata)).map(|pod| entry(pod)).filter(|(uid, _)| !seen.contains_key(uid)));
        ensure(pods(is) == seen || pods(is) == with_own, || {
            format!("instance {}: activePods are {:?}, the cache has {seen:?}", name(is), pods(is))
        })
    }
}
