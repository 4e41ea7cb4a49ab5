//! The `admission` crate behind the embedded API server, with the cluster's live configuration.

use std::sync::{Arc, RwLock};

use api::config::ClusterConfig;
use embedded::{AdmissionRequest, Admitted, Operation};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use machinery::field::FieldError;

/// What the server asks on every write of our kinds. The configuration follows the KubeVirt object.
#[derive(Debug, Default)]
pub struct Gate {
    config: RwLock<Arc<ClusterConfig>>,
}

impl Gate {
    pub fn new(config: ClusterConfig) -> Self {
        Self { config: RwLock::new(Arc::new(config)) }
    }

    pub fn configure(&self, config: ClusterConfig) {
        *self.config.write().unwrap_or_else(|poisoned| poisoned.into_inner()) = Arc::new(config);
    }

    fn config(&self) -> Arc<ClusterConfig> {
        self.config.read().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }
}

impl embedded::Admission for Gate {
    fn admit(&self, request: &AdmissionRequest<'_>) -> Result<Admitted, Vec<FieldError>> {
        let user = admission::User { name: request.user.name.clone(), groups: request.user.groups.clone(), ..Default::default() };
        let operation = match request.operation {
            Operation::Create => admission::Operation::Create,
            Operation::Update => admission::Operation::Update,
        };
        let admitted = admission::admit(
            &admission::Request {
                operation,
                version: request.resource.version,
                resource: request.resource.resource,
                subresource: request.resource.subresource,
                user: &user,
                old: request.old,
                object: &request.object,
                now: Time(Timestamp::now()),
            },
            &self.config(),
            &Default::default(),
        )
        .map_err(|refusal| match refusal {
            admission::Refusal::Invalid(errors) => errors,
            admission::Refusal::BadRequest(message) => {
                vec![FieldError::new(machinery::field::Cause::Forbidden, machinery::field::FieldPath::root(), message)]
            }
        })?;
        Ok(Admitted { object: admitted.object, warnings: admitted.warnings })
    }
}
