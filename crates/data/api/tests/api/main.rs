//! What the types, schemas and words of the API promise.

mod compat;
mod config;
mod kinds;
mod schema;
mod schema_properties;
mod schema_recorded;
mod words;
