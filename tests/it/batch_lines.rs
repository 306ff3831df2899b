//! Batch lines are processed like requests, but without a client socket: results, charges and preemption.

mod concurrency;

use crate::harness::gateway::{PATIENT, Running};
use crate::harness::script::{ScriptStep, json_answer, plain, silent, status, vectors};
use crate::harness::{Bench, Provider, until, within};
use http::Method;
use penstock::batch::{LineDisposition, LineOrigin, LineRequest, LineResponse};
use penstock::billing::report;
use penstock::proxy::endpoint;
use penstock_storage::StoreTable;
use penstock_storage::ledger::RowWrite;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const CHAT: &str = "/v1/chat/completions";

/// Starts a line with this key.
fn begin(
    running: &Running,
    key: &str,
    path: &str,
    body: &Value,
    cancel: &CancellationToken,
) -> JoinHandle<LineResponse> {
    begin_interruptible(running, key, (path, body), (cancel, &CancellationToken::default()))
}

/// Starts a line that can be cancelled, and that can be asked to release its permit.
fn begin_interruptible(
    running: &Running,
    key: &str,
    (path, body): (&str, &Value),
    (cancel, interrupted): (&CancellationToken, &CancellationToken),
) -> JoinHandle<LineResponse> {
    let app = running.gateway.app.clone();
    let (endpoint, _) = endpoint::find_endpoint(&Method::POST, path).unwrap();
    assert!(endpoint.accepts_batch_lines());
    let principal = app.key_cache.find_principal(&key[7..23]).unwrap();
    let ask = LineRequest {
        principal,
        path: endpoint.path(),
        body: body.to_string().into(),
        cancel: cancel.clone(),
        interrupted: interrupted.clone(),
        origin: LineOrigin::Batch,
    };
    tokio::spawn(async move { app.batch_context.executor.get().unwrap().execute(ask).await })
}

async fn at(running: &Running, path: &str, body: &Value) -> LineResponse {
    let begun = begin(running, &running.client.key, path, body, &CancellationToken::default());
    within("a line", begun).await.unwrap()
}

async fn ask(running: &Running, body: &Value) -> LineResponse {
    at(running, CHAT, body).await
}

fn line_response(done: &LineResponse) -> Value {
    serde_json::from_slice(&done.body.concat()).unwrap()
}

fn code(done: &LineResponse) -> (u16, String) {
    (done.status, line_response(done)["error"]["code"].as_str().unwrap().to_owned())
}

/// Records the charge of an ended line together with a store row, and waits until both are on the disk.
async fn enter(running: &Running, done: &mut LineResponse, row: &[u8]) {
    let app = &running.gateway.app;
    let row = RowWrite { table: StoreTable::Batches, key: b"batch".to_vec(), value: Some(row.to_vec()) };
    let ticket = app.ledger.record_outcomes(done.hold_end.take().into_iter().collect(), vec![row]);
    let ticket = ticket.map_err(|_| "too much").unwrap();
    assert!(within("the disk", app.ledger.wait_durable(ticket)).await);
}

/// Returns the micro-credits of the account, and those held by reserves.
fn balance(running: &Running) -> (i64, i64) {
    let credits = running.gateway.app.ledger.balance("default").credits;
    (credits.amount, credits.held)
}

async fn one(script: Vec<ScriptStep>) -> (Provider, Running) {
    let provider = Provider::start().await;
    provider.always(script);
    let running = Bench::new().provider("a", &provider).start().await;
    (provider, running)
}

/// Removes the members in which two answers to the same request may differ: id, time and price.
fn comparable(mut answer: Value) -> Value {
    let price = answer["billing_cost"].take();
    assert!(price["credits"].as_f64().unwrap() > 0.0, "{answer}");
    answer["id"].take();
    answer["created"].take();
    answer
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_that_wants_no_tokens_has_its_answer_and_no_end_to_enter() {
    let (provider, running) = one(plain("Hello")).await;
    let body = json!({"model": "m", "max_tokens": 0, "messages": [{"role": "user", "content": "Hi"}]});
    let done = at(&running, "/v1/messages", &body).await;
    assert_eq!((done.status, done.disposition, done.hold_end.is_none()), (200, LineDisposition::Final, true));
    assert_eq!(line_response(&done)["stop_reason"], "max_tokens");
    assert_eq!((provider.calls(), balance(&running)), (0, (0, 0)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_is_answered_as_a_request_is_and_costs_half() {
    let (provider, running) = one(plain("Hello")).await;
    for (path, body) in [
        (CHAT, running.ask()),
        (
            "/v1/messages",
            json!({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}),
        ),
    ] {
        let request = running.client.post(path, &body).await.json();
        let sent = provider.last();
        let done = at(&running, path, &body).await;
        assert_eq!((done.status, done.disposition), (200, LineDisposition::Final));
        let answer = line_response(&done);
        let credits = |answer: &Value| answer["billing_cost"]["credits"].as_f64().unwrap();
        assert!((credits(&answer) * 2.0 - credits(&request)).abs() < 1e-9, "{answer} {request}");
        assert_eq!(comparable(answer), comparable(request));
        let seen = provider.last();
        assert_eq!((&seen.headers, &seen.body), (&sent.headers, &sent.body));
        assert_eq!(done.usage.map(|usage| (usage.input, usage.output)), Some((11, 7)));
        assert!(done.hold_end.as_ref().unwrap().is_charge());
    }
    assert_eq!(provider.calls(), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_endpoints_take_lines_too() {
    let provider = Provider::start().await;
    provider.always(vectors(&[&[0.5, 1.0]], 3));
    let running = Bench::new()
        .kind("embedding")
        .model("supported_parameters = []")
        .provider("a", &provider)
        .start()
        .await;
    let done = at(&running, "/v1/embeddings", &json!({"model": "m", "input": "Hi"})).await;
    assert_eq!(done.status, 200, "{}", line_response(&done));
    assert_eq!(line_response(&done)["data"][0]["embedding"], json!([0.5, 1.0]));
    for path in ["/v1/audio/transcriptions", "/v1/messages/count_tokens", "/v2/rerank"] {
        assert!(!endpoint::find_endpoint(&Method::POST, path).unwrap().0.accepts_batch_lines(), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_image_is_inline_for_any_requested_form() {
    let provider = Provider::start().await;
    provider.always(json_answer(200, &json!({"created": 1, "data": [{"b64_json": "iVBORw0KGgo="}]})));
    let running = Bench::new()
        .more(&format!(
            "[[models]]\nid = \"d\"\nkind = \"image\"\ncontext_length = 512\nprice = {{ image = 0.02 }}\n\
             energy = {{ joules_per_image = 2000.0, method = \"benchmark\" }}\n\
             [[providers]]\nid = \"a\"\noperator = \"Test\"\ncountry = \"FR\"\ncity = \"Paris\"\npue = 1.16\nwue = 0.2\n\
             base_url = \"http://{}/v1\"\n{PATIENT}\n[[providers.offers]]\nmodel = \"d\"\nname = \"their/d\"\n",
            provider.address
        ))
        .provider("b", &Provider::start().await)
        .start()
        .await;
    let body = json!({"model": "d", "prompt": "a cat", "response_format": "url"});
    let done = at(&running, "/v1/images/generations", &body).await;
    assert_eq!(done.status, 200, "{}", line_response(&done));
    let image = &line_response(&done)["data"][0];
    assert_eq!((image["b64_json"].as_str(), image["url"].as_str()), (Some("iVBORw0KGgo="), None));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_charge_and_its_row_are_there_together_and_not_before() {
    let (_provider, running) = one(plain("Hello")).await;
    let app = running.gateway.app.clone();
    let mut done = ask(&running, &running.ask()).await;
    let (amount, held) = balance(&running);
    assert!(amount == 0 && held > 0, "set aside, not charged");
    let row = || app.stores.store.get(StoreTable::Batches, b"batch").unwrap();
    assert_eq!(row(), None);
    enter(&running, &mut done, b"done").await;
    assert_eq!(balance(&running), (-1_250, 0));
    assert_eq!(row().as_deref(), Some(&b"done"[..]));
    // An answer that is dropped and not stored is not charged.
    drop(ask(&running, &running.ask()).await);
    assert_eq!(balance(&running), (-1_250, 0));
    until("the ledger to be written", || app.ledger.durability_snapshot().waiting == 0).await;
    let proof = report::verify(&app.stores.ledger).unwrap();
    assert!(proof.is_intact() && proof.open_reservations == 0, "{proof:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_fails_over_as_a_request_does() {
    let (bad, good) = (Provider::start().await, Provider::start().await);
    bad.always(status(503));
    let cheap = "price = { input = 0.1, output = 0.1 }";
    let running = Bench::new().provider_with("a", &bad, "", cheap).provider("b", &good).start().await;
    let done = ask(&running, &running.ask()).await;
    assert_eq!(done.status, 200);
    assert_eq!(line_response(&done)["environment_impact"]["provider_id"], "b");
    assert_eq!((bad.calls(), good.calls()), (1, 1), "the cheapest was asked first");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_is_the_envelope_of_its_dialect_and_says_whether_to_come_again() {
    let (provider, running) = one(status(503)).await;
    let bad = ask(&running, &json!({"model": "m", "messages": "Hi"})).await;
    assert_eq!((bad.status, bad.disposition, bad.hold_end.is_none()), (400, LineDisposition::Final, true));
    assert_eq!(line_response(&bad)["error"]["param"], "messages");
    let mut streams = running.ask();
    streams["stream"] = json!(true);
    let streams = ask(&running, &streams).await;
    assert_eq!((streams.status, line_response(&streams)["error"]["param"].as_str()), (400, Some("stream")));
    let unknown =
        json!({"model": "nobody", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]});
    let unknown = at(&running, "/v1/messages", &unknown).await;
    assert_eq!((unknown.status, line_response(&unknown)["type"].as_str()), (404, Some("error")));
    let reader = running.key(&json!({"name": "r", "scopes": ["inference.models"]})).await;
    let denied =
        begin(&running, &reader.key, CHAT, &running.ask(), &CancellationToken::default()).await.unwrap();
    assert_eq!(denied.status, 403, "{}", line_response(&denied));
    assert_eq!(provider.calls(), 0);

    let mut failed = ask(&running, &running.ask()).await;
    assert_eq!(code(&failed), (503, "INFERENCE_3103".to_owned()));
    assert!(matches!(failed.disposition, LineDisposition::Retry(pause) if pause >= Duration::from_secs(1)));
    assert!(!failed.hold_end.as_ref().unwrap().is_charge());
    enter(&running, &mut failed, b"failed").await;
    assert_eq!(balance(&running), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_line_leaves_its_provider_and_costs_nothing() {
    let (provider, running) = one(silent()).await;
    let cancel = CancellationToken::default();
    let begun = begin(&running, &running.client.key, CHAT, &running.ask(), &cancel);
    provider.until_calls(1).await;
    cancel.cancel();
    let mut done = within("the line", begun).await.unwrap();
    assert!(done.disposition == LineDisposition::Cancelled && done.body.is_empty());
    provider.until_left(1).await;
    enter(&running, &mut done, b"cancelled").await;
    assert_eq!(balance(&running), (0, 0));
    // A line that is cancelled before it starts is never sent.
    let late = begin(&running, &running.client.key, CHAT, &running.ask(), &cancel).await.unwrap();
    assert_eq!(late.disposition, LineDisposition::Cancelled);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_that_a_stop_ends_counts_as_interrupted() {
    let (provider, running) = one(silent()).await;
    let (cancel, interrupted) = (CancellationToken::default(), CancellationToken::default());
    let tokens = (&cancel, &interrupted);
    let begun = begin_interruptible(&running, &running.client.key, (CHAT, &running.ask()), tokens);
    provider.until_calls(1).await;
    interrupted.cancel();
    cancel.cancel();
    let mut done = within("the line", begun).await.unwrap();
    assert!(done.disposition == LineDisposition::Cancelled);
    enter(&running, &mut done, b"interrupted").await;
    let entries = crate::billing::entries(&running).await;
    let void = entries.iter().find(|entry| entry["act"] == "void").unwrap();
    assert_eq!(void["why"], "interrupted");
    let usage = running.admin().get("/admin/usage?group_by=outcome").await.json();
    assert_eq!(usage["data"][0]["outcome"], "interrupted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_of_a_revoked_key_ends_with_it() {
    let (provider, running) = one(silent()).await;
    let made = running.admin().post("/admin/keys", &json!({"name": "short-lived"})).await.json();
    let key = made["key"].as_str().unwrap();
    let begun = begin(&running, key, CHAT, &running.ask(), &CancellationToken::default());
    provider.until_calls(1).await;
    running.admin().post(&format!("/admin/keys/{}/revoke", made["id"].as_str().unwrap()), &json!({})).await;
    let done = within("the line", begun).await.unwrap();
    assert_eq!(code(&done), (401, "AUTH_1001".to_owned()));
    assert_eq!(done.disposition, LineDisposition::Final);
    provider.until_left(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn budgets_bind_lines_and_request_limits_do_not() {
    let (provider, running) = one(plain("Hello")).await;
    let limits = json!({"requests_per_minute": 1, "tokens_per_minute": 1000, "concurrent": 1});
    let limited = running.key(&json!({"name": "limited", "limits": limits})).await;
    let mut body = running.ask();
    body["max_tokens"] = json!(100);
    assert_eq!(limited.post(CHAT, &body).await.status, 200);
    assert_eq!(limited.post(CHAT, &body).await.status, 429);
    for _ in 0..3 {
        let done = begin(&running, &limited.key, CHAT, &body, &CancellationToken::default()).await.unwrap();
        assert_eq!(done.status, 200, "{}", line_response(&done));
    }
    let poor = running.key(&json!({"name": "poor", "limits": {"budget_per_month": 0.11}})).await;
    body["max_tokens"] = json!(7);
    let mut spent = Vec::new();
    while spent.last().is_none_or(|done: &LineResponse| done.status == 200) {
        spent.push(begin(&running, &poor.key, CHAT, &body, &CancellationToken::default()).await.unwrap());
    }
    let statuses: Vec<u16> = spent.iter().map(|done| done.status).collect();
    assert!(statuses.contains(&200) && statuses.ends_with(&[402]), "{statuses:?}");
    assert!(
        spent.last().unwrap().disposition == LineDisposition::Final
            && spent.last().unwrap().hold_end.is_none()
    );
    assert_eq!(provider.calls(), 4 + statuses.iter().filter(|status| **status == 200).count());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lines_are_counted_by_kind() {
    let (_provider, running) = one(plain("Hello")).await;
    running.chat().await;
    drop(ask(&running, &running.ask()).await);
    let metrics = running.admin().get("/metrics").await.text();
    for line in [
        r#"penstock_requests_total{endpoint="chat",model="m",outcome="ok",status="200",work="request"} 1"#,
        r#"penstock_requests_total{endpoint="chat",model="m",outcome="ok",status="200",work="batch"} 1"#,
        r#"penstock_batch_lines_total{endpoint="chat",outcome="ok"} 1"#,
    ] {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
}
