//! Field numbers and types, byte for byte as CSI and the kubelet have them. A wrong number is not an error on the wire: the
//! other end would find an empty field. What csi-sanity looks at is tested by it; this is the rest.

use prost::Message as _;
use volumes::csi::registry::{PluginInfo, RegistrationStatus};
use volumes::csi::v1::{
    CapacityRange, ControllerExpandVolumeResponse, ControllerGetVolumeResponse, CreateVolumeRequest,
    GetCapacityResponse, Int64Value, NodeExpandVolumeRequest, NodeGetInfoResponse, NodePublishVolumeRequest, Snapshot,
    Timestamp, Topology, TopologyRequirement, Volume, VolumeUsage, controller_get_volume_response::VolumeStatus,
};

/// A field of length-delimited type.
fn text(number: u8, value: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, u8::try_from(value.len()).unwrap()], value].concat()
}

fn number(field: u8, value: u8) -> Vec<u8> {
    vec![field << 3, value]
}

fn entry(key: &str, value: &str) -> Vec<u8> {
    [text(1, key.as_bytes()), text(2, value.as_bytes())].concat()
}

#[test]
fn registration_is_as_the_kubelet_reads_and_writes_it() {
    let info = PluginInfo {
        r#type: "t".into(),
        name: "n".into(),
        endpoint: "e".into(),
        supported_versions: vec!["1".into(), "2".into()],
    };
    let expected = [text(1, b"t"), text(2, b"n"), text(3, b"e"), text(4, b"1"), text(4, b"2")].concat();
    assert_eq!(info.encode_to_vec(), expected);
    let status = RegistrationStatus { plugin_registered: true, error: "e".into() };
    assert_eq!(status.encode_to_vec(), [number(1, 1), text(2, b"e")].concat());
}

#[test]
fn places_are_as_kubernetes_reads_and_writes_them() {
    let place = || Topology { segments: [("k".to_owned(), "v".to_owned())].into() };
    let segments = text(1, &entry("k", "v"));
    let info = NodeGetInfoResponse { node_id: "n".into(), max_volumes_per_node: 3, accessible_topology: Some(place()) };
    assert_eq!(info.encode_to_vec(), [text(1, b"n"), number(2, 3), text(3, &segments)].concat());
    let requirement = TopologyRequirement { requisite: vec![place()], preferred: vec![place()] };
    let wanted = CreateVolumeRequest {
        name: "n".into(),
        capacity_range: Some(CapacityRange { required_bytes: 1, limit_bytes: 2 }),
        parameters: [("p".to_owned(), "q".to_owned())].into(),
        accessibility_requirements: Some(requirement),
        mutable_parameters: [("m".to_owned(), "o".to_owned())].into(),
        ..Default::default()
    };
    let expected = [
        text(1, b"n"),
        text(2, &[number(1, 1), number(2, 2)].concat()),
        text(4, &entry("p", "q")),
        text(7, &[text(1, &segments), text(2, &segments)].concat()),
        text(8, &entry("m", "o")),
    ];
    assert_eq!(wanted.encode_to_vec(), expected.concat());
}

#[test]
fn volumes_are_as_kubernetes_reads_them() {
    let place = Topology { segments: [("k".to_owned(), "v".to_owned())].into() };
    let volume = Volume {
        capacity_bytes: 4,
        volume_id: "v".into(),
        volume_context: [("c".to_owned(), "d".to_owned())].into(),
        content_source: None,
        accessible_topology: vec![place],
    };
    let status = Some(VolumeStatus { published_node_ids: vec!["n".into()] });
    let answer = ControllerGetVolumeResponse { volume: Some(volume), status };
    let places = text(5, &text(1, &entry("k", "v")));
    let volume = [number(1, 4), text(2, b"v"), text(3, &entry("c", "d")), places].concat();
    assert_eq!(answer.encode_to_vec(), [text(1, &volume), text(2, &text(1, b"n"))].concat());
    let grown = ControllerExpandVolumeResponse { capacity_bytes: 5, node_expansion_required: true };
    assert_eq!(grown.encode_to_vec(), [number(1, 5), number(2, 1)].concat());
    let capacity = GetCapacityResponse {
        available_capacity: 1,
        maximum_volume_size: Some(Int64Value { value: 2 }),
        minimum_volume_size: Some(Int64Value { value: 3 }),
    };
    let expected = [number(1, 1), text(2, &number(1, 2)), text(3, &number(1, 3))].concat();
    assert_eq!(capacity.encode_to_vec(), expected);
    let snapshot = Snapshot {
        size_bytes: 1,
        snapshot_id: "i".into(),
        source_volume_id: "s".into(),
        creation_time: Some(Timestamp { seconds: 2, nanos: 3 }),
        ready_to_use: true,
    };
    let time = text(4, &[number(1, 2), number(2, 3)].concat());
    let expected = [number(1, 1), text(2, b"i"), text(3, b"s"), time, number(5, 1)].concat();
    assert_eq!(snapshot.encode_to_vec(), expected);
}

#[test]
fn what_the_kubelet_asks_of_a_node_is_read_as_it_writes_it() {
    let publish = NodePublishVolumeRequest {
        volume_id: "v".into(),
        publish_context: [("a".to_owned(), "b".to_owned())].into(),
        staging_target_path: "s".into(),
        target_path: "t".into(),
        volume_capability: None,
        readonly: true,
        volume_context: [("c".to_owned(), "d".to_owned())].into(),
    };
    let expected = [
        text(1, b"v"),
        text(2, &entry("a", "b")),
        text(3, b"s"),
        text(4, b"t"),
        number(6, 1),
        text(8, &entry("c", "d")),
    ];
    assert_eq!(publish.encode_to_vec(), expected.concat());
    // A secret is passed over, never decoded.
    let with_secret = [expected.concat(), text(7, &entry("password", "x"))].concat();
    assert_eq!(NodePublishVolumeRequest::decode(&with_secret[..]).unwrap(), publish);
    let expand = NodeExpandVolumeRequest {
        volume_id: "v".into(),
        volume_path: "p".into(),
        capacity_range: Some(CapacityRange { required_bytes: 1, limit_bytes: 0 }),
        staging_target_path: "s".into(),
        volume_capability: None,
    };
    let expected = [text(1, b"v"), text(2, b"p"), text(3, &number(1, 1)), text(4, b"s")].concat();
    assert_eq!(expand.encode_to_vec(), expected);
    let usage = VolumeUsage { available: 1, total: 2, used: 3, unit: 1 };
    assert_eq!(usage.encode_to_vec(), [number(1, 1), number(2, 2), number(3, 3), number(4, 1)].concat());
}
