//! RBAC of virt-handler.

use api::rights::Verb::{Create, Get, Patch, Update};
use api::rights::{Identity, Program, Right};
use api::v1::{KubeVirt, VirtualMachineInstance};
use informer::Recorder;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim};

const RIGHTS: &[Right] = &[
    Right::watch::<VirtualMachineInstance>(),
    Right::on::<VirtualMachineInstance>(&[Get, Update]),
    Right::watch::<KubeVirt>(),
    Right::on::<Node>(&[Get, Patch]),
    // Which PersistentVolume is behind a claim that is plugged in.
    Right::on::<PersistentVolumeClaim>(&[Get]),
    Recorder::RIGHT,
];

/// A certificate that names this node is requested; in the embedded shape there is one from the start.
const CERTIFICATE: Right = Right::on::<CertificateSigningRequest>(&[Create, Get]);

/// The program with its rights on Kubernetes.
pub fn program_on_kubernetes() -> Program {
    let rights = RIGHTS.iter().copied().chain([CERTIFICATE]).collect();
    Program { rights, ..program() }
}

/// The program with its rights in the embedded shape.
pub fn program() -> Program {
    Program { name: "kubevirt-handler", identity: Identity::Account, rights: RIGHTS.to_vec() }
}
