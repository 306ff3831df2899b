//! Annotation objects of every inference answer, `environment_impact` and `billing_cost`: their serialisation, and
//! their insertion into an answer.
//!
//! Numbers are exact decimals written as JSON numbers: no exponent, no trailing zeros. Amounts of money can be written
//! as strings of the same digits. Text is ASCII (`é` becomes `\u00e9`), so the same bytes are valid in a header.
//! Unknown values are omitted, never zero.
//!
//! Parts that are the same for all requests (the site) are serialised once, in [`Served::new`].

mod json;
mod objects;
mod splice;

pub use json::number;
pub use objects::{
    Amounts, BILLING_HEADER, Cost, Grid, IMPACT_HEADER, Impact, Provenance, Served, Site, headers, members,
    nothing,
};
pub use splice::splice;
