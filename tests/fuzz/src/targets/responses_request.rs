//! Requests of `/v1/responses`: an accepted request becomes a valid chat request, token counting accepts it too, and
//! a truncated request is refused.

use bytes::Bytes;
use penstock_request_validation::{RequestLimits, ResponsesPurpose, validate_responses_request};
use serde_json::Value;

pub fn check(bytes: &[u8]) {
    let limits = RequestLimits { max_body: 1 << 20, max_values: 1 << 14, ..RequestLimits::default() };
    let body = Bytes::copy_from_slice(bytes);
    let counted = validate_responses_request(body.clone(), &limits, ResponsesPurpose::Count(None));
    let ask = match validate_responses_request(body, &limits, ResponsesPurpose::Generate) {
        Ok(ask) => ask,
        Err(refusal) => return assert!(!refusal.message.is_empty() && refusal.message.len() < 4_096),
    };
    let counted = counted.expect("what is answered is counted");
    assert_eq!((&counted.model, &counted.body), (&ask.model, &ask.body));
    let value: Value = serde_json::from_slice(bytes).expect("what is taken is JSON");
    assert_eq!(value["model"].as_str(), Some(&*ask.model));
    assert_eq!(ask.stream, value["stream"] == true);
    assert!(ask.body.len() <= 8 * bytes.len() + 1_024, "the chat form has the size of the request");
    serde_json::from_slice::<Value>(&ask.body).expect("the chat form is JSON");
    let details = ask.responses.expect("the parts of the dialect");
    assert!(!details.repeated_members.contains(&b'\n'), "an event has one line");
    let repeated = [b"{", &details.repeated_members[..], b"}"].concat();
    let repeated: Value = serde_json::from_slice(&repeated).expect("what is repeated is JSON");
    assert_eq!(repeated["store"], false);
    let trimmed = bytes.trim_ascii_end();
    let cut = Bytes::copy_from_slice(&trimmed[..trimmed.len() / 2]);
    assert!(validate_responses_request(cut, &limits, ResponsesPurpose::Generate).is_err());
}
