//! Site: pages and forms for one group of persons, on its own listener. All sites share the code for sessions, sign-in,
//! the check of form tokens, and the response headers.

use super::EVENTS_PATH;
use super::actions::ActionDefinition;
use super::dashboard::playground::PLAYGROUND_PATH;
use super::openid::{CALLBACK_PATH, START_PATH};
use super::operators::actions::CONFIGURATION_CHECK_PATH;
use super::pages::{DownloadDefinition, PageDefinition, match_path};
use http::Method;
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
    /// Maximum number of failed attempts per minute to sign in, of all persons together.
    pub attempts_per_minute: NonZeroU64,
}

impl ConsoleSite {
    /// Returns true if the path is the root of the site or below it, whether or not a page has this path.
    #[must_use]
    pub fn is_path_below_root(&self, path: &str) -> bool {
        path.starts_with(self.root) || path == self.root.trim_end_matches('/')
    }

    /// Returns the methods that a path supports. For an unknown path it returns all methods, so that a request for
    /// the path gets 404 and not 405.
    #[must_use]
    pub fn allowed_methods(&self, path: &str) -> Vec<Method> {
        let rest = path.strip_prefix(self.root).unwrap_or_default();
        let is = |pattern: &str| match_path(pattern, path).is_some();
        let is_form = ["language", "sign-in", "sign-out"].contains(&rest)
            || rest.starts_with("invitation/")
            || [CONFIGURATION_CHECK_PATH, PLAYGROUND_PATH].contains(&path)
            || self.actions.iter().any(|row| is(row.path));
        let is_page = ["", EVENTS_PATH, START_PATH, CALLBACK_PATH].contains(&rest)
            || rest.starts_with("assets/")
            || self.pages.iter().any(|row| is(row.path))
            || self.downloads.iter().any(|row| is(row.path));
        let mut methods = vec![Method::GET, Method::HEAD];
        methods.extend((is_form || !is_page).then_some(Method::POST));
        methods
    }

    /// Returns the path of `rest`, a path relative to the root of the site.
    #[must_use]
    pub fn path(&self, rest: &str) -> String {
        format!("{}{rest}", self.root)
    }
}
