//! What the caches cost per instance. A binary of its own, since its allocator counts what all tests in it use.

#![allow(clippy::unwrap_used, reason = "the helpers of a test may panic like the test itself")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use api::config::ClusterConfig;
use api::v1::VirtualMachineInstance;
use kube::runtime::watcher::Event;
use serde_json::json;
use virt_controller::Stores;
use virt_controller::stores::{BY_CONTROLLER, BY_NODE};

/// Bytes that are in use.
struct Counting;

static USED: AtomicUsize = AtomicUsize::new(0);

// SAFETY: memory comes from and goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        USED.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        USED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// An instance as it is when it runs.
fn vmi(number: usize) -> VirtualMachineInstance {
    let object = json!({
        "metadata": {
            "name": format!("machine-{number:05}"), "namespace": "default", "resourceVersion": number.to_string(),
            "uid": format!("00000000-0000-4000-8000-{number:012}"), "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"kubevirt.io/nodeName": "n1", "app": "web"}, "finalizers": ["foregroundDeleteVirtualMachine"],
            "annotations": {"kubevirt.io/latest-observed-api-version": "v1", "kubevirt.io/storage-observed-api-version": "v1"},
        },
        "spec": {
            "architecture": "amd64",
            "domain": {
                "cpu": {"cores": 1, "sockets": 1, "threads": 1, "maxSockets": 4, "model": "host-model"},
                "devices": {
                    "disks": [{"name": "root", "disk": {"bus": "virtio"}}, {"name": "init", "disk": {"bus": "virtio"}}],
                    "interfaces": [{"name": "default", "masquerade": {}}],
                },
                "features": {"acpi": {"enabled": true}},
                "firmware": {"uuid": "5d307ca9-b3ef-428c-8861-06e72d69f223"},
                "machine": {"type": "q35"},
                "memory": {"guest": "1Gi", "maxGuest": "4Gi"},
                "resources": {"requests": {"memory": "1Gi"}},
            },
            "networks": [{"name": "default", "pod": {}}],
            "terminationGracePeriodSeconds": 180,
            "volumes": [
                {"name": "root", "containerDisk": {"image": "registry.example/disks/fedora:41", "imagePullPolicy": "Always"}},
                {"name": "init", "cloudInitNoCloud": {"userData": "#cloud-config\npassword: fedora\nchpasswd: { expire: False }\n"}},
            ],
        },
        "status": {
            "phase": "Running", "nodeName": "n1", "qosClass": "Burstable", "runtimeUser": 107,
            "activePods": {(format!("10000000-0000-4000-8000-{number:012}")): "n1"},
            "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
                {"type": "LiveMigratable", "status": "True"}, {"type": "StorageLiveMigratable", "status": "True"},
            ],
            "interfaces": [{"name": "default", "mac": "52:54:00:00:00:01", "ipAddress": "10.244.0.7", "ipAddresses": ["10.244.0.7"],
                            "infoSource": "domain", "queueCount": 1, "podInterfaceName": "eth0"}],
            "phaseTransitionTimestamps": (["Pending", "Scheduling", "Scheduled", "Running"].map(|phase| {
                json!({"phase": phase, "phaseTransitionTimestamp": "2026-01-01T00:00:00Z"})
            })),
            "volumeStatus": [{"name": "init", "target": "vdb", "size": 1048576}, {"name": "root", "target": "vda"}],
        },
    });
    serde_json::from_value(object).unwrap()
}

#[test]
fn an_instance_with_its_pod_costs_few_kilobytes() {
    const COUNT: usize = 1000;
    let (stores, mut feeds) = Stores::detached();
    // Caches do nothing for nobody.
    stores.vmis.subscribe(|_| {});
    stores.pods.subscribe(|_| {});
    let before = USED.load(Ordering::Relaxed);
    for number in 0..COUNT {
        let vmi = vmi(number);
        let mut pod = render::launcher_pod(&vmi, &ClusterConfig::default(), &render::Context::default()).unwrap();
        pod.metadata.uid = Some(format!("10000000-0000-4000-8000-{number:012}"));
        pod.metadata.resource_version = Some(number.to_string());
        pod.spec.as_mut().unwrap().node_name = Some("n1".into());
        feeds.vmis.apply(Event::Apply(vmi));
        feeds.pods.apply(Event::Apply(pod));
    }
    let each = (USED.load(Ordering::Relaxed) - before) / COUNT;
    let packed = (stores.vmis.packed_bytes() / COUNT, stores.pods.packed_bytes() / COUNT);
    println!("{each} bytes per instance, {} and {} of them the texts of instance and Pod", packed.0, packed.1);
    assert!(each < 8 * 1024, "{each} bytes per instance");

    assert_eq!(stores.vmis.by_index(BY_NODE, "n1").len(), COUNT);
    let uid = "00000000-0000-4000-8000-000000000007";
    assert_eq!(stores.pods.by_index(BY_CONTROLLER, uid).len(), 1);
}
