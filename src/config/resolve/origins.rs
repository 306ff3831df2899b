//! `listen.cors` and `listen.documentation`: allowed origins, and the URL of the documentation.

use super::super::settings::CorsPolicy;
use super::SettingsResolver;
use super::key_path::KeyPath;
use super::url;

/// CORS wildcard for any origin.
const ANY: &str = "*";

impl SettingsResolver<'_> {
    /// Parses the origins in `listen.cors`, each a scheme and a host; `None` after a mistake.
    pub fn resolve_cors(&mut self, raw: &[String], spot: &KeyPath<'_>) -> Option<CorsPolicy> {
        match raw {
            [] => return Some(CorsPolicy::Off),
            [one] if one == ANY => return Some(CorsPolicy::Any),
            _ => {}
        }
        let origins: Vec<Option<Box<str>>> = raw
            .iter()
            .enumerate()
            .map(|(index, text)| self.parse_origin(text, &spot.list_element(index)))
            .collect();
        origins.into_iter().collect::<Option<_>>().map(CorsPolicy::Origins)
    }

    fn parse_origin(&mut self, text: &str, spot: &KeyPath<'_>) -> Option<Box<str>> {
        const LIKE: &str =
            "Write scheme and host, such as \"https://app.example.eu\", or [\"*\"] alone for any.";
        if text == ANY {
            self.report_mistake(spot, "Any origin and certain ones exclude each other.", LIKE);
            return None;
        }
        match url::parse_base_url(text) {
            Ok(base) if base.path_prefix.is_empty() && !text.ends_with('/') => {
                let scheme = if base.tls { "https" } else { "http" };
                Some(format!("{scheme}://{}", base.authority).into())
            }
            Ok(_) => {
                self.report_mistake(spot, "An origin has no path, and no slash at its end.", LIKE);
                None
            }
            Err((why, _)) => {
                self.report_mistake(spot, why, LIKE);
                None
            }
        }
    }

    /// Parses a URL that is only displayed; `None` after a mistake.
    pub fn parse_display_url(&mut self, text: &str, spot: &KeyPath<'_>) -> Option<Box<str>> {
        let plain = text.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"\\<>".contains(&byte));
        let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
        if plain && rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/')) {
            return Some(text.into());
        }
        self.report_mistake(
            spot,
            "It is not the address of a page.",
            "Write something like \"https://docs.example.eu\".",
        );
        None
    }
}
