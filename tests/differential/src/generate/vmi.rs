//! Instances whose parts fit together: what refers to something finds it, and what excludes something stands alone.

use serde_json::{Map, Value, json};

use super::grow::{Grower, VMI, below};
use super::rng::Rng;

/// Parts that refer to one another, or have to agree. They are put together here instead of being grown.
const TOGETHER: &[&str] = &[
    "volumes",
    "utilityVolumes",
    "networks",
    "resourceClaims",
    "domain.devices.disks",
    "domain.devices.filesystems",
    "domain.devices.interfaces",
    "domain.launchSecurity",
    "domain.resources",
    "domain.memory",
    "domain.firmware.acpi",
];

/// The spec of an instance that KubeVirt should accept, at least in a cluster with all gates open.
pub(crate) fn spec(rng: &mut Rng) -> Value {
    let density = *rng.pick(&[2, 6, 15, 35]);
    let schema = &VMI["properties"]["spec"];
    let mut spec = Grower { rng, density, without: TOGETHER }.grow(schema, "");
    networks(&mut spec, rng, density);
    storage(&mut spec, rng, density);
    memory(&mut spec, rng);
    processors(&mut spec, rng);
    firmware(&mut spec, rng);
    devices(&mut spec, rng);
    lifecycle(&mut spec, rng);
    selectors(&mut spec);
    spec
}

/// The field at a dotted path, made if it is not there.
fn at<'v>(value: &'v mut Value, path: &str) -> &'v mut Value {
    path.split('.').fold(value, |value, name| &mut value[name])
}

/// The field at a dotted path, if it is there.
fn find<'v>(value: &'v Value, path: &str) -> Option<&'v Value> {
    path.split('.').try_fold(value, |value, name| value.get(name))
}

fn remove(value: &mut Value, path: &str, name: &str) {
    let object = if path.is_empty() { Some(value) } else { value.pointer_mut(&format!("/{}", path.replace('.', "/"))) };
    if let Some(fields) = object.and_then(Value::as_object_mut) {
        fields.remove(name);
    }
}

fn items<'v>(value: &'v mut Value, path: &str) -> impl Iterator<Item = &'v mut Value> {
    let list = value.pointer_mut(&format!("/{}", path.replace('.', "/"))).and_then(Value::as_array_mut);
    list.into_iter().flatten()
}

fn networks(spec: &mut Value, rng: &mut Rng, density: usize) {
    if find(spec, "domain.devices.autoattachPodInterface") == Some(&json!(false)) && rng.chance(50) {
        return;
    }
    let count = *rng.pick(&[0, 0, 1, 1, 2, 3]);
    let (mut networks, mut interfaces) = (Vec::new(), Vec::new());
    let mut main = false;
    for index in 0..count {
        let mut grower = Grower { rng, density, without: &[] };
        let mut network = grower.grow(below(&VMI, "spec.networks[]"), "networks[]");
        let mut interface = grower.grow(below(&VMI, "spec.domain.devices.interfaces[]"), "domain.devices.interfaces[]");
        let name = format!("net-{index}");
        (network["name"], interface["name"]) = (json!(name), json!(name));
        let pod = network.get("pod").is_some();
        if main {
            // There is one main network at most.
            remove(&mut network, "multus", "default");
            if pod {
                network = json!({ "name": name, "multus": { "networkName": "red" } });
            }
        }
        main |= pod || network["multus"]["default"] == true;
        let on_pod_network = network.get("pod").is_some();
        let pod_only = ["masquerade", "passtBinding"].iter().any(|binding| interface.get(*binding).is_some());
        let only = match (pod_only, on_pod_network) {
            (true, false) => Some("bridge"),
            _ if interface.get("sriov").is_some() && on_pod_network => Some("masquerade"),
            _ => None,
        };
        if let (Some(binding), Some(fields)) = (only, interface.as_object_mut()) {
            fields.retain(|field, _| !["masquerade", "sriov", "passtBinding"].contains(&field.as_str()));
            fields.insert(binding.to_owned(), json!({}));
        }
        if interface.get("sriov").is_some() {
            remove(&mut interface, "", "state");
        }
        distinct(&mut interface, "ports", "name", &["http", "ssh"]);
        distinct(&mut interface, "dhcpOptions.privateOptions", "option", &[]);
        networks.push(network);
        interfaces.push(interface);
    }
    if count > 0 {
        spec["networks"] = Value::Array(networks);
        *at(spec, "domain.devices.interfaces") = Value::Array(interfaces);
    }
}

/// Gives every item of a list a value of its own in one field: from the names, or else numbers.
fn distinct(object: &mut Value, list: &str, field: &str, names: &[&str]) {
    for (index, item) in items(object, list).enumerate() {
        item[field] = names.get(index).map_or_else(|| json!(224 + index), |name| json!(name));
    }
}

fn storage(spec: &mut Value, rng: &mut Rng, density: usize) {
    let count = *rng.pick(&[0, 1, 1, 2, 3, 5]);
    let (mut volumes, mut disks, mut filesystems) = (Vec::new(), Vec::new(), Vec::new());
    let mut seen: Vec<&str> = Vec::new();
    for index in 0..count {
        let mut volume = Grower { rng, density, without: &[] }.grow(below(&VMI, "spec.volumes[]"), "volumes[]");
        // Of some sources a guest can have one only.
        for single in ["memoryDump", "serviceAccount", "downwardMetrics"] {
            if volume.get(single).is_some() {
                if seen.contains(&single) {
                    volume = json!({ "emptyDisk": { "capacity": "1Gi" } });
                } else {
                    seen.push(single);
                }
            }
        }
        let name = format!("vol-{index}");
        volume["name"] = json!(name);
        if volume["hostDisk"]["type"] == "Disk" {
            remove(&mut volume, "hostDisk", "capacity");
        }
        let shared = ["configMap", "secret", "downwardAPI", "serviceAccount", "persistentVolumeClaim", "dataVolume"];
        if volume.get("containerPath").is_some()
            || (shared.iter().any(|source| volume.get(*source).is_some()) && rng.chance(15))
        {
            filesystems.push(json!({ "name": name, "virtiofs": {} }));
        } else if volume.get("downwardMetrics").is_some() || (volume.get("memoryDump").is_none() && rng.chance(85)) {
            disks.push(disk(&volume, &name, rng, density));
        }
        volumes.push(volume);
    }
    let mut put = |path: &str, list: Vec<Value>| {
        if !list.is_empty() {
            *at(spec, path) = Value::Array(list);
        }
    };
    put("volumes", volumes);
    put("domain.devices.disks", disks);
    put("domain.devices.filesystems", filesystems);
    boot_orders(spec);
}

fn disk(volume: &Value, name: &str, rng: &mut Rng, density: usize) -> Value {
    let schema = below(&VMI, "spec.domain.devices.disks[]");
    let mut disk = Grower { rng, density, without: &[] }.grow(schema, "domain.devices.disks[]");
    disk["name"] = json!(name);
    if disk.get("lun").is_some() && volume.get("persistentVolumeClaim").or(volume.get("dataVolume")).is_none() {
        remove(&mut disk, "", "lun");
        disk["disk"] = json!({});
    }
    if volume.get("downwardMetrics").is_some() {
        remove(&mut disk, "", "cdrom");
        disk["disk"] = json!({ "bus": "virtio" });
    }
    // A disk without a bus gets one that cannot be read-only.
    if disk["disk"].get("bus").is_none_or(|bus| bus == "sata") {
        remove(&mut disk, "disk", "readonly");
    }
    if disk["disk"]["bus"] != "virtio" {
        remove(&mut disk, "disk", "pciAddress");
        remove(&mut disk, "", "dedicatedIOThread");
    }
    let any_size = disk["disk"]["bus"] == "virtio";
    if let Some(custom) = disk.pointer_mut("/blockSize/custom") {
        let size = if any_size { *rng.pick(&[512, 4096]) } else { 512 };
        let granularity = custom.get("discardGranularity").is_some();
        *custom = json!({ "logical": size, "physical": size.max(*rng.pick(&[512, 4096])) });
        if granularity {
            custom["discardGranularity"] = json!(size * 2);
        }
    }
    disk
}

/// No two devices start at the same place.
fn boot_orders(spec: &mut Value) {
    let mut next = 1;
    for list in ["domain.devices.disks", "domain.devices.interfaces"] {
        for device in items(spec, list) {
            if let Some(order) = device.get_mut("bootOrder") {
                *order = json!(next);
                next += 1;
            }
        }
    }
}

fn memory(spec: &mut Value, rng: &mut Rng) {
    let (mut requests, mut limits, mut memory) = (Map::new(), Map::new(), Map::new());
    let size = *rng.pick(&["512Mi", "1Gi", "2048Mi", "4Gi"]);
    let how = rng.below(4);
    if how != 0 {
        memory.insert("guest".to_owned(), json!(size));
    }
    if how != 1 {
        requests.insert("memory".to_owned(), json!(size));
    }
    if rng.chance(20) {
        limits.insert("memory".to_owned(), json!(*rng.pick(&["4Gi", "8Gi", "4294967296"])));
    }
    if rng.chance(10) {
        memory.insert("hugepages".to_owned(), json!({ "pageSize": "2Mi" }));
    }
    if rng.chance(15) && size != "512Mi" {
        memory.insert("maxGuest".to_owned(), json!(*rng.pick(&["4Gi", "8Gi", "16384Mi"])));
    }
    if rng.chance(3) {
        memory.insert("reservedOverhead".to_owned(), json!({ "addedOverhead": "64Mi", "memLock": "Required" }));
    }
    match rng.below(6) {
        0 => _ = requests.insert("cpu".to_owned(), json!("1")),
        1 => _ = limits.insert("cpu".to_owned(), json!(2)),
        2 => {
            requests.insert("cpu".to_owned(), json!("500m"));
            limits.insert("cpu".to_owned(), json!("1500m"));
        }
        _ => {}
    }
    let mut resources = Map::new();
    for (name, list) in [("requests", requests), ("limits", limits)] {
        if !list.is_empty() {
            resources.insert(name.to_owned(), Value::Object(list));
        }
    }
    if rng.chance(10) {
        resources.insert("overcommitGuestOverhead".to_owned(), json!(rng.chance(50)));
    }
    if !resources.is_empty() {
        *at(spec, "domain.resources") = Value::Object(resources);
    }
    if !memory.is_empty() {
        *at(spec, "domain.memory") = Value::Object(memory);
    }
}

fn processors(spec: &mut Value, rng: &mut Rng) {
    if find(spec, "domain.cpu.dedicatedCpuPlacement") != Some(&json!(true)) {
        for name in ["isolateEmulatorThread", "numa", "realtime"] {
            remove(spec, "domain.cpu", name);
        }
        return;
    }
    for list in ["requests", "limits"] {
        remove(spec, &format!("domain.resources.{list}"), "cpu");
    }
    let memory = find(spec, "domain.resources.requests.memory").cloned();
    if let (Some(memory), Some(_)) = (memory, find(spec, "domain.resources.limits.memory")) {
        *at(spec, "domain.resources.limits.memory") = memory;
    }
    *at(spec, "domain.cpu.cores") = json!(*rng.pick(&[1, 2, 4]));
    if find(spec, "domain.cpu.realtime").is_some() {
        *at(spec, "domain.cpu.numa") = json!({ "guestMappingPassthrough": {} });
    }
    if find(spec, "domain.cpu.numa.guestMappingPassthrough").is_some() {
        remove(spec, "domain.memory", "maxGuest");
        *at(spec, "domain.memory.hugepages") = json!({ "pageSize": "2Mi" });
    }
}

fn firmware(spec: &mut Value, rng: &mut Rng) {
    if let Some(efi) = find(spec, "domain.firmware.bootloader.efi")
        && efi.get("secureBoot") != Some(&json!(false))
    {
        *at(spec, "domain.features.smm") = if rng.chance(50) { json!({}) } else { json!({ "enabled": true }) };
    }
    if let Some(boot) = spec.pointer_mut("/domain/firmware/kernelBoot") {
        let container = boot.get("container").is_some();
        match container {
            true => boot["container"]["kernelPath"] = json!("/boot/vmlinuz"),
            false => remove(boot, "", "kernelArgs"),
        }
    }
    let secret = items(spec, "volumes").find(|volume| volume.get("secret").is_some());
    if let Some(name) = secret.map(|volume| volume["name"].clone())
        && rng.chance(20)
    {
        let field = *rng.pick(&["slicNameRef", "msdmNameRef"]);
        *at(spec, "domain.firmware.acpi") = json!({ field: name });
    }
    if find(spec, "domain.ioThreadsPolicy") == Some(&json!("supplementalPool")) {
        *at(spec, "domain.ioThreads") = json!({ "supplementalPoolThreadCount": 2 });
    }
    if rng.chance(2) {
        let kind = *rng.pick(&["sev", "snp", "tdx"]);
        *at(spec, "domain.launchSecurity") = json!({ kind: {} });
        *at(spec, "domain.firmware.bootloader") = json!({ "efi": { "secureBoot": false } });
        remove(spec, "domain.features", "smm");
        remove(spec, "domain.memory", "maxGuest");
    }
}

fn devices(spec: &mut Value, rng: &mut Rng) {
    if find(spec, "domain.devices.autoattachGraphicsDevice") == Some(&json!(false)) {
        remove(spec, "domain.devices", "video");
    }
    for (index, gpu) in items(spec, "domain.devices.gpus").enumerate() {
        if index > 0 {
            gpu["virtualGPUOptions"] = json!({ "display": { "enabled": false } });
        }
    }
    if rng.chance(4) {
        // A device that is claimed, not named.
        let (list, name) = *rng.pick(&[("gpus", "gpu-1"), ("hostDevices", "device-1")]);
        *at(spec, &format!("domain.devices.{list}")) =
            json!([{ "name": name, "claimName": "claim", "requestName": "request" }]);
        spec["resourceClaims"] = json!([{ "name": "claim", "resourceClaimTemplateName": "claim-template" }]);
    }
}

fn lifecycle(spec: &mut Value, rng: &mut Rng) {
    if spec.get("startStrategy").is_some() {
        remove(spec, "", "livenessProbe");
    }
    let pod_network = match spec.get("networks") {
        Some(_) => items(spec, "networks").any(|network| network.get("pod").is_some()),
        None => find(spec, "domain.devices.autoattachPodInterface") != Some(&json!(false)),
    };
    for probe in ["livenessProbe", "readinessProbe"] {
        let dials = ["httpGet", "tcpSocket"].iter().any(|handler| spec[probe].get(*handler).is_some());
        if dials && !pod_network {
            spec[probe] = json!({ "exec": { "command": ["true"] } });
        } else if spec[probe].is_null() {
            remove(spec, "", probe);
        }
    }
    if spec.get("dnsPolicy") == Some(&json!("None")) {
        *at(spec, "dnsConfig.nameservers") = json!(["192.0.2.1"]);
    }
    let sources: Vec<&str> = ["cloudInitNoCloud", "cloudInitConfigDrive"]
        .into_iter()
        .filter(|source| items(spec, "volumes").any(|volume| volume.get(*source).is_some()))
        .collect();
    for credential in items(spec, "accessCredentials") {
        let Some(method) = credential.pointer_mut("/sshPublicKey/propagationMethod") else { continue };
        let served = method.get("noCloud").is_none() || sources.contains(&"cloudInitNoCloud");
        if !served || (method.get("configDrive").is_some() && !sources.contains(&"cloudInitConfigDrive")) {
            *method = json!({ "qemuGuestAgent": { "users": [*rng.pick(&["root", "admin"])] } });
        }
    }
    for (index, constraint) in items(spec, "topologySpreadConstraints").enumerate() {
        constraint["topologyKey"] = json!(format!("example.org/level-{index}"));
        constraint["whenUnsatisfiable"] = json!("DoNotSchedule");
    }
}

/// Operators that compare have something to compare with, the others do not.
fn selectors(value: &mut Value) {
    if let Some(fields) = value.as_object_mut()
        && fields.contains_key("key")
        && let Some(operator) = fields.get("operator").and_then(Value::as_str).map(str::to_owned)
    {
        match operator.as_str() {
            "In" | "NotIn" if fields["key"] == "metadata.name" => {
                _ = fields.insert("values".to_owned(), json!(["node-1"]))
            }
            "In" | "NotIn" if !fields.contains_key("values") => {
                _ = fields.insert("values".to_owned(), json!(["a", "b"]))
            }
            "Exists" | "DoesNotExist" => {
                fields.remove("values");
                fields.remove("value");
            }
            _ => {}
        }
    }
    match value {
        Value::Object(fields) => fields.values_mut().for_each(selectors),
        Value::Array(items) => items.iter_mut().for_each(selectors),
        _ => {}
    }
}
