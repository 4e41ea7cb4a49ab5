//! Amounts in and out of the wire's strings.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Wire;
use machinery::quantity::{Format, Quantity};

use crate::error::Error;

/// The amount in a field.
pub(crate) fn parse(field: &str, amount: &Wire) -> Result<Quantity, Error> {
    amount.try_into().map_err(|source| Error::Quantity { field: field.to_owned(), source })
}

/// Bytes of an amount; less than none counts as none.
pub(crate) fn value(amount: Quantity) -> u64 {
    amount.value().max(0).unsigned_abs()
}

/// Bytes; more than a quantity can hold counts as all it can hold.
pub(crate) fn bytes(amount: u64) -> Quantity {
    Quantity::bytes(i64::try_from(amount).unwrap_or(i64::MAX))
}

/// A number of things.
pub(crate) fn count(amount: u64) -> Quantity {
    Quantity::new(i64::try_from(amount).unwrap_or(i64::MAX), Format::DecimalSi)
}

/// Thousandths of a CPU.
pub(crate) fn milli(amount: u64) -> Quantity {
    Quantity::from_milli(i64::try_from(amount).unwrap_or(i64::MAX), Format::DecimalSi)
}
