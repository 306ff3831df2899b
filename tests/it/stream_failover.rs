//! Failover after the first content token: another provider resumes a broken stream, or it ends with an error event.
//! Truncation never looks like success.

use crate::harness::client::OpenResponse;
use crate::harness::gateway::PATIENT;
use crate::harness::script::{
    Script, ScriptStep, finish, json_answer, retry_after, role, sse, status, stream, text, usage,
};
use crate::harness::{Answer, Bench, Provider, within};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::sync::Notify;

/// Returns a stream that sends these pieces and then executes this step.
fn broken(pieces: &[&str], then: ScriptStep) -> Script {
    let mut script = vec![sse(), role()];
    script.extend(pieces.iter().map(|piece| text(piece)));
    script.push(then);
    script
}

/// Price of the second provider: the dearer one is tried second, regardless of the load.
const SECOND: &str = "price = { input = 50.0, output = 50.0 }";

/// Settings of an offer that cannot serve log probabilities together with a stop sequence: its engine accepts no stop
/// sequences, and the gateway cannot truncate log probabilities.
const UNTOLD: &str = "price = { input = 50.0, output = 50.0 }\nmax_stop = 0";
const TELLS: &str = "supported_parameters = [\"logprobs\", \"stop\", \"stream\"]";

async fn asked(model: &str, bad: &Provider, good: &Provider, continues: &str) -> Answer {
    asked_for(json!({}), model, bad, good, continues).await
}

async fn asked_for(change: Value, model: &str, bad: &Provider, good: &Provider, continues: &str) -> Answer {
    let offer = format!("{SECOND}\n{continues}");
    let patient = "timeouts = { connect = \"20s\", first_byte = \"40s\", first_token = \"40s\", idle = \"40s\", total = \"50s\" }";
    let running = Bench::new()
        .model(model)
        .hasty("bad", bad)
        .provider_with("good", good, patient, &offer)
        .start()
        .await;
    let mut ask = running.ask_stream();
    ask["model"] = json!("m:price");
    ask.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    running.client.post("/v1/chat/completions", &ask).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_stream_is_started_over_and_held_back_while_it_equals() {
    let (bad, good) = (Provider::start().await, Provider::start().await);
    bad.always(broken(&["One ", "two "], ScriptStep::Cut));
    good.always(stream(&["One", " two ", "three", " four"]));
    let answer = asked("", &bad, &good, "").await;
    assert_eq!(answer.streamed_text(), "One two three four");
    assert!(answer.whole);
    penstock_dialect::conformance::check_chat_stream(&answer.body, false).unwrap();
    assert_eq!(good.calls(), 1);
    assert_eq!(good.last().json()["messages"].as_array().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stalled_stream_is_rescued() {
    let (bad, good) = (Provider::start().await, Provider::start().await);
    bad.always(broken(&["One "], ScriptStep::Hang));
    good.always(stream(&["One two"]));
    let answer = asked("", &bad, &good, "").await;
    assert_eq!(answer.streamed_text(), "One two");
    bad.until_left(1).await;
}

/// Waits for three more keep-alive comments.
async fn until_beats(open: &mut OpenResponse) {
    let beats =
        |open: &OpenResponse| String::from_utf8_lossy(&open.bytes).matches(": keep-alive\n\n").count();
    let most = beats(open) + 3;
    within("signs of life", async {
        while beats(open) < most {
            assert!(open.more().await);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_gets_keep_alives_during_stream_failover() {
    let go = Arc::new(Notify::new());
    let slow = [vec![ScriptStep::Wait(go.clone())], stream(&["One two"])].concat();
    for path in ["/v1/chat/completions", "/v1/messages"] {
        // The second provider either requests a long cooldown or starts slowly.
        for (script, rests) in [(retry_after(429, 40), true), (slow.clone(), false)] {
            let (bad, good) = (Provider::start().await, Provider::start().await);
            bad.always(broken(&["One "], ScriptStep::Cut));
            good.always(script);
            let running = Bench::new()
                .settings("[limits]\nheartbeat = \"100ms\"")
                .hasty("bad", &bad)
                .provider_with("good", &good, PATIENT, SECOND)
                .start()
                .await;
            let mut ask = running.ask_stream();
            (ask["model"], ask["max_tokens"]) = (json!("m:price"), json!(100));
            let mut open = running.client.stream_until(path, &ask, "One ").await;
            good.until_calls(1).await;
            until_beats(&mut open).await;
            if rests {
                continue;
            }
            go.notify_one();
            let answer = within("the end", open.finish()).await;
            assert!(answer.text().contains("two"), "{}", answer.text());
            match path {
                "/v1/messages" => penstock_dialect::conformance::check_messages_stream(&answer.body).unwrap(),
                _ => penstock_dialect::conformance::check_chat_stream(&answer.body, false).unwrap(),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_malformed_event_and_an_end_without_a_finish_are_rescued() {
    for then in [ScriptStep::Chunk(b"data: {\"choices\": [\n\n".to_vec()), ScriptStep::End] {
        let (bad, good) = (Provider::start().await, Provider::start().await);
        bad.always(broken(&["One "], then));
        good.always(stream(&["One two"]));
        let answer = asked("", &bad, &good, "").await;
        assert_eq!(answer.streamed_text(), "One two");
        penstock_dialect::conformance::check_chat_stream(&answer.body, false).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_that_can_is_asked_to_continue() {
    let (bad, good) = (Provider::start().await, Provider::start().await);
    bad.always(broken(&["One ", "two"], ScriptStep::Cut));
    good.always(stream(&[" three", " four"]));
    let answer = asked("", &bad, &good, "continuation = \"continue_final_message\"").await;
    assert_eq!(answer.streamed_text(), "One two three four");
    let sent = good.last().json();
    assert_eq!(sent["continue_final_message"], true);
    assert_eq!(sent["add_generation_prompt"], false);
    let last = sent["messages"].as_array().unwrap().last().unwrap().clone();
    assert_eq!((&last["role"], &last["content"]), (&json!("assistant"), &json!("One two")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_starts_over_instead_of_continuing_doubles_no_text() {
    let (bad, good) = (Provider::start().await, Provider::start().await);
    bad.always(broken(&["One two three ", "four"], ScriptStep::Cut));
    good.always(stream(&["One t", "wo three four fi", "ve"]));
    let answer = asked("", &bad, &good, "continuation = \"continue_final_message\"").await;
    assert_eq!(answer.streamed_text(), "One two three four five");
    assert_eq!(good.last().json()["continue_final_message"], true);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resumed_stream_requests_only_the_remaining_tokens() {
    let (bad, good) = (Provider::start().await, Provider::start().await);
    // 400 bytes are 100 tokens.
    bad.always(broken(&[&"x".repeat(400)], ScriptStep::Cut));
    good.always(stream(&[" three"]));
    for (cap, left) in [(130, 30), (50, 1)] {
        let ask = json!({"max_tokens": cap});
        asked_for(ask, "", &bad, &good, "continuation = \"continue_final_message\"").await;
        assert_eq!(good.last().json()["max_tokens"], left);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_cannot_be_resumed_is_sent_to_no_incapable_provider() {
    let (bad, good) = (Provider::start().await, Provider::start().await);
    // The text is longer than the gateway records. It cannot be compared with another answer, so the stream cannot be
    // resumed.
    bad.always(broken(&[&"x".repeat(300 << 10)], ScriptStep::Cut));
    good.always(stream(&["One"]));
    let answer = asked("", &bad, &good, "").await;
    failed_after(&"x".repeat(300 << 10), &answer);
    assert_eq!(good.calls(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rescue_that_differs_ends_with_an_error_and_no_text_comes_twice() {
    let (bad, good) = (Provider::start().await, Provider::start().await);
    bad.always(broken(&["One ", "two "], ScriptStep::Cut));
    good.always(stream(&["One ", "deux ", "trois"]));
    let answer = asked("", &bad, &good, "").await;
    failed_after("One two ", &answer);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_by_a_failover_provider_never_hides_the_first_error() {
    let (bad, good) = (Provider::start().await, Provider::start().await);
    bad.always(broken(&["One "], ScriptStep::Cut));
    good.always(json_answer(400, &json!({"error": {"message": "no", "param": "temperature"}})));
    let answer = asked("", &bad, &good, "").await;
    failed_after("One ", &answer);
    assert_eq!(good.calls(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unsupported_request_at_one_provider_never_hides_a_failure_of_another() {
    let (bad, other) = (Provider::start().await, Provider::start().await);
    bad.always(status(503));
    let running =
        Bench::new().model(TELLS).hasty("bad", &bad).provider_with("other", &other, "", UNTOLD).start().await;
    let mut ask = running.ask();
    (ask["logprobs"], ask["stop"]) = (json!(true), json!(["END"]));
    let answer = running.client.post("/v1/chat/completions", &ask).await;
    assert_eq!(answer.status, 503, "{}", answer.text());
    assert_eq!(answer.json()["error"]["code"], "INFERENCE_3103");
    assert!(bad.calls() > 0);
    assert_eq!(other.calls(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unsupported_request_at_one_provider_never_hides_that_another_is_full() {
    let (full, other) = (Provider::start().await, Provider::start().await);
    full.always(vec![ScriptStep::Hang]);
    let running = Bench::new()
        .settings("[overload]\nwait = \"50ms\"")
        .provider_with("full", &full, "max_in_flight = 1", "")
        .model(TELLS)
        .provider_with("other", &other, "", UNTOLD)
        .start()
        .await;
    let mut ask = running.ask();
    (ask["logprobs"], ask["stop"]) = (json!(true), json!(["END"]));
    let body = ask.to_string();
    let _held = running.client.open("POST", "/v1/chat/completions", &[], body.as_bytes()).await;
    full.until_calls(1).await;
    let answer = running.client.post("/v1/chat/completions", &ask).await;
    assert_eq!(answer.status, 503, "{}", answer.text());
    assert!(answer.header("retry-after").is_some());
    assert_eq!((full.calls(), other.calls()), (1, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rescue_can_be_turned_off() {
    let (bad, good) = (Provider::start().await, Provider::start().await);
    bad.always(broken(&["One "], ScriptStep::Cut));
    let answer = asked("rescue = false", &bad, &good, "").await;
    failed_after("One ", &answer);
    assert_eq!(good.calls(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_finish_reason_without_a_done_event_is_a_complete_stream() {
    let provider = Provider::start().await;
    provider.always(vec![sse(), role(), text("Done"), finish("stop"), usage(3, 1), ScriptStep::Cut]);
    let running = Bench::new().provider("a", &provider).start().await;
    let answer = running.chat_stream().await;
    assert_eq!(answer.streamed_text(), "Done");
    penstock_dialect::conformance::check_chat_stream(&answer.body, false).unwrap();
    assert_eq!(provider.calls(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_stream_charges_nothing_and_a_rescued_one_once() {
    let (bad, good) = (Provider::start().await, Provider::start().await);
    bad.always(broken(&["One "], ScriptStep::Cut));
    good.always(stream(&["One two"]));
    let answer = asked("", &bad, &good, "").await;
    let events = answer.events();
    let billed: Vec<_> = events.iter().filter(|event| event.get("billing_cost").is_some()).collect();
    assert_eq!(billed.len(), 1);
    // 11 tokens in and 1 out at 50 EUR a million each: 0.0006 EUR, 0.06 credits.
    assert_eq!(billed[0]["billing_cost"]["credits"], json!(0.06));
}

/// Asserts that the client got this text and then the error event of its dialect, and no sign of success.
fn failed_after(text: &str, answer: &Answer) {
    assert_eq!(answer.streamed_text(), text);
    assert!(answer.whole, "the framing ends well");
    let events = answer.events();
    let last = events.last().unwrap();
    assert_eq!(last["error"]["code"], "INFERENCE_3103");
    assert!(events.iter().all(|event| event["choices"][0]["finish_reason"].is_null()));
    assert!(events.iter().all(|event| event.get("billing_cost").is_none()));
    assert!(answer.text().ends_with("data: [DONE]\n\n"));
}
