//! Site: pages and forms for one group of persons, on listeners of their own. Everything else is shared: sessions,
//! sign-in, checks of forms, headers.

use super::actions::ActionRow;
use super::pages::{DownloadRow, PageRow};
use penstock_storage::users::UserRole;
use std::num::NonZeroU64;

/// Pages and forms of one group of persons.
pub struct ConsoleSite {
    /// Path of its pages, with a slash at both ends; also the path of its cookie.
    pub root: &'static str,
    /// Title of the pages without a session.
    pub title: &'static str,
    /// Name of the session's cookie.
    pub cookie: &'static str,
    /// Roles that may sign in.
    pub roles: &'static [UserRole],
    /// Refusal of persons with another role, after their password was right.
    pub other_site: &'static str,
    /// Pages.
    pub pages: &'static [PageRow],
    /// Files that are not pages.
    pub downloads: &'static [DownloadRow],
    /// Forms.
    pub actions: &'static [ActionRow],
    /// Failed attempts to sign in that all persons together have per minute.
    pub attempts_per_minute: NonZeroU64,
}

impl ConsoleSite {
    /// Returns true if a path belongs to the site.
    #[must_use]
    pub fn has_path(&self, path: &str) -> bool {
        path.starts_with(self.root) || path == self.root.trim_end_matches('/')
    }

    /// Path below the root.
    #[must_use]
    pub fn path(&self, rest: &str) -> String {
        format!("{}{rest}", self.root)
    }
}
