//! Retries: targets, delays and number.

use crate::harness::script::{ScriptStep, json_answer, plain, retry_after, silent, status};
use crate::harness::{Bench, Provider, until};
use serde_json::json;
use std::time::{Duration, SystemTime};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_500_earns_one_quick_retry_with_the_same_provider() {
    let provider = Provider::start().await;
    provider.then(status(500));
    let running = Bench::new().provider("a", &provider).start().await;
    let answer = running.chat().await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("x-penstock-attempts"), Some("2"));
    assert_eq!(provider.calls(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_503_and_a_529_earn_none() {
    for code in [503, 529] {
        let provider = Provider::start().await;
        provider.then(status(code));
        let running = Bench::new().provider("a", &provider).start().await;
        assert_eq!(running.chat().await.status, 503);
        assert_eq!(provider.calls(), 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_provider_is_never_asked_twice() {
    let provider = Provider::start().await;
    provider.then(silent());
    let running = Bench::new().hasty("a", &provider).start().await;
    assert_eq!(running.chat_stream().await.status, 503);
    assert_eq!(provider.calls(), 1);
    provider.until_left(1).await;
}

/// Tests `retry-after`, in seconds or as a date. Without it, a 503 is retried at once, but a 429 is not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_requested_cooldown_is_respected() {
    let date = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(60));
    let until = vec![ScriptStep::Head(503, vec![("retry-after", date)]), ScriptStep::Body(b"{}".to_vec())];
    for script in [retry_after(429, 60), retry_after(503, 60), until] {
        let (busy, other) = (Provider::start().await, Provider::start().await);
        busy.always(script);
        let dear = "price = { input = 50.0, output = 50.0 }";
        let running =
            Bench::new().provider("busy", &busy).provider_with("other", &other, "", dear).start().await;
        let mut ask = running.ask();
        ask["model"] = json!("m:price");
        for _ in 0..5 {
            assert_eq!(running.client.post("/v1/chat/completions", &ask).await.status, 200);
        }
        assert_eq!((busy.calls(), other.calls()), (1, 5));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_another_provider_a_brief_cooldown_is_awaited() {
    let provider = Provider::start().await;
    provider.then(retry_after(429, 1));
    let running = Bench::new().provider("a", &provider).start().await;
    let answer = running.chat().await;
    assert_eq!(answer.status, 200);
    assert_eq!(provider.calls(), 2);
    // The wait for the cooldown counts as time of the provider, not as overhead of the gateway.
    until("the exchange to be logged", || running.gateway.app.in_flight_exchanges() == 0).await;
    let metrics = running.admin().get("/metrics").await.text();
    let own = metrics
        .lines()
        .find_map(|line| line.strip_prefix("penstock_overhead_seconds_sum{endpoint=\"chat\"} "));
    let own: f64 = own.unwrap_or_else(|| panic!("{metrics}")).parse().unwrap();
    assert!(own < 0.9, "{own} s");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_operators_mistakes_fail_over() {
    for code in [401, 403, 404] {
        let (bad, good) = (Provider::start().await, Provider::start().await);
        bad.always(status(code));
        let running = Bench::new().provider("bad", &bad).provider("good", &good).start().await;
        for _ in 0..3 {
            assert_eq!(running.chat().await.header("x-penstock-provider"), Some("good"));
        }
        assert!(bad.calls() <= 3);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_callers_own_fault_is_passed_on_and_not_routed_around() {
    let (one, two) = (Provider::start().await, Provider::start().await);
    let refused = json!({"error": {"message": "Your request was flagged by our content filter",
        "type": "invalid_request_error", "code": "content_policy_violation"}});
    one.always(json_answer(400, &refused));
    two.always(json_answer(400, &refused));
    let running = Bench::new().provider("one", &one).provider("two", &two).start().await;
    let answer = running.chat().await;
    assert_eq!(answer.status, 400);
    assert_eq!(one.calls() + two.calls(), 1);
    // Neither provider counts a failure: both stay healthy.
    one.always(plain("fine"));
    two.always(plain("fine"));
    assert_eq!(running.chat().await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_providers_context_window_error_has_both_numbers() {
    let provider = Provider::start().await;
    let message = "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens \
        (9000 in the messages, 0 in the completion). Please reduce the length.";
    provider.always(json_answer(
        400,
        &json!({"error": {"message": message, "type": "BadRequestError", "code": 400}}),
    ));
    let running = Bench::new().model("context_length = 8192").provider("a", &provider).start().await;
    let answer = running.chat().await;
    assert_eq!(answer.status, 400);
    let error = &answer.json()["error"];
    assert_eq!(error["code"], "INFERENCE_3207");
    assert_eq!(
        error["details"],
        json!({"name": "context_length_exceeded", "context_length": 8192, "input_tokens": 9000})
    );
    assert!(error["message"].as_str().unwrap().contains("context_length_exceeded"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_most_so_many_attempts_are_made() {
    let mut providers = Vec::new();
    let mut bench = Bench::new().settings("[routing]\nattempts = 3");
    for id in ["a", "b", "c", "d", "e"] {
        let provider = Provider::start().await;
        provider.always(status(503));
        bench = bench.provider(id, &provider);
        providers.push(provider);
    }
    let running = bench.start().await;
    assert_eq!(running.chat().await.status, 503);
    assert_eq!(providers.iter().map(Provider::calls).sum::<usize>(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unparsable_answer_and_an_error_inside_a_200_fail_over() {
    for body in [json!("not an answer"), json!({"error": {"message": "overloaded"}})] {
        let (bad, good) = (Provider::start().await, Provider::start().await);
        bad.always(json_answer(200, &body));
        let running = Bench::new().provider("bad", &bad).provider("good", &good).start().await;
        for _ in 0..3 {
            assert_eq!(running.chat().await.header("x-penstock-provider"), Some("good"));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_in_an_encoding_that_is_not_read_keeps_its_status() {
    let provider = Provider::start().await;
    let unread = |code| {
        let headers = vec![("content-type", "application/json".into()), ("content-encoding", "br".into())];
        vec![ScriptStep::Head(code, headers), ScriptStep::Body(b"\x8b\x02\x80{}\x03".to_vec())]
    };
    let running = Bench::new().settings("[routing]\nattempts = 1").provider("a", &provider).start().await;
    provider.then(unread(400)).then(unread(429)).then(unread(200));
    assert_eq!(running.chat().await.status, 400, "it is the caller's");
    for reason in ["rate_limited", "unavailable"] {
        let answer = running.chat().await;
        assert_eq!(answer.status, 503, "{}", answer.text());
        let attempt = &answer.json()["error"]["details"]["attempts"][0];
        assert_eq!((&attempt["provider"], &attempt["reason"]), (&json!("a"), &json!(reason)));
    }
}

/// Tests `routing.patience`: the gateway waits for a cooldown up to this time and retries at the same provider; for a
/// longer cooldown, it tries another provider.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rest_within_the_patience_is_waited_for_and_a_longer_one_is_not() {
    let dear = "price = { input = 50.0, output = 50.0 }";
    for (rest, calls) in [(1, (2, 0)), (2, (1, 1))] {
        let (busy, other) = (Provider::start().await, Provider::start().await);
        busy.then(retry_after(429, rest));
        let bench = Bench::new().settings("[routing]\npatience = \"1s\"").provider("busy", &busy);
        let running = bench.provider_with("other", &other, "", dear).start().await;
        let mut ask = running.ask();
        ask["model"] = json!("m:price");
        assert_eq!(running.client.post("/v1/chat/completions", &ask).await.status, 200);
        assert_eq!((busy.calls(), other.calls()), calls, "a rest of {rest} s");
    }
}
