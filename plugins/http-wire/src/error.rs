//! Error envelopes of all dialects, in the form that client libraries expect: `code` is always a string, `param` a
//! string or null, and wording that frameworks search for is inside `message`.

use penstock_core::{ApiError, Dialect, ErrorCode, ErrorEnvelope};
use serde_json::{Map, Value, json};
use std::borrow::Cow;

/// Returns an error in the envelope of a dialect. In the chat envelope, the name in `param` is translated to the field
/// name of the dialect, unless it is already the name that the client sent.
#[must_use]
pub fn error_envelope(dialect: Dialect, refusal: &ApiError, request_id: &str) -> Vec<u8> {
    match dialect.spec().http.error_envelope {
        ErrorEnvelope::Chat => {
            let own_name = |param| match refusal.is_client_param {
                true => param,
                false => dialect.client_member_name(param),
            };
            let param = refusal.param.as_deref().map(own_name);
            envelope_with_param(refusal, param, request_id)
        }
        ErrorEnvelope::Messages => messages_envelope(refusal, request_id),
    }
}

/// Returns an error in the chat envelope, with `param` as it is:
/// `{"error":{"message","type","code","param","details":{"name"}},"request_id"}`.
#[must_use]
pub fn chat_envelope(refusal: &ApiError, request_id: &str) -> Vec<u8> {
    envelope_with_param(refusal, refusal.param.as_deref(), request_id)
}

fn envelope_with_param(refusal: &ApiError, param: Option<&str>, request_id: &str) -> Vec<u8> {
    let row = refusal.spec();
    let details = error_details(refusal, Map::new());
    json!({
        "error": {
            "message": error_message(ErrorEnvelope::Chat, refusal),
            "type": row.chat_type,
            "code": row.code,
            "param": param,
            "details": details,
        },
        "request_id": request_id,
    })
    .to_string()
    .into_bytes()
}

/// Returns an error in the messages envelope:
/// `{"type":"error","error":{"type","message","code","details":{"error_code","name"}},"request_id"}`. An invalid field
/// is named in `details.param`.
#[must_use]
pub fn messages_envelope(refusal: &ApiError, request_id: &str) -> Vec<u8> {
    let row = refusal.spec();
    let mut members = Map::new();
    members.insert("error_code".to_owned(), Value::from(row.code));
    if let Some(param) = &refusal.param {
        members.insert("param".to_owned(), Value::from(param.as_str()));
    }
    let details = error_details(refusal, members);
    json!({
        "type": "error",
        "error": {
            "type": row.messages_type,
            "message": error_message(ErrorEnvelope::Messages, refusal),
            "code": row.code,
            "details": details,
        },
        "request_id": request_id,
    })
    .to_string()
    .into_bytes()
}

/// Returns the members of `details`: the given ones, the error's name, which is the same in all dialects, and the
/// context of the error.
fn error_details(refusal: &ApiError, mut members: Map<String, Value>) -> Map<String, Value> {
    members.insert("name".to_owned(), Value::from(refusal.spec().chat_type));
    members.extend(refusal.details.iter().map(|(name, value)| (name.clone(), value.clone())));
    members
}

/// Returns the public error message. Client frameworks recognise a full context window only by specific wording in
/// `message`, which differs by envelope.
fn error_message(envelope: ErrorEnvelope, refusal: &ApiError) -> Cow<'_, str> {
    let number = |name: &str| refusal.details.get(name).and_then(Value::as_u64);
    let numbers = number("context_length").zip(number("input_tokens"));
    match (refusal.code, envelope, numbers) {
        (ErrorCode::ContextLength, ErrorEnvelope::Chat, Some((window, input))) => Cow::Owned(format!(
            "This model's maximum context length is {window} tokens. However, your messages resulted in \
             {input} tokens. (context_length_exceeded)"
        )),
        (ErrorCode::ContextLength, ErrorEnvelope::Chat, None) => {
            Cow::Borrowed("The input exceeds this model's maximum context length. (context_length_exceeded)")
        }
        (ErrorCode::ContextLength, ErrorEnvelope::Messages, Some((window, input))) => {
            Cow::Owned(format!("prompt is too long: {input} tokens > {window} maximum"))
        }
        (ErrorCode::ContextLength, ErrorEnvelope::Messages, None) => {
            Cow::Borrowed("prompt is too long: it exceeds this model's context window")
        }
        _ => Cow::Borrowed(&refusal.message),
    }
}

#[cfg(test)]
mod tests;
