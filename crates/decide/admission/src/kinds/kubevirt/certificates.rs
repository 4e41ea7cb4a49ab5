//! Lifetimes of the installation's certificates.

use api::v1::KubeVirtSelfSignConfiguration;
use machinery::duration::Duration;
use machinery::field::{Cause, FieldError, FieldPath};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const WEEK: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Validates the lifetimes.
pub(super) fn check(field: &FieldPath, strategy: &KubeVirtSelfSignConfiguration) -> Vec<FieldError> {
    let ca = strategy.ca.clone().unwrap_or_default();
    let server = strategy.server.clone().unwrap_or_default();
    let (ca_field, server_field) = (field.child("ca"), field.child("server"));
    let mut errors = Vec::new();
    let mut read = |field: FieldPath, text: Option<&String>| {
        let text = text?;
        let problem = |error| errors.push(FieldError::invalid(field, text.as_str(), error));
        text.parse::<Duration>().map_err(problem).ok()
    };
    let rotate = read(field.child("caRotateInterval"), strategy.ca_rotate_interval.as_ref());
    let overlap = read(field.child("caOverlapInterval"), strategy.ca_overlap_interval.as_ref());
    let rotate_server = read(field.child("certRotateInterval"), strategy.cert_rotate_interval.as_ref());
    let duration = read(ca_field.child("duration"), ca.duration.as_ref());
    let before = read(ca_field.child("renewBefore"), ca.renew_before.as_ref());
    let server_duration = read(server_field.child("duration"), server.duration.as_ref());
    let server_before = read(server_field.child("renewBefore"), server.renew_before.as_ref());
    if !errors.is_empty() {
        return errors;
    }
    errors.extend(old_and_new(field, strategy));
    // The deprecated fields take precedence, so that an upgrade changes nothing.
    let duration = rotate.or(duration).unwrap_or(WEEK);
    let before = overlap.or(before).unwrap_or_else(|| a_fifth_of(duration));
    let server_duration = rotate_server.or(server_duration).unwrap_or(DAY);
    let server_before = server_before.unwrap_or_else(|| a_fifth_of(server_duration));
    let mut too_long = |field: FieldPath, what: Duration, limit: Duration, than: &str| {
        if what > limit {
            errors.push(FieldError::invalid(field, what.to_string(), format!("is longer than {than}, {limit}")));
        }
    };
    too_long(ca_field.child("renewBefore"), before, duration, "the CA's duration");
    too_long(server_field.child("renewBefore"), server_before, server_duration, "the certificate's duration");
    too_long(server_field.child("duration"), server_duration, duration, "the CA's duration");
    errors
}

/// The default renewal time of a certificate.
fn a_fifth_of(duration: Duration) -> Duration {
    Duration::from_nanos(duration.nanos() / 5)
}

fn old_and_new(field: &FieldPath, strategy: &KubeVirtSelfSignConfiguration) -> Option<FieldError> {
    let old = [&strategy.ca_rotate_interval, &strategy.ca_overlap_interval, &strategy.cert_rotate_interval];
    let both = old.iter().any(|interval| interval.is_some()) && (strategy.ca.is_some() || strategy.server.is_some());
    let message = "caRotateInterval, certRotateInterval and caOverlapInterval are deprecated and conflict with ca and \
                   server: set only these";
    both.then(|| FieldError::new(Cause::NotSupported, field.clone(), message))
}
