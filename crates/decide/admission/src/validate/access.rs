//! Credentials handed to the guest.

use api::v1::{CredentialKind, SSHPublicKeyAccessCredential, VirtualMachineInstanceSpec, Volume, VolumeSource};
use machinery::field::{Cause, Path};

use super::findings::Findings;

pub(super) fn check(found: &mut Findings, field: &Path<'_>, spec: &VirtualMachineInstanceSpec) {
    let field = field.child("accessCredentials");
    for (index, credential) in spec.access_credentials.iter().enumerate() {
        let field = field.index(index);
        for kind in credential.kinds() {
            match kind {
                CredentialKind::SshPublicKey(keys) => ssh_keys(found, &field.child("sshPublicKey"), keys, spec),
                CredentialKind::UserPassword(password) => {
                    let field = field.child("userPassword");
                    exactly_one(found, &field.child("source"), usize::from(password.source.secret.is_some()));
                    let method = usize::from(password.propagation_method.qemu_guest_agent.is_some());
                    exactly_one(found, &field.child("propagationMethod"), method);
                }
                CredentialKind::Unset => {}
            }
        }
        exactly_one(found, &field, credential.kinds().count());
    }
}

fn ssh_keys(
    found: &mut Findings,
    field: &Path<'_>,
    keys: &SSHPublicKeyAccessCredential,
    spec: &VirtualMachineInstanceSpec,
) {
    let method = &keys.propagation_method;
    let methods = field.child("propagationMethod");
    let sources = || spec.volumes.iter().flat_map(Volume::sources);
    let no_cloud = sources().any(|source| matches!(source, VolumeSource::CloudInitNoCloud(_)));
    let config_drive = sources().any(|source| matches!(source, VolumeSource::CloudInitConfigDrive(_)));
    if method.no_cloud.is_some() && !no_cloud {
        found.refuse(Cause::Invalid, &methods, "noCloud needs a volume of type cloudInitNoCloud");
    }
    if method.config_drive.is_some() && !config_drive {
        found.refuse(Cause::Invalid, &methods, "configDrive needs a volume of type cloudInitConfigDrive");
    }
    if method.qemu_guest_agent.as_ref().is_some_and(|agent| agent.users.is_empty()) {
        found.refuse(Cause::Invalid, &methods.child("qemuGuestAgent.users"), "at least one user has to be named");
    }
    exactly_one(found, &field.child("source"), usize::from(keys.source.secret.is_some()));
    let set = [method.no_cloud.is_some(), method.config_drive.is_some(), method.qemu_guest_agent.is_some()];
    exactly_one(found, &methods, set.iter().filter(|set| **set).count());
}

fn exactly_one(found: &mut Findings, field: &Path<'_>, set: usize) {
    if set != 1 {
        found.refuse(Cause::Invalid, field, "exactly one member has to be set");
    }
}
