//! Upgrades, reloads and stops under load, certificates and credentials that change, rejected locations.
//! `PENSTOCK_FULL=1` runs the full sizes.

mod certificates;
mod descriptor_limit;
mod draining;
mod failed_upgrades;
mod goaway;
pub mod load_clients;
mod open_streams;
mod provider_countries;
mod reload;
mod startup;
mod transports;
mod upgrade;

/// Returns the full size in the long form of the tests, otherwise the reduced size.
pub fn size(full: usize, reduced: usize) -> usize {
    if is_full() { full } else { reduced }
}

pub fn is_full() -> bool {
    std::env::var_os("PENSTOCK_FULL").is_some()
}
