//! Bytes of a provider's stream that the gateway buffers count towards the memory limit, as bodies do: incomplete
//! events, and output that is not sent yet.

use super::{CHAT, until_empty};
use crate::harness::gateway::Running;
use crate::harness::script::{Script, ScriptStep};
use crate::harness::script::{delta, done, finish, sse, text, usage};
use crate::harness::{Bench, Provider, until};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::sync::Notify;

/// Size of a large event in bytes. The memory limit of the gateway allows two such events.
const LONG: usize = 700_000;

/// Bytes that are reserved for such an event without its end: steps of 256 KiB beyond the 64 KiB that are not counted.
const HELD: usize = 3 * (256 << 10);

/// Returns an event whose end is delayed.
fn long(go: &Arc<Notify>) -> Script {
    let data = delta(json!({"content": "x".repeat(LONG)}), None).to_string();
    let (begin, end) = data.split_at(LONG);
    let begin = ScriptStep::Chunk(format!("data: {begin}").into_bytes());
    let end = ScriptStep::Chunk(format!("{end}\n\n").into_bytes());
    vec![begin, ScriptStep::Wait(go.clone()), end, finish("stop"), usage(5, 7), done(), ScriptStep::End]
}

async fn app(provider: &Provider) -> Running {
    let settings = "[limits]\njson_body = \"1MiB\"\n[overload]\nbytes = \"2MiB\"";
    Bench::new().settings(settings).provider("a", provider).start().await
}

fn ask() -> Value {
    json!({"model": "m", "stream": true, "messages": [{"role": "user", "content": "hi"}]})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_that_are_not_whole_have_a_bound_together() {
    let (provider, go) = (Provider::start().await, Arc::new(Notify::new()));
    let script: Script = [sse()].into_iter().chain(long(&go)).collect();
    provider.streams(script);
    let running = app(&provider).await;
    let overload = running.gateway.app.admission.clone();
    let mut streams = Vec::new();
    for path in [CHAT, "/v1/messages"] {
        let (client, mut ask) = (running.client.clone(), ask());
        ask["max_tokens"] = json!(100_000);
        let before = overload.load_status().bytes;
        streams.push(tokio::spawn(async move { client.post(path, &ask).await }));
        until("it to be held", || overload.load_status().bytes >= before + HELD).await;
    }
    let refused = running.client.post(CHAT, &ask()).await;
    assert_eq!((refused.status, refused.json()["error"]["code"].as_str()), (503, Some("SERVER_9002")));
    assert!(overload.load_status().bytes <= 2 << 20);
    go.notify_waiters();
    for stream in streams {
        let answer = stream.await.unwrap();
        assert_eq!(answer.status, 200);
        assert!(answer.text().contains(&"x".repeat(LONG)), "both are answered whole");
    }
    assert_eq!(provider.calls(), 3, "who was refused was asked of nobody else");
    until_empty(&running).await;
}

/// Tests that a started stream ends with an error event when too many bytes are buffered, and is not charged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_stream_ends_with_an_error_where_too_many_bytes_are_buffered() {
    let (provider, go) = (Provider::start().await, Arc::new(Notify::new()));
    let script: Script = [sse(), text("Hello")].into_iter().chain(long(&go)).collect();
    provider.streams(script);
    let running = app(&provider).await;
    let overload = running.gateway.app.admission.clone();
    let mut streams = Vec::new();
    for number in 1..=2 {
        let client = running.client.clone();
        streams.push(tokio::spawn(async move { client.post(CHAT, &ask()).await }));
        until("it to be held", || overload.load_status().bytes >= number * HELD).await;
    }
    let broken = running.client.post(CHAT, &ask()).await;
    let events = broken.events();
    assert_eq!((broken.status, broken.streamed_text().as_str(), broken.whole), (200, "Hello", true));
    assert_eq!(events.last().unwrap()["error"]["code"], "SERVER_9002", "{}", broken.text());
    assert!(events.iter().all(|event| event.get("billing_cost").is_none()));
    go.notify_waiters();
    let mut reported = 0.0;
    for stream in streams {
        let credits =
            stream.await.unwrap().events().iter().find_map(|event| event["billing_cost"]["credits"].as_f64());
        reported += credits.expect("it is good");
    }
    until_empty(&running).await;
    let metrics = running.admin().get("/metrics").await.text();
    let charged = metrics.lines().filter(|line| line.starts_with("penstock_credits_total{"));
    let charged: f64 = charged.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum();
    assert!(reported > 0.0 && (charged - reported).abs() < 1e-9, "{charged} of {reported}");
}

/// Tests that one stream buffers no more than an answer that is not streamed may have.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_stream_keeps_as_much_as_an_unstreamed_answer_may_have() {
    let (provider, go) = (Provider::start().await, Arc::new(Notify::new()));
    provider.then([sse()].into_iter().chain(long(&go)).collect());
    let settings = "[limits]\nresponse_buffer = \"64KiB\"";
    let running = Bench::new().settings(settings).provider("a", &provider).start().await;
    let answer = running.chat_stream().await;
    assert_eq!(answer.status, 503, "{}", answer.text());
    assert_eq!(answer.json()["error"]["details"]["attempts"][0]["reason"], "unavailable");
    assert_eq!(running.chat_stream().await.streamed_text(), "Hello");
    assert_eq!(provider.calls(), 2);
}

/// Tests that events count while the client does not read them. The events of this dialect are several times as long as
/// those of the provider.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_that_a_client_does_not_read_count() {
    const EVENTS: usize = 60_000;
    let provider = Provider::start().await;
    let event = "data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n";
    let events = ScriptStep::Chunk(event.repeat(EVENTS).into_bytes());
    provider.then(vec![sse(), events, ScriptStep::Hang]);
    let running = Bench::new().provider("a", &provider).start().await;
    let ask = json!({"model": "m", "stream": true, "input": "hi"}).to_string();
    let length = ask.len().to_string();
    let headers = [("content-type", "application/json"), ("content-length", length.as_str())];
    let open = running.client.open("POST", "/v1/responses", &headers, ask.as_bytes()).await;
    let admission = running.gateway.app.admission.clone();
    // Without the events, only the body of the request is counted: the text is shorter than what is never counted.
    until("the events to be counted", || admission.load_status().bytes > 128 << 10).await;
    drop(open);
    until_empty(&running).await;
}
