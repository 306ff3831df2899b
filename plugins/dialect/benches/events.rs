//! Benchmark of chat streams to a chat client, in nanoseconds per event.
//!
//! `cargo bench -p penstock-dialect`. Plain loops over the public API: the figures
//! cover complete replies (decode, constrain, record, write), best of several runs.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

use bytes::Bytes;
use penstock_core::*;
use std::io::Write;
use std::time::Instant;

const EVENT_COUNT: usize = 1_000;
const RUN_COUNT: usize = 60;

fn build_request() -> InferenceRequest {
    InferenceRequest {
        dialect: Dialect::Chat,
        kind: ModelKind::Chat,
        task: InferenceTask::Chat,
        body: Bytes::from_static(br#"{"model":"m","messages":[],"stream":true}"#),
        members: BodyMembers::default(),
        edits: Vec::new(),
        model: "m".into(),
        stream: true,
        include_usage: true,
        max_tokens: None,
        n: 1,
        parallel_tools: true,
        stop: Vec::new(),
        preset: None,
        filters: None,
        required: RequiredCapabilities::default(),
        thinking: ThinkingDisplay::Off,
        responses: None,
        prompt_bytes: 0,
        image_count: 0,
        cache_markers: Vec::new(),
        history: penstock_core::HistoryFeatures::default(),
    }
}

fn chat_chunk(delta: &str, after: &str) -> String {
    format!(
        "data: {{\"id\":\"chatcmpl-4b8e3f0a9c\",\"object\":\"chat.completion.chunk\",\"created\":1763650000,\
         \"model\":\"org/model-24b\",\"choices\":[{{\"index\":0,\"delta\":{delta},\"logprobs\":null,\
         \"finish_reason\":null}}]{after}}}\n\n"
    )
}

/// Joins the events into pieces of `together` events.
fn join_events(events: &[String], together: usize) -> Vec<Bytes> {
    events.chunks(together).map(|events| Bytes::from(events.concat())).collect()
}

fn measure_stream(name: &str, client: Dialect, events: &[String], together: usize) {
    let abilities = OfferCapabilities::default();
    let target = AttemptTarget {
        model: "m",
        dialect: Dialect::Chat,
        capabilities: &abilities,
        preset: &[],
        max_tokens: None,
        adjustment: penstock_core::RequestAdjustment::default(),
        answer_model: "org/model",
        answer_id: "4b8e",
        answer_created: 1_763_650_000,
    };
    let translator = penstock_dialect::find_translator(client, Dialect::Chat).expect("the pair is supported");
    let ask = InferenceRequest { dialect: client, ..build_request() };
    let pieces = join_events(events, together);
    let mut best = f64::MAX;
    for _ in 0..RUN_COUNT {
        let mut reply = translator.translate_stream(&ask, &target);
        let start = Instant::now();
        let mut bytes = 0;
        for piece in &pieces {
            let mut out = OutputBuffer::default();
            reply.push(piece.clone(), &mut out).expect("a good stream");
            bytes += out.len();
        }
        let spent = start.elapsed().as_secs_f64();
        assert!(bytes > 0, "something came out");
        best = best.min(spent * 1e9 / events.len() as f64);
    }
    let line = format!("{name:<44} {together:>3} a piece {best:>8.1} ns/event\n");
    std::io::stdout().write_all(line.as_bytes()).expect("stdout");
}

fn main() {
    let words = ["Hel", "lo", ", how", " are", " you", " today", "?", " é"];
    let word = |at: usize| words.get(at % words.len()).copied().unwrap_or_default();
    let plain: Vec<String> =
        (0..EVENT_COUNT).map(|at| chat_chunk(&format!("{{\"content\":\"{}\"}}", word(at)), "")).collect();
    let escaped: Vec<String> =
        (0..EVENT_COUNT).map(|at| chat_chunk(&format!("{{\"content\":\"{}\\n\"}}", word(at)), "")).collect();
    let noisy: Vec<String> = (0..EVENT_COUNT)
        .map(|at| {
            chat_chunk(&format!("{{\"content\":\"{}\"}}", word(at)), &format!(",\"obfuscation\":\"{at}\""))
        })
        .collect();
    let usage: Vec<String> = (0..EVENT_COUNT)
        .map(|at| {
            let usage = format!(
                ",\"usage\":{{\"prompt_tokens\":9,\"completion_tokens\":{at},\"total_tokens\":{}}}",
                at + 9
            );
            chat_chunk(&format!("{{\"content\":\"{}\"}}", word(at)), &usage)
        })
        .collect();
    let start = r#"{"tool_calls":[{"index":0,"id":"call_a","type":"function","function":{"name":"f","arguments":""}}]}"#;
    let call: Vec<String> = std::iter::once(chat_chunk(start, ""))
        .chain((1..EVENT_COUNT).map(|at| {
            chat_chunk(
                &format!(
                    "{{\"tool_calls\":[{{\"index\":0,\"function\":{{\"arguments\":\"{}\"}}}}]}}",
                    word(at)
                ),
                "",
            )
        }))
        .collect();
    for client in [Dialect::Chat, Dialect::Messages] {
        let name = |what: &str| format!("{} client, {what}", client.name());
        for together in [1, 64] {
            measure_stream(&name("text"), client, &plain, together);
            measure_stream(&name("text with escapes"), client, &escaped, together);
            measure_stream(&name("text, something else in each chunk"), client, &noisy, together);
            measure_stream(&name("text, usage in each chunk"), client, &usage, together);
            measure_stream(&name("arguments of a tool call"), client, &call, together);
        }
    }
}
