//! Writes answers in the chat completions dialect, in the format of vLLM and similar engines.

use super::answer::{SimulatedAnswer, SimulatedFinish};
use super::parsed_request::ParsedRequest;
use super::shaping::{AnswerOptions, EventKind, StreamEvent};
use super::tools::ToolInvocation;
use serde_json::{Map, Value, json};

/// Creation time of every simulated answer, in Unix seconds. It is constant, so that the same request gets the same
/// bytes.
pub(super) const CREATED: u64 = 1_763_650_000;

/// Returns the `usage` object, with the tokens of all answers together.
fn usage(ask: &ParsedRequest, answers: &[SimulatedAnswer]) -> Value {
    let completion: u64 = answers.iter().map(SimulatedAnswer::token_count).sum();
    let reasoning: usize = answers.iter().map(|answer| answer.reasoning.len()).sum();
    json!({
        "prompt_tokens": ask.prompt.tokens,
        "total_tokens": ask.prompt.tokens + completion,
        "completion_tokens": completion,
        "prompt_tokens_details": { "cached_tokens": ask.prompt.cached },
        "completion_tokens_details": { "reasoning_tokens": reasoning },
    })
}

fn id(ask: &ParsedRequest) -> String {
    format!("chatcmpl-simulated-{:016x}", ask.prompt.hash ^ ask.seed)
}

fn reason(finish: &SimulatedFinish, options: AnswerOptions) -> Value {
    match finish {
        _ if !options.finish => Value::Null,
        SimulatedFinish::Stop | SimulatedFinish::Sequence(_) => json!("stop"),
        SimulatedFinish::Length => json!("length"),
        SimulatedFinish::Calls => json!("tool_calls"),
    }
}

/// Returns the stop string that ended the answer, for the member `stop_reason`, an extension of vLLM.
fn stop_string(finish: &SimulatedFinish) -> Value {
    match finish {
        SimulatedFinish::Sequence(stop) => json!(stop),
        _ => Value::Null,
    }
}

/// Writes an unstreamed answer.
pub(super) fn write_plain(
    ask: &ParsedRequest,
    answers: &[SimulatedAnswer],
    options: AnswerOptions,
) -> String {
    let choices: Vec<Value> =
        answers.iter().enumerate().map(|(index, one)| choice(ask, index, one, options)).collect();
    let mut body = json!({
        "id": id(ask), "object": "chat.completion", "created": CREATED, "model": ask.model, "choices": choices,
        "service_tier": null, "system_fingerprint": "simulated",
    });
    if let Some(object) = body.as_object_mut() {
        if options.usage {
            object.insert("usage".to_owned(), usage(ask, answers));
        }
        object.insert("prompt_logprobs".to_owned(), Value::Null);
        object.insert("kv_transfer_params".to_owned(), Value::Null);
    }
    body.to_string()
}

fn choice(ask: &ParsedRequest, index: usize, answer: &SimulatedAnswer, options: AnswerOptions) -> Value {
    let mut message = Map::new();
    message.insert("role".to_owned(), json!("assistant"));
    let content = if answer.calls.is_empty() { json!(answer.text.concat()) } else { Value::Null };
    message.insert("content".to_owned(), content);
    for name in ["refusal", "annotations", "audio", "function_call"] {
        message.insert(name.to_owned(), Value::Null);
    }
    let calls: Vec<Value> = answer.calls.iter().map(whole_call).collect();
    message.insert("tool_calls".to_owned(), json!(calls));
    let reasoning = answer.reasoning.concat();
    message.insert(
        options.reasoning.to_owned(),
        if reasoning.is_empty() { Value::Null } else { json!(reasoning) },
    );
    let logprobs = ask.logprobs.map(|top| {
        let tokens: Vec<Value> = answer.text.iter().map(|token| logprob(token, top)).collect();
        json!({ "content": tokens, "refusal": null })
    });
    json!({
        "index": index, "message": message, "logprobs": logprobs,
        "finish_reason": reason(&answer.finish, options), "stop_reason": stop_string(&answer.finish), "token_ids": null,
    })
}

fn whole_call(call: &ToolInvocation) -> Value {
    json!({
        "id": call.id, "type": "function",
        "function": { "name": call.name, "arguments": call.arguments.concat() },
    })
}

/// Returns invented log probabilities: of the token, and in `top_logprobs` of the `top` most likely tokens, the first
/// of which is the token itself.
pub(super) fn logprob(token: &str, top: usize) -> Value {
    let likely = -0.01 * f64::from(u32::try_from(token.len() % 64).unwrap_or(0)) - 0.01;
    let rank = |rank: usize| {
        let text = if rank == 0 { token.to_owned() } else { format!(" simulated{rank}") };
        let less = f64::from(u32::try_from(rank).unwrap_or(0));
        json!({ "token": text, "logprob": likely - less, "bytes": text.as_bytes() })
    };
    let alternatives: Vec<Value> = (0..top).map(rank).collect();
    json!({ "token": token, "logprob": likely, "bytes": token.as_bytes(), "top_logprobs": alternatives })
}

/// Writes the answer as events: a role for each choice, tokens, finish reasons, and the usage if the request asks for
/// it.
pub(super) fn write_stream(
    ask: &ParsedRequest,
    answers: &[SimulatedAnswer],
    options: AnswerOptions,
) -> Vec<StreamEvent> {
    let writer = ChunkWriter::new(ask);
    let mut events = Vec::new();
    for index in 0..answers.len() {
        let delta = json!({ "role": "assistant", "content": "" }).to_string();
        events.push(writer.chunk(index, &delta, "null", 0, EventKind::Start));
    }
    let mut lists: Vec<_> = answers
        .iter()
        .enumerate()
        .map(|(index, answer)| writer.deltas(ask, index, answer, options).into_iter())
        .collect();
    // The choices are interleaved as if generated concurrently: in each round, every choice sends one token.
    loop {
        let before = events.len();
        for list in &mut lists {
            events.extend(list.next());
        }
        if events.len() == before {
            break;
        }
    }
    let tokens = events.last().map_or(0, |event| event.tokens);
    if ask.usage && options.usage {
        let usage = usage(ask, answers);
        let body = format!("{},\"choices\":[],\"usage\":{usage}}}", writer.start);
        events.push(StreamEvent { name: None, body, tokens, kind: EventKind::Usage });
    }
    events.push(StreamEvent { name: None, body: "[DONE]".to_owned(), tokens, kind: EventKind::Done });
    events
}

struct ChunkWriter {
    /// Members that all chunks begin with.
    start: String,
}

impl ChunkWriter {
    fn new(ask: &ParsedRequest) -> Self {
        let model = json!(ask.model);
        let id = id(ask);
        Self {
            start: format!(
                "{{\"id\":\"{id}\",\"object\":\"chat.completion.chunk\",\"created\":{CREATED},\"model\":{model}"
            ),
        }
    }

    fn chunk(&self, index: usize, delta: &str, logprobs: &str, tokens: u32, kind: EventKind) -> StreamEvent {
        let body = format!(
            "{},\"choices\":[{{\"index\":{index},\"delta\":{delta},\"logprobs\":{logprobs},\"finish_reason\":null}}]}}",
            self.start
        );
        StreamEvent { name: None, body, tokens, kind }
    }

    fn deltas(
        &self,
        ask: &ParsedRequest,
        index: usize,
        answer: &SimulatedAnswer,
        options: AnswerOptions,
    ) -> Vec<StreamEvent> {
        let mut events = Vec::new();
        let mut tokens = 0;
        for token in &answer.reasoning {
            tokens += 1;
            let delta = format!("{{\"{}\":{}}}", options.reasoning, json!(token));
            events.push(self.chunk(index, &delta, "null", tokens, EventKind::Content));
        }
        for token in &answer.text {
            tokens += 1;
            let delta = format!("{{\"content\":{}}}", json!(token));
            let logprobs = match ask.logprobs {
                Some(top) => json!({ "content": [logprob(token, top)] }).to_string(),
                None => "null".to_owned(),
            };
            events.push(self.chunk(index, &delta, &logprobs, tokens, EventKind::Content));
        }
        for (at, call) in answer.calls.iter().enumerate() {
            for delta in call_deltas(at, call, options.repeats) {
                tokens += 1;
                let delta = json!({ "tool_calls": [delta] }).to_string();
                events.push(self.chunk(index, &delta, "null", tokens, EventKind::Content));
            }
        }
        if options.finish {
            let end = json!({
                "index": index, "delta": {}, "logprobs": null,
                "finish_reason": reason(&answer.finish, options), "stop_reason": stop_string(&answer.finish),
            });
            let body = format!("{},\"choices\":[{end}]}}", self.start);
            events.push(StreamEvent { name: None, body, tokens, kind: EventKind::Finish });
        }
        events
    }
}

/// Returns the deltas of a tool call: first the name, then the arguments in pieces. If `repeats` is true, every piece
/// has all fields.
fn call_deltas(at: usize, call: &ToolInvocation, repeats: bool) -> Vec<Value> {
    let first = json!({
        "index": at, "id": call.id, "type": "function", "function": { "name": call.name, "arguments": "" },
    });
    let more = call.arguments.iter().map(|part| {
        if repeats {
            json!({
                "index": at, "id": call.id, "type": null, "function": { "name": call.name, "arguments": part },
            })
        } else {
            json!({ "index": at, "function": { "arguments": part } })
        }
    });
    std::iter::once(first).chain(more).collect()
}
