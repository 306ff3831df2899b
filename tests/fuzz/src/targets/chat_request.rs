//! Requests of `/v1/chat/completions`: an accepted request is valid, its canonical form is equivalent, and a
//! truncated request is refused.

use bytes::Bytes;
use penstock_request_validation::{RequestLimits, validate_chat_request};
use serde_json::Value;

pub fn check(bytes: &[u8]) {
    let limits = RequestLimits { max_body: 1 << 20, max_values: 1 << 14, ..RequestLimits::default() };
    let ask = match validate_chat_request(Bytes::copy_from_slice(bytes), &limits) {
        Ok(ask) => ask,
        Err(refusal) => return assert!(!refusal.message.is_empty() && refusal.message.len() < 4_096),
    };
    let value: Value = serde_json::from_slice(bytes).expect("what is taken is JSON");
    assert_eq!(value["model"].as_str(), Some(&*ask.model));
    assert_eq!(ask.stream, value["stream"] == true);
    assert!((1..=10).contains(&ask.n));
    assert!(ask.prompt_bytes <= bytes.len());
    for field in &ask.members.0 {
        let inside: Value =
            serde_json::from_slice(&bytes[field.value_range.clone()]).expect("a field is a value");
        assert_eq!(value.get(&*field.name), Some(&inside).filter(|_| value.get(&*field.name).is_some()));
    }
    // The edits are in order and do not overlap, and the edited request is accepted.
    let (mut edited, mut at) = (Vec::new(), 0);
    for edit in &ask.edits {
        assert!(at <= edit.range.start && edit.range.start <= edit.range.end, "edits overlap");
        edited.extend_from_slice(&bytes[at..edit.range.start]);
        edited.extend_from_slice(&edit.replacement);
        at = edit.range.end;
    }
    edited.extend_from_slice(&bytes[at..]);
    let edited = Bytes::from(edited);
    let again = validate_chat_request(
        edited.clone(),
        &RequestLimits { max_body: 2 << 20, max_values: 1 << 16, ..limits },
    );
    match again {
        Ok(again) => assert_eq!((again.model, again.stream, again.n), (ask.model, ask.stream, ask.n)),
        Err(refusal) => panic!("{}: {}", refusal.message, String::from_utf8_lossy(&edited)),
    }
    // A truncated request is refused.
    let trimmed = bytes.trim_ascii_end();
    let cut = trimmed.len() / 2;
    assert!(validate_chat_request(Bytes::copy_from_slice(&trimmed[..cut]), &limits).is_err());
}
