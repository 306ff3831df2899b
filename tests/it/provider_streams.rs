//! Unusual streams of providers: errors as an SSE field or as a named event, JSON lines, and usage after the end.

use crate::harness::script::{
    Script, ScriptStep, delta, done, event, finish, role, sse, status, stream, text, usage,
};
use crate::harness::{Bench, Client, Provider, until, within};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Price of the second provider, so that it is tried second.
const SECOND: &str = "price = { input = 50.0, output = 50.0 }";

fn error_field() -> ScriptStep {
    ScriptStep::Chunk(
        b"error: {\"code\":500,\"message\":\"slot failed\",\"type\":\"server_error\"}\n\n".to_vec(),
    )
}

/// Returns a stream of JSON lines.
fn json_lines(values: &[Value]) -> Script {
    let head = vec![("content-type", "application/x-ndjson".into()), ("transfer-encoding", "chunked".into())];
    let mut script = vec![ScriptStep::Head(200, head)];
    script.extend(values.iter().map(|value| ScriptStep::Chunk(format!("{value}\n").into_bytes())));
    script.push(ScriptStep::End);
    script
}

/// Returns the `usage` that the events of a streamed answer contain.
fn stated_usage(events: &[Value]) -> Value {
    events.iter().find_map(|event| event.get("usage").filter(|usage| !usage.is_null())).cloned().unwrap()
}

/// Checks that a stream is answered by the second provider if the first provider sends this script.
async fn assert_fails_over(script: Script) {
    let (bad, good) = (Provider::start().await, Provider::start().await);
    bad.then(script);
    good.always(stream(&["One two"]));
    let running = Bench::new().provider("bad", &bad).provider_with("good", &good, "", SECOND).start().await;
    let mut ask = running.ask_stream();
    ask["model"] = json!("m:price");
    let answer = running.client.post("/v1/chat/completions", &ask).await;
    assert_eq!(
        (answer.streamed_text().as_str(), answer.header("x-penstock-provider")),
        ("One two", Some("good"))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_field_before_the_first_token_fails_over_and_after_it_is_an_error_event() {
    assert_fails_over(vec![sse(), role(), error_field(), ScriptStep::End]).await;

    let alone = Provider::start().await;
    alone.always(vec![sse(), role(), text("One "), error_field(), done(), ScriptStep::End]);
    let running = Bench::new().provider("alone", &alone).start().await;
    let answer = running.client.post("/v1/chat/completions", &running.ask_stream()).await;
    let events = answer.events();
    assert_eq!(events.last().unwrap()["error"]["code"], "INFERENCE_3103", "{}", answer.text());
    assert!(events.iter().all(|event| event["choices"][0]["finish_reason"].is_null()));
    assert!(!answer.text().contains("slot failed"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn json_lines_are_an_answer_and_cut_ones_fail_over() {
    let lines = [
        delta(json!({"content": "One "}), None),
        delta(json!({"content": "two"}), None),
        delta(json!({}), Some("stop")),
        json!({"choices": [], "usage": {"prompt_tokens": 11, "completion_tokens": 2}}),
    ];
    let provider = Provider::start().await;
    provider.always(json_lines(&lines));
    let running = Bench::new().provider("lines", &provider).start().await;
    let answer = running.client.post("/v1/chat/completions", &running.ask_stream()).await;
    assert_eq!(answer.streamed_text(), "One two");
    assert_eq!(stated_usage(&answer.events())["prompt_tokens"], 11);
    let plain = running.chat().await;
    assert_eq!(plain.json()["choices"][0]["message"]["content"], "One two");
    drop(running);

    let cut = [delta(json!({"role": "assistant"}), None), json!({"error": {"message": "x"}})];
    assert_fails_over(json_lines(&cut)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn usage_after_the_end_is_billed_and_an_open_stream_does_not_wait_for_it() {
    let provider = Provider::start().await;
    let late =
        |rest: Vec<ScriptStep>| [vec![sse(), role(), text("One "), finish("stop"), done()], rest].concat();
    let running = Bench::new().provider("late", &provider).start().await;
    let mut ask = running.ask_stream();
    ask["stream_options"] = json!({"include_usage": true});
    provider.then(late(vec![usage(11, 2), ScriptStep::End]));
    let answer = running.client.post("/v1/chat/completions", &ask).await;
    assert_eq!(stated_usage(&answer.events())["prompt_tokens"], 11, "{}", answer.text());
    for rest in [vec![ScriptStep::Hang], vec![usage(4_000_000, 2), ScriptStep::Hang]] {
        provider.then(late(rest));
        let began = Instant::now();
        let answer = within("the end", running.client.post("/v1/chat/completions", &ask)).await;
        assert!(answer.whole && began.elapsed() < Duration::from_secs(5), "{}", answer.text());
        assert_eq!(answer.streamed_text(), "One ");
        assert!(stated_usage(&answer.events())["prompt_tokens"].as_u64().unwrap() < 1_000);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_status_of_a_timeout_is_labelled_as_a_timeout() {
    let provider = Provider::start().await;
    let running = Bench::new().settings("[routing]\nattempts = 1").provider("a", &provider).start().await;
    for code in [504, 408, 524] {
        provider.then(status(code));
        let answer = running.chat().await;
        assert_eq!(answer.status, 503, "{code}: {}", answer.text());
        assert_eq!(answer.json()["error"]["details"]["attempts"][0]["reason"], "timeout", "{code}");
    }
    provider.then(status(502));
    assert_eq!(running.chat().await.json()["error"]["details"]["attempts"][0]["reason"], "unavailable");
    until("the exchanges to be logged", || running.gateway.app.in_flight_exchanges() == 0).await;
    let metrics =
        Client { address: running.gateway.admin_address, key: String::new() }.get("/metrics").await.text();
    for line in [
        "penstock_attempts_total{outcome=\"timeout\",provider=\"a\"} 3",
        "penstock_attempts_total{outcome=\"status\",provider=\"a\"} 1",
    ] {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn output_after_a_finish_reason_and_a_silence_is_passed_on() {
    let pause = || ScriptStep::Pause(Duration::from_millis(1_500));
    let last_text = |content: &str| event(&delta(json!({"content": content}), Some("stop")));
    let early = || event(&delta(json!({"role": "assistant", "content": ""}), Some("stop")));
    let scripts = [
        vec![sse(), role(), last_text("One "), pause(), last_text("two"), done(), ScriptStep::End],
        vec![
            sse(),
            role(),
            text("One "),
            finish("stop"),
            pause(),
            text("two"),
            finish("stop"),
            ScriptStep::End,
        ],
        vec![sse(), early(), pause(), text("One two"), finish("stop"), usage(3, 2), ScriptStep::Hang],
    ];
    for script in scripts {
        let provider = Provider::start().await;
        provider.always(script);
        let running = Bench::new().provider("a", &provider).start().await;
        let answer =
            within("the end", running.client.post("/v1/chat/completions", &running.ask_stream())).await;
        assert_eq!(answer.streamed_text(), "One two", "{}", answer.text());
        assert!(answer.whole, "{}", answer.text());
        penstock_dialect::conformance::check_chat_stream(&answer.body, false).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silence_after_a_finish_reason_ends_the_answer() {
    // The timeouts are so long that a gateway that waited for `idle` would not end the stream within this test.
    const PATIENT: &str = "timeouts = { idle = \"1h\", total = \"2h\" }";
    let last_text = event(&delta(json!({"content": "One two"}), Some("stop")));
    for script in [
        vec![sse(), role(), last_text, ScriptStep::Hang],
        vec![sse(), role(), text("One two"), finish("stop"), ScriptStep::Hang],
        vec![sse(), role(), text("One two"), finish("stop"), usage(3, 2), ScriptStep::Hang],
    ] {
        let provider = Provider::start().await;
        provider.always(script);
        let running = Bench::new().provider_with("a", &provider, PATIENT, "").start().await;
        let answer =
            within("the end", running.client.post("/v1/chat/completions", &running.ask_stream())).await;
        assert_eq!(answer.streamed_text(), "One two", "{}", answer.text());
        assert!(answer.whole && provider.calls() == 1, "{}", answer.text());
        penstock_dialect::conformance::check_chat_stream(&answer.body, false).unwrap();
    }
}
