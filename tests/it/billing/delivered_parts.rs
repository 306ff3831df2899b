//! Charges for the delivered part of a stream that fails without a fault of its provider: it ended because of a time
//! limit of the gateway, or because of the model's output.

use super::{CHAT, balance, entries, of};
use crate::harness::gateway::{PATIENT, Running};
use crate::harness::script::{Script, ScriptStep, delta, event, role, sse, status, stream, text};
use crate::harness::{Answer, Bench, Provider};
use crate::sounds;
use serde_json::{Value, json};

const MESSAGES: &str = "/v1/messages";
const RESPONSES: &str = "/v1/responses";
const COMPLETIONS: &str = "/v1/completions";
const SPEECH: &str = "/v1/audio/speech";

/// Time limit of a whole request; long enough for a first token on a busy machine.
const SHORT_TOTAL: &str = "[routing]\ntotal = \"2s\"";

fn body(path: &str) -> Value {
    match path {
        RESPONSES => json!({"model": "m", "input": "Hi", "stream": true}),
        COMPLETIONS => json!({"model": "m", "prompt": "Hi", "stream": true, "max_tokens": 90}),
        SPEECH => json!({"model": "m", "input": "A penstock is a pipe.", "voice": "alloy",
            "response_format": "wav", "stream_format": "sse"}),
        _ => json!({"model": "m", "max_tokens": 90, "stream": true,
            "messages": [{"role": "user", "content": "Hi"}]}),
    }
}

/// Stream of 20 bytes of text, and then these steps.
fn text_and(then: impl IntoIterator<Item = ScriptStep>) -> Script {
    let mut script = vec![sse(), role(), text("Well, let"), text(" me see it.")];
    script.extend(then);
    script
}

/// Returns the last event of a failed stream, and the cost that it states.
fn end(path: &str, answer: &Answer) -> (Value, f64) {
    assert_eq!(answer.status, 200, "{}", answer.text());
    let text = answer.text();
    let last = text.lines().rev().find_map(|line| line.strip_prefix("data: {")).unwrap();
    let last: Value = serde_json::from_str(&format!("{{{last}")).unwrap();
    let holder = if path == RESPONSES { &last["response"] } else { &last };
    assert!(holder["error"].is_object(), "{text}");
    (last.clone(), holder["billing_cost"]["credits"].as_f64().unwrap_or_default())
}

/// Asserts that the only request was charged, for this many tokens of output, and returns its cost in credits.
async fn charged(running: &Running, output: u64) -> f64 {
    let charges = of(running, "settle").await;
    assert_eq!(charges.len(), 1, "{charges:?}");
    assert_eq!((&charges[0]["output"], &charges[0]["counted"]), (&json!(output), &json!(true)));
    -balance(running) as f64 / 1e6
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_outlasts_the_total_time_is_charged_as_delivered() {
    let provider = Provider::start().await;
    provider.always(text_and([ScriptStep::Hang]));
    for path in [CHAT, MESSAGES, RESPONSES, COMPLETIONS] {
        let running = Bench::new().settings(SHORT_TOTAL).provider("a", &provider).start().await;
        let answer = running.client.post(path, &body(path)).await;
        let (_, cost) = end(path, &answer);
        let charged = charged(&running, 5).await;
        assert!(cost > 0.0 && (cost - charged).abs() < 1e-9, "{path}: {cost} {charged}");
    }
    assert_eq!(provider.calls(), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn choices_that_outlast_the_total_time_are_charged_as_delivered() {
    let provider = Provider::start().await;
    provider.always(text_and([ScriptStep::Hang]));
    let running =
        Bench::new().settings(SHORT_TOTAL).model("max_n = 1").provider("a", &provider).start().await;
    let mut ask = body(CHAT);
    ask["n"] = json!(2);
    let (_, cost) = end(CHAT, &running.client.post(CHAT, &ask).await);
    assert!(cost > 0.0);
    assert!((cost - charged(&running, 10).await).abs() < 1e-9);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn speech_that_outlasts_the_total_time_is_charged_as_delivered() {
    let sound = sounds::wav(4_000);
    for format in ["sse", "audio"] {
        let provider = Provider::start().await;
        let head = vec![("content-type", "audio/wav".into()), ("transfer-encoding", "chunked".into())];
        provider.always(vec![
            ScriptStep::Head(200, head),
            ScriptStep::Chunk(sound[..sound.len() / 2].to_vec()),
            ScriptStep::Hang,
        ]);
        let price = "price = { minute = 0.6 }";
        let running = Bench::new()
            .settings(SHORT_TOTAL)
            .kind("speech")
            .provider_with("a", &provider, PATIENT, price)
            .start()
            .await;
        let mut ask = body(SPEECH);
        ask["stream_format"] = json!(format);
        let bytes = ask.to_string();
        let mut open = running.client.open("POST", SPEECH, &[], bytes.as_bytes()).await;
        if format == "sse" {
            assert!(end(SPEECH, &open.finish().await).1 > 1.9);
        } else {
            // The client's body ends without its last chunk.
            provider.until_left(1).await;
        }
        let charges = of(&running, "settle").await;
        assert_eq!(charges.len(), 1, "{format}");
        assert!(balance(&running) < -1_900_000, "{format}: {}", balance(&running));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_about_the_text_is_charged_as_delivered_and_not_retried() {
    let error = |error: Value| event(&json!({"error": error}));
    for (refusal, code) in [
        (json!({"message": "flagged", "code": "content_filter", "type": "invalid_request_error"}), 3203),
        (
            json!({"message": "This model's maximum context length is 8192 tokens.", "code": 400,
                "type": "invalid_request_error"}),
            3207,
        ),
        (
            json!({"message": "the request exceeds the available context size", "code": 400,
            "type": "exceed_context_size_error"}),
            3207,
        ),
    ] {
        for path in [CHAT, MESSAGES, RESPONSES] {
            let (provider, other) = (Provider::start().await, Provider::start().await);
            provider.always(text_and([error(refusal.clone()), ScriptStep::End]));
            other.always(status(500));
            // The cheaper offer is asked first.
            let dear = "price = { input = 90.0, output = 90.0 }";
            let bench = Bench::new().provider("a", &provider).provider_with("b", &other, "", dear);
            let running = bench.start().await;
            let mut ask = body(path);
            ask["model"] = json!("m:price");
            let (last, cost) = end(path, &running.client.post(path, &ask).await);
            // The dialect of responses has codes of its own.
            let is_named = path == RESPONSES || last.to_string().contains(&code.to_string());
            assert!(is_named, "{last}");
            assert!(cost > 0.0 && (cost - charged(&running, 5).await).abs() < 1e-9, "{path} {refusal}");
            assert_eq!((provider.calls(), other.calls()), (1, 0), "{path} {refusal}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_context_that_the_prompt_cannot_fill_is_the_providers_error_and_rescued() {
    let error = json!({"message": "The context window is full"});
    for path in [CHAT, MESSAGES, RESPONSES] {
        let (provider, other) = (Provider::start().await, Provider::start().await);
        provider.always(text_and([event(&json!({"error": error})), ScriptStep::End]));
        other.always(stream(&["Well, let me see it. Good."]));
        let dear = "price = { input = 90.0, output = 90.0 }";
        let bench = Bench::new().provider("a", &provider).provider_with("b", &other, "", dear);
        let running = bench.start().await;
        let mut ask = body(path);
        ask["model"] = json!("m:price");
        let answer = running.client.post(path, &ask).await;
        assert!(!answer.text().contains("3207"), "{path}: {}", answer.text());
        assert_eq!((provider.calls(), other.calls()), (1, 1), "{path}: {}", answer.text());
        assert_eq!(of(&running, "settle").await.len(), 1, "{path}: {}", answer.text());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_of_the_provider_after_text_stays_free() {
    for refusal in [
        json!({"message": "internal error", "code": 500}),
        json!({"message": "overloaded", "code": 503, "type": "overloaded_error"}),
    ] {
        let provider = Provider::start().await;
        provider.always(text_and([event(&json!({"error": refusal})), ScriptStep::End]));
        let running = Bench::new().provider("a", &provider).start().await;
        assert_eq!(end(CHAT, &running.client.post(CHAT, &body(CHAT)).await).1, 0.0);
        assert!(entries(&running).await.iter().all(|entry| entry["act"] != "settle"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tool_call_without_a_name_is_charged_as_delivered() {
    let call = json!({"index": 0, "id": "c", "type": "function", "function": {"arguments": "{}"}});
    let provider = Provider::start().await;
    provider.always(text_and([
        event(&delta(json!({"tool_calls": [call]}), None)),
        event(&delta(json!({}), Some("tool_calls"))),
        ScriptStep::End,
    ]));
    for path in [CHAT, MESSAGES, RESPONSES] {
        let running = Bench::new().provider("a", &provider).start().await;
        let (_, cost) = end(path, &running.client.post(path, &body(path)).await);
        assert!(cost > 0.0 && (cost - charged(&running, 5).await).abs() < 1e-9, "{path}");
    }
}
