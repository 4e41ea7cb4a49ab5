//! Conversion between quantities and their API strings.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Wire;
use machinery::quantity::{Format, Quantity};

use crate::error::Error;

/// Parses the quantity in a field.
pub(crate) fn parse(field: &str, amount: &Wire) -> Result<Quantity, Error> {
    amount.try_into().map_err(|source| Error::Quantity { field: field.to_owned(), source })
}

/// A quantity in bytes; negative values count as zero.
pub(crate) fn value(amount: Quantity) -> u64 {
    amount.value().max(0).unsigned_abs()
}

/// A quantity of bytes; saturates at the largest value that a quantity can hold.
pub(crate) fn bytes(amount: u64) -> Quantity {
    Quantity::bytes(i64::try_from(amount).unwrap_or(i64::MAX))
}

/// A plain count.
pub(crate) fn count(amount: u64) -> Quantity {
    Quantity::new(i64::try_from(amount).unwrap_or(i64::MAX), Format::DecimalSi)
}

/// Millicores.
pub(crate) fn milli(amount: u64) -> Quantity {
    Quantity::from_milli(i64::try_from(amount).unwrap_or(i64::MAX), Format::DecimalSi)
}
