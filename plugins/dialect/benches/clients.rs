//! Benchmark of complete requests to a chat provider, for clients of each dialect: validation, building the provider's
//! request, and translating the stream of the answer. The results are in microseconds, and relative to a chat client.
//!
//! `cargo bench -p penstock-dialect --bench clients`. The result is the best of several runs, which alternate between
//! the dialects.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use bytes::Bytes;
use penstock_core::*;
use penstock_request_validation::{RequestLimits, validate_generation_request};
use serde_json::{Value, json};
use std::hint::black_box;
use std::io::Write;
use std::time::Instant;

const RUN_COUNT: usize = 200;
const CLIENTS: [Dialect; 3] = [Dialect::Chat, Dialect::Messages, Dialect::Responses];

/// Returns a request body with a conversation of `bytes` bytes, in messages of 2 KiB.
fn request_body(client: Dialect, bytes: usize) -> Bytes {
    let text = "Rivers bend because their banks wear.\n".repeat(54);
    let turns = (bytes / text.len()) | 1;
    let message = |turn: usize| json!({"role": if turn.is_multiple_of(2) { "user" } else { "assistant" }, "content": text});
    let messages: Vec<Value> = (0..turns).map(message).collect();
    let mut body = json!({"model": "m", "temperature": 0.7, "stream": true});
    let (cap, conversation) = match client {
        Dialect::Responses => ("max_output_tokens", "input"),
        _ => ("max_tokens", "messages"),
    };
    body[cap] = json!(512);
    body[conversation] = messages.into();
    body.to_string().into()
}

fn validate(client: Dialect, body: Bytes, limits: &RequestLimits) -> InferenceRequest {
    validate_generation_request(client, body, limits).expect("a valid request")
}

/// Events of a streamed answer.
fn answer_events(count: usize) -> Vec<Bytes> {
    let event = |delta: Value, finish: Value| {
        let chunk = json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_763_650_000,
            "model": "m", "choices": [{"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish}]});
        Bytes::from(format!("data: {chunk}\n\n"))
    };
    let words = (0..count).map(|_| event(json!({"content": " rivers"}), Value::Null));
    words.chain([event(json!({}), json!("stop")), Bytes::from_static(b"data: [DONE]\n\n")]).collect()
}

/// Runs a request of a client once; returns the time in microseconds.
fn run_once(client: Dialect, body: &Bytes, events: &[Bytes]) -> f64 {
    let (limits, abilities) = (RequestLimits::default(), OfferCapabilities::default());
    let start = Instant::now();
    let ask = validate(client, black_box(body.clone()), &limits);
    let target = AttemptTarget {
        model: "theirs",
        dialect: Dialect::Chat,
        capabilities: &abilities,
        preset: &[],
        max_tokens: None,
        adjustment: RequestAdjustment::default(),
        answer_model: "m",
        answer_id: "4b8e",
        answer_created: 1_763_650_000,
    };
    let translator = penstock_dialect::find_translator(client, Dialect::Chat).expect("the pair is supported");
    let sent = translator.build_request(&ask, &target).expect("a request");
    let mut reply = translator.translate_stream(&ask, &target);
    let mut bytes = sent.len();
    for event in events {
        let mut out = OutputBuffer::default();
        reply.push(event.clone(), &mut out).expect("a good stream");
        bytes += out.len();
    }
    let mut out = OutputBuffer::default();
    reply.write_end(&reply.estimated_usage(), br#""billing_cost":{}"#, &mut out);
    black_box(bytes + out.len());
    start.elapsed().as_secs_f64() * 1e6
}

fn main() {
    for (prompt, answer) in [(2 << 10, 64), (2 << 10, 512), (200 << 10, 512)] {
        let bodies = CLIENTS.map(|client| (client, request_body(client, prompt)));
        let events = answer_events(answer);
        let mut best = [f64::MAX; CLIENTS.len()];
        for _ in 0..RUN_COUNT {
            for (best, (client, body)) in best.iter_mut().zip(&bodies) {
                *best = best.min(run_once(*client, body, &events));
            }
        }
        let chat = best.first().copied().unwrap_or(f64::NAN);
        for (time, client) in best.iter().zip(CLIENTS) {
            let line = format!(
                "{:>4} KiB, {answer:>4} events  {:<10} {time:>9.1} µs {:>6.2}\n",
                prompt >> 10,
                client.name(),
                time / chat
            );
            std::io::stdout().write_all(line.as_bytes()).expect("stdout");
        }
    }
}
