//! Volumes: where the data of disks comes from.

use std::collections::BTreeSet;

use api::v1::{CloudInitNoCloudSource, ContainerDiskSource, EmptyDiskSource, Volume};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use machinery::field::{FieldError, FieldPath};
use machinery::names::check_dns1123_label;
use machinery::quantity::Quantity;

use super::names;
use crate::decode::encode;
use crate::unsupported;

/// The most cloud-init data an object may carry inline.
const MAX_CLOUD_INIT: usize = 2048;

pub(super) fn check(field: &FieldPath, volumes: &[Volume]) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut seen = BTreeSet::new();
    for (index, volume) in volumes.iter().enumerate() {
        let field = field.index(index);
        errors.extend(names(&field.child("name"), &volume.name, check_dns1123_label(&volume.name)));
        if !seen.insert(volume.name.as_str()) {
            let detail = "is the name of another volume";
            errors.push(FieldError::invalid(field.child("name"), volume.name.as_str(), detail));
        }
        errors.extend(one_source(&field, volume));
        if let Some(source) = &volume.container_disk {
            errors.extend(container_disk(&field.child("containerDisk"), source));
        }
        if let Some(source) = &volume.empty_disk {
            errors.extend(empty_disk(&field.child("emptyDisk"), source));
        }
        if let Some(source) = &volume.cloud_init_no_cloud {
            errors.extend(cloud_init(&field.child("cloudInitNoCloud"), source));
        }
    }
    errors.extend(single_cloud_init(field, volumes));
    errors
}

fn one_source(field: &FieldPath, volume: &Volume) -> Option<FieldError> {
    // All fields but the name are sources.
    let sources = encode(volume).as_object().map_or(0, |fields| fields.len().saturating_sub(1));
    let detail = "exactly one source of data has to be set";
    (sources != 1).then(|| FieldError::invalid(field.clone(), volume.name.as_str(), detail))
}

/// The guest reads one set of cloud-init data; a second volume would only repeat it.
fn single_cloud_init(field: &FieldPath, volumes: &[Volume]) -> Vec<FieldError> {
    let with = volumes.iter().enumerate().filter(|(_, volume)| volume.cloud_init_no_cloud.is_some());
    with.skip(1)
        .map(|(index, _)| unsupported::refusal(field.index(index), "a second volume of cloud-init data is"))
        .collect()
}

fn container_disk(field: &FieldPath, source: &ContainerDiskSource) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if source.image.is_empty() {
        errors.push(FieldError::required(field.child("image"), "the image that holds the disk has to be named"));
    }
    if let Some(path) = source.path.as_deref().filter(|path| !path.is_empty())
        && let Some(problem) = image_path_problem(path)
    {
        errors.push(FieldError::invalid(field.child("path"), path, problem));
    }
    errors
}

/// What is wrong with the path of a file inside an image.
pub(super) fn image_path_problem(path: &str) -> Option<&'static str> {
    if !path.starts_with('/') {
        return Some("must be an absolute path");
    }
    if path == "/" {
        return Some("must name a file, not the root directory");
    }
    let clean = path[1..].split('/').all(|part| !matches!(part, "" | "." | ".."));
    (!clean).then_some("must not contain empty or relative parts")
}

fn empty_disk(field: &FieldPath, source: &EmptyDiskSource) -> Vec<FieldError> {
    let field = field.child("capacity");
    match Quantity::try_from(&source.capacity) {
        Err(error) => vec![FieldError::invalid(field, source.capacity.0.as_str(), error)],
        Ok(capacity) if capacity <= Quantity::ZERO => {
            vec![FieldError::invalid(field, source.capacity.0.as_str(), "must be greater than 0")]
        }
        Ok(_) => Vec::new(),
    }
}

fn cloud_init(field: &FieldPath, source: &CloudInitNoCloudSource) -> Vec<FieldError> {
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let user = Data {
        what: "user data",
        plain: ("userData", given(&source.user_data)),
        base64: ("userDataBase64", given(&source.user_data_base64)),
        secret: source.secret_ref.is_some(),
    };
    let network = Data {
        what: "network data",
        plain: ("networkData", given(&source.network_data)),
        base64: ("networkDataBase64", given(&source.network_data_base64)),
        secret: source.network_data_secret_ref.is_some(),
    };
    let mut errors = [user.check(field), network.check(field)].concat();
    if user.sources() + network.sources() == 0 {
        let detail = "user data or network data has to be set";
        errors.push(FieldError::invalid(field.clone(), "", detail));
    }
    errors
}

/// One kind of cloud-init data in the forms it can be given.
struct Data {
    what: &'static str,
    plain: (&'static str, Option<String>),
    base64: (&'static str, Option<String>),
    secret: bool,
}

impl Data {
    fn sources(&self) -> usize {
        usize::from(self.plain.1.is_some()) + usize::from(self.base64.1.is_some()) + usize::from(self.secret)
    }

    fn check(&self, field: &FieldPath) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if self.sources() > 1 {
            let detail = format!("at most one source of {} may be set", self.what);
            errors.push(FieldError::invalid(field.clone(), "", detail));
        }
        // The data may hold passwords, so it is not repeated in the message.
        let mut invalid = |name: &str, detail: String| {
            let message = format!("Invalid value: {detail}");
            errors.push(FieldError::new(machinery::field::Cause::Invalid, field.child(name), message));
        };
        let too_long = |length: usize| {
            format!("{} of {length} bytes is longer than the {MAX_CLOUD_INIT} bytes allowed inline", self.what)
        };
        if let (name, Some(text)) = &self.plain
            && text.len() > MAX_CLOUD_INIT
        {
            invalid(name, too_long(text.len()));
        }
        if let (name, Some(text)) = &self.base64 {
            match STANDARD.decode(text) {
                Err(_) => invalid(name, format!("{} is not base64", self.what)),
                Ok(bytes) if bytes.len() > MAX_CLOUD_INIT => invalid(name, too_long(bytes.len())),
                Ok(_) => {}
            }
        }
        errors
    }
}
