//! Account holders' dashboard, on its own listener.

mod actions;
mod pages;
pub mod playground;
pub mod scope;
#[cfg(test)]
mod tests;

use super::site::ConsoleSite;
use penstock_storage::users::UserRole;
use std::num::NonZeroU64;

/// Roles that use the dashboard.
const HOLDERS: &[UserRole] = &[UserRole::Account];

/// Definition of the account holders' dashboard.
pub static DASHBOARD: ConsoleSite = ConsoleSite {
    root: "/dashboard/",
    title: "Dashboard",
    cookie: "penstock_dashboard",
    roles: HOLDERS,
    other_role_message: "This user belongs to no account and signs in to the operators' console.",
    pages: pages::PAGES,
    downloads: pages::DOWNLOADS,
    actions: actions::ACTIONS,
    attempts_per_minute: NonZeroU64::new(300).unwrap(),
};
