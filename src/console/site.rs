//! Site: pages and forms for one group of persons, on their own listeners. Sessions, sign-in, checks of forms and
//! headers are shared by all sites.

use super::actions::ActionDefinition;
use super::pages::{DownloadDefinition, PageDefinition};
use penstock_storage::users::UserRole;
use std::num::NonZeroU64;

/// Definition of a site: pages and forms of one group of persons.
pub struct ConsoleSite {
    /// Path below which its pages are, with a slash at both ends; also the path of its cookie.
    pub root: &'static str,
    /// Title of the pages without a session.
    pub title: &'static str,
    /// Name of the session's cookie.
    pub cookie: &'static str,
    /// Roles that may sign in.
    pub roles: &'static [UserRole],
    /// Message of the refusal of persons who have a role of another site, after their password was verified.
    pub other_role_message: &'static str,
    /// Pages of the site.
    pub pages: &'static [PageDefinition],
    /// Files that are not pages.
    pub downloads: &'static [DownloadDefinition],
    /// Forms of the site.
    pub actions: &'static [ActionDefinition],
    /// Maximum number of sign-in attempts per minute of all persons together, successful ones included.
    pub attempts_per_minute: NonZeroU64,
}

impl ConsoleSite {
    /// Returns true if a path belongs to the site.
    #[must_use]
    pub fn has_path(&self, path: &str) -> bool {
        path.starts_with(self.root) || path == self.root.trim_end_matches('/')
    }

    /// Returns the path of `rest` below the root.
    #[must_use]
    pub fn path(&self, rest: &str) -> String {
        format!("{}{rest}", self.root)
    }
}
