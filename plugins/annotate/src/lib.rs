//! The two objects that every inference answer carries, `environment_impact` and
//! `billing_cost`: their bytes, and how they get into an answer.
//!
//! Numbers are exact decimals written as JSON numbers: no exponent, no zeros at
//! the end. Amounts of money can be written as strings of the same digits. Text is ASCII (`é` becomes `\u00e9`), so the same bytes also stand in
//! a header. What is not known is left out, never zero.
//!
//! What does not change between requests (the place) is written once, in
//! [`Served::new`].

mod json;
mod objects;
mod splice;

pub use json::number;
pub use objects::{
    Amounts, BILLING_HEADER, Cost, Grid, IMPACT_HEADER, Impact, Provenance, Served, Site, headers, members,
    nothing,
};
pub use splice::splice;
