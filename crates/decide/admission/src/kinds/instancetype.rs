//! Instance types, namespaced and cluster-scoped. Percentages are validated by their schema.

use api::instancetype::VirtualMachineInstancetypeSpec;
use machinery::field::{FieldError, FieldPath};

use super::Found;

pub(super) fn rules(spec: &VirtualMachineInstancetypeSpec) -> Found {
    let mut found = Found::default();
    let overcommit = spec.memory.overcommit_percent.filter(|&percent| percent != 0);
    if let Some(percent) = overcommit.filter(|_| spec.memory.hugepages.is_some()) {
        let field = FieldPath::new("spec.memory.overcommitPercent");
        let detail = "huge pages cannot be overcommitted: set one of overcommitPercent and hugepages";
        found.causes.push(FieldError::invalid(field, percent, detail));
    }
    if spec.launch_security.is_some() {
        let warning = "spec.launchSecurity of an instance type is deprecated; \
                       use spec.preferredLaunchSecurity of a preference instead";
        found.warnings.push(warning.to_owned());
    }
    found
}
