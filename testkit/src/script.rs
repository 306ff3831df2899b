//! Script of a provider for one request, byte by byte.

use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// Step of a script.
#[derive(Clone)]
pub enum ScriptStep {
    /// A response head: status and headers, framing aside.
    Head(u16, Vec<(&'static str, String)>),
    /// A whole body with its length; the head goes out with it.
    Body(Vec<u8>),
    /// One chunk of a chunked body.
    Chunk(Vec<u8>),
    /// The last chunk.
    End,
    /// Bytes as they are, whatever they mean.
    Raw(Vec<u8>),
    /// Waits until the test says go on, or the client leaves.
    Wait(Arc<Notify>),
    /// Takes its time.
    Pause(Duration),
    /// Waits until the client leaves.
    Hang,
    /// Closes the connection.
    Cut,
}

/// All that is done with one request.
pub type Script = Vec<ScriptStep>;

/// A head that opens a stream of events.
pub fn sse() -> ScriptStep {
    ScriptStep::Head(
        200,
        vec![("content-type", "text/event-stream".into()), ("transfer-encoding", "chunked".into())],
    )
}

/// One event of a chat stream.
pub fn event(value: &Value) -> ScriptStep {
    ScriptStep::Chunk(format!("data: {value}\n\n").into_bytes())
}

/// The last word of a chat stream.
pub fn done() -> ScriptStep {
    ScriptStep::Chunk(b"data: [DONE]\n\n".to_vec())
}

/// A chunk with this delta.
pub fn delta(delta: Value, finish: Option<&str>) -> Value {
    json!({"id": "prov-1", "object": "chat.completion.chunk", "created": 1, "model": "theirs",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
}

/// A chunk of text.
pub fn text(content: &str) -> ScriptStep {
    event(&delta(json!({"content": content}), None))
}

/// The role, as engines send it first.
pub fn role() -> ScriptStep {
    event(&delta(json!({"role": "assistant", "content": ""}), None))
}

/// The finish chunk.
pub fn finish(reason: &str) -> ScriptStep {
    event(&delta(json!({}), Some(reason)))
}

/// The usage chunk.
pub fn usage(input: u64, output: u64) -> ScriptStep {
    event(&json!({"id": "prov-1", "object": "chat.completion.chunk", "created": 1, "model": "theirs",
        "choices": [], "usage": {"prompt_tokens": input, "completion_tokens": output,
        "total_tokens": input + output}}))
}

/// A good stream of these pieces of text.
pub fn stream(pieces: &[&str]) -> Script {
    let mut script = vec![sse(), role()];
    script.extend(pieces.iter().map(|piece| text(piece)));
    script.extend([finish("stop"), usage(11, pieces.len() as u64), done(), ScriptStep::End]);
    script
}

/// A plain answer's JSON.
pub fn completion(content: &str) -> Value {
    json!({"id": "prov-1", "object": "chat.completion", "created": 1, "model": "theirs",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": content},
        "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}})
}

/// A plain answer of a provider that speaks messages.
pub fn message(content: &str, stop_reason: &str) -> Value {
    json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "theirs",
        "content": [{"type": "text", "text": content}], "stop_reason": stop_reason, "stop_sequence": null,
        "usage": {"input_tokens": 3, "output_tokens": 2}})
}

/// The vectors of a provider of embeddings.
pub fn vectors(vectors: &[&[f32]], tokens: u64) -> Script {
    let item = |(index, vector): (usize, &&[f32])| json!({"object": "embedding", "index": index, "embedding": vector});
    let items: Vec<Value> = vectors.iter().enumerate().map(item).collect();
    json_answer(
        200,
        &json!({"object": "list", "model": "theirs", "data": items,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens}}),
    )
}

/// The scores of a reranking provider.
pub fn scores(scores: &[f64], tokens: u64) -> Script {
    let result = |(index, score): (usize, &f64)| json!({"index": index, "relevance_score": score});
    let results: Vec<Value> = scores.iter().enumerate().map(result).collect();
    json_answer(
        200,
        &json!({"id": "r", "model": "theirs", "results": results, "usage": {"total_tokens": tokens}}),
    )
}

/// A plain answer.
pub fn plain(content: &str) -> Script {
    json_answer(200, &completion(content))
}

/// A plain answer that waits for the test.
pub fn held(go: &Arc<Notify>, content: &str) -> Script {
    [vec![ScriptStep::Wait(go.clone())], plain(content)].concat()
}

/// Any JSON with any status.
pub fn json_answer(status: u16, value: &Value) -> Script {
    vec![
        ScriptStep::Head(status, vec![("content-type", "application/json".into())]),
        ScriptStep::Body(value.to_string().into_bytes()),
    ]
}

/// An error with this status.
pub fn status(status: u16) -> Script {
    json_answer(status, &json!({"error": {"message": "secret of the provider", "type": "x", "code": "y"}}))
}

/// An error that names when to come back.
pub fn retry_after(code: u16, seconds: u32) -> Script {
    vec![
        ScriptStep::Head(
            code,
            vec![("content-type", "application/json".into()), ("retry-after", seconds.to_string())],
        ),
        ScriptStep::Body(b"{}".to_vec()),
    ]
}

/// Takes the request and never answers.
pub fn silent() -> Script {
    vec![ScriptStep::Hang]
}

/// Closes without a word.
pub fn cut() -> Script {
    vec![ScriptStep::Cut]
}
