//! How the cache stores an object: as it is, or packed.
//!
//! A decoded object of a large kind takes ten times the memory of its JSON, mostly for fields that are not set. A
//! packed object is decoded on access, which is far cheaper than the request or decision it is needed for.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// How objects are packed; instantiated where the kind is known to be serializable.
pub(crate) struct Packing<K> {
    pack: fn(&K) -> Arc<[u8]>,
    unpack: fn(&[u8]) -> K,
}

impl<K> Clone for Packing<K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for Packing<K> {}

impl<K: Serialize + DeserializeOwned> Packing<K> {
    pub(crate) fn json() -> Self {
        Self {
            pack: |object| {
                let bytes = serde_json::to_vec(object);
                bytes.expect("objects of the API have string keys and no failing serializer").into()
            },
            unpack: |bytes| serde_json::from_slice(bytes).expect("a kind reads what it wrote"),
        }
    }
}

pub(crate) enum Held<K> {
    Whole(Arc<K>),
    Packed(Arc<[u8]>, Packing<K>),
}

impl<K> Clone for Held<K> {
    fn clone(&self) -> Self {
        match self {
            Self::Whole(object) => Self::Whole(object.clone()),
            Self::Packed(bytes, packing) => Self::Packed(bytes.clone(), *packing),
        }
    }
}

impl<K> Held<K> {
    pub(crate) fn new(object: &Arc<K>, packing: Option<Packing<K>>) -> Self {
        match packing {
            None => Self::Whole(object.clone()),
            Some(packing) => Self::Packed((packing.pack)(object), packing),
        }
    }

    pub(crate) fn get(&self) -> Arc<K> {
        match self {
            Self::Whole(object) => object.clone(),
            Self::Packed(bytes, packing) => Arc::new((packing.unpack)(bytes)),
        }
    }

    /// Size of the packed form; zero for an object that is not packed.
    pub(crate) fn packed_bytes(&self) -> usize {
        match self {
            Self::Whole(_) => 0,
            Self::Packed(bytes, _) => bytes.len(),
        }
    }
}

/// An object that is decoded on access.
pub struct Lazy<K> {
    held: Held<K>,
    object: OnceLock<Arc<K>>,
}

impl<K> Lazy<K> {
    pub(crate) fn new(held: Held<K>) -> Self {
        Self { held, object: OnceLock::new() }
    }
}

impl<K> Deref for Lazy<K> {
    type Target = Arc<K>;

    fn deref(&self) -> &Arc<K> {
        self.object.get_or_init(|| self.held.get())
    }
}
