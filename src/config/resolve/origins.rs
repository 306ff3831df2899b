//! `listen.cors` and `listen.documentation`: allowed origins, and the URL of the documentation.

use super::super::settings::Cors;
use super::Proof;
use super::key_path::Spot;
use super::url;

/// CORS wildcard for any origin.
const ANY: &str = "*";

impl Proof<'_> {
    /// Parses origins as browsers write them.
    pub fn cors(&mut self, raw: &[String], spot: &Spot<'_>) -> Option<Cors> {
        match raw {
            [] => return Some(Cors::Off),
            [one] if one == ANY => return Some(Cors::Any),
            _ => {}
        }
        let origins: Vec<Option<Box<str>>> =
            raw.iter().enumerate().map(|(index, text)| self.origin(text, &spot.at(index))).collect();
        origins.into_iter().collect::<Option<_>>().map(Cors::Origins)
    }

    fn origin(&mut self, text: &str, spot: &Spot<'_>) -> Option<Box<str>> {
        const LIKE: &str =
            "Write scheme and host, such as \"https://app.example.eu\", or [\"*\"] alone for any.";
        if text == ANY {
            self.wrong(spot, "Any origin and certain ones exclude each other.", LIKE);
            return None;
        }
        match url::base(text) {
            Ok(base) if base.path_prefix.is_empty() && !text.ends_with('/') => {
                let scheme = if base.tls { "https" } else { "http" };
                Some(format!("{scheme}://{}", base.authority).into())
            }
            Ok(_) => {
                self.wrong(spot, "An origin has no path, and no slash at its end.", LIKE);
                None
            }
            Err((why, _)) => {
                self.wrong(spot, why, LIKE);
                None
            }
        }
    }

    /// Parses a URL that is only displayed.
    pub fn link(&mut self, text: &str, spot: &Spot<'_>) -> Option<Box<str>> {
        let plain = text.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"\\<>".contains(&byte));
        let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
        if plain && rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/')) {
            return Some(text.into());
        }
        self.wrong(
            spot,
            "It is not the address of a page.",
            "Write something like \"https://docs.example.eu\".",
        );
        None
    }
}
