//! `virtctl image-upload`: a local image becomes the content of a volume.
//!
//! ```text
//! make the volume ─► wait until it takes an upload ─► token ─► send ─► wait until it is processed
//! ```

mod args;
mod objects;
mod send;

use std::io::IsTerminal as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use api::cdi::{CDIConfig, CONFIG_NAME, DataSource, DataVolume};
use k8s_openapi::api::core::v1::{Event, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::time::Instant;

pub(crate) use args::ImageUploadArgs;
use args::{Plan, Target};
use objects::{Stand, bad_news, is_filled, is_ready, obstacle, stand};
use send::Proxy;

use crate::api_error;
use crate::connect::{ConnectArgs, Session};

const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// As long as upstream waits for a conversion.
const PROCESSING: Duration = Duration::from_secs(24 * 3600);

pub(crate) async fn run(connect: &ConnectArgs, args: ImageUploadArgs) -> anyhow::Result<()> {
    let plan = args.plan()?;
    let readable = std::fs::File::open(&plan.file).and_then(|file| file.metadata());
    let size = readable.with_context(|| format!("cannot read {}", plan.file.display()))?.len();
    let authorities = connect.authorities().await?;
    let upload = Upload { session: connect.connect().await?, args, plan };
    upload.prepare().await?;
    upload.wait_until_ready().await?;
    let url = upload.proxy_url().await?;
    let proxy = Proxy::new(&url, upload.token().await?, upload.args.insecure, &authorities)?;
    println!("Uploading data to {}", proxy.shown());
    upload.send(&proxy, size).await?;
    if upload.args.datasource {
        upload.data_source().await?;
    }
    println!(
        "Uploading data completed successfully, waiting for processing to complete, you can hit ctrl-c without \
         interrupting the progress"
    );
    upload.wait_until_processed().await?;
    println!("Uploading {} completed successfully", upload.plan.file.display());
    Ok(())
}

struct Upload {
    session: Session,
    args: ImageUploadArgs,
    plan: Plan,
}

impl Upload {
    fn claims(&self) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.session.client.clone(), &self.session.namespace)
    }

    fn data_volumes(&self) -> Api<DataVolume> {
        Api::namespaced(self.session.client.clone(), &self.session.namespace)
    }

    fn failed(&self) -> impl Fn(kube::Error) -> anyhow::Error + '_ {
        |error| api_error(error, &self.session.server)
    }

    /// Makes the volume, or checks the one that is there.
    async fn prepare(&self) -> anyhow::Result<()> {
        let (namespace, name) = (&self.session.namespace, &self.plan.name);
        match self.claims().get_opt(name).await.map_err(self.failed())? {
            Some(claim) => self.check(&claim).await,
            None if self.args.no_create => bail!("PVC {namespace}/{name} not found; without --no-create it is made"),
            None => {
                println!("PVC {namespace}/{name} not found");
                self.create().await
            }
        }
    }

    async fn check(&self, claim: &PersistentVolumeClaim) -> anyhow::Result<()> {
        let (namespace, name) = (&self.session.namespace, &self.plan.name);
        if self.plan.target == Target::Dv && self.data_volumes().get_opt(name).await.map_err(self.failed())?.is_none() {
            bail!("No DataVolume is associated with the existing PVC {namespace}/{name}; upload to `pvc {name}`");
        }
        if let Some(why) = obstacle(claim, &self.plan, self.args.no_create) {
            bail!("{why}");
        }
        if machinery::meta::annotation(&claim.metadata, objects::UPLOAD_TARGET).is_none() {
            let change = Patch::Merge(json!({"metadata": {"annotations": {objects::UPLOAD_TARGET: ""}}}));
            self.claims().patch(name, &PatchParams::default(), &change).await.map_err(self.failed())?;
        }
        println!("Using existing PVC {namespace}/{name}");
        Ok(())
    }

    async fn create(&self) -> anyhow::Result<()> {
        let (namespace, name) = (&self.session.namespace, &self.plan.name);
        let object = match self.plan.target {
            Target::Dv => objects::data_volume(&self.args, &self.plan)?,
            Target::Pvc => objects::claim(&self.args, &self.plan)?,
        };
        if let Some(class) = &self.args.storage_class {
            let classes: Api<StorageClass> = Api::all(self.session.client.clone());
            classes.get(class).await.map_err(self.failed())?;
        }
        let kind = match self.plan.target {
            Target::Dv => {
                let object: DataVolume = serde_json::from_value(object)?;
                self.data_volumes().create(&PostParams::default(), &object).await.map_err(self.failed())?;
                "DataVolume"
            }
            Target::Pvc => {
                let object: PersistentVolumeClaim = serde_json::from_value(object)?;
                self.claims().create(&PostParams::default(), &object).await.map_err(self.failed())?;
                "PersistentVolumeClaim"
            }
        };
        println!("{kind} {namespace}/{name} created");
        Ok(())
    }

    async fn wait_until_ready(&self) -> anyhow::Result<()> {
        let name = &self.plan.name;
        let deadline = Instant::now() + Duration::from_secs(self.args.wait_secs);
        let mut told = false;
        loop {
            let claim = self.claims().get_opt(name).await.map_err(self.failed())?;
            let (ready, dv) = match self.plan.target {
                Target::Pvc => (claim.as_ref().is_some_and(is_ready), None),
                Target::Dv => {
                    let dv = self.data_volumes().get_opt(name).await.map_err(self.failed())?;
                    match dv.as_ref().map(|dv| stand(dv, self.args.force_bind)) {
                        Some(Stand::Ready) => (true, dv),
                        Some(Stand::Stuck(why)) => bail!("{why}"),
                        Some(Stand::NotYet) | None => (false, dv),
                    }
                }
            };
            if ready {
                if told {
                    println!("Pod now ready");
                }
                return Ok(());
            }
            let uids = [claim.and_then(|claim| claim.metadata.uid), dv.and_then(|dv| dv.metadata.uid)];
            self.check_events(&uids).await?;
            if Instant::now() >= deadline {
                bail!(
                    "{name} did not become ready for an upload within {} s; `kubectl describe` it, or wait longer with \
                     --wait-secs",
                    self.args.wait_secs
                );
            }
            if !std::mem::replace(&mut told, true) {
                println!("Waiting for PVC {name} upload pod to be ready...");
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    async fn check_events(&self, uids: &[Option<String>; 2]) -> anyhow::Result<()> {
        let events: Api<Event> = Api::namespaced(self.session.client.clone(), &self.session.namespace);
        // For users who may not read events they are not needed.
        let Ok(events) = events.list(&ListParams::default()).await else { return Ok(()) };
        let uids: Vec<&str> = uids.iter().flatten().map(String::as_str).collect();
        bad_news(&events.items, &uids).map_or(Ok(()), |news| Err(anyhow!("{news}")))
    }

    async fn proxy_url(&self) -> anyhow::Result<String> {
        if let Some(url) = &self.args.uploadproxy_url {
            return Ok(url.clone());
        }
        let path = format!("/apis/cdi.kubevirt.io/v1beta1/cdiconfigs/{CONFIG_NAME}");
        let request = http::Request::get(path).body(Vec::new())?;
        let config: Value = self.session.client.request(request).await.map_err(self.failed())?;
        let found = [config.pointer("/spec/uploadProxyURLOverride"), config.pointer("/status/uploadProxyURL")];
        let url = found.into_iter().flatten().filter_map(Value::as_str).find(|url| !url.is_empty());
        url.map(str::to_owned).ok_or_else(|| {
            anyhow!("uploadproxy URL not found in {} {CONFIG_NAME}; name it with --uploadproxy-url", CDI_CONFIG)
        })
    }

    async fn token(&self) -> anyhow::Result<String> {
        let body = json!({
            "apiVersion": "upload.cdi.kubevirt.io/v1beta1", "kind": "UploadTokenRequest",
            "metadata": {"name": "token-for-virtctl"}, "spec": {"pvcName": self.plan.name},
        });
        let namespace = &self.session.namespace;
        let path = format!("/apis/upload.cdi.kubevirt.io/v1beta1/namespaces/{namespace}/uploadtokenrequests");
        let request = http::Request::post(path).header("content-type", "application/json");
        let request = request.body(body.to_string().into_bytes())?;
        let answer: Value = self.session.client.request(request).await.map_err(self.failed())?;
        let token = answer.pointer("/status/token").and_then(Value::as_str);
        token.map(str::to_owned).context("the server gave no upload token")
    }

    async fn send(&self, proxy: &Proxy, size: u64) -> anyhow::Result<()> {
        let path = proxy.endpoint().await;
        let attempts = self.args.retry.max(1);
        let mut last = anyhow!("nothing was sent");
        for attempt in 1..=attempts {
            let sent = Arc::new(AtomicU64::default());
            let bar = Bar::show(sent.clone(), size);
            let answer = proxy.send(&path, &self.plan.file, sent).await;
            bar.end();
            last = match answer {
                Ok(answer) if answer.code.is_success() => return Ok(()),
                Ok(answer) => anyhow!("unexpected return value {}, {}", answer.code.as_u16(), answer.text),
                Err(error) => error,
            };
            if attempt < attempts {
                tokio::time::sleep(Duration::from_millis(u64::from(attempt) * 200)).await;
            }
        }
        Err(last.context(format!("error uploading image after {attempts} retries")))
    }

    async fn data_source(&self) -> anyhow::Result<()> {
        let (namespace, name) = (&self.session.namespace, &self.plan.name);
        let sources: Api<DataSource> = Api::namespaced(self.session.client.clone(), namespace);
        let labels = objects::labels(&self.args);
        let spec = json!({"source": {"pvc": {"name": name, "namespace": namespace}}});
        if sources.get_opt(name).await.map_err(self.failed())?.is_some() {
            let change = Patch::Merge(json!({"metadata": {"labels": labels}, "spec": spec}));
            sources.patch(name, &PatchParams::default(), &change).await.map_err(self.failed())?;
            println!("Updated an existing DataSource {namespace}/{name}");
            return Ok(());
        }
        let object: DataSource =
            serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}, "spec": spec}))?;
        sources.create(&PostParams::default(), &object).await.map_err(self.failed())?;
        println!("Created a new DataSource {namespace}/{name}");
        Ok(())
    }

    async fn wait_until_processed(&self) -> anyhow::Result<()> {
        let deadline = Instant::now() + PROCESSING;
        loop {
            let claim = self.claims().get(&self.plan.name).await.map_err(self.failed())?;
            if is_filled(&claim) {
                println!("Processing completed successfully");
                return Ok(());
            }
            if Instant::now() >= deadline {
                bail!(
                    "timed out waiting for post upload processing to complete; `kubectl describe dv,pvc {}` tells how far it is",
                    self.plan.name
                );
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }
}

const CDI_CONFIG: &str = <CDIConfig as k8s_openapi::Resource>::KIND;

/// Shows how much was sent, on a terminal.
struct Bar {
    task: Option<tokio::task::JoinHandle<()>>,
    sent: Arc<AtomicU64>,
    size: u64,
}

impl Bar {
    fn show(sent: Arc<AtomicU64>, size: u64) -> Self {
        let task = std::io::stdout().is_terminal().then(|| {
            let (sent, started) = (sent.clone(), Instant::now());
            tokio::spawn(async move {
                loop {
                    print!("\r{}", line(sent.load(Ordering::Relaxed), size, started.elapsed()));
                    let _ = std::io::Write::flush(&mut std::io::stdout());
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
            })
        });
        Self { task, sent, size }
    }

    fn end(self) {
        if let Some(task) = self.task {
            task.abort();
            let sent = self.sent.load(Ordering::Relaxed);
            println!("\r{}", line(sent, self.size, Duration::ZERO));
        }
    }
}

/// `123.00 MiB / 1.00 GiB [=====>      ] 12.01% 98.00 MiB/s`
fn line(sent: u64, size: u64, passed: Duration) -> String {
    const WIDTH: usize = 30;
    let share = if size == 0 { 1.0 } else { (sent as f64 / size as f64).min(1.0) };
    let full = (share * WIDTH as f64) as usize;
    let bar = format!("{}{}", "=".repeat(full), " ".repeat(WIDTH - full));
    let seconds = passed.as_secs_f64();
    let rate = if seconds > 0.2 { format!(" {}/s", amount((sent as f64 / seconds) as u64)) } else { String::new() };
    format!("{} / {} [{bar}] {:.2}%{rate}  ", amount(sent), amount(size), share * 100.0)
}

fn amount(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.2} {}", UNITS[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_says_how_much_of_how_much_and_how_fast() {
        let half = line(512 << 20, 1 << 30, Duration::from_secs(4));
        assert!(
            half.starts_with("512.00 MiB / 1.00 GiB [===============               ] 50.00% 128.00 MiB/s"),
            "{half}"
        );
        assert!(line(0, 0, Duration::ZERO).contains("100.00%"));
        assert!(line(30, 20, Duration::ZERO).contains("30 B / 20 B"));
    }
}
