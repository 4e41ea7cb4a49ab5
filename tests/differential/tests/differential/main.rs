//! Whether KubeVirt and we make the same of the same objects.

mod agreement;
mod pods;
