//! Credentials handed to the guest.

#![allow(clippy::disallowed_fields, reason = "derived code reads every member")]

use super::Empty;
use crate::kind::null_as_empty;
use serde::{Deserialize, Serialize};

/// A credential that is handed to the guest; exactly one member is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AccessCredential {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ssh_public_key: Option<SSHPublicKeyAccessCredential>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_password: Option<UserPasswordAccessCredential>,
}

/// SSH keys that may log into the guest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SSHPublicKeyAccessCredential {
    pub propagation_method: SSHPublicKeyAccessCredentialPropagationMethod,
    pub source: SSHPublicKeyAccessCredentialSource,
}

/// How SSH keys reach the guest; exactly one member is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SSHPublicKeyAccessCredentialPropagationMethod {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_drive: Option<Empty>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_cloud: Option<Empty>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qemu_guest_agent: Option<QemuGuestAgentSSHPublicKeyAccessCredentialPropagation>,
}

/// SSH keys are written by the guest agent for the users named here.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct QemuGuestAgentSSHPublicKeyAccessCredentialPropagation {
    // Required, so also written when it is empty.
    #[serde(deserialize_with = "null_as_empty")]
    pub users: Vec<String>,
}

/// Where SSH keys come from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SSHPublicKeyAccessCredentialSource {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<AccessCredentialSecretSource>,
}

/// A Secret in the instance's namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AccessCredentialSecretSource {
    pub secret_name: String,
}

/// Passwords of users inside the guest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct UserPasswordAccessCredential {
    pub propagation_method: UserPasswordAccessCredentialPropagationMethod,
    pub source: UserPasswordAccessCredentialSource,
}

/// How passwords reach the guest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct UserPasswordAccessCredentialPropagationMethod {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qemu_guest_agent: Option<Empty>,
}

/// Where passwords come from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct UserPasswordAccessCredentialSource {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<AccessCredentialSecretSource>,
}
