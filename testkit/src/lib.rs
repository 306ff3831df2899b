//! Test kit: scripted providers that count their calls, clients that see each byte, certificates, and waits.
//!
//! The test kit imports no code of the gateway. Every wait is for a condition, with a time limit that is only reached
//! if something hangs; then it panics, as a failed test does.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::missing_panics_doc
)]

pub mod certificates;
pub mod client;
pub mod endless_provider;
pub mod h2_client;
pub mod h2_provider;
pub mod provider;
pub mod script;
mod wait;

pub use client::{Answer, Client};
pub use provider::Provider;
pub use wait::{is_long_run, until, until_answered, within};
