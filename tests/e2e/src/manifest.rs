//! Manifests of test guests, put together from what a test cares about.

use serde_json::{Value, json};

/// A VM of the test guest's kernel, to be varied with the methods below.
#[derive(Clone, Debug)]
pub struct Manifest(Value);

impl Manifest {
    /// Boots the test guest directly, with a counter on its console and at `/cgi-bin/tick`.
    pub fn vm(name: &str, run_strategy: &str) -> Self {
        Self(json!({
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachine",
            "metadata": {"name": name},
            "spec": {"runStrategy": run_strategy, "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {
                    "terminationGracePeriodSeconds": 30,
                    "domain": {
                        "memory": {"guest": "192Mi"},
                        "firmware": {"kernelBoot": {
                            // On a busy machine too few of an emulated timer's ticks arrive, and the kernel may panic.
                            "kernelArgs": "console=ttyS0 quiet no_timer_check tick=1",
                            "container": {
                                "image": "ferrovirt.io/guest-kernel:latest",
                                "imagePullPolicy": "IfNotPresent",
                                "kernelPath": "/boot/vmlinuz",
                                "initrdPath": "/boot/initrd.gz",
                            },
                        }},
                        "devices": {"interfaces": [{"name": "default", "masquerade": {}}]},
                    },
                    "networks": [{"name": "default", "pod": {}}],
                },
            }},
        }))
    }

    /// Boots from its first disk, which is added with the methods below.
    pub fn boots_from_disk(name: &str, run_strategy: &str) -> Self {
        let mut manifest = Self::vm(name, run_strategy);
        manifest.template()["domain"]["firmware"] = json!({});
        manifest
    }

    /// More words on the guest kernel's command line.
    pub fn kernel_args(mut self, more: &str) -> Self {
        let args = &mut self.template()["domain"]["firmware"]["kernelBoot"]["kernelArgs"];
        *args = json!(format!("{} {more}", args.as_str().unwrap_or_default()));
        self
    }

    /// Memory of the guest.
    pub fn memory(mut self, amount: &str) -> Self {
        self.template()["domain"]["memory"]["guest"] = json!(amount);
        self
    }

    /// Without any network card.
    pub fn no_network(mut self) -> Self {
        let spec = self.template();
        spec["networks"] = json!([]);
        spec["domain"]["devices"]["interfaces"] = json!([]);
        spec["domain"]["devices"]["autoattachPodInterface"] = json!(false);
        self
    }

    /// One more network card, bridged to the network of this NetworkAttachmentDefinition.
    pub fn bridged(mut self, name: &str, definition: &str) -> Self {
        let spec = self.template();
        push(&mut spec["networks"], json!({"name": name, "multus": {"networkName": definition}}));
        push(&mut spec["domain"]["devices"]["interfaces"], json!({"name": name, "bridge": {}}));
        self
    }

    pub fn on_node(mut self, node: &str) -> Self {
        self.template()["nodeSelector"] = json!({"kubernetes.io/hostname": node});
        self
    }

    pub fn grace_period(mut self, seconds: i64) -> Self {
        self.template()["terminationGracePeriodSeconds"] = json!(seconds);
        self
    }

    /// A NoCloud disk with this user data.
    pub fn user_data(self, text: &str) -> Self {
        self.disk("cloudinit", json!({"cloudInitNoCloud": {"userData": text}}))
    }

    /// A disk that is empty when the guest starts.
    pub fn empty_disk(self, capacity: &str) -> Self {
        self.disk("scratch", json!({"emptyDisk": {"capacity": capacity}}))
    }

    /// The test guest's disk image, as a disk beside the kernel.
    pub fn container_disk(self) -> Self {
        let image = json!({"image": "ferrovirt.io/guest-disk:latest", "imagePullPolicy": "IfNotPresent"});
        self.disk("image", json!({"containerDisk": image}))
    }

    /// A disk on a claim.
    pub fn claim(self, name: &str, claim: &str) -> Self {
        self.disk(name, json!({"persistentVolumeClaim": {"claimName": claim}}))
    }

    /// A disk on the claim of a DataVolume.
    pub fn data_volume(self, name: &str, volume: &str) -> Self {
        self.disk(name, json!({"dataVolume": {"name": volume}}))
    }

    /// A virtio disk on any volume.
    pub fn disk(mut self, name: &str, source: Value) -> Self {
        let mut volume = source;
        volume["name"] = json!(name);
        let spec = self.template();
        push(&mut spec["domain"]["devices"]["disks"], json!({"name": name, "disk": {"bus": "virtio"}}));
        push(&mut spec["volumes"], volume);
        self
    }

    /// What happens to the guest when its node is drained.
    pub fn eviction_strategy(mut self, strategy: &str) -> Self {
        self.template()["evictionStrategy"] = json!(strategy);
        self
    }

    /// The image that the kernel comes from.
    pub fn kernel_image(mut self, reference: &str) -> Self {
        self.template()["domain"]["firmware"]["kernelBoot"]["container"]["image"] = json!(reference);
        self
    }

    /// As many virtual CPUs.
    pub fn sockets(mut self, count: u32) -> Self {
        self.template()["domain"]["cpu"] = json!({"sockets": count});
        self
    }

    /// An annotation of the instance.
    pub fn template_annotation(mut self, key: &str, value: &str) -> Self {
        self.0["spec"]["template"]["metadata"]["annotations"][key] = json!(value);
        self
    }

    /// A label of the instance.
    pub fn template_label(mut self, key: &str, value: &str) -> Self {
        self.0["spec"]["template"]["metadata"]["labels"][key] = json!(value);
        self
    }

    /// A device that tells the host of a kernel panic.
    pub fn panic_device(mut self) -> Self {
        self.template()["domain"]["devices"]["panicDevices"] = json!([{"model": "isa"}]);
        self
    }

    /// The same guest as a bare instance, without a VM.
    pub fn instance(self) -> Self {
        let template = &self.0["spec"]["template"];
        Self(json!({
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachineInstance",
            "metadata": {"name": self.0["metadata"]["name"], "labels": template["metadata"]["labels"]},
            "spec": template["spec"],
        }))
    }

    pub fn json(&self) -> &Value {
        &self.0
    }

    fn template(&mut self) -> &mut Value {
        &mut self.0["spec"]["template"]["spec"]
    }
}

fn push(list: &mut Value, item: Value) {
    match list.as_array_mut() {
        Some(items) => items.push(item),
        None => *list = json!([item]),
    }
}
