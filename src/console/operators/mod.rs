//! Operators' console, on the admin listener.

mod account_actions;
pub mod actions;
pub mod configuration_check;
mod grant;
pub mod pages;
mod routing;

use super::site::ConsoleSite;
use penstock_storage::users::UserRole;
use std::num::NonZeroU64;

/// Definition of the operators' console.
pub static OPERATORS: ConsoleSite = ConsoleSite {
    root: "/console/",
    title: "Console",
    cookie: "penstock_session",
    roles: &[UserRole::Admin, UserRole::Operator, UserRole::Finance, UserRole::Viewer],
    other_role_message: "This user belongs to an account and signs in to the dashboard.",
    pages: pages::PAGES,
    downloads: pages::DOWNLOADS,
    actions: actions::ACTIONS,
    attempts_per_minute: NonZeroU64::new(60).unwrap(),
};
