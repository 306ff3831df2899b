//! Headers and a token cap that the gateway adds: if a provider rejects one, the rejection is cached for an hour, and
//! the client gets no error for it.

use crate::harness::gateway::{PATIENT, Running};
use crate::harness::provider::RecordedRequest;
use crate::harness::script::{ScriptStep, completion, json_answer, message};
use crate::harness::{Answer, Bench, Provider, until};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::sync::Notify;

const CHAT: &str = "/v1/chat/completions";
const MESSAGES: &str = "/v1/messages";
const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const DIALECT: &str = "dialects = [\"messages\"]";

/// Requests that a provider received, in order.
type Received = Arc<Mutex<Vec<RecordedRequest>>>;

/// Returns a messages provider that answers with the error of `refuse`, if it returns one, else with `good`.
async fn provider(
    good: Value,
    refuse: impl Fn(&RecordedRequest) -> Option<Value> + Send + Sync + 'static,
) -> (Provider, Received) {
    let received = Received::default();
    let recorded = received.clone();
    let pick = move |seen: &RecordedRequest| {
        recorded.lock().push(RecordedRequest {
            method: seen.method.clone(),
            path: seen.path.clone(),
            headers: seen.headers.clone(),
            body: seen.body.clone(),
            at: seen.at,
        });
        match refuse(seen) {
            Some(error) => json_answer(400, &error),
            None => json_answer(200, &good),
        }
    };
    (Provider::with_selector(Box::new(pick)).await, received)
}

fn error(text: String) -> Value {
    json!({"type": "error", "error": {"type": "invalid_request_error", "message": text}})
}

async fn ask(running: &Running, path: &str, more: Value) -> Answer {
    let mut ask = running.ask();
    ask.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let headers = [("content-type", "application/json"), ("traceparent", PARENT), ("tracestate", "a=1")];
    running.client.send("POST", path, &headers, &serde_json::to_vec(&ask).unwrap()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_header_that_is_refused_by_name_is_left_out_for_an_hour() {
    for (lines, good, names) in [
        (DIALECT, message("Hello", "end_turn"), &["anthropic-version", "accept-encoding", "user-agent"][..]),
        ("", completion("Hello"), &["accept-encoding", "user-agent", "traceparent", "tracestate"][..]),
    ] {
        for name in names {
            let refuse = move |seen: &RecordedRequest| {
                seen.header(name).map(|value| error(format!("{name}: \"{value}\" is not a valid header")))
            };
            let (provider, received) = provider(good.clone(), refuse).await;
            let lines = format!("{PATIENT}\n{lines}");
            let bench = || Bench::new().provider_with("a", &provider, &lines, "");
            let running = bench().start().await;
            for count in [2, 1] {
                let answer = ask(&running, CHAT, json!({})).await;
                assert_eq!(answer.status, 200, "{name}: {}", answer.text());
                let received = std::mem::take(&mut *received.lock());
                assert_eq!(received.len(), count, "{name}");
                let last = received.last().unwrap();
                assert_eq!(last.header(name), None);
                let others = names.iter().filter(|other| *other != name && !name.starts_with("trace"));
                others.for_each(|other| assert!(last.header(other).is_some(), "{other} beside {name}"));
                assert!(last.header("content-length").is_some() && last.header("host").is_some());
            }
            running.reload(bench().load(running.storage())).await;
            assert_eq!(ask(&running, CHAT, json!({})).await.status, 200);
            assert_eq!(received.lock().len(), 2, "a reload forgets");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_configured_header_stays_and_its_rejection_is_logged() {
    let refuse = |seen: &RecordedRequest| {
        seen.header("anthropic-version").map(|_| error("anthropic-version: not a valid version".to_owned()))
    };
    let (provider, received) = provider(message("Hello", "end_turn"), refuse).await;
    let lines = format!("{PATIENT}\n{DIALECT}\nheaders = {{ anthropic-version = \"2099-01-01\" }}");
    let running = Bench::new().provider_with("a", &provider, &lines, "").start().await;
    let answer = ask(&running, CHAT, json!({})).await;
    assert_eq!(answer.status, 400, "{}", answer.text());
    let received = received.lock();
    assert_eq!(received.len(), 1);
    assert_eq!(received[0].header("anthropic-version"), Some("2099-01-01"));
}

fn cap(seen: &RecordedRequest) -> u64 {
    seen.json()["max_tokens"].as_u64().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cap_above_what_the_provider_gives_becomes_the_largest_that_it_names() {
    let refuse = |seen: &RecordedRequest| {
        let asked = cap(seen);
        let text =
            format!("max_tokens: {asked} > 4096, which is the maximum allowed number of output tokens");
        (asked > 4096).then(|| error(text))
    };
    let (provider, received) = provider(message("Hello", "end_turn"), refuse).await;
    let lines = format!("{PATIENT}\n{DIALECT}");
    let running = Bench::new().provider_with("a", &provider, &lines, "").start().await;
    for (path, more, caps) in [
        (CHAT, json!({}), &[8192, 4096][..]),
        (CHAT, json!({}), &[4096]),
        (CHAT, json!({"max_tokens": 5000}), &[4096]),
        (MESSAGES, json!({"max_tokens": 4097}), &[4096]),
        (MESSAGES, json!({"max_tokens": 4096}), &[4096]),
        (CHAT, json!({"max_tokens": 77}), &[77]),
    ] {
        let answer = ask(&running, path, more).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let sent: Vec<u64> = received.lock().drain(..).map(|seen| cap(&seen)).collect();
        assert_eq!(sent, caps);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cap_that_is_no_smaller_or_nothing_is_not_believed() {
    for named in ["0", "8192", "9000", "99999999999999999999999"] {
        let refuse = move |seen: &RecordedRequest| {
            Some(error(format!("max_tokens: {} > {named}, which is the maximum", cap(seen))))
        };
        let (provider, received) = provider(json!({}), refuse).await;
        let lines = format!("{PATIENT}\n{DIALECT}");
        let running = Bench::new().provider_with("a", &provider, &lines, "").start().await;
        let answer = ask(&running, CHAT, json!({})).await;
        assert_eq!((answer.status, &answer.json()["error"]["param"]), (400, &json!("max_tokens")));
        assert_eq!(received.lock().len(), 1, "{named}");
    }
    // A limit is not cached if the provider also rejects a cap within it.
    let refuse = |seen: &RecordedRequest| {
        Some(error(format!("max_tokens: {} > {}, which is the maximum", cap(seen), cap(seen) - 1)))
    };
    let (provider, received) = provider(json!({}), refuse).await;
    let lines = format!("{PATIENT}\n{DIALECT}");
    let running = Bench::new().provider_with("a", &provider, &lines, "").start().await;
    for _ in 0..2 {
        assert_eq!(ask(&running, CHAT, json!({})).await.status, 400);
        let sent: Vec<u64> = received.lock().drain(..).map(|seen| cap(&seen)).collect();
        assert_eq!(sent, [8192, 8191]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_another_request_has_learned_to_leave_out_is_left_out() {
    let (answered, received) = (Arc::new(Notify::new()), Received::default());
    let (gate, recorded) = (answered.clone(), received.clone());
    let pick = move |seen: &RecordedRequest| {
        recorded.lock().push(seen.clone());
        if seen.json().get("stream_options").is_none() {
            return json_answer(200, &completion("Hello"));
        }
        let refusal = error("Unknown parameter: 'stream_options'.".to_owned());
        [vec![ScriptStep::Wait(gate.clone())], json_answer(400, &refusal)].concat()
    };
    let provider = Provider::with_selector(Box::new(pick)).await;
    let running = Arc::new(Bench::new().provider_with("a", &provider, PATIENT, "").start().await);
    let open = |running: Arc<Running>| {
        tokio::spawn(async move { ask(&running, CHAT, json!({"stream": true})).await })
    };
    let requests = [open(running.clone()), open(running.clone())];
    until("both requests", || received.lock().len() == 2).await;
    answered.notify_one();
    // The second request is refused after the first one was answered without the member.
    until("the first answer", || {
        received.lock().len() == 3 && requests.iter().any(|request| request.is_finished())
    })
    .await;
    answered.notify_one();
    for request in requests {
        let answer = request.await.unwrap();
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    assert_eq!(received.lock().len(), 4);
}
