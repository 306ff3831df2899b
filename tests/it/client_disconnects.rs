//! Ends of client connections: a disconnect is noticed at once and ends the provider's request; streams end correctly
//! at a revocation of the key and at a stop.

use crate::files;
use crate::harness::gateway::Running;
use crate::harness::script::{ScriptStep, role, silent, sse, text};
use crate::harness::{Bench, Client, Provider, until};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::sync::Notify;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_cancels_the_providers_work() {
    let provider = Provider::start().await;
    provider.always(vec![sse(), role(), text("One "), ScriptStep::Hang]);
    let running = Bench::new().provider("a", &provider).start().await;
    let open = running.client.stream_until("/v1/chat/completions", &running.ask_stream(), "One ").await;
    drop(open);
    provider.until_left(1).await;
    until("the exchange to end", || running.gateway.app.in_flight_exchanges() == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_before_the_first_token_does_too() {
    let provider = Provider::start().await;
    provider.always(vec![ScriptStep::Hang]);
    let running = Bench::new().provider("a", &provider).start().await;
    let body = running.ask().to_string();
    let open = running.client.open("POST", "/v1/chat/completions", &[], body.as_bytes()).await;
    provider.until_calls(1).await;
    drop(open);
    provider.until_left(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revoked_key_ends_its_open_requests_with_an_error() {
    let provider = Provider::start().await;
    provider.streams(vec![sse(), role(), text("One "), ScriptStep::Hang]);
    provider.always(silent());
    let running = Bench::new().provider("a", &provider).start().await;
    let made = running.admin().post("/admin/keys", &json!({"name": "short-lived"})).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let made = made.json();
    let mut client = running.client.clone();
    client.key = made["key"].as_str().unwrap().to_owned();
    let mut open = client.stream_until("/v1/chat/completions", &running.ask_stream(), "One ").await;
    let ask = running.ask();
    let plain = client.post("/v1/chat/completions", &ask);
    let revoke = async {
        provider.until_calls(2).await;
        running
            .admin()
            .post(&format!("/admin/keys/{}/revoke", made["id"].as_str().unwrap()), &json!({}))
            .await
    };
    let (plain, revoked) = crate::harness::within("the refusal", async { tokio::join!(plain, revoke) }).await;
    assert_eq!(revoked.status, 200);
    assert_eq!((plain.status, plain.json()["error"]["code"].as_str()), (401, Some("AUTH_1001")));
    let answer = crate::harness::within("the end", open.finish()).await;
    assert!(
        answer.text().contains("AUTH_1001") && !answer.text().contains("finish_reason\":\""),
        "{}",
        answer.text()
    );
    provider.until_left(2).await;
    let next = client.post("/v1/chat/completions", &running.ask()).await;
    assert_eq!((next.status, next.json()["error"]["code"].as_str()), (401, Some("AUTH_1001")));
}

/// Creates a key; returns a client with it, and its id.
async fn client_with_new_key(running: &Running) -> (Client, String) {
    let made = running.admin().post("/admin/keys", &json!({"name": "short-lived"})).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let text = |made: &Value, name: &str| made[name].as_str().unwrap().to_owned();
    let client = Client { key: text(&made.json(), "key"), ..running.client.clone() };
    (client, text(&made.json(), "id"))
}

async fn revoke(running: &Running, id: &str) {
    let revoked = running.admin().post(&format!("/admin/keys/{id}/revoke"), &json!({})).await;
    assert_eq!(revoked.status, 200, "{}", revoked.text());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_is_revoked_while_the_body_arrives_is_refused() {
    let provider = Provider::start().await;
    let running = Bench::new().provider("a", &provider).start().await;
    let json = "application/json".to_owned();
    let form = ("multipart/form-data; boundary=b0und".to_owned(), files::batch(&files::lines(20)));
    for (path, (kind, body)) in [
        ("/v1/files", form),
        (
            "/v1/batches",
            (
                json.clone(),
                json!({"input_file_id": "x", "endpoint": "/v1/chat/completions"}).to_string().into(),
            ),
        ),
        ("/v1/messages/count_tokens", (json, running.ask().to_string().into_bytes())),
    ] {
        let (client, id) = client_with_new_key(&running).await;
        let length = body.len().to_string();
        let (first, second) = body.split_at(body.len() / 2);
        let headers = [("content-type", &*kind), ("content-length", &*length)];
        let mut open = client.open("POST", path, &headers, first).await;
        until("the exchange", || running.gateway.app.in_flight_exchanges() == 1).await;
        revoke(&running, &id).await;
        open.send(second).await;
        let answer = crate::harness::within("the refusal", open.finish()).await;
        assert_eq!(answer.status, 401, "{path}: {}", answer.text());
        until("the end", || running.gateway.app.in_flight_exchanges() == 0).await;
    }
    assert_eq!(provider.calls(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_download_ends_when_its_key_is_revoked() {
    let provider = Provider::start().await;
    let running = Bench::new().provider("a", &provider).start().await;
    let (client, id) = client_with_new_key(&running).await;
    // More than the socket buffers of both sides hold.
    let line = |number: usize| {
        let text = "x".repeat(1 << 20);
        let body = json!({"model": "m", "messages": [{"role": "user", "content": text}]});
        let url = "/v1/chat/completions";
        json!({"custom_id": number.to_string(), "method": "POST", "url": url, "body": body}).to_string()
            + "\n"
    };
    let contents: String = (0..24).map(line).collect();
    let file = files::uploaded(&client, contents.as_bytes()).await;
    let path = format!("/v1/files/{}/content", files::id(&file));
    let mut open = client.open("GET", &path, &[], b"").await;
    open.until("200 OK").await;
    revoke(&running, &id).await;
    let answer = crate::harness::within("the end", open.finish()).await;
    assert!(answer.body.len() < contents.len(), "{} bytes", answer.body.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopping_lets_an_open_stream_end() {
    let provider = Provider::start().await;
    let go = Arc::new(Notify::new());
    let mut script = vec![sse(), role(), text("One "), ScriptStep::Wait(go.clone()), text("two")];
    script.extend([crate::harness::script::finish("stop"), crate::harness::script::done(), ScriptStep::End]);
    provider.always(script);
    let running = Bench::new().provider("a", &provider).start().await;
    let mut open = running.client.stream_until("/v1/chat/completions", &running.ask_stream(), "One ").await;
    let app = running.gateway.app.clone();
    let stopping = tokio::spawn(running.stop());
    until("the drain", || app.is_draining()).await;
    go.notify_one();
    let answer = crate::harness::within("the end", open.finish()).await;
    assert_eq!(answer.streamed_text(), "One two");
    stopping.await.unwrap();
}

/// Pipelined bytes of a client do not hide its disconnect.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disconnect_is_noticed_behind_unread_bytes() {
    for prefetched in [1, 16 << 10, (16 << 10) + 1, 4 << 20] {
        let provider = Provider::start().await;
        provider.always(vec![ScriptStep::Hang]);
        let running = Bench::new().provider("a", &provider).start().await;
        let body = running.ask().to_string();
        let mut open = running.client.open("POST", "/v1/chat/completions", &[], body.as_bytes()).await;
        provider.until_calls(1).await;
        open.send(&vec![b'x'; prefetched]).await;
        drop(open);
        provider.until_left(1).await;
        until("the exchange to end", || running.gateway.app.in_flight_exchanges() == 0).await;
    }
}
