//! Conversation of a coding agent: thirty tools, a billing block in the system prompt, later system messages,
//! `max_tokens` of 64k, streamed.

use crate::harness::script::{Script, ScriptStep, delta, done, event, finish, role, sse, text, usage};
use crate::harness::{Bench, Provider};
use serde_json::{Value, json};

fn tools() -> Value {
    let tool = |index: u32| {
        json!({"name": format!("tool_{index}"), "description": format!("Does thing {index}. Use it when thing {index} is wanted."),
            "input_schema": {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object",
                "properties": {"path": {"type": "string", "description": "Absolute path"},
                    "lines": {"type": "array", "items": {"type": "integer"}},
                    "mode": {"type": "string", "enum": ["read", "write"]}},
                "required": ["path"], "additionalProperties": false}})
    };
    (0..30).map(tool).collect()
}

/// Returns a conversation of three turns: a question, a call and its results, a reminder in the middle.
fn conversation() -> Value {
    json!({
        "model": "claude-sonnet-4-5",
        "max_tokens": 64_000,
        "stream": true,
        "metadata": {"user_id": "user_0123456789abcdef_account__session_42"},
        "thinking": {"type": "adaptive"},
        "output_config": {"effort": "high"},
        "system": [
            {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1; cch=8f2ab;"},
            {"type": "text", "text": "You are a coding agent.", "cache_control": {"type": "ephemeral"}},
            {"type": "text", "text": "Be careful with files.", "cache_control": {"type": "ephemeral"}}],
        "tools": tools(),
        "messages": [
            {"role": "user", "content": [
                {"type": "text", "text": "<reminder>The tree is clean.</reminder>"},
                {"type": "text", "text": "Rename `foo` to `bar`.", "cache_control": {"type": "ephemeral"}}]},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "I should look first.", "signature": "c2lnbmVk"},
                {"type": "text", "text": "I look for it."},
                {"type": "tool_use", "id": "toolu_01", "name": "tool_1", "input": {"path": "/src/a.rs", "mode": "read"}},
                {"type": "tool_use", "id": "toolu_02", "name": "tool_2", "input": {"path": "/src/b.rs"}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "toolu_01", "content": [{"type": "text", "text": "fn foo() {}\n\t\"quoted\""}]},
                {"type": "tool_result", "tool_use_id": "toolu_02", "content": "not found", "is_error": true},
                {"type": "text", "text": "Go on."}]},
            {"role": "system", "content": "The user opened /src/a.rs."},
            {"role": "assistant", "content": "I change it now."},
            {"role": "user", "content": "Yes."}],
    })
}

/// Returns an answer with reasoning, text, and two parallel tool calls.
fn answer() -> Script {
    let call = |index: u64, name: &str| {
        event(&delta(
            json!({"tool_calls": [{"index": index, "id": format!("call_{index}"), "type": "function",
            "function": {"name": name, "arguments": ""}}]}),
            None,
        ))
    };
    let part = |index: u64, piece: &str| {
        event(&delta(json!({"tool_calls": [{"index": index, "function": {"arguments": piece}}]}), None))
    };
    let thought = event(&delta(json!({"reasoning_content": "Two edits."}), None));
    vec![
        sse(),
        role(),
        thought,
        text("Editing "),
        text("both."),
        call(0, "tool_3"),
        part(0, "{\"path\":"),
        part(0, "\"/src/a.rs\"}"),
        call(1, "tool_4"),
        part(1, "{\"path\":\"/src/b.rs\"}"),
        finish("tool_calls"),
        usage(4_200, 60),
        done(),
        ScriptStep::End,
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agents_conversation_goes_through() {
    let provider = Provider::start().await;
    provider.always(answer());
    let running = Bench::new()
        .model("aliases = [\"claude-sonnet-4-5\"]\ncontext_length = 32768\ntokenizer = { builtin = \"gpt-oss\" }\nsupported_parameters = [\"tools\", \"tool_choice\", \"temperature\", \"stream\", \"max_tokens\", \"reasoning_effort\"]")
        .provider("a", &provider)
        .start()
        .await;
    let body = conversation().to_string();
    let headers = [
        ("anthropic-version", "2026-10-21"),
        ("anthropic-beta", "claude-code-20250219,interleaved-thinking-2025-05-14"),
    ];
    let answer = running.client.send("POST", "/v1/messages?beta=true", &headers, body.as_bytes()).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    penstock_dialect::conformance::check_messages_stream(&answer.body).unwrap();
    check_answer(&answer.text());
    check_sent(&provider.last().json());
}

fn check_answer(text: &str) {
    for piece in [
        "\"thinking_delta\"",
        "\"signature_delta\"",
        "Editing ",
        "\"tool_3\"",
        "\"tool_4\"",
        "\"tool_use\"",
        "\"billing_cost\"",
    ] {
        assert!(text.contains(piece), "{piece} is missing in {text}");
    }
    assert!(text.contains("\"model\":\"claude-sonnet-4-5\""));
}

fn check_sent(sent: &Value) {
    assert_eq!(sent["tools"].as_array().unwrap().len(), 30);
    assert_eq!(sent["tools"][7]["function"]["name"], "tool_7");
    // A token cap that does not fit the window of 32,768 tokens is reduced to the space that the prompt leaves.
    let cap = sent["max_tokens"].as_u64().or_else(|| sent["max_completion_tokens"].as_u64()).unwrap();
    assert!((20_000..32_768).contains(&cap), "{cap}");
    let whole = sent.to_string();
    assert!(!whole.contains("x-anthropic-billing-header"), "the billing block defeats prefix caches");
    assert!(!whole.contains("user_0123456789abcdef"), "who the user is stays here");
    assert!(!whole.contains("cache_control"));
    let messages = sent["messages"].as_array().unwrap();
    let roles: Vec<&str> = messages.iter().map(|message| message["role"].as_str().unwrap()).collect();
    assert_eq!(roles.first(), Some(&"system"));
    assert_eq!(messages[0]["content"], "You are a coding agent.\n\nBe careful with files.");
    let call = roles.iter().position(|role| *role == "assistant").unwrap();
    assert_eq!(messages[call]["tool_calls"].as_array().unwrap().len(), 2);
    assert_eq!(
        messages[call]["tool_calls"][0]["function"]["arguments"],
        "{\"path\":\"/src/a.rs\",\"mode\":\"read\"}"
    );
    assert_eq!(&roles[call + 1..call + 3], ["tool", "tool"], "results follow their calls");
    assert_eq!(messages[call + 1]["content"], "fn foo() {}\n\t\"quoted\"");
    assert!(messages[call + 2]["content"].as_str().unwrap().starts_with("Error: "));
    assert!(whole.contains("The user opened /src/a.rs."));
    assert_eq!(messages.last().unwrap()["content"], "Yes.");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn its_tokens_are_counted_by_the_tokenizer_by_an_engine_or_estimated() {
    let provider = Provider::start().await;
    provider.always(crate::harness::script::json_answer(
        200,
        &json!({"input_tokens": 4321, "count": 4321, "max_model_len": 32768, "tokens": []}),
    ));
    let exact =
        Bench::new().model("tokenizer = { builtin = \"gpt-oss\" }").provider("a", &provider).start().await;
    let engine = Bench::new().provider_with("a", &provider, "tokenize = \"vllm\"", "").start().await;
    let guess = Bench::new().provider("a", &provider).start().await;
    let mut body = conversation();
    body["model"] = json!("m");
    let mut counted = Vec::new();
    for (running, method) in [(&exact, "exact"), (&engine, "engine"), (&guess, "estimate")] {
        let answer = running.client.post("/v1/messages/count_tokens", &body).await;
        assert_eq!(answer.header("x-token-count-method"), Some(method), "{}", answer.text());
        counted.push(answer.json()["input_tokens"].as_u64().unwrap());
    }
    assert_eq!(counted[1], 4321);
    assert!(counted[2] >= counted[0], "an estimate is not too low: {counted:?}");
    assert_eq!(provider.calls(), 1, "only the engine was asked, and for a count");
}
