//! Generated images that clients fetch by URL, for a limited time.

pub mod cache;
mod names;
pub mod shared;
mod sharing;
