//! The files of a cloud-init NoCloud seed.

use api::v1::{CloudInitNoCloudSource, VirtualMachineInstance};
use base64::Engine;

/// The volume label by which cloud-init finds the disk.
pub(super) const LABEL: &str = "cidata";

/// Builds the seed's files. Errors never quote the data, since it may contain passwords.
pub(super) fn no_cloud(
    vmi: &VirtualMachineInstance,
    source: &CloudInitNoCloudSource,
) -> Result<Vec<(&'static str, Vec<u8>)>, String> {
    if source.secret_ref.is_some() || source.network_data_secret_ref.is_some() {
        return Err("cloud-init data from secrets is not supported by this version; write it into the spec".into());
    }
    let user = data("userData", source.user_data.as_deref(), source.user_data_base64.as_deref())?;
    let network = data("networkData", source.network_data.as_deref(), source.network_data_base64.as_deref())?;
    if user.is_none() && network.is_none() {
        return Err("cloud-init needs user data or network data".into());
    }
    // NoCloud requires the first two files, even if empty.
    let mut files = vec![("meta-data", meta_data(vmi)?), ("user-data", user.unwrap_or_default())];
    files.extend(network.map(|network| ("network-config", network)));
    Ok(files)
}

fn data(field: &str, plain: Option<&str>, encoded: Option<&str>) -> Result<Option<Vec<u8>>, String> {
    let (plain, encoded) = (plain.filter(|text| !text.is_empty()), encoded.filter(|text| !text.is_empty()));
    match (plain, encoded) {
        (Some(_), Some(_)) => Err(format!("{field} and {field}Base64 exclude each other")),
        (Some(text), None) => Ok(Some(text.as_bytes().to_vec())),
        (None, Some(text)) => {
            let text: String = text.split_ascii_whitespace().collect();
            let decoded = base64::engine::general_purpose::STANDARD.decode(text);
            decoded.map(Some).map_err(|_| format!("{field}Base64 is not base64"))
        }
        (None, None) => Ok(None),
    }
}

/// One `key: "value"` per line: YAML for cloud-init, and easy to parse for simpler clients.
fn meta_data(vmi: &VirtualMachineInstance) -> Result<Vec<u8>, String> {
    let uuid = domain::guest_uuid(vmi).map_err(|error| error.to_string())?;
    let lines = [("instance-id", uuid), ("local-hostname", hostname(vmi))];
    let text: String = lines.iter().map(|(key, value)| format!("{key}: {}\n", serde_json::json!(value))).collect();
    Ok(text.into_bytes())
}

/// The hostname in the spec, or the VMI's name up to the first dot.
fn hostname(vmi: &VirtualMachineInstance) -> String {
    const LABEL_MAX: usize = 63;
    let name = vmi.metadata.name.as_deref().unwrap_or_default();
    let given = vmi.spec.hostname.as_deref().filter(|hostname| !hostname.is_empty());
    let label = given.unwrap_or_else(|| name.split('.').next().unwrap_or_default());
    label.chars().take(LABEL_MAX).collect::<String>().trim_end_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vmi(name: &str) -> VirtualMachineInstance {
        let mut vmi = VirtualMachineInstance::default();
        vmi.metadata.name = Some(name.into());
        vmi.metadata.uid = Some("u-1".into());
        vmi
    }

    fn text(files: &[(&str, Vec<u8>)], name: &str) -> Option<String> {
        let (_, bytes) = files.iter().find(|(file, _)| *file == name)?;
        Some(String::from_utf8(bytes.clone()).unwrap())
    }

    #[test]
    fn user_data_makes_two_files_and_network_data_a_third() {
        let mut source = CloudInitNoCloudSource { user_data: Some("#!/bin/sh\n".into()), ..Default::default() };
        let files = no_cloud(&vmi("web.example"), &source).unwrap();
        assert_eq!(text(&files, "user-data").as_deref(), Some("#!/bin/sh\n"));
        assert_eq!(text(&files, "network-config"), None);
        let meta = text(&files, "meta-data").unwrap();
        assert!(meta.ends_with("\nlocal-hostname: \"web\"\n"), "{meta}");
        source.network_data_base64 = Some("dmVyc2lv\nbjogMg==".into());
        let files = no_cloud(&vmi("web"), &source).unwrap();
        assert_eq!(text(&files, "network-config").as_deref(), Some("version: 2"));
    }

    #[test]
    fn network_data_alone_still_comes_with_user_data() {
        let source = CloudInitNoCloudSource { network_data: Some("version: 2".into()), ..Default::default() };
        assert_eq!(text(&no_cloud(&vmi("a"), &source).unwrap(), "user-data").as_deref(), Some(""));
    }

    #[test]
    fn mistakes_are_named_and_data_is_not_quoted() {
        let source = |plain: Option<&str>, encoded: Option<&str>| CloudInitNoCloudSource {
            user_data: plain.map(str::to_owned),
            user_data_base64: encoded.map(str::to_owned),
            ..Default::default()
        };
        for (source, expected) in [
            (source(None, None), "needs user data or network data"),
            (source(Some("s3cret"), Some("eA==")), "exclude each other"),
            (source(None, Some("s3cret!")), "not base64"),
        ] {
            let error = no_cloud(&vmi("a"), &source).unwrap_err();
            assert!(error.contains(expected) && !error.contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn the_hostname_in_the_spec_wins_and_long_names_are_cut() {
        let mut vmi = vmi(&format!("{}-b", "a".repeat(62)));
        assert_eq!(hostname(&vmi), "a".repeat(62));
        vmi.spec.hostname = Some("chosen".into());
        assert_eq!(hostname(&vmi), "chosen");
    }
}
