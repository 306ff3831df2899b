//! Concurrency limits of providers are never exceeded.

use crate::harness::batch_jobs::let_go;
use crate::harness::script::{ScriptStep, done, finish, held, retry_after, role, sse, text, usage};
use crate::harness::{Bench, Client, Provider, until, within};
use serde_json::json;
use std::sync::Arc;
use tokio::sync::Notify;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_provider_is_passed_by() {
    let (small, big) = (Provider::start().await, Provider::start().await);
    let go = Arc::new(Notify::new());
    small.always(held(&go, "Hello"));
    let running = Bench::new()
        .provider_with("small", &small, "max_in_flight = 1", "price = { input = 0.1, output = 0.1 }")
        .provider_with("big", &big, "", "price = { input = 9.0, output = 9.0 }")
        .start()
        .await;
    let mut ask = running.ask();
    ask["model"] = json!("m:price");
    let (client, first) = (running.client.clone(), ask.clone());
    let held = tokio::spawn(async move { client.post("/v1/chat/completions", &first).await });
    small.until_calls(1).await;
    for _ in 0..3 {
        let answer = running.client.post("/v1/chat/completions", &ask).await;
        assert_eq!(answer.header("x-penstock-provider"), Some("big"));
    }
    go.notify_one();
    assert_eq!(held.await.unwrap().header("x-penstock-provider"), Some("small"));
    assert_eq!(small.calls(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batch_lines_wait_and_never_take_the_last_fifth() {
    let provider = Provider::start().await;
    let go = Arc::new(Notify::new());
    provider.always(held(&go, "Hello"));
    let running = Bench::new().provider_with("a", &provider, "max_in_flight = 5", "").start().await;
    let mut tasks = Vec::new();
    for _ in 0..8 {
        let (client, mut ask) = (running.client.clone(), running.ask());
        ask["model"] = json!("m:batch");
        tasks.push(tokio::spawn(async move { client.post("/v1/chat/completions", &ask).await }));
    }
    provider.until_calls(4).await;
    until("the others to wait", || running.gateway.app.in_flight_exchanges() == 8).await;
    assert_eq!(provider.max_in_flight(), 4, "a fifth of the places stays free");
    // An interactive request still gets a permit, because batch requests may not use all of them.
    let (client, ask) = (running.client.clone(), running.ask());
    let urgent = tokio::spawn(async move { client.post("/v1/chat/completions", &ask).await });
    provider.until_calls(5).await;
    within("all of them", async {
        for (index, task) in tasks.into_iter().chain([urgent]).enumerate() {
            let mut task = task;
            let answer = loop {
                go.notify_one();
                tokio::select! {
                    answer = &mut task => break answer.unwrap(),
                    () = tokio::task::yield_now() => {}
                }
            };
            assert_eq!(answer.status, 200, "request {index}");
        }
    })
    .await;
    assert!(provider.max_in_flight() <= 5);
    assert_eq!(provider.calls(), 9);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiting_batch_stream_gets_keep_alives() {
    let provider = Provider::start().await;
    let go = Arc::new(Notify::new());
    provider.then(held(&go, "Hello"));
    provider.always(vec![
        sse(),
        role(),
        text("At last"),
        finish("stop"),
        usage(3, 2),
        done(),
        ScriptStep::End,
    ]);
    let running = Bench::new()
        .settings("[limits]\nheartbeat = \"100ms\"")
        .provider_with("a", &provider, "max_in_flight = 1", "")
        .start()
        .await;
    let (client, ask) = (running.client.clone(), running.ask());
    let first = tokio::spawn(async move { client.post("/v1/chat/completions", &ask).await });
    provider.until_calls(1).await;
    let mut ask = running.ask_stream();
    ask["model"] = json!("m:batch");
    let mut open = running.client.stream_until("/v1/chat/completions", &ask, ": keep-alive\n\n").await;
    assert_eq!(provider.calls(), 1);
    go.notify_one();
    assert_eq!(first.await.unwrap().status, 200);
    let answer = within("its slot", open.finish()).await;
    assert_eq!(answer.status, 200);
    assert!(answer.text().contains("At last") && answer.text().ends_with("data: [DONE]\n\n"));
    assert_eq!(answer.header("x-penstock-flavor"), Some("batch"));
}

/// Tests that waiting in the queue does not count towards the time limit: the waiting request gets its permit only
/// when the running request has timed out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_queue_of_batch_work_takes_nothing_from_its_time() {
    let provider = Provider::start().await;
    provider.then(vec![ScriptStep::Hang]);
    let running = Bench::new()
        .settings("[routing]\ntotal = \"700ms\"\nbatch_wait = \"30s\"")
        .provider_with("a", &provider, "max_in_flight = 1", "")
        .start()
        .await;
    let mut ask = running.ask();
    ask["model"] = json!("m:batch");
    let (client, first) = (running.client.clone(), ask.clone());
    let first = tokio::spawn(async move { client.post("/v1/chat/completions", &first).await });
    provider.until_calls(1).await;
    let answer = running.client.post("/v1/chat/completions", &ask).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!((first.await.unwrap().status, provider.calls()), (503, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_stream_that_waited_in_vain_ends_with_an_error_event() {
    let provider = Provider::start().await;
    let go = Arc::new(Notify::new());
    provider.then(held(&go, "Hello"));
    let running = Bench::new()
        .settings("[limits]\nheartbeat = \"100ms\"\n[routing]\nbatch_wait = \"350ms\"")
        .provider_with("a", &provider, "max_in_flight = 1", "")
        .start()
        .await;
    let (client, ask) = (running.client.clone(), running.ask());
    let first = tokio::spawn(async move { client.post("/v1/chat/completions", &ask).await });
    provider.until_calls(1).await;
    let mut ask = running.ask_stream();
    ask["model"] = json!("m:batch");
    let answer = running.client.post("/v1/chat/completions", &ask).await;
    assert!(answer.text().starts_with(": keep-alive"));
    assert!(answer.text().contains("INFERENCE_3103") && !answer.text().contains("finish_reason\":\"stop"));
    ask["stream"] = json!(false);
    assert_eq!(running.client.post("/v1/chat/completions", &ask).await.status, 503);
    go.notify_one();
    assert_eq!(first.await.unwrap().status, 200);
    assert_eq!(provider.calls(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_calls_no_provider_during_its_cooldown() {
    for model in ["m:batch", "m"] {
        let provider = Provider::start().await;
        let go = Arc::new(Notify::new());
        provider.always([vec![ScriptStep::Wait(go.clone())], retry_after(429, 30)].concat());
        let running = Bench::new()
            .settings("[overload]\nwait = \"50s\"")
            .provider_with("a", &provider, "max_in_flight = 5", "")
            .start()
            .await;
        let mut ask = running.ask();
        ask["model"] = json!(model);
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..40 {
            let (client, ask) = (running.client.clone(), ask.clone());
            tasks.spawn(async move { client.post("/v1/chat/completions", &ask).await });
        }
        let live = running.gateway.app.config_snapshot();
        let concurrency = &live.offers[0].provider.concurrency;
        let working = if model == "m" { 5 } else { 4 };
        until("all to wait", || {
            concurrency.in_flight() == working && concurrency.waiter_count() == 40 - working
        })
        .await;
        let over =
            until("all slots to be free", || concurrency.in_flight() == 0 && concurrency.waiter_count() == 0);
        let_go(&go, over).await;
        assert!(provider.calls() <= 5, "{model}: {} calls", provider.calls());
        assert_eq!(running.gateway.app.in_flight_exchanges(), 40, "they wait for the end of the rest");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batch_requests_of_one_account_do_not_hold_up_those_of_another() {
    let (provider, go) = (Provider::start().await, Arc::new(Notify::new()));
    provider.always(held(&go, "Hello"));
    let running = Bench::new().provider_with("a", &provider, "max_in_flight = 1", "").start().await;
    running.admin().post("/admin/accounts", &json!({"id": "acme"})).await;
    let other = running.key(&json!({"account": "acme"})).await;
    let mut ask = running.ask();
    ask["model"] = json!("m:batch");
    let send = |client: &Client| {
        let (client, ask) = (client.clone(), ask.clone());
        tokio::spawn(async move { client.post("/v1/chat/completions", &ask).await.status })
    };
    let live = running.gateway.app.config_snapshot();
    let concurrency = &live.offers[0].provider.concurrency;
    let many: Vec<_> = (0..40).map(|_| send(&running.client)).collect();
    until("all to wait", || concurrency.waiter_count() == 39).await;
    let two = [send(&other), send(&other)];
    until("both to wait", || concurrency.waiter_count() == 41).await;
    // Expected order: the running request, then one request of its account and one of the other account, and both
    // again.
    for call in 2..=6 {
        go.notify_one();
        provider.until_calls(call).await;
    }
    for one in two {
        assert_eq!(within("the other account's answer", one).await.unwrap(), 200);
    }
    assert_eq!(provider.calls(), 6);
    many.iter().for_each(tokio::task::JoinHandle::abort);
    go.notify_one();
    running.stop().await;
}
