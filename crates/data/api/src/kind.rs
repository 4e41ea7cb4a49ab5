//! What every kind and every field of the API shares: the `resource!` and `open_enum!` macros and the tolerant decoder.

use serde::{Deserialize, Deserializer};

/// Reads `null` as an empty collection, as Go clients write unset lists and maps that way.
pub(crate) fn null_as_empty<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// A kind of the group: metadata, spec and status, known to `k8s-openapi` and through it to any client.
///
/// `apiVersion` and `kind` are not fields: they are written out on the way to the wire and checked on the way back.
/// They may be absent, as they are inside lists.
macro_rules! resource {
    ($(#[$doc:meta])* $kind:ident, $plural:literal, spec: $spec:ty, status: $status:ty) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct $kind {
            pub metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
            pub spec: $spec,
            pub status: Option<$status>,
        }

        impl k8s_openapi::Resource for $kind {
            const API_VERSION: &'static str = $crate::v1::API_VERSION;
            const GROUP: &'static str = $crate::v1::GROUP;
            const KIND: &'static str = stringify!($kind);
            const VERSION: &'static str = $crate::v1::VERSION;
            const URL_PATH_SEGMENT: &'static str = $plural;
            type Scope = k8s_openapi::NamespaceResourceScope;
        }

        impl k8s_openapi::ListableResource for $kind {
            const LIST_KIND: &'static str = concat!(stringify!($kind), "List");
        }

        impl k8s_openapi::Metadata for $kind {
            type Ty = k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

            fn metadata(&self) -> &Self::Ty {
                &self.metadata
            }

            fn metadata_mut(&mut self) -> &mut Self::Ty {
                &mut self.metadata
            }
        }

        impl serde::Serialize for $kind {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                use serde::ser::SerializeStruct;
                let fields = if self.status.is_some() { 5 } else { 4 };
                let mut state = serializer.serialize_struct(stringify!($kind), fields)?;
                state.serialize_field("apiVersion", $crate::v1::API_VERSION)?;
                state.serialize_field("kind", stringify!($kind))?;
                state.serialize_field("metadata", &self.metadata)?;
                state.serialize_field("spec", &self.spec)?;
                match &self.status {
                    Some(status) => state.serialize_field("status", status)?,
                    None => state.skip_field("status")?,
                }
                state.end()
            }
        }

        impl<'de> serde::Deserialize<'de> for $kind {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                #[derive(serde::Deserialize)]
                #[serde(rename = $plural, rename_all = "camelCase")]
                struct Wire {
                    api_version: Option<String>,
                    kind: Option<String>,
                    metadata: Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta>,
                    spec: Option<$spec>,
                    status: Option<$status>,
                }
                let wire = Wire::deserialize(deserializer)?;
                $crate::kind::expect("apiVersion", $crate::v1::API_VERSION, wire.api_version)?;
                $crate::kind::expect("kind", stringify!($kind), wire.kind)?;
                Ok($kind {
                    metadata: wire.metadata.unwrap_or_default(),
                    spec: wire.spec.unwrap_or_default(),
                    status: wire.status,
                })
            }
        }
    };
}
pub(crate) use resource;

/// Fails unless `got` is absent or the one value `want`.
pub(crate) fn expect<E: serde::de::Error>(field: &str, want: &str, got: Option<String>) -> Result<(), E> {
    match got {
        Some(got) if got != want => Err(E::custom(format_args!("{field} is {got:?}, expected {want:?}"))),
        _ => Ok(()),
    }
}

/// An enumeration that stays open: a value this build does not know survives reading and writing as `Other`.
macro_rules! open_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name {
            $($(#[$vdoc])* $variant,)+
            /// A value this build does not know, kept as it came.
            Other(String),
        }

        impl $name {
            /// The value as the API spells it.
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => stringify!($variant),)+
                    Self::Other(value) => value,
                }
            }
        }

        impl Default for $name {
            /// The zero value: the empty string, which no decision takes for a known one.
            fn default() -> Self {
                Self::Other(String::new())
            }
        }

        impl From<&str> for $name {
            fn from(value: &str) -> Self {
                match value {
                    $(stringify!($variant) => Self::$variant,)+
                    other => Self::Other(other.to_owned()),
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let value = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                Ok(Self::from(value.as_ref()))
            }
        }
    };
}
pub(crate) use open_enum;
