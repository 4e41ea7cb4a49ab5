//! A Pod on a chosen node, used to reach a guest over the network.

use std::process::Output;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::json;

use super::{Access, PodPlace, poll};

const LIMIT: Duration = Duration::from_secs(60);

/// A running Pod with the host's `ping` and `curl`.
#[derive(Debug)]
pub struct ClientPod {
    pods: Api<Pod>,
    place: PodPlace,
}

impl ClientPod {
    /// Starts it on `node`.
    pub async fn start(cluster: &Access, node: &str) -> Result<Self> {
        let pods: Api<Pod> = Api::namespaced(cluster.client().await?, "default");
        let name = format!("client-{node}");
        let mut spec = cluster.client_spec();
        spec["restartPolicy"] = json!("Never");
        spec["terminationGracePeriodSeconds"] = json!(1);
        spec["nodeSelector"] = json!({"kubernetes.io/hostname": node});
        let pod: Pod = serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec}))
            .context("the client Pod's manifest")?;
        let created = pods.create(&PostParams::default(), &pod).await.context("cannot create the client Pod")?;
        let uid = created.metadata.uid.context("the client Pod has no UID")?;
        poll("the client Pod's start", LIMIT, || async {
            let pod = pods.get(&name).await.map_err(|err| err.to_string())?;
            let phase = pod.status.and_then(|status| status.phase).unwrap_or_default();
            if phase == "Running" { Ok(()) } else { Err(format!("its phase is {phase}")) }
        })
        .await?;
        Ok(Self { pods, place: PodPlace { node: node.to_owned(), namespace: "default".to_owned(), name, uid } })
    }

    /// Runs a command in the Pod.
    pub async fn exec(&self, cluster: &Access, argv: &[&str]) -> Result<Output> {
        cluster.run_in_pod(&self.place, argv).await
    }

    /// Pings once; returns the round-trip time in milliseconds as printed by `ping`.
    pub async fn ping(&self, cluster: &Access, address: &str) -> Result<String> {
        let output = self.exec(cluster, &["ping", "-c", "1", "-W", "2", address]).await?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        match text.split("time=").nth(1).and_then(|rest| rest.split('\n').next()) {
            Some(time) if output.status.success() => Ok(time.to_owned()),
            _ => bail!(
                "{address} does not answer a ping from {}: {text}{}",
                self.place.node,
                String::from_utf8_lossy(&output.stderr)
            ),
        }
    }

    /// Fetches the response body of a guest's HTTP server.
    pub async fn http(&self, cluster: &Access, url: &str) -> Result<String> {
        answered(self.exec(cluster, &["curl", "-sS", "-m", "5", url]).await?, url, &self.place.node)
    }

    /// Pings once and then fetches from the guest's HTTP server; each has a timeout of a second.
    pub(super) async fn ping_and_http(&self, cluster: &Access, address: &str, path: &str) -> Result<String> {
        let script = format!("ping -n -q -c 1 -W 1 {address} >&2 && exec curl -sS -m 1 http://{address}{path}");
        answered(self.exec(cluster, &["sh", "-c", &script]).await?, address, &self.place.node)
    }

    /// Deletes the Pod and waits until it is gone.
    pub async fn delete(self) -> Result<()> {
        self.pods.delete(&self.place.name, &DeleteParams::default()).await.context("cannot delete the client Pod")?;
        poll("the client Pod's end", LIMIT, || async {
            match self.pods.get_opt(&self.place.name).await {
                Ok(None) => Ok(()),
                Ok(Some(_)) => Err("it is still there".to_owned()),
                Err(err) => Err(err.to_string()),
            }
        })
        .await
    }
}

fn answered(output: Output, whom: &str, node: &str) -> Result<String> {
    if !output.status.success() {
        bail!("{whom} does not answer from {node}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
