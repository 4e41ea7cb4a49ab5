//! Whole Pods, beside the instances they come from.

use api::config::ClusterConfig;
use api::v1::VirtualMachineInstance;
use render::{Context, launcher_pod};

fn check(name: &str, instance: &str, configure: impl FnOnce(&mut ClusterConfig)) {
    let vmi: VirtualMachineInstance = serde_saphyr::from_str(instance).expect("the instance decodes");
    let mut config = ClusterConfig { launcher_image: "ferrovirt.io/host".to_owned(), ..ClusterConfig::default() };
    configure(&mut config);
    let pod = launcher_pod(&vmi, &config, &Context::default()).expect("the instance renders");
    let again = launcher_pod(&vmi, &config, &Context::default()).expect("the instance renders again");
    assert_eq!(pod, again, "rendering draws nothing");
    insta::assert_snapshot!(name, serde_saphyr::to_string(&pod).expect("the Pod encodes"));
}

#[test]
fn a_directly_booted_kernel() {
    check("kernel_boot", include_str!("instances/kernel-boot.yaml"), |config| {
        config.configuration.developer_configuration.get_or_insert_default().use_emulation = Some(true);
    });
}

#[test]
fn a_container_disk_with_cloud_init_and_a_scratch_disk() {
    check("container_disk", include_str!("instances/container-disk.yaml"), |_| {});
}

#[test]
fn placement_naming_and_limits() {
    check("placement", include_str!("instances/placement.yaml"), |config| {
        config.configuration.selinux_launcher_type = Some("virt_launcher.process".to_owned());
        config.configuration.default_runtime_class = Some("vm".to_owned());
        let developer = config.configuration.developer_configuration.get_or_insert_default();
        developer.node_selectors.insert("pool".to_owned(), "vms".to_owned());
        config.configuration.seccomp_configuration =
            serde_saphyr::from_str("virtualMachineInstanceProfile: {customProfile: {runtimeDefaultProfile: true}}")
                .expect("the profile decodes");
    });
}
