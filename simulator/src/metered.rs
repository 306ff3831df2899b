//! Simulated speech and moderation: a silent recording whose length depends on the text, and moderation results that
//! flag only texts which contain `harm`.

use super::parsed_request::{RequestError, split_suffix};
use super::script::ResponseScript;
use serde_json::{Map, Value, json};

/// Sample rate of the recording in Hz, with 16 bits and one channel.
const RATE: u32 = 8_000;
/// Number of characters that are spoken in a second.
const CHARACTERS_PER_SECOND: usize = 15;
/// Moderation categories, from the API documentation of the vendor that defined the endpoint.
const CATEGORIES: [&str; 13] = [
    "harassment",
    "harassment/threatening",
    "hate",
    "hate/threatening",
    "illicit",
    "illicit/violent",
    "self-harm",
    "self-harm/instructions",
    "self-harm/intent",
    "sexual",
    "sexual/minors",
    "violence",
    "violence/graphic",
];
/// Maximum length of a recording, in seconds.
const MOST: usize = 3_600;

/// Parses a request; returns its body, and the name of its model without the suffix.
fn parse(body: &[u8]) -> Result<(Value, String), RequestError> {
    let body: Value = serde_json::from_slice(body)?;
    let required = |field| RequestError { message: format!("Field required: {field}"), field: Some(field) };
    let named = body.get("model").and_then(Value::as_str).ok_or_else(|| required("model"))?;
    let (model, _) = split_suffix(named);
    body.get("input").ok_or_else(|| required("input"))?;
    Ok((body, model))
}

/// Returns the speech of a text: raw samples for the format `pcm`, and a WAV file for every other format.
pub(super) fn speech(body: &[u8]) -> Result<ResponseScript, RequestError> {
    let (body, _) = parse(body)?;
    let characters = body.get("input").and_then(Value::as_str).unwrap_or_default().chars().count();
    let seconds = characters.div_ceil(CHARACTERS_PER_SECOND).clamp(1, MOST);
    let data_bytes = u32::try_from(seconds).unwrap_or(1) * RATE * 2;
    if body.get("response_format").and_then(Value::as_str) == Some("pcm") {
        return Ok(ResponseScript::plain(200, "audio/pcm", vec![0; data_bytes as usize]));
    }
    let mut wav = Vec::with_capacity(44 + data_bytes as usize);
    wav.extend_from_slice(b"RIFF");
    wav.extend_from_slice(&(36 + data_bytes).to_le_bytes());
    wav.extend_from_slice(b"WAVEfmt \x10\0\0\0\x01\0\x01\0");
    wav.extend_from_slice(&RATE.to_le_bytes());
    wav.extend_from_slice(&(RATE * 2).to_le_bytes());
    wav.extend_from_slice(b"\x02\0\x10\0data");
    wav.extend_from_slice(&data_bytes.to_le_bytes());
    wav.resize(44 + data_bytes as usize, 0);
    Ok(ResponseScript::plain(200, "audio/wav", wav))
}

/// Classifies texts. The answer has the token counts if `usage` is true.
pub(super) fn moderation(body: &[u8], usage: bool) -> Result<Value, RequestError> {
    let (body, model) = parse(body)?;
    let texts: Vec<&str> = match body.get("input") {
        Some(Value::Array(all)) => all.iter().map(|text| text.as_str().unwrap_or_default()).collect(),
        Some(one) => vec![one.as_str().unwrap_or_default()],
        None => Vec::new(),
    };
    let result = |text: &&str| {
        let flagged = text.contains("harm");
        let is_hit = |name: &str| flagged && name == "violence";
        let of_each = |value: &dyn Fn(&str) -> Value| -> Map<String, Value> {
            CATEGORIES.iter().map(|name| ((*name).to_owned(), value(name))).collect()
        };
        json!({
            "flagged": flagged,
            "categories": of_each(&|name| is_hit(name).into()),
            "category_scores": of_each(&|name| if is_hit(name) { 0.9 } else { 0.01 }.into()),
            "category_applied_input_types": of_each(&|_| json!(["text"])),
        })
    };
    let tokens: u64 = texts.iter().map(|text| super::prompt::token_count(text)).sum();
    let results: Vec<Value> = texts.iter().map(result).collect();
    let mut answer = json!({ "id": "modr-simulated", "model": model, "results": results });
    super::vectors::add_usage(&mut answer, tokens, usage);
    Ok(answer)
}
