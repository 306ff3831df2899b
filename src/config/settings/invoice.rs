//! Settings of invoices: seller, customers and VAT.

use rust_decimal::Decimal;

/// Settings of invoices: seller, VAT and customers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvoiceSettings {
    /// Seller. If `None`, no invoice can be issued, and statements have no seller.
    pub seller: Option<InvoiceParty>,
    /// VAT rate in percent, 0 to 100.
    pub vat_percent: Decimal,
    /// Prefix of the numbers of invoices and credit notes.
    pub number_prefix: Box<str>,
    /// Text below the totals of an invoice.
    pub note: Option<Box<str>>,
    /// Customers that the invoices of the accounts name.
    pub customers: Vec<InvoiceCustomer>,
}

/// Seller or customer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InvoiceParty {
    /// Name; empty for a customer with the name of the account.
    pub name: Box<str>,
    /// Address, line by line.
    pub address: Vec<String>,
    /// VAT identification number.
    pub vat_id: Option<Box<str>>,
}

/// Customer that the invoices of an account name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvoiceCustomer {
    /// Id of the account.
    pub account: Box<str>,
    /// Name and address of the customer.
    pub party: InvoiceParty,
    /// VAT rate in percent; `None` for the seller's.
    pub vat_percent: Option<Decimal>,
    /// Text below the sums; `None` for the seller's.
    pub note: Option<Box<str>>,
}

impl InvoiceSettings {
    /// Returns the customer of an account, if it has one.
    #[must_use]
    pub fn customer(&self, account: &str) -> Option<&InvoiceCustomer> {
        self.customers.iter().find(|customer| *customer.account == *account)
    }
}
