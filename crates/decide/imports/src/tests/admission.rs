use api::cdi::DataVolume;
use serde_json::{Value, json};

use super::of;
use crate::admit::{create, update};

fn dv(spec: Value) -> DataVolume {
    of(json!({"metadata": {"namespace": "ns", "name": "disk"}, "spec": spec}))
}

/// The spec with some members changed; null removes one.
fn changed(change: Value) -> DataVolume {
    let mut spec = json!({"source": {"blank": {}}, "storage": {"resources": {"requests": {"storage": "1Gi"}}}});
    for (key, value) in change.as_object().unwrap() {
        if value.is_null() {
            spec.as_object_mut().unwrap().remove(key);
        } else {
            spec[key] = value.clone();
        }
    }
    dv(spec)
}

#[test]
fn bad_data_volumes_are_refused_in_upstreams_words() {
    let gib = json!({"requests": {"storage": "1Gi"}});
    let size = |size: &str| json!({"storage": {"resources": {"requests": {"storage": size}}}});
    let http = |url: &str| json!({"source": {"http": {"url": url}}});
    let sum = |sum: &str| json!({"source": {"http": {"url": "http://x/y", "checksum": sum}}});
    let registry = |registry: Value| json!({"source": {"registry": registry}});
    for (change, message) in [
        (json!({"storage": null}), "Missing Data volume PVC"),
        (json!({"pvc": {"accessModes": ["ReadWriteOnce"], "resources": gib}}), "Duplicate storage definition"),
        (json!({"storage": {}}), "Storage size is missing"),
        (size("0"), "can't be equal or less than zero"),
        (size("10Ki"), "at least 1MiB"),
        (size("many"), "not a quantity"),
        (json!({"storage": null, "pvc": {"resources": gib}}), "at least 1 access mode is required"),
        (
            json!({"storage": null, "pvc": {"resources": gib, "accessModes": ["ReadWriteOnce", "ReadWriteMany"]}}),
            "PVC multiple accessModes",
        ),
        (json!({"storage": {"resources": gib, "accessModes": ["Sometimes"]}}), "Unsupported value: \"Sometimes\""),
        (json!({"source": null}), "either Source or SourceRef"),
        (json!({"sourceRef": {"kind": "DataSource", "name": "x"}}), "either Source or SourceRef"),
        (json!({"source": null, "sourceRef": {"kind": "", "name": "x"}}), "Missing sourceRef kind"),
        (json!({"source": null, "sourceRef": {"kind": "Pod", "name": "x"}}), "Unsupported sourceRef kind Pod"),
        (json!({"source": null, "sourceRef": {"kind": "DataSource", "name": ""}}), "Missing sourceRef name"),
        (json!({"source": {}}), "Missing Data volume source"),
        (json!({"source": {"blank": {}, "upload": {}}}), "Multiple Data volume sources"),
        (json!({"contentType": "tape"}), "ContentType not one of: kubevirt, archive"),
        (json!({"contentType": "archive"}), "SourceType cannot be blank and the contentType be archive"),
        (http(""), "source URL is empty"),
        (http("ftp://x"), "Invalid source URL scheme"),
        (http("http:///x"), "no host"),
        (sum("crc32:00000000"), "unsupported checksum algorithm"),
        (sum("sha256"), "invalid checksum"),
        (sum("md5:zz"), "md5 has 32 hexadecimal digits"),
        (registry(json!({})), "either URL or ImageStream"),
        (registry(json!({"url": "http://x"})), "Illegal registry source URL scheme"),
        (registry(json!({"url": "docker://x", "pullMethod": "train"})), "neither pod, node"),
        (
            json!({"contentType": "archive", "source": {"registry": {"url": "docker://x"}}}),
            "ContentType must be kubevirt",
        ),
        (json!({"source": {"pvc": {"namespace": "", "name": "x"}}}), "source PVC is not valid"),
        (json!({"source": {"snapshot": {"namespace": "ns", "name": ""}}}), "source snapshot is not valid"),
        (
            json!({"storage": {"resources": gib, "dataSource": {"kind": "PersistentVolumeClaim", "name": "x"}}}),
            "External population is incompatible",
        ),
    ] {
        let refusal = create(&changed(change.clone()), None).unwrap_or_else(|| panic!("{change} is taken"));
        assert!(refusal.message.contains(message), "{change}: {}", refusal.message);
    }
}

#[test]
fn good_data_volumes_are_taken() {
    for change in [
        json!({}),
        json!({"source": {"http": {"url": "https://x/y.qcow2", "checksum": format!("sha256:{}", "0".repeat(64))}}}),
        json!({"source": {"registry": {"url": "docker://quay.io/x/y:1", "pullMethod": "node"}}}),
        json!({"source": {"s3": {"url": "s3://b/o"}}}),
        json!({"source": {"pvc": {"namespace": "a", "name": "b"}}, "storage": {}}),
        json!({"source": null, "sourceRef": {"kind": "DataSource", "name": "x"}, "storage": {}}),
        json!({"source": null, "storage": {"resources": {"requests": {"storage": "1Gi"}}, "dataSource": {"kind": "PersistentVolumeClaim", "name": "x"}}}),
    ] {
        assert_eq!(create(&changed(change.clone()), None), None, "{change}");
    }
}

#[test]
fn a_taken_name_and_a_change_are_refused() {
    let claim = |metadata: Value| of(json!({ "metadata": metadata }));
    let new = changed(json!({}));
    let taken = create(&new, Some(&claim(json!({"namespace": "ns", "name": "disk"})))).unwrap();
    assert_eq!((taken.message.as_str(), taken.duplicate), ("Destination PVC ns/disk already exists", true));
    let populated = json!({"name": "disk", "annotations": {"cdi.kubevirt.io/storage.populatedFor": "disk"}});
    let owned = json!({"name": "disk", "ownerReferences": [{"apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume",
        "name": "disk", "uid": "old", "controller": true}]});
    for metadata in [populated, owned] {
        assert_eq!(create(&new, Some(&claim(metadata))), None);
    }
    let mut adopts = new.clone();
    adopts.metadata.annotations = Some([("cdi.kubevirt.io/allowClaimAdoption".to_owned(), "true".to_owned())].into());
    assert_eq!(create(&adopts, Some(&claim(json!({"name": "disk"})))), None);
    assert_eq!(update(&adopts, &new), None, "metadata may change");
    let other = changed(json!({"source": {"upload": {}}}));
    assert_eq!(update(&other, &new).unwrap().message, "Cannot update DataVolume Spec");
}
