//! `[invoice]` as written in a configuration: seller, customers and VAT.

use super::ExactDecimal;
use rust_decimal::Decimal;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Seller and customers on invoices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct InvoiceConfig {
    /// Name of the seller. Without it, no invoice can be issued, and statements have no seller.
    #[schemars(length(min = 1, max = 200), example = &"Example Hosting GmbH")]
    pub seller: Option<String>,
    /// Address of the seller, line by line.
    #[schemars(inner(length(min = 1, max = 200)), example = &["Beispielstraße 1", "10115 Berlin", "Germany"])]
    pub address: Vec<String>,
    /// VAT identification number of the seller.
    #[schemars(length(min = 1, max = 50), example = &"DE123456789")]
    pub vat_id: Option<String>,
    /// VAT rate in percent.
    #[schemars(extend("maximum" = 100))]
    pub vat_percent: ExactDecimal,
    /// Prefix of the numbers of invoices and credit notes, such as `PS-` in `PS-2026-000001`. The year follows, and a
    /// number that is consecutive for the seller and the year.
    #[schemars(length(max = 20), example = &"PS-")]
    pub number_prefix: String,
    /// Text below the sums, such as the terms of payment.
    #[schemars(length(min = 1, max = 1000), example = &"Payable within 14 days.")]
    pub note: Option<String>,
    /// Customers: one block for each account with more than a name.
    pub customers: Vec<InvoiceCustomerConfig>,
}

/// Customer of an account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub struct InvoiceCustomerConfig {
    /// Id of the account.
    #[schemars(length(min = 1), example = &"acme")]
    pub id: String,
    /// Name; by default that of the account.
    #[schemars(length(min = 1, max = 200), example = &"ACME SA")]
    pub name: Option<String>,
    /// Address, line by line.
    #[serde(default)]
    #[schemars(inner(length(min = 1, max = 200)), example = &["1 rue de l'Exemple", "75001 Paris", "France"])]
    pub address: Vec<String>,
    /// VAT identification number.
    #[schemars(length(min = 1, max = 50), example = &"FR12345678901")]
    pub vat_id: Option<String>,
    /// VAT rate in percent, instead of the seller's.
    #[schemars(extend("maximum" = 100), example = &0)]
    pub vat_percent: Option<ExactDecimal>,
    /// Text below the sums, instead of the seller's.
    #[schemars(length(min = 1, max = 1000), example = &"Reverse charge: the customer owes the VAT.")]
    pub note: Option<String>,
}

impl Default for InvoiceConfig {
    fn default() -> Self {
        Self {
            seller: None,
            address: Vec::new(),
            vat_id: None,
            vat_percent: ExactDecimal(Decimal::ZERO),
            number_prefix: String::new(),
            note: None,
            customers: Vec::new(),
        }
    }
}
