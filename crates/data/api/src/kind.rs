//! Common code for the API types: the `resource!` and `open_enum!` macros and the tolerant decoder.

use k8s_openapi::Resource;
use serde::{Deserialize, Deserializer};

use crate::resources;

/// Reads `null` as an empty collection, as Go clients write unset lists and maps that way.
pub(crate) fn null_as_empty<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// A kind: metadata, spec and what else it may have, known to `k8s-openapi` and through it to any client.
///
/// Kinds of `kubevirt.io/v1` give only their plural; others write `"group" / "version" / "plural"`, with `cluster`
/// before it for kinds that are not in a namespace.
///
/// `apiVersion` and `kind` are not fields: they are written when serializing and checked when deserializing. They may
/// be absent, as they are inside lists. Any served version of a kind is accepted, since all have the same fields; the
/// type's own version is written.
macro_rules! resource {
    ($(#[$doc:meta])* $kind:ident, $plural:literal, spec: $spec:ty $(, $other:ident: $type:ty)*) => {
        $crate::kind::resource! {
            $(#[$doc])*
            $kind, "kubevirt.io" / "v1" / $plural, spec: $spec $(, $other: $type)*
        }
    };
    (
        $(#[$doc:meta])*
        $kind:ident, $($scope:ident)? $group:literal / $version:literal / $plural:literal,
        spec: $spec:ty $(, $other:ident: $type:ty)*
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct $kind {
            pub metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
            pub spec: $spec,
            $(pub $other: Option<$type>,)*
        }

        impl k8s_openapi::Resource for $kind {
            const API_VERSION: &'static str = concat!($group, "/", $version);
            const GROUP: &'static str = $group;
            const KIND: &'static str = stringify!($kind);
            const VERSION: &'static str = $version;
            const URL_PATH_SEGMENT: &'static str = $plural;
            type Scope = $crate::kind::scope!($($scope)?);
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
                #[derive(serde::Serialize)]
                #[serde(rename = $plural, rename_all = "camelCase")]
                struct Wire<'a> {
                    api_version: &'static str,
                    kind: &'static str,
                    metadata: &'a k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
                    spec: &'a $spec,
                    $(
                        #[serde(skip_serializing_if = "Option::is_none")]
                        $other: &'a Option<$type>,
                    )*
                }
                let wire = Wire {
                    api_version: <Self as k8s_openapi::Resource>::API_VERSION,
                    kind: <Self as k8s_openapi::Resource>::KIND,
                    metadata: &self.metadata,
                    spec: &self.spec,
                    $($other: &self.$other,)*
                };
                wire.serialize(serializer)
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
                    $($other: Option<$type>,)*
                }
                let wire = Wire::deserialize(deserializer)?;
                $crate::kind::expect::<Self, D::Error>(wire.api_version.as_deref(), wire.kind.as_deref())?;
                Ok($kind {
                    metadata: wire.metadata.unwrap_or_default(),
                    spec: wire.spec.unwrap_or_default(),
                    $($other: wire.$other,)*
                })
            }
        }
    };
}
pub(crate) use resource;

/// The scope of a kind.
macro_rules! scope {
    () => {
        k8s_openapi::NamespaceResourceScope
    };
    (cluster) => {
        k8s_openapi::ClusterResourceScope
    };
}
pub(crate) use scope;

/// Fails unless an object's `kind` and `apiVersion` are absent or correct.
pub(crate) fn expect<T: Resource, E: serde::de::Error>(api_version: Option<&str>, kind: Option<&str>) -> Result<(), E> {
    if let Some(got) = kind.filter(|&kind| kind != T::KIND) {
        return Err(E::custom(format_args!("kind is {got:?}, expected {:?}", T::KIND)));
    }
    let served = |got: &str| resources::of_kind(T::GROUP, T::KIND).is_some_and(|resource| resource.serves(got));
    match api_version.filter(|&got| got != T::API_VERSION && !served(got)) {
        Some(got) => Err(E::custom(format_args!("apiVersion is {got:?}, expected {:?}", T::API_VERSION))),
        None => Ok(()),
    }
}

/// An open enumeration: an unknown value survives reading and writing as `Other`.
///
/// A variant is spelled like its name unless `= "…"` says otherwise.
macro_rules! open_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident $(= $spelled:literal)?),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name {
            $($(#[$vdoc])* $variant,)+
            /// An unknown value, kept unchanged.
            Other(String),
        }

        impl $name {
            /// The value as the API spells it.
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => $crate::kind::spelled!($variant $(, $spelled)?),)+
                    Self::Other(value) => value,
                }
            }
        }

        impl Default for $name {
            /// The zero value: the empty string, which equals no known value.
            fn default() -> Self {
                Self::Other(String::new())
            }
        }

        impl From<&str> for $name {
            fn from(value: &str) -> Self {
                $(if value == $crate::kind::spelled!($variant $(, $spelled)?) {
                    return Self::$variant;
                })+
                Self::Other(value.to_owned())
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

/// The API spelling of a variant.
macro_rules! spelled {
    ($variant:ident) => {
        stringify!($variant)
    };
    ($variant:ident, $spelled:literal) => {
        $spelled
    };
}
pub(crate) use spelled;
