//! Benchmark of requests of 200 KiB like those of coding agents, in megabytes per
//! second, and of native streams, in nanoseconds per event.
//!
//! `cargo bench -p penstock-dialect --bench messages`. Plain loops over the
//! public API, best of several runs.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use bytes::Bytes;
use penstock_core::*;
use penstock_json_scan::json;
use serde_json::{Value, json};
use std::io::Write;
use std::time::Instant;

const RUN_COUNT: usize = 400;
const EVENT_COUNT: usize = 2_000;

fn build_request(dialect: Dialect, body: String) -> InferenceRequest {
    let members = json::members(body.as_bytes()).map(|member| BodyMember {
        name: json::unescape(&body.as_bytes()[member.key.start + 1..member.key.end - 1]).unwrap().into(),
        member_range: member.key.start..member.value.end,
        value_range: member.value,
        long_strings: Vec::new(),
    });
    let history = HistoryFeatures {
        late_system_messages: body.contains(r#""role":"system""#),
        removable_text: body.contains("x-anthropic-billing-header"),
        ..HistoryFeatures::default()
    };
    InferenceRequest {
        dialect,
        kind: ModelKind::Chat,
        task: InferenceTask::Chat,
        members: BodyMembers(members.collect()),
        prompt_bytes: body.len(),
        body: Bytes::from(body),
        edits: Vec::new(),
        model: "m".into(),
        stream: true,
        include_usage: true,
        max_tokens: Some(64_000),
        n: 1,
        parallel_tools: true,
        stop: Vec::new(),
        preset: None,
        filters: None,
        required: RequiredCapabilities::default(),
        thinking: ThinkingDisplay::Off,
        responses: None,
        image_count: 0,
        cache_markers: Vec::new(),
        history,
    }
}

fn build_target(dialect: Dialect, abilities: &OfferCapabilities) -> AttemptTarget<'_> {
    AttemptTarget {
        model: "engine/model",
        dialect,
        capabilities: abilities,
        preset: &[],
        max_tokens: None,
        adjustment: penstock_core::RequestAdjustment::default(),
        answer_model: "claude-x",
        answer_id: "4b8e",
        answer_created: 1_763_650_000,
    }
}

/// Builds source code as tools return it: a line break and a few quotes every forty bytes.
fn source_code(lines: usize) -> String {
    (0..lines).map(|line| format!("{line:>6}\t    let total = \"sum\".to_owned() + &part;\n")).collect()
}

/// Builds a conversation of thirty tools, a system prompt, and turns of calls and results up to 200 KiB.
fn agent_conversation() -> Value {
    let properties: Value = (0..6)
        .map(|at| {
            (
                format!("option_{at}"),
                json!({"type":"string","description":"What the option does, in a sentence."}),
            )
        })
        .collect::<serde_json::Map<_, _>>()
        .into();
    let schema = json!({"type":"object","properties":properties,"required":["option_0"]});
    let tools: Vec<Value> = (0..30)
        .map(|at| json!({"name":format!("tool_{at}"),"description":"Does a thing.\n".repeat(12),"input_schema":schema}))
        .collect();
    let mut messages = vec![json!({"role":"user","content":"Mend the tests."})];
    for turn in 0..26 {
        let id = format!("toolu_{turn:04}");
        let input = json!({"path":format!("src/{turn}.rs"),"old":source_code(6),"new":source_code(8)});
        messages.push(json!({"role":"assistant","content":[
            {"type":"text","text":"I read the next file. ".repeat(8)},
            {"type":"tool_use","id":id,"name":"tool_3","input":input}]}));
        messages.push(json!({"role":"user","content":[
            {"type":"tool_result","tool_use_id":id,"content":[{"type":"text","text":source_code(100)}]},
            {"type":"text","text":"<reminder>Stay on the task.</reminder>","cache_control":{"type":"ephemeral"}}]}));
        messages.push(json!({"role":"system","content":"The tree has changed."}));
    }
    let system = json!([{"type":"text","text":"x-anthropic-billing-header: cch=1"},{"type":"text","text":"You mend code.\n".repeat(600)}]);
    json!({"model":"claude-x","max_tokens":64000,"stream":true,"system":system,"tools":tools,"messages":messages})
}

/// Builds a request with one long message and little structure.
fn long_message() -> Value {
    json!({"model":"claude-x","max_tokens":64000,"stream":true,"messages":[{"role":"user","content":"A plain sentence of prose, and one more. ".repeat(5_000)}]})
}

fn to_chat_request(body: &Value) -> Value {
    let asked = build_request(Dialect::Messages, body.to_string());
    let abilities = OfferCapabilities::default();
    let to = build_target(Dialect::Chat, &abilities);
    let pieces = penstock_dialect::find_translator(Dialect::Messages, Dialect::Chat)
        .unwrap()
        .build_request(&asked, &to)
        .unwrap();
    serde_json::from_slice(&pieces.concat()).unwrap()
}

fn print_line(line: &str) {
    std::io::stdout().write_all(line.as_bytes()).expect("stdout");
}

fn measure_requests(name: &str, client: Dialect, provider: Dialect, body: &Value) {
    let abilities = OfferCapabilities::default();
    let (ask, target) = (build_request(client, body.to_string()), build_target(provider, &abilities));
    let translator = penstock_dialect::find_translator(client, provider).expect("the pair is spoken");
    let mut best = f64::MAX;
    for _ in 0..RUN_COUNT {
        let start = Instant::now();
        let pieces = translator.build_request(&ask, &target).expect("it can be said");
        best = best.min(start.elapsed().as_secs_f64());
        assert!(!pieces.is_empty());
    }
    let size = ask.body.len() as f64;
    print_line(&format!(
        "{name:<44} {:>4.0} KiB {:>8.1} us {:>8.0} MB/s\n",
        size / 1024.0,
        best * 1e6,
        size / best / 1e6
    ));
}

fn measure_stream(name: &str, client: Dialect, kind: &str, block: &str, text: &str) {
    let named = |kind: &str, data: &str| format!("event: {kind}\ndata: {{\"type\":\"{kind}\"{data}}}\n\n");
    let start = r#","message":{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":1,"output_tokens":0}}"#;
    let mut events = vec![
        named("message_start", start),
        named("content_block_start", &format!(",\"index\":0,\"content_block\":{block}")),
    ];
    let delta = format!(",\"index\":0,\"delta\":{{\"type\":\"{kind}\",{text}}}");
    events.extend((0..EVENT_COUNT).map(|_| named("content_block_delta", &delta)));
    let abilities = OfferCapabilities::default();
    let translator =
        penstock_dialect::find_translator(client, Dialect::Messages).expect("the pair is spoken");
    let ask = build_request(client, r#"{"model":"m","max_tokens":9,"messages":[],"stream":true}"#.to_owned());
    for together in [1, 64] {
        let pieces: Vec<Bytes> = events.chunks(together).map(|events| Bytes::from(events.concat())).collect();
        let mut best = f64::MAX;
        for _ in 0..RUN_COUNT / 4 {
            let mut reply = translator.translate_stream(&ask, &build_target(Dialect::Messages, &abilities));
            let start = Instant::now();
            for piece in &pieces {
                let mut out = OutputBuffer::default();
                reply.push(piece.clone(), &mut out).expect("a good stream");
            }
            best = best.min(start.elapsed().as_secs_f64() * 1e9 / events.len() as f64);
        }
        print_line(&format!("{name:<44} {together:>3} a piece {best:>8.1} ns/event\n"));
    }
}

fn main() {
    use Dialect::{Chat, Messages};
    for (what, body) in [("conversation", agent_conversation()), ("one long text", long_message())] {
        measure_requests(&format!("messages to chat, {what}"), Messages, Chat, &body);
        measure_requests(&format!("messages to messages, {what}"), Messages, Messages, &body);
        measure_requests(&format!("chat to messages, {what}"), Chat, Messages, &to_chat_request(&body));
    }
    let (text, tool) =
        (r#"{"type":"text","text":""}"#, r#"{"type":"tool_use","id":"a","name":"f","input":{}}"#);
    for client in [Messages, Chat] {
        let name = |what: &str| format!("{} client, native stream, {what}", client.name());
        measure_stream(&name("text"), client, "text_delta", text, r#""text":" today""#);
        measure_stream(&name("arguments"), client, "input_json_delta", tool, r#""partial_json":"  ""#);
    }
}
