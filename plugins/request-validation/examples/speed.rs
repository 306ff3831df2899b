//! Measures the validation speed by size and content of the request: `cargo run --release -p
//! penstock-request-validation --example speed`.
#![allow(clippy::print_stdout)]

use bytes::Bytes;
use penstock_request_validation::{
    MessagesPurpose, RequestLimits, validate_chat_request, validate_messages_request,
};
use std::hint::black_box;
use std::time::Instant;

const PROSE: &str = "The gateway routes each request to one eligible provider, and if that provider fails, \
                     the request goes to another one before the first token has been sent to the client. ";
const SOURCE: &str = "fn main() {\n    let name = \"world\";\n    if !name.is_empty() {\n\t\tprintln!(\"{name:?}\\n\");\n    }\n}\n\n";
const GREEK: &str =
    "Η πύλη δρομολογεί κάθε αίτημα σε έναν επιλέξιμο πάροχο· 如果该提供商失败，请求会转到另一个。😀 ";

/// Returns a chat request of about `size` bytes, in messages of 4 KiB or one image.
fn request(kind: &str, size: usize) -> Bytes {
    let mut turns = vec![serde_json::json!({"role": "system", "content": "You are helpful."})];
    let mut left = size.saturating_sub(300);
    while left > 0 {
        let length = left.min(if kind == "data: image" { left } else { 4096 });
        left -= length;
        let text = |sample: &str| {
            let mut text = String::new();
            while serde_json::to_string(&text).map_or(0, |json| json.len()) < length {
                sample.chars().for_each(|character| text.push(character));
            }
            text
        };
        let content = match kind {
            "prose" => text(PROSE).into(),
            "source code" => text(SOURCE).into(),
            "data: image" => serde_json::json!([
                {"type": "text", "text": "What is this?"},
                {"type": "image_url", "image_url": {
                    "url": format!("data:image/png;base64,{}", "iVBORw0K+/ab".repeat(length / 12 + 1))}},
            ]),
            _ => text(GREEK).into(),
        };
        let role = if turns.len() % 2 == 1 { "user" } else { "assistant" };
        turns.push(serde_json::json!({"role": role, "content": content}));
    }
    let body = serde_json::json!({"model": "org/model:eco", "messages": turns, "temperature": 0.7,
        "max_tokens": 512, "stream": true, "stream_options": {"include_usage": true}});
    let text = body.to_string();
    // Escaped like the output of Python's `json.dumps`.
    let escape = |character: char| match character {
        ' '..='~' => character.to_string(),
        other => other.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect(),
    };
    if kind == "\\u escapes" { text.chars().map(escape).collect::<String>().into() } else { text.into() }
}

fn measure(name: &str, body: &Bytes, prove: impl Fn(Bytes) -> bool) {
    // Arguments select the samples to measure: those whose names contain one of the arguments.
    let mut wanted = std::env::args().skip(1).peekable();
    if wanted.peek().is_some() && !wanted.any(|word| name.contains(&word)) {
        return;
    }
    // The best of many small measurements counts, because other load on the machine slows most of them.
    let rounds = (1_000_000 / body.len().max(5_000)).max(1);
    let mut best = f64::MAX;
    for _ in 0..300 {
        let start = Instant::now();
        for _ in 0..rounds {
            assert!(black_box(prove(black_box(body.clone()))));
        }
        best = best.min(start.elapsed().as_secs_f64() / rounds as f64);
    }
    println!(
        "{name:32} {:>9} B {:>10.2} µs {:>7.2} GB/s",
        body.len(),
        best * 1e6,
        body.len() as f64 / best / 1e9
    );
}

fn main() {
    let limits = RequestLimits::default();
    for size in [1 << 10, 200 << 10, 2 << 20] {
        for kind in ["prose", "source code", "non-ASCII", "\\u escapes", "data: image"] {
            let body = request(kind, size);
            measure(&format!("chat {kind} {}K", size >> 10), &body, |body| {
                validate_chat_request(body, &limits).is_ok()
            });
            if kind == "prose" {
                // The same request with an unknown member instead of `stream_options`, under the rules of the other
                // dialect.
                let body =
                    Bytes::from(String::from_utf8_lossy(&body).replace("\"stream_options\"", "\"unknown\""));
                measure("messages prose", &body, |body| {
                    validate_messages_request(body, &limits, MessagesPurpose::Generate).is_ok()
                });
            }
        }
    }
    let tools: Vec<_> = (0..30)
        .map(|index| serde_json::json!({"type": "function", "function": {"name": format!("tool_{index}"),
            "description": PROSE, "parameters": {"type": "object", "required": ["path"], "properties": {
                "path": {"type": "string", "description": "Where"}, "mode": {"type": "string", "enum": ["r", "w"]}}}}}))
        .collect();
    let turns: Vec<_> = (0..400)
        .map(|index| match index % 3 {
            0 => serde_json::json!({"role": "user", "content": [{"type": "text", "text": PROSE}]}),
            1 => serde_json::json!({"role": "assistant", "content": null, "tool_calls": [{"id": format!("call_{index}"),
                "type": "function", "function": {"name": "tool_1", "arguments": "{\"path\":\"/tmp\"}"}}]}),
            _ => serde_json::json!({"role": "tool", "tool_call_id": format!("call_{}", index - 1), "content": PROSE}),
        })
        .collect();
    let agent = serde_json::json!({"model": "m", "tools": tools, "messages": turns}).to_string();
    measure("chat agent, 400 short turns", &agent.into(), |body| {
        validate_chat_request(body, &limits).is_ok()
    });
}
