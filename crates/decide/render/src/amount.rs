//! Amounts in and out of the wire's strings.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Wire;
use machinery::quantity::{Format, Quantity};

use crate::Error;

/// What a list of the instance's resources says about one resource.
pub(crate) fn listed(list: &str, name: &str, amounts: &BTreeMap<String, Wire>) -> Result<Option<Quantity>, Error> {
    amounts.get(name).map(|amount| parse(&format!("spec.domain.resources.{list}.{name}"), amount)).transpose()
}

/// The amount in a field.
pub(crate) fn parse(field: &str, amount: &Wire) -> Result<Quantity, Error> {
    amount.try_into().map_err(|source| Error::Quantity { field: field.to_owned(), source })
}

/// Bytes; more than a quantity can hold counts as all it can hold.
pub(crate) fn bytes(amount: u64) -> Quantity {
    Quantity::bytes(i64::try_from(amount).unwrap_or(i64::MAX))
}

/// Thousandths of a CPU.
pub(crate) fn milli(amount: u64) -> Quantity {
    Quantity::from_milli(i64::try_from(amount).unwrap_or(i64::MAX), Format::DecimalSi)
}
