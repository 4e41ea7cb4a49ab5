//! Field numbers and types, byte for byte as Kubernetes has them. A wrong number is not an error on the wire: the kubelet
//! would find an empty field.

use device_plugin::v1beta1::{
    AllocateRequest, AllocateResponse, CdiDevice, ContainerAllocateRequest, ContainerAllocateResponse,
    ContainerPreferredAllocationRequest, ContainerPreferredAllocationResponse, Device, DevicePluginOptions, DeviceSpec,
    ListAndWatchResponse, Mount, NumaNode, PreStartContainerRequest, RegisterRequest, TopologyInfo,
};
use prost::Message;

/// A field of length-delimited type.
fn text(number: u8, value: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, u8::try_from(value.len()).unwrap()], value].concat()
}

fn number(field: u8, value: u8) -> Vec<u8> {
    vec![field << 3, value]
}

#[test]
fn a_registration_is_as_the_kubelet_reads_it() {
    let request = RegisterRequest {
        version: "v".into(),
        endpoint: "e".into(),
        resource_name: "r".into(),
        options: Some(DevicePluginOptions { pre_start_required: true, get_preferred_allocation_available: true }),
    };
    let options = [number(1, 1), number(2, 1)].concat();
    let expected = [text(1, b"v"), text(2, b"e"), text(3, b"r"), text(4, &options)].concat();
    assert_eq!(request.encode_to_vec(), expected);
}

#[test]
fn a_list_of_devices_is_as_the_kubelet_reads_it() {
    let topology = Some(TopologyInfo { nodes: vec![NumaNode { id: 3 }] });
    let device = Device { id: "i".into(), health: "Healthy".into(), topology };
    let list = ListAndWatchResponse { devices: vec![device] };
    let topology = text(1, &number(1, 3));
    let device = [text(1, b"i"), text(2, b"Healthy"), text(3, &topology)].concat();
    assert_eq!(list.encode_to_vec(), text(1, &device));
}

#[test]
fn an_allocation_is_as_the_kubelet_writes_and_reads_it() {
    let request =
        AllocateRequest { container_requests: vec![ContainerAllocateRequest { devices_ids: vec!["a".into()] }] };
    assert_eq!(request.encode_to_vec(), text(1, &text(1, b"a")));
    let container = ContainerAllocateResponse {
        envs: [("k".to_owned(), "v".to_owned())].into(),
        mounts: vec![Mount { container_path: "c".into(), host_path: "h".into(), read_only: true }],
        devices: vec![DeviceSpec { container_path: "c".into(), host_path: "h".into(), permissions: "rw".into() }],
        annotations: [("k".to_owned(), "v".to_owned())].into(),
        cdi_devices: vec![CdiDevice { name: "n".into() }],
    };
    let pair = [text(1, b"k"), text(2, b"v")].concat();
    let paths = [text(1, b"c"), text(2, b"h")].concat();
    let fields = [
        text(1, &pair),
        text(2, &[paths.clone(), number(3, 1)].concat()),
        text(3, &[paths, text(3, b"rw")].concat()),
        text(4, &pair),
        text(5, &text(1, b"n")),
    ];
    let response = AllocateResponse { container_responses: vec![container] };
    assert_eq!(response.encode_to_vec(), text(1, &fields.concat()));
}

#[test]
fn the_calls_that_are_not_offered_are_as_the_kubelet_writes_them() {
    let preferred = ContainerPreferredAllocationRequest {
        available_device_i_ds: vec!["a".into()],
        must_include_device_i_ds: vec!["m".into()],
        allocation_size: 2,
    };
    assert_eq!(preferred.encode_to_vec(), [text(1, b"a"), text(2, b"m"), number(3, 2)].concat());
    let answer = ContainerPreferredAllocationResponse { device_i_ds: vec!["d".into()] };
    assert_eq!(answer.encode_to_vec(), text(1, b"d"));
    assert_eq!(PreStartContainerRequest { devices_ids: vec!["a".into()] }.encode_to_vec(), text(1, b"a"));
}
