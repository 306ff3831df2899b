//! Script of a provider for one request, byte by byte.

use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// Step of a script.
#[derive(Clone)]
pub enum ScriptStep {
    /// Sends a response head: status and headers, without those of the framing.
    Head(u16, Vec<(&'static str, String)>),
    /// Sends a complete body with its length, together with the head.
    Body(Vec<u8>),
    /// Sends one chunk of a chunked body.
    Chunk(Vec<u8>),
    /// Sends the last chunk.
    End,
    /// Sends these bytes unchanged.
    Raw(Vec<u8>),
    /// Waits until the test notifies the provider, or the client disconnects.
    Wait(Arc<Notify>),
    /// Waits for this duration.
    Pause(Duration),
    /// Waits until the client disconnects.
    Hang,
    /// Closes the connection.
    Cut,
}

/// All steps for one request.
pub type Script = Vec<ScriptStep>;

/// Head of an event stream.
pub fn sse() -> ScriptStep {
    ScriptStep::Head(
        200,
        vec![("content-type", "text/event-stream".into()), ("transfer-encoding", "chunked".into())],
    )
}

/// Event of a chat stream.
pub fn event(value: &Value) -> ScriptStep {
    ScriptStep::Chunk(format!("data: {value}\n\n").into_bytes())
}

/// Last event of a chat stream, `[DONE]`.
pub fn done() -> ScriptStep {
    ScriptStep::Chunk(b"data: [DONE]\n\n".to_vec())
}

/// Chunk of a chat stream with this delta.
pub fn delta(delta: Value, finish: Option<&str>) -> Value {
    json!({"id": "prov-1", "object": "chat.completion.chunk", "created": 1, "model": "theirs",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
}

/// Event with a text.
pub fn text(content: &str) -> ScriptStep {
    event(&delta(json!({"content": content}), None))
}

/// Event with the role, which engines send first.
pub fn role() -> ScriptStep {
    event(&delta(json!({"role": "assistant", "content": ""}), None))
}

/// Event with the finish reason.
pub fn finish(reason: &str) -> ScriptStep {
    event(&delta(json!({}), Some(reason)))
}

/// Event with the usage.
pub fn usage(input: u64, output: u64) -> ScriptStep {
    event(&json!({"id": "prov-1", "object": "chat.completion.chunk", "created": 1, "model": "theirs",
        "choices": [], "usage": {"prompt_tokens": input, "completion_tokens": output,
        "total_tokens": input + output}}))
}

/// Complete stream with these pieces of text.
pub fn stream(pieces: &[&str]) -> Script {
    let mut script = vec![sse(), role()];
    script.extend(pieces.iter().map(|piece| text(piece)));
    script.extend([finish("stop"), usage(11, pieces.len() as u64), done(), ScriptStep::End]);
    script
}

/// JSON of an unstreamed chat completion.
pub fn completion(content: &str) -> Value {
    json!({"id": "prov-1", "object": "chat.completion", "created": 1, "model": "theirs",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": content},
        "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}})
}

/// JSON of an unstreamed answer in the messages dialect.
pub fn message(content: &str, stop_reason: &str) -> Value {
    json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "theirs",
        "content": [{"type": "text", "text": content}], "stop_reason": stop_reason, "stop_sequence": null,
        "usage": {"input_tokens": 3, "output_tokens": 2}})
}

/// Response of a provider of embeddings.
pub fn vectors(vectors: &[&[f32]], tokens: u64) -> Script {
    let item = |(index, vector): (usize, &&[f32])| json!({"object": "embedding", "index": index, "embedding": vector});
    let items: Vec<Value> = vectors.iter().enumerate().map(item).collect();
    json_answer(
        200,
        &json!({"object": "list", "model": "theirs", "data": items,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens}}),
    )
}

/// Response of a reranking provider.
pub fn scores(scores: &[f64], tokens: u64) -> Script {
    let result = |(index, score): (usize, &f64)| json!({"index": index, "relevance_score": score});
    let results: Vec<Value> = scores.iter().enumerate().map(result).collect();
    json_answer(
        200,
        &json!({"id": "r", "model": "theirs", "results": results, "usage": {"total_tokens": tokens}}),
    )
}

/// Unstreamed chat response.
pub fn plain(content: &str) -> Script {
    json_answer(200, &completion(content))
}

/// Unstreamed chat response that waits until the test notifies the provider.
pub fn held(go: &Arc<Notify>, content: &str) -> Script {
    [vec![ScriptStep::Wait(go.clone())], plain(content)].concat()
}

/// Response with any status and JSON body.
pub fn json_answer(status: u16, value: &Value) -> Script {
    vec![
        ScriptStep::Head(status, vec![("content-type", "application/json".into())]),
        ScriptStep::Body(value.to_string().into_bytes()),
    ]
}

/// Error response with this status.
pub fn status(status: u16) -> Script {
    json_answer(status, &json!({"error": {"message": "secret of the provider", "type": "x", "code": "y"}}))
}

/// Error response with the header `retry-after`.
pub fn retry_after(code: u16, seconds: u32) -> Script {
    vec![
        ScriptStep::Head(
            code,
            vec![("content-type", "application/json".into()), ("retry-after", seconds.to_string())],
        ),
        ScriptStep::Body(b"{}".to_vec()),
    ]
}

/// Reads the request and never answers.
pub fn silent() -> Script {
    vec![ScriptStep::Hang]
}

/// Closes the connection without an answer.
pub fn cut() -> Script {
    vec![ScriptStep::Cut]
}
