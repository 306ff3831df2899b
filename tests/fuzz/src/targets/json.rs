//! JSON scanned in place: the scanner accepts what a complete parser accepts, and strings survive a round trip.

use penstock_json_scan::json::{self, StringClass};
use serde_json::Value;

pub fn check(bytes: &[u8]) {
    let text = json::trim(bytes);
    let end = json::value_end(text, 0);
    if let Some(end) = end {
        assert!(end <= text.len());
    }
    let whole = end == Some(text.len());
    let parsed = serde_json::from_slice::<Value>(text);
    if let Ok(value) = &parsed {
        // The parser has the same depth limit. Numbers that it cannot represent are valid JSON nevertheless.
        assert!(whole, "a JSON document was not taken");
        if let Value::Object(object) = value {
            let mut members = json::members(text);
            let mut names = Vec::new();
            while let Some((name, value)) = members.next_raw() {
                assert!(serde_json::from_slice::<Value>(value).is_ok());
                names.extend(json::unescape(name).map(|name| name.into_owned()));
            }
            assert!(members.is_complete());
            assert!(object.keys().all(|key| names.contains(key)));
        }
        if let Value::Array(array) = value {
            assert_eq!(json::elements(text).count(), array.len());
        }
        if let Value::String(string) = value {
            let inside = &text[1..text.len() - 1];
            assert_ne!(json::classify_string(inside), StringClass::Invalid);
            assert_eq!(json::unescape(inside).as_deref(), Some(string.as_str()));
        }
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        let mut written = Vec::new();
        json::write_str(&mut written, text);
        assert_eq!(serde_json::from_slice::<String>(&written).ok().as_deref(), Some(text));
    }
    let sound = json::classify_string(bytes) != StringClass::Invalid;
    let quoted = [b"\"", bytes, b"\""].concat();
    // An unescaped quote ends the string early; finding it is the task of the caller.
    if sound && json::string_end(&quoted, 0) == Some(quoted.len()) {
        assert!(serde_json::from_slice::<String>(&quoted).is_ok(), "unsound text was taken");
    }
    if let Some(text) = json::unescape_lossy(bytes) {
        assert!(text.len() <= bytes.len() * 3);
    }
}
