//! Clocks and formats of time.

pub mod clock;
pub mod format;
