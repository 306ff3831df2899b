//! Message of a completed action, shown once by the page to which the browser is redirected. The message travels in a
//! cookie, so that every gateway of a fleet can show it; a digest binds it to the session.

use super::site::ConsoleSite;
use penstock_console::{Block, NoticeKind, Text};
use penstock_core::{hex, percent};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// Name of the cookie with the message.
pub const FLASH_COOKIE: &str = "penstock_message";
/// Time after which a message that no page has shown is dropped, in seconds.
const MESSAGE_LIFETIME_SECONDS: u64 = 60;
/// Maximum size of the cookie's value, in bytes; longer messages are not shown.
const MAX_BYTES: usize = 3_000;

/// Message about a completed action: a text of the translation table, and the values of its placeholders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlashMessage {
    /// Text of the translation table.
    pub text: &'static str,
    /// Values of its placeholders.
    pub values: Vec<String>,
}

impl FlashMessage {
    /// Returns the message as a block of a page.
    pub fn into_block(self) -> Block {
        let values = self.values.into_iter().map(Text::Data).collect();
        Block::Notice(NoticeKind::Success, Text::Template(self.text, values))
    }

    /// Returns the cookie that carries the message; `None` if the message is too long. `form_token` is the secret of
    /// the session.
    pub fn to_cookie(&self, site: &ConsoleSite, is_secure: bool, form_token: &str) -> Option<String> {
        let message = percent::encode(&json!([self.text, self.values]).to_string(), percent::PATH_SEGMENT);
        let value = format!("{message}.{}", digest(&message, form_token));
        (value.len() <= MAX_BYTES).then(|| cookie(site, is_secure, &value, MESSAGE_LIFETIME_SECONDS))
    }

    /// Reads the message from the value of its cookie; `None` if the value was not made for this session.
    pub fn from_cookie(value: &str, form_token: &str) -> Option<Self> {
        let (message, given) = value.rsplit_once('.')?;
        if form_token.is_empty() || given != digest(message, form_token) {
            return None;
        }
        let parsed: Value = serde_json::from_str(&percent::decode(message)?).ok()?;
        let text = penstock_console::find_english_text(parsed.get(0)?.as_str()?)?;
        let values = parsed.get(1)?.as_array()?.iter().filter_map(|value| value.as_str().map(str::to_owned));
        Some(Self { text, values: values.collect() })
    }
}

/// Returns the cookie that removes the message from the browser.
pub fn removal_cookie(site: &ConsoleSite, is_secure: bool) -> String {
    cookie(site, is_secure, "", 0)
}

fn cookie(site: &ConsoleSite, is_secure: bool, value: &str, seconds: u64) -> String {
    let (path, secure) = (site.root.trim_end_matches('/'), if is_secure { "; Secure" } else { "" });
    format!("{FLASH_COOKIE}={value}; Path={path}; HttpOnly; SameSite=Strict; Max-Age={seconds}{secure}")
}

fn digest(message: &str, form_token: &str) -> String {
    hex::encode(Sha256::digest(format!("flash {form_token} {message}").as_bytes()).iter())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::console::operators::OPERATORS;

    fn value_of(cookie: &str) -> &str {
        cookie.split(['=', ';']).nth(1).unwrap()
    }

    #[test]
    fn a_message_is_shown_in_its_own_session_only() {
        let message = FlashMessage { text: "The key {0} was revoked.", values: vec!["k; <1>".to_owned()] };
        let cookie = message.to_cookie(&OPERATORS, true, "secret").unwrap();
        assert!(
            cookie.ends_with("; Path=/console; HttpOnly; SameSite=Strict; Max-Age=60; Secure"),
            "{cookie}"
        );
        let value = value_of(&cookie);
        assert_eq!(FlashMessage::from_cookie(value, "secret"), Some(message));
        assert_eq!(FlashMessage::from_cookie(value, "other"), None);
        assert_eq!(FlashMessage::from_cookie(&value.replacen('k', "l", 1), "secret"), None);
        for bad in ["", ".", "00.11"] {
            assert_eq!(FlashMessage::from_cookie(bad, "secret"), None, "{bad}");
        }
    }

    #[test]
    fn only_texts_of_the_table_are_shown_and_long_ones_are_left_out() {
        let message = FlashMessage { text: "Anything else", values: Vec::new() };
        let cookie = message.to_cookie(&OPERATORS, false, "secret").unwrap();
        assert_eq!(FlashMessage::from_cookie(value_of(&cookie), "secret"), None);
        let long = FlashMessage { text: "The key {0} was revoked.", values: vec!["k".repeat(3_000)] };
        assert_eq!(long.to_cookie(&OPERATORS, false, "secret"), None);
    }
}
