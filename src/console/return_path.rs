//! Way back to a page after a sign-in: the page that a person without a session asked for travels in the query of the
//! sign-in page and in its form.

use super::Console;
use super::answer::{self, ConsoleAnswer};
use super::pages::match_path;
use super::request::ConsoleRequest;
use super::site::ConsoleSite;
use http::Method;
use penstock_console::pages::percent_encode;

/// Name of the query parameter and of the form field with the path to return to.
pub const RETURN_FIELD: &str = "next";
/// Query parameter of the sign-in page after a form that was sent without a session.
const LOST_FORM: &str = "lost_form";
/// Maximum length of a path to return to, in bytes, so that it fits into the cookie of a sign-in in progress.
const MAX_PATH_BYTES: usize = 1_000;

impl ConsoleSite {
    /// Returns the path and query if a sign-in may lead there: a page of this site or the question before an action,
    /// whose GET requests change nothing. Returns `None` for anything else, such as an address of another site.
    #[must_use]
    pub fn return_path<'t>(&self, text: &'t str) -> Option<&'t str> {
        let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'\\' | b'#' | b'"' | b'\'');
        if text.len() > MAX_PATH_BYTES || !text.bytes().all(is_plain) {
            return None;
        }
        let path = text.split('?').next().unwrap_or_default();
        let mut known = self.pages.iter().map(|row| row.path).chain(self.actions.iter().map(|row| row.path));
        known.any(|pattern| match_path(pattern, path).is_some()).then_some(text)
    }
}

impl Console {
    /// Returns the path to return to that the query or the form of a sign-in names, if it is a permitted one.
    pub(super) fn wanted_path<'r>(&self, request: &'r ConsoleRequest) -> Option<&'r str> {
        self.site.return_path(request.form_or_query_value(RETURN_FIELD))
    }

    /// Returns the query of the sign-in page, or of the start of a sign-in, that leads back to a path; empty for none.
    pub(super) fn return_query(&self, wanted: Option<&str>) -> String {
        let wanted = wanted.filter(|path| *path != self.site.root);
        wanted.map(|path| format!("?{RETURN_FIELD}={}", percent_encode(path))).unwrap_or_default()
    }

    /// Redirects a request without a session to the sign-in page, which leads back to the wanted page: that of the
    /// request, or the page from which a form was sent.
    pub(super) fn sign_in_redirect(&self, request: &ConsoleRequest) -> ConsoleAnswer {
        let address = request.path_and_query();
        let is_form = request.method == Method::POST && request.path != self.site.path("sign-out");
        let wanted = if is_form { request.referring_page() } else { Some(&*address) };
        let mut query = self.return_query(wanted.and_then(|path| self.site.return_path(path)));
        if is_form {
            query.push_str(if query.is_empty() { "?" } else { "&" });
            query.push_str(&format!("{LOST_FORM}=yes"));
        }
        answer::redirect_answer(&format!("{}{query}", self.site.path("sign-in")))
    }

    /// Returns why the sign-in page is shown: the session of the browser has ended, perhaps before a form was sent.
    /// Returns `None` for a browser that had no session.
    pub(super) async fn end_of_session(&self, request: &ConsoleRequest) -> Option<&'static str> {
        if request.query_parameter(LOST_FORM).is_some() {
            return Some("Your session has ended, and nothing was changed. Sign in again.");
        }
        request.session_id()?;
        let is_over = self.active_session(request).await.is_ok_and(|active| active.is_none());
        is_over.then_some("Your session has ended. Sign in again.")
    }
}

#[cfg(test)]
mod tests {
    use crate::console::dashboard::DASHBOARD;
    use crate::console::operators::OPERATORS;

    #[test]
    fn a_sign_in_leads_to_pages_of_its_own_site_only() {
        for path in [
            "/console/",
            "/console/accounts/acme",
            "/console/accounts/a%2Fb?after=1&limit=2",
            "/console/users/eve/disable",
        ] {
            assert_eq!(OPERATORS.return_path(path), Some(path));
        }
        let long = format!("/console/usage?from={}", "1".repeat(1_000));
        for path in [
            "",
            "/",
            "//evil.example/console/",
            "https://evil.example/console/",
            "/console/\\evil.example",
            "/console//evil.example",
            "/console/../dashboard/",
            "/console/usage#x",
            "/console/usage\r\nset-cookie: a=b",
            "/console/usage?from=\u{e9}",
            "/console/nothing",
            "/console/sign-out",
            "/console/usage.csv",
            "/dashboard/",
            &long,
        ] {
            assert_eq!(OPERATORS.return_path(path), None, "{path}");
        }
        assert!(DASHBOARD.return_path("/dashboard/invoice?from=2026-11-01").is_some());
        assert!(DASHBOARD.return_path("/console/").is_none());
    }
}
