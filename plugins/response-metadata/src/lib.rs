//! Annotation objects of every inference answer, `environment_impact` and `billing_cost`: their serialisation, and
//! their insertion into an answer.
//!
//! Numbers are exact decimals written as JSON numbers: no exponent, no trailing zeros. Amounts of money can be
//! written as strings with the same digits. Text is ASCII (`é` becomes `\u00e9`), so the same bytes are valid in a
//! header. Unknown values are omitted, never zero.
//!
//! Parts that are the same for all requests (the site) are serialised once, in [`SiteJson::new`].

mod json;
mod objects;
mod splice;

pub use json::write_number;
pub use objects::{
    AmountFormat, BILLING_HEADER, BillingCost, CacheSavings, DataCentreInfo, EnergyProvenance,
    EnvironmentImpact, GridInfo, IMPACT_HEADER, SiteJson, impact_and_billing_headers,
    impact_and_billing_members, zero_impact_and_billing_members,
};
pub use splice::insert_members;
