//! A VM as a test sees it.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use api::v1::{VirtualMachine, VirtualMachineInstance};
use kube::api::{Api, DeleteParams, PostParams};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Access, Console, poll};

/// Boot timeout, under emulation on a loaded machine.
pub const BOOT_LIMIT: Duration = Duration::from_secs(180);
/// Timeout for actions of the control plane.
pub const LIMIT: Duration = Duration::from_secs(90);

/// The last line of the test guest's boot.
pub const UP_LINE: &str = "GUEST-UP";
/// The first line of the test guest's user space.
pub const FIRST_LINE: &str = "GUEST-INIT";

/// A VM (or a bare VMI) in the `default` namespace, with its console attached.
pub struct Guest {
    pub name: String,
    pub console: Console,
    vms: Api<VirtualMachine>,
    vmis: Api<VirtualMachineInstance>,
    logged_in: bool,
    commands: usize,
}

impl Guest {
    /// Creates the object in this manifest and attaches to its console.
    pub async fn spawn(cluster: &Access, manifest: &Value) -> Result<Self> {
        let client = cluster.client().await?;
        let name = manifest["metadata"]["name"].as_str().context("the manifest has no name")?.to_owned();
        match manifest["kind"].as_str() {
            Some("VirtualMachine") => create::<VirtualMachine>(&client, manifest).await?,
            Some("VirtualMachineInstance") => create::<VirtualMachineInstance>(&client, manifest).await?,
            other => bail!("a guest is a VirtualMachine or a VirtualMachineInstance, not {other:?}"),
        }
        Self::attach(cluster, &name).await
    }

    /// Attaches to an existing one.
    pub async fn attach(cluster: &Access, name: &str) -> Result<Self> {
        let client = cluster.client().await?;
        Ok(Self {
            name: name.to_owned(),
            console: Console::attach(cluster, "default", name, None)?,
            vms: Api::default_namespaced(client.clone()),
            vmis: Api::default_namespaced(client),
            logged_in: false,
            commands: 0,
        })
    }

    /// Attaches a new console, after the guest was migrated, or it or the cluster was restarted.
    pub fn reattach(&mut self, cluster: &Access) -> Result<()> {
        self.console = Console::attach(cluster, "default", &self.name, None)?;
        self.logged_in = false;
        Ok(())
    }

    /// Waits until the guest has booted.
    pub async fn wait_to_boot(&self) -> Result<()> {
        self.console.wait_for(UP_LINE, 0, BOOT_LIMIT).await.map(|_| ())
    }

    /// Runs a command in a shell on the guest's console and returns what it printed.
    pub async fn run_shell_command(&mut self, command: &str) -> Result<String> {
        if !self.logged_in {
            self.log_in().await?;
        }
        self.commands += 1;
        let (begin, end) = (format!("BEGIN-{}", self.commands), format!("END-{}", self.commands));
        let from = self.console.position();
        // The quotes keep the markers out of the terminal's echo of the command.
        let line = format!("echo BEG''IN-{n}; {command}; echo EN''D-{n}\n", n = self.commands);
        self.console.send(&line)?;
        let after_begin = self.console.wait_for(&format!("{begin}\n"), from, LIMIT).await?;
        let after_end = self.console.wait_for(&end, after_begin, LIMIT).await?;
        let text = self.console.text();
        let output = &text[after_begin..after_end - end.len()];
        // The guest's own counter writes to the same console.
        Ok(output.lines().filter(|line| !line.starts_with("tick ")).collect::<Vec<_>>().join("\n"))
    }

    async fn log_in(&mut self) -> Result<()> {
        let from = self.console.position();
        self.console.send("\n")?;
        // A migrated guest still has the shell of the previous console.
        let (prompt, from) = self.console.wait_for_any(&["login: ", "# "], from, LIMIT).await?;
        if prompt == "login: " {
            self.console.send("root\n")?;
            let from = self.console.wait_for("Password: ", from, LIMIT).await?;
            self.console.send("root\n")?;
            self.console.wait_for("# ", from, LIMIT).await?;
        }
        self.logged_in = true;
        Ok(())
    }

    pub async fn vm(&self) -> Result<Option<VirtualMachine>> {
        self.vms.get_opt(&self.name).await.with_context(|| format!("cannot read VM {}", self.name))
    }

    pub async fn instance(&self) -> Result<Option<VirtualMachineInstance>> {
        self.vmis.get_opt(&self.name).await.with_context(|| format!("cannot read instance {}", self.name))
    }

    /// Waits until the VMI satisfies `wanted`; the closure's `Err` says what is missing.
    pub async fn wait_for_instance<T>(
        &self,
        what: &str,
        limit: Duration,
        wanted: impl Fn(Option<&VirtualMachineInstance>) -> Result<T, String>,
    ) -> Result<T> {
        poll(&format!("{}: {what}", self.name), limit, || async {
            let instance = self.vmis.get_opt(&self.name).await.map_err(|err| err.to_string())?;
            wanted(instance.as_ref())
        })
        .await
    }

    pub async fn wait_for_phase(&self, phase: &str, limit: Duration) -> Result<()> {
        self.wait_for_instance(&format!("phase {phase}"), limit, |instance| match phase_of(instance) {
            seen if seen == phase => Ok(()),
            seen => Err(format!("its phase is {seen}")),
        })
        .await
    }

    /// Waits for the VM's printable status.
    pub async fn wait_for_status(&self, wanted: &str, limit: Duration) -> Result<()> {
        poll(&format!("{}: status {wanted}", self.name), limit, || async {
            let vm = self.vms.get(&self.name).await.map_err(|err| err.to_string())?;
            let seen = vm.status.and_then(|s| s.printable_status).map(|s| s.to_string()).unwrap_or_default();
            if seen == wanted { Ok(()) } else { Err(format!("its status is {seen}")) }
        })
        .await
    }

    /// The guest's address on the Pod network.
    pub async fn address(&self) -> Result<String> {
        self.wait_for_instance("an address", LIMIT, |instance| {
            let status = instance.and_then(|instance| instance.status.as_ref());
            let address =
                status.and_then(|status| status.interfaces.first()).and_then(|first| first.ip_address.clone());
            address.ok_or_else(|| "its status shows none".to_owned())
        })
        .await
    }

    pub async fn node(&self) -> Result<String> {
        self.wait_for_instance("a node", LIMIT, |instance| {
            let status = instance.and_then(|instance| instance.status.as_ref());
            status.and_then(|status| status.node_name.clone()).ok_or_else(|| "its status shows none".to_owned())
        })
        .await
    }

    /// Deletes the VM, or the bare VMI, and waits until both are gone.
    pub async fn delete(&self) -> Result<()> {
        if self.vm().await?.is_some() {
            self.vms.delete(&self.name, &DeleteParams::default()).await.context("cannot delete the VM")?;
        } else if self.instance().await?.is_some() {
            self.vmis.delete(&self.name, &DeleteParams::default()).await.context("cannot delete the instance")?;
        }
        poll(&format!("{}: the end of its objects", self.name), LIMIT, || async {
            let vm = self.vms.get_opt(&self.name).await.map_err(|err| err.to_string())?;
            let instance = self.vmis.get_opt(&self.name).await.map_err(|err| err.to_string())?;
            match (vm, instance) {
                (None, None) => Ok(()),
                (vm, instance) => {
                    Err(format!("VM there: {}, instance phase: {}", vm.is_some(), phase_of(instance.as_ref())))
                }
            }
        })
        .await
    }
}

fn phase_of(instance: Option<&VirtualMachineInstance>) -> String {
    match instance {
        None => "(no instance)".to_owned(),
        Some(instance) => {
            instance.status.as_ref().and_then(|s| s.phase.clone()).map(|p| p.to_string()).unwrap_or_default()
        }
    }
}

async fn create<K>(client: &kube::Client, manifest: &Value) -> Result<()>
where
    K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned
        + serde::Serialize,
    K::DynamicType: Default,
{
    let object: K = serde_json::from_value(manifest.clone()).context("the manifest does not fit its kind")?;
    let api: Api<K> = Api::default_namespaced(client.clone());
    api.create(&PostParams::default(), &object).await.context("cannot create the object")?;
    Ok(())
}
