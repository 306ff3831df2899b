//! Simulated embeddings and rerank, in the formats of vLLM (the most common) and of text-embeddings-inference. The
//! vector of a text is the sum of the vectors of its words, so texts that share words are similar; no model is
//! involved. All simulated providers return the same vectors, as all hosts of one model do.

use super::parsed_request::RequestError;
use super::prompt::token_count;
use super::text::{SeededRng, fold_hash};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// Default length of a vector.
const LENGTH: usize = 1024;
/// Maximum length of a vector.
const LONGEST: u64 = 8192;

/// Answer to an embeddings or rerank request, with its token counts.
pub(super) struct TokenCountedAnswer {
    /// Body of the answer.
    pub body: Value,
    /// Number of input tokens; for rerank, the query counts again with each document.
    pub tokens: u64,
    /// Number of tokens of the longest input, which must fit into the window: a text, or the query together with a
    /// document.
    pub longest: u64,
    /// True if `tokens` is sent in the header `x-compute-tokens`. Otherwise the body states it, unless the answer has
    /// no usage.
    pub header: bool,
}

/// Answers `POST …/embeddings`, and `POST …/embed` with `inputs`.
pub(super) fn embeddings(body: &Value, usage: bool) -> Result<TokenCountedAnswer, RequestError> {
    let native = body.get("inputs").is_some();
    let texts = texts(body, if native { "inputs" } else { "input" })?;
    let length = length(body)?;
    let packed = body.get("encoding_format").and_then(Value::as_str) == Some("base64");
    let encode = |vector: Vec<f32>| if packed { json!(pack(&vector)) } else { numbers(&vector) };
    let vectors = texts.iter().map(|text| encode(vector(text, length)));
    let counts: Vec<u64> = texts.iter().map(|text| token_count(text)).collect();
    let (all, longest) = (counts.iter().sum(), counts.iter().copied().max().unwrap_or(0));
    if native {
        return Ok(TokenCountedAnswer { body: vectors.collect(), tokens: all, longest, header: usage });
    }
    let items = vectors
        .enumerate()
        .map(|(index, vector)| json!({ "object": "embedding", "index": index, "embedding": vector }));
    let mut answer = json!({
        "id": "embd-simulated", "object": "list", "created": super::chat::CREATED,
        "model": body.get("model").cloned().unwrap_or_default(), "data": items.collect::<Vec<_>>(),
    });
    add_usage(&mut answer, all, usage);
    Ok(TokenCountedAnswer { body: answer, tokens: all, longest, header: false })
}

/// Returns the requested length of the vectors. As in real engines, an invalid length is an error; it is not replaced
/// by the default.
fn length(body: &Value) -> Result<usize, RequestError> {
    let Some(asked) = body.get("dimensions").filter(|asked| !asked.is_null()) else { return Ok(LENGTH) };
    let length = asked.as_u64().filter(|length| (1..=LONGEST).contains(length));
    let length = length.and_then(|length| usize::try_from(length).ok());
    length.ok_or_else(|| invalid_field("expected a length from 1 to 8192", "dimensions"))
}

/// Answers `POST …/rerank` with `documents`, or `texts`.
pub(super) fn rerank(body: &Value, usage: bool) -> Result<TokenCountedAnswer, RequestError> {
    let native = body.get("texts").is_some();
    let documents = texts(body, if native { "texts" } else { "documents" })?;
    let query = body.get("query").and_then(Value::as_str).filter(|query| !query.is_empty());
    let query = query.ok_or_else(|| invalid_field("query is missing", "query"))?;
    let raw = body.get("raw_scores") == Some(&json!(true));
    let score = |text: &String| {
        let logit = logit(query, text);
        if raw { logit } else { 1.0 / (1.0 + (-logit).exp()) }
    };
    let mut scores: Vec<(usize, f64)> = documents.iter().map(score).enumerate().collect();
    scores.sort_by(|(_, one), (_, other)| other.total_cmp(one));
    let counts: Vec<u64> = documents.iter().map(|text| token_count(query) + token_count(text)).collect();
    let (all, longest) = (counts.iter().sum(), counts.iter().copied().max().unwrap_or(0));
    if native {
        let results = scores.iter().map(|(index, score)| json!({ "index": index, "score": score }));
        return Ok(TokenCountedAnswer { body: results.collect(), tokens: all, longest, header: usage });
    }
    let most = body.get("top_n").and_then(Value::as_u64).filter(|most| *most > 0).unwrap_or(u64::MAX);
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let result = |(index, score): &(usize, f64)| {
        let document = json!({ "text": documents.get(*index), "multi_modal": null });
        json!({ "index": index, "document": document, "relevance_score": score })
    };
    let mut answer = json!({
        "id": "rerank-simulated", "model": body.get("model").cloned().unwrap_or_default(),
        "results": scores.iter().take(most).map(result).collect::<Vec<_>>(),
    });
    add_usage(&mut answer, all, usage);
    Ok(TokenCountedAnswer { body: answer, tokens: all, longest, header: false })
}

/// Adds the token counts to an answer if `usage` is true.
pub(super) fn add_usage(answer: &mut Value, all: u64, usage: bool) {
    if let Some(answer) = answer.as_object_mut().filter(|_| usage) {
        answer.insert("usage".to_owned(), json!({ "prompt_tokens": all, "total_tokens": all }));
    }
}

/// Reads the texts of a member: one text, or a list of strings, of token ids, or of objects with a text.
fn texts(body: &Value, name: &'static str) -> Result<Vec<String>, RequestError> {
    let text = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Array(_) => Some(value.to_string()),
        other => other.get("text")?.as_str().map(str::to_owned),
    };
    let found = match body.get(name) {
        Some(Value::String(text)) => Some(vec![text.clone()]),
        Some(ids @ Value::Array(items)) if items.first().is_some_and(Value::is_number) => {
            Some(vec![ids.to_string()])
        }
        Some(Value::Array(items)) => items.iter().map(text).collect(),
        _ => None,
    };
    let found = found.filter(|texts| !texts.is_empty() && texts.iter().all(|text| !text.is_empty()));
    found.ok_or_else(|| invalid_field("expected texts, none of them empty", name))
}

fn invalid_field(message: &str, field: &'static str) -> RequestError {
    RequestError { message: format!("{field}: {message} (simulated)."), field: Some(field) }
}

/// Splits a text into words of letters and digits in lower case.
fn words(text: &str) -> Vec<String> {
    let lower = text.to_lowercase();
    let words = lower.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty());
    let found: Vec<String> = words.map(str::to_owned).collect();
    if found.is_empty() { vec![lower] } else { found }
}

/// Returns the unit vector of a text.
fn vector(text: &str, length: usize) -> Vec<f32> {
    let mut sum = vec![0.0_f64; length];
    for word in words(text) {
        let mut draw = SeededRng::new(fold_hash(0, word.as_bytes()));
        for component in &mut sum {
            *component += draw.next() as f64 / u64::MAX as f64 - 0.5;
        }
    }
    let norm = sum.iter().map(|value| value * value).sum::<f64>().sqrt().max(f64::MIN_POSITIVE);
    sum.iter().map(|value| (value / norm) as f32).collect()
}

/// Converts the numbers as engines in Python do: each `f32` becomes the `f64` of the same value.
fn numbers(vector: &[f32]) -> Value {
    vector.iter().map(|value| f64::from(*value)).collect()
}

fn pack(vector: &[f32]) -> String {
    let bytes: Vec<u8> = vector.iter().flat_map(|value| value.to_le_bytes()).collect();
    STANDARD.encode(bytes)
}

/// Returns a score that grows with each word of the query that occurs in the document. A small pseudo-random part makes
/// equal scores of different documents unlikely.
fn logit(query: &str, document: &str) -> f64 {
    let (asked, there) = (words(query), words(document));
    let met = asked.iter().filter(|word| there.contains(word)).count();
    let jitter =
        SeededRng::new(fold_hash(fold_hash(0, query.as_bytes()), document.as_bytes())).next_below(1000);
    8.0 * met as f64 / asked.len().max(1) as f64 - 4.0 + jitter as f64 / 10_000.0
}
