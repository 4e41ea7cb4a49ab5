//! The cluster-wide configuration. Feature gates are looked up in the configuration being validated, so a gate and the
//! settings it guards can be set together.

use api::gates::{self, Stage};
use api::v1::{DeveloperConfiguration, KubeVirtConfiguration, SeccompConfiguration, TLSConfiguration};
use machinery::field::{Cause, FieldError, FieldPath};

use super::super::migration_policy::downtime;

/// Cipher names as Go's TLS library spells them, including weak ones.
const CIPHERS: [&str; 25] = [
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_RSA_WITH_RC4_128_SHA",
];

/// Validates a configuration against the previous one.
pub(super) fn check(field: &FieldPath, new: &KubeVirtConfiguration, old: &KubeVirtConfiguration) -> Vec<FieldError> {
    let developer = new.developer_configuration.clone().unwrap_or_default();
    let is_open = |gate: &str| gates::is_enabled(gate, &developer.feature_gates, &developer.disabled_feature_gates);
    let mut errors: Vec<FieldError> = overhead_ratio(field, new).into_iter().collect();
    errors.extend(guarded(field, new, is_open));
    let permitted = |one: &KubeVirtConfiguration| one.migrations.as_ref().and_then(|one| one.max_downtime_ms);
    errors.extend(downtime(&field.child("migrations"), permitted(new), permitted(old), is_open));
    if let Some(tls) = new.tls_configuration.as_ref().filter(|_| new.tls_configuration != old.tls_configuration) {
        errors.extend(ciphers(&field.child("tlsConfiguration"), tls));
    }
    let seccomp_changed = new.seccomp_configuration != old.seccomp_configuration;
    if let Some(configuration) = new.seccomp_configuration.as_ref().filter(|_| seccomp_changed) {
        errors.extend(seccomp(&field.child("seccompConfiguration"), configuration));
    }
    if let Some(developer) = changed_gates(new, old) {
        errors.extend(contradictions(&field.child("developerConfiguration").child("featureGates"), developer));
    }
    errors
}

fn overhead_ratio(field: &FieldPath, configuration: &KubeVirtConfiguration) -> Option<FieldError> {
    let ratio = configuration.additional_guest_memory_overhead_ratio.as_ref()?;
    let fine = ratio.parse::<f64>().is_ok_and(|ratio| ratio >= 1.0);
    let message = format!("ratio provided, {ratio}, is not a number of at least 1.0");
    (!fine).then(|| FieldError::new(Cause::NotSupported, field.child("additionalGuestMemoryOverheadRatio"), message))
}

/// Settings that need a feature gate.
fn guarded(
    field: &FieldPath,
    configuration: &KubeVirtConfiguration,
    is_open: impl Fn(&str) -> bool,
) -> Vec<FieldError> {
    let templates = configuration.virt_template_deployment.as_ref().and_then(|one| one.enabled) == Some(true);
    let manual = configuration.role_aggregation_strategy.as_deref() == Some("Manual");
    let settings = [
        ("virtTemplateDeployment.enabled", templates, "Template"),
        ("roleAggregationStrategy", manual, "OptOutRoleAggregation"),
    ];
    let closed = settings.into_iter().filter(|(_, set, gate)| *set && !is_open(gate));
    let errors = closed.map(|(name, _, gate)| {
        let message = format!("cannot be set without enabling the {gate} feature gate");
        FieldError::new(Cause::Invalid, field.child(name), message)
    });
    errors.collect()
}

/// The ciphers of TLS 1.3 are not configurable.
fn ciphers(field: &FieldPath, tls: &TLSConfiguration) -> Option<FieldError> {
    let ciphers = field.child("ciphers");
    if matches!(tls.min_tls_version.as_deref(), None | Some("" | "VersionTLS13")) {
        let message = "ciphers cannot be set when minTLSVersion is empty or VersionTLS13";
        return (!tls.ciphers.is_empty()).then(|| FieldError::new(Cause::NotSupported, ciphers, message));
    }
    let (index, unknown) = tls.ciphers.iter().enumerate().find(|(_, cipher)| !CIPHERS.contains(&cipher.as_str()))?;
    // Clients know the index in this spelling.
    let field = FieldPath::new(format!("{ciphers}#{index}"));
    Some(FieldError::new(Cause::NotSupported, field, format!("{unknown} is not a valid cipher")))
}

fn seccomp(field: &FieldPath, configuration: &SeccompConfiguration) -> Vec<FieldError> {
    let Some(profile) = &configuration.virtual_machine_instance_profile else { return Vec::new() };
    let field = field.child("virtualMachineInstanceProfile").child("customProfile");
    let Some(custom) = &profile.custom_profile else {
        let message = format!("{field} needs to be set");
        return vec![FieldError::new(Cause::Invalid, field, message)];
    };
    if custom.localhost_profile.is_none() || custom.runtime_default_profile != Some(true) {
        return Vec::new();
    }
    let names = [("localhostProfile", "runtimeDefaultProfile"), ("runtimeDefaultProfile", "localhostProfile")];
    let errors = names.into_iter().map(|(one, other)| {
        FieldError::new(Cause::Invalid, field.child(one), format!("cannot be set when {other} is set"))
    });
    errors.collect()
}

/// The feature gates, if their lists changed. Removing the whole section is not a change.
fn changed_gates<'a>(
    new: &'a KubeVirtConfiguration,
    old: &KubeVirtConfiguration,
) -> Option<&'a DeveloperConfiguration> {
    let (new, old) = (new.developer_configuration.as_ref()?, old.developer_configuration.as_ref());
    let same = old.is_some_and(|old| {
        new.feature_gates == old.feature_gates && new.disabled_feature_gates == old.disabled_feature_gates
    });
    (!same).then_some(new)
}

fn contradictions(field: &FieldPath, developer: &DeveloperConfiguration) -> Vec<FieldError> {
    let both = developer.feature_gates.iter().filter(|gate| developer.disabled_feature_gates.contains(gate));
    let detail = |gate: &String| format!("{gate} is in both featureGates and disabledFeatureGates");
    both.map(|gate| FieldError::forbidden(field.clone(), &detail(gate))).collect()
}

/// Warnings about a valid configuration.
pub(super) fn warnings(field: &FieldPath, new: &KubeVirtConfiguration, old: &KubeVirtConfiguration) -> Vec<String> {
    let gates = changed_gates(new, old).map(|developer| developer.feature_gates.as_slice()).unwrap_or_default();
    let mut warnings: Vec<String> = gates.iter().filter_map(|gate| gate_warning(gate)).collect();
    if let Some(devices) = &new.mediated_devices_configuration {
        let field = field.child("mediatedDevicesConfiguration");
        let nodes = devices.node_mediated_device_types.iter().enumerate();
        let nodes = nodes.filter(|(_, node)| !node.mediated_devices_types.is_empty());
        let nodes = nodes.map(|(index, _)| field.child("nodeMediatedDeviceTypes").index(index));
        let deprecated = (!devices.mediated_devices_types.is_empty()).then(|| field.clone()).into_iter().chain(nodes);
        warnings
            .extend(deprecated.map(|above| {
                format!("{} is deprecated, use mediatedDeviceTypes", above.child("mediatedDevicesTypes"))
            }));
    }
    if new.architecture_configuration.as_ref().is_some_and(|all| all.ppc64le.is_some()) {
        let field = field.child("architectureConfiguration").child("ppc64le");
        warnings.push(format!("{field} is deprecated and no longer supported."));
    }
    warnings
}

/// The warning about a feature gate; `None` for one that has an effect.
fn gate_warning(gate: &str) -> Option<String> {
    let why = match gates::stage(gate)? {
        Stage::Alpha | Stage::Beta => return None,
        Stage::GenerallyAvailable => "the feature is always on, so naming it changes nothing",
        Stage::Deprecated => "the feature will be removed",
        Stage::Discontinued => "the feature is gone, so naming it changes nothing",
    };
    Some(format!("feature gate {gate} is deprecated: {why}"))
}
