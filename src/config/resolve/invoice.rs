//! Seller and customers on invoices.

use super::super::raw::{ConfigFile, ExactDecimal};
use super::super::settings::{InvoiceCustomer, InvoiceParty, InvoiceSettings};
use super::SettingsResolver;
use super::key_path::KeyPath;
use rust_decimal::Decimal;

impl SettingsResolver<'_> {
    /// Resolves `[invoice]`; reports invalid percentages and repeated customers.
    pub fn resolve_invoice(&mut self, raw: &ConfigFile, top: &KeyPath<'_>) -> InvoiceSettings {
        let (invoice, spot) = (&raw.invoice, top.child("invoice"));
        self.check_percent(invoice.vat_percent, &spot.child("vat_percent"));
        let list = spot.child("customers");
        let mut customers: Vec<InvoiceCustomer> = Vec::with_capacity(invoice.customers.len());
        for (index, customer) in invoice.customers.iter().enumerate() {
            let at = list.list_element(index);
            if customers.iter().any(|known| *known.account == *customer.id) {
                self.report_mistake(
                    &at.child("id"),
                    "There is a customer of this account already.",
                    "Join the blocks.",
                );
            }
            if let Some(percent) = customer.vat_percent {
                self.check_percent(percent, &at.child("vat_percent"));
            }
            customers.push(InvoiceCustomer {
                account: customer.id.as_str().into(),
                party: InvoiceParty {
                    name: customer.name.as_deref().unwrap_or_default().into(),
                    address: customer.address.clone(),
                    vat_id: customer.vat_id.as_deref().map(Into::into),
                },
                vat_percent: customer.vat_percent.map(|percent| percent.0),
                note: customer.note.as_deref().map(Into::into),
            });
        }
        InvoiceSettings {
            seller: invoice.seller.as_deref().map(|name| InvoiceParty {
                name: name.into(),
                address: invoice.address.clone(),
                vat_id: invoice.vat_id.as_deref().map(Into::into),
            }),
            vat_percent: invoice.vat_percent.0,
            number_prefix: invoice.number_prefix.as_str().into(),
            note: invoice.note.as_deref().map(Into::into),
            customers,
        }
    }

    fn check_percent(&mut self, percent: ExactDecimal, spot: &KeyPath<'_>) {
        if percent.0 > Decimal::ONE_HUNDRED {
            self.report_mistake(spot, "It is more than 100 percent.", "Write a rate such as 19 or 5.5.");
        }
    }
}
