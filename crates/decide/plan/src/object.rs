//! The kinds that controllers write or read live, as one closed set used by effects and the API trait.
//!
//! Kinds that are only watched are not included. Adding a kind takes one line in the table below.

use k8s_openapi::Resource;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The types of the kinds, under the kinds' names.
pub mod types {
    pub use api::cdi::DataVolume;
    pub use api::v1::{
        KubeVirt, VirtualMachine as Vm, VirtualMachineInstance as Vmi, VirtualMachineInstanceMigration as Migration,
    };
    pub use k8s_openapi::api::apps::v1::{ControllerRevision as Revision, DaemonSet};
    pub use k8s_openapi::api::batch::v1::Job;
    pub use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim as Claim, Pod};
    pub use k8s_openapi::api::policy::v1::PodDisruptionBudget as Budget;
}

/// A type whose objects can be written and read live.
pub trait Typed: Resource + Clone + Serialize + DeserializeOwned + Send + Sync + 'static {
    const OF: Kind;

    fn into_object(self) -> Object;

    /// The object, if it is of this type.
    fn from_object(object: Object) -> Option<Self>;
}

/// `$d` is a dollar sign, for the macro that this one defines.
macro_rules! kinds {
    ($d:tt $($kind:ident)*) => {
        /// A kind that controllers write or read live.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Kind { $($kind,)* }

        /// An object of any of the kinds.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Object { $($kind(Box<types::$kind>),)* }

        impl Kind {
            pub const ALL: &[Kind] = &[$(Kind::$kind,)*];

            /// The kind as the API spells it, in the singular.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$kind => <types::$kind as Resource>::KIND,)* }
            }

            /// The plural used in URLs and RBAC rules.
            pub const fn resource(self) -> &'static str {
                match self { $(Self::$kind => <types::$kind as Resource>::URL_PATH_SEGMENT,)* }
            }

            /// The API group; empty for core kinds.
            pub const fn group(self) -> &'static str {
                match self { $(Self::$kind => <types::$kind as Resource>::GROUP,)* }
            }

            /// Group and version.
            pub const fn api_version(self) -> &'static str {
                match self { $(Self::$kind => <types::$kind as Resource>::API_VERSION,)* }
            }
        }

        impl Object {
            pub fn kind(&self) -> Kind {
                match self { $(Self::$kind(_) => Kind::$kind,)* }
            }

            pub fn meta(&self) -> &ObjectMeta {
                match self { $(Self::$kind(object) => &object.metadata,)* }
            }

            pub fn meta_mut(&mut self) -> &mut ObjectMeta {
                match self { $(Self::$kind(object) => &mut object.metadata,)* }
            }

            /// The JSON that is sent to the API.
            pub fn to_json(&self) -> serde_json::Result<Vec<u8>> {
                match self { $(Self::$kind(object) => serde_json::to_vec(object),)* }
            }
        }

        $(
            impl Typed for types::$kind {
                const OF: Kind = Kind::$kind;

                fn into_object(self) -> Object {
                    Object::$kind(Box::new(self))
                }

                fn from_object(object: Object) -> Option<Self> {
                    let Object::$kind(object) = object else { return None };
                    Some(*object)
                }
            }

            impl From<types::$kind> for Object {
                fn from(object: types::$kind) -> Self {
                    Self::$kind(Box::new(object))
                }
            }
        )*

        /// Evaluates an expression with the type of a kind bound to a name: `with_kind!(kind, K => read::<K>())`.
        #[macro_export]
        macro_rules! with_kind {
            ($d of:expr, $d K:ident => $d body:expr) => {
                match $d of {
                    $($crate::object::Kind::$kind => {
                        type $d K = $crate::object::types::$kind;
                        $d body
                    })*
                }
            };
        }
    };
}

kinds! { $ Vm Vmi Migration KubeVirt Pod Claim Node Revision DaemonSet DataVolume Job Budget }

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl Object {
    pub fn name(&self) -> &str {
        crate::meta::name(self.meta())
    }
}
