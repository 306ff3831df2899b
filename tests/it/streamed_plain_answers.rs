//! Streams with which providers answer plain requests: they end like the streams of streaming clients.

use crate::harness::script::{ScriptStep, delta, done, event, finish, role, sse, text, usage};
use crate::harness::{Bench, Provider, within};
use serde_json::json;

const CHAT: &str = "/v1/chat/completions";

fn begun() -> Vec<ScriptStep> {
    vec![sse(), role(), text("One, "), text("two.")]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_for_a_plain_request_ends_at_its_end_event() {
    let provider = Provider::start().await;
    let running = Bench::new().provider("a", &provider).start().await;
    let ask = json!({"model": "m", "messages": [{"role": "user", "content": "Hi"}]});
    for last in [
        // The connection stays open after the end event.
        vec![finish("stop"), usage(9, 3), done(), ScriptStep::Hang],
        // Another event after the end is not read.
        vec![finish("stop"), usage(9, 3), done(), text("three"), ScriptStep::Hang],
        // The connection breaks after the finish reason, and after the end event.
        vec![finish("stop"), usage(9, 3), ScriptStep::Cut],
        vec![finish("stop"), usage(9, 3), done(), ScriptStep::Cut],
        // The finish reason comes with the last text.
        vec![event(&delta(json!({"content": ""}), Some("stop"))), usage(9, 3), ScriptStep::Cut],
        // An incomplete event follows the finish reason.
        vec![finish("stop"), usage(9, 3), ScriptStep::Chunk(b"data: {\"choi".to_vec()), ScriptStep::Cut],
    ] {
        let calls = provider.calls();
        provider.then([begun(), last].concat());
        let answer = within("the answer", running.client.post(CHAT, &ask)).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let answer = answer.json();
        assert_eq!(answer["choices"][0]["message"]["content"], "One, two.", "{answer}");
        assert_eq!(answer["choices"][0]["finish_reason"], "stop");
        assert_eq!(answer["usage"]["completion_tokens"], 3);
        assert_eq!(provider.calls(), calls + 1);
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_stream_for_a_plain_request_is_asked_of_another_provider() {
    let (broken, good) = (Provider::start().await, Provider::start().await);
    broken.always([begun(), vec![ScriptStep::Cut]].concat());
    let running = Bench::new().provider("a", &broken).provider("b", &good).start().await;
    let ask = json!({"model": "m", "messages": [{"role": "user", "content": "Hi"}]});
    for _ in 0..3 {
        let answer = within("the answer", running.client.post(CHAT, &ask)).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_ne!(answer.json()["choices"][0]["message"]["content"], "One, two.");
    }
    assert!(broken.calls() > 0, "the broken provider was never asked");
    running.stop().await;
}
