//! Errors of providers: the client's answer repeats no word of the request.

use crate::choice;
use penstock_core::Dialect;
use penstock_dialect::{classify_error, parse_retry_after, parse_retry_after_ms};
use penstock_http_wire::error::error_envelope;

const CANARY: &str = "canary7f3a9";
/// Request that the provider answers; it contains the word that must not be repeated.
const REQUEST: &[u8] = br#"{"model":"m","messages":[{"role":"user","content":"canary7f3a9"}]}"#;

pub fn check(bytes: &[u8]) {
    let Some((choice, body)) = choice(bytes) else { return };
    let status = 400 + choice % 200;
    let marked = String::from_utf8_lossy(body).replace('a', &format!(" {CANARY} "));
    for body in [body, marked.as_bytes()] {
        let after = std::str::from_utf8(body).ok();
        let delay = after.and_then(|after| parse_retry_after_ms(after).or_else(|| parse_retry_after(after)));
        let fault = classify_error(status, delay, body, u64::from(choice) * 7, REQUEST);
        if let Some(pause) = fault.retry_after {
            assert!(pause.as_secs() <= 3_600);
        }
        let Some(refusal) = fault.api_error else { continue };
        for dialect in [Dialect::Chat, Dialect::Messages] {
            let spoken = error_envelope(dialect, &refusal, "req_1");
            let text = String::from_utf8(spoken).expect("an envelope is text");
            assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok(), "{text}");
            assert!(!text.contains(CANARY), "{text}");
        }
    }
}
