//! Requests of `/v1/messages`: an accepted request is valid, token counting accepts it too, and a truncated request
//! is refused.

use bytes::Bytes;
use penstock_request_validation::{MessagesPurpose, RequestLimits, validate_messages_request};
use serde_json::Value;

pub fn check(bytes: &[u8]) {
    let limits = RequestLimits { max_body: 1 << 20, max_values: 1 << 14, ..RequestLimits::default() };
    let body = Bytes::copy_from_slice(bytes);
    let counted = validate_messages_request(body.clone(), &limits, MessagesPurpose::Count);
    let ask = match validate_messages_request(body, &limits, MessagesPurpose::Generate) {
        Ok(ask) => ask,
        Err(refusal) => return assert!(!refusal.message.is_empty() && refusal.message.len() < 4_096),
    };
    let counted = counted.expect("what is answered is counted");
    assert_eq!((&counted.model, counted.prompt_bytes), (&ask.model, ask.prompt_bytes));
    let value: Value = serde_json::from_slice(bytes).expect("what is taken is JSON");
    assert_eq!(value["model"].as_str(), Some(&*ask.model));
    assert_eq!(ask.stream, value["stream"] == true);
    // The gateway reads `-0` as 0; `serde_json` reads it as a float, not as an integer.
    let most = &value["max_tokens"];
    assert_eq!(ask.max_tokens, most.as_u64().or((most.as_f64() == Some(0.0)).then_some(0)));
    assert!(ask.prompt_bytes <= bytes.len());
    let trimmed = bytes.trim_ascii_end();
    let cut = trimmed.len() / 2;
    assert!(
        validate_messages_request(
            Bytes::copy_from_slice(&trimmed[..cut]),
            &limits,
            MessagesPurpose::Generate
        )
        .is_err()
    );
}
