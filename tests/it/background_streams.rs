//! Streams of background responses: sent while the response runs, continued after any event, and after a restart.

use crate::harness::batch_jobs::let_go;
use crate::harness::client::OpenResponse;
use crate::harness::gateway::Running;
use crate::harness::process::{Home, catalogue};
use crate::harness::script::{held, json_answer, silent};
use crate::harness::{Bench, Client, Provider, until, within};
use penstock_dialect::conformance::check_responses_stream;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::sync::Notify;

pub const RESPONSES: &str = "/v1/responses";

pub fn ask(stream: bool) -> Value {
    json!({"model": "m", "background": true, "stream": stream, "input": "Hi"})
}

pub async fn storing(running: &Running) -> Client {
    running.key(&json!({"name": "storing", "store_responses": true})).await
}

/// Opens a stream, without reading it.
pub async fn open(client: &Client, path: &str) -> OpenResponse {
    client.open("GET", path, &[], b"").await
}

pub async fn create_stream(client: &Client) -> OpenResponse {
    let headers = [("content-type", "application/json")];
    client.open("POST", RESPONSES, &headers, ask(true).to_string().as_bytes()).await
}

/// Waits for an event of this type.
pub async fn until_event(stream: &mut OpenResponse, kind: &str) {
    within(kind, stream.until(&format!("event: {kind}\n"))).await;
    within("its end", stream.until("\n\n")).await;
}

pub fn events(text: &str) -> Vec<Value> {
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    data.map(|data| serde_json::from_str(data).unwrap()).collect()
}

fn types(text: &str) -> Vec<String> {
    events(text).iter().map(|event| event["type"].as_str().unwrap().to_owned()).collect()
}

/// Id of the response in the first event that has arrived.
pub fn id_of(stream: &OpenResponse) -> String {
    let text = String::from_utf8_lossy(&stream.bytes).into_owned();
    let start = text.find("resp_").unwrap();
    text[start..].split('"').next().unwrap().to_owned()
}

pub async fn whole(client: &Client, id: &str, query: &str) -> String {
    let answer = within("the stream", client.get(&format!("{RESPONSES}/{id}?stream=true{query}"))).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(answer.header("content-type").unwrap().starts_with("text/event-stream"));
    assert!(answer.whole);
    answer.text()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_goes_on_while_the_response_runs_and_is_continued_after_any_event() {
    let (provider, go) = (Provider::start().await, Arc::new(Notify::new()));
    provider.always(held(&go, "An answer."));
    let running = Bench::new().provider("a", &provider).start().await;
    let client = storing(&running).await;
    let mut created = create_stream(&client).await;
    until_event(&mut created, "response.in_progress").await;
    let id = id_of(&created);
    assert!(String::from_utf8_lossy(&created.bytes).starts_with("HTTP/1.1 200"));
    provider.until_calls(1).await;
    // The provider is asked for a whole answer: the body of the run has no stream.
    assert!(provider.last().json().get("stream").is_none_or(|stream| stream == false));
    let polled = client.get(&format!("{RESPONSES}/{id}")).await.json();
    assert_eq!(polled["status"], "in_progress");
    let mut fetched = open(&client, &format!("{RESPONSES}/{id}?stream=true&starting_after=1")).await;
    until_event(&mut fetched, "response.in_progress").await;
    // The disconnect of one client does not affect the response or its other streams.
    drop(open(&client, &format!("{RESPONSES}/{id}?stream=true")).await);
    let ends = async { (created.finish().await, fetched.finish().await) };
    let (created, fetched) = let_go(&go, within("both ends", ends)).await;
    let (live, rest) = (created.text(), fetched.text());
    assert_eq!(check_responses_stream(live.as_bytes()), Ok(()), "{live}");
    assert_eq!(types(&rest)[0], "response.in_progress", "{rest}");
    let done = client.get(&format!("{RESPONSES}/{id}")).await.json();
    assert_eq!(done["status"], "completed", "{done}");
    assert_eq!(events(&live).last().unwrap()["response"], done, "with usage and both objects");
    assert!(done["environment_impact"]["energy_kwh"].as_f64().is_some());
    // The finished stream can be read again, from the beginning or after any event, with the same events.
    assert_eq!(whole(&client, &id, "").await, live);
    let parts: Vec<&str> = live.split_inclusive("\n\n").filter(|event| !event.starts_with(':')).collect();
    for after in 0..parts.len() {
        let rest = whole(&client, &id, &format!("&starting_after={after}")).await;
        assert_eq!(rest, parts[after + 1..].concat(), "after {after}");
    }
    assert_eq!(provider.calls(), 1);
    let other = storing(&running).await;
    assert_eq!(other.get(&format!("{RESPONSES}/{id}?stream=true")).await.status, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_ends_with_the_failure_or_the_cancellation_of_its_response() {
    let (provider, go) = (Provider::start().await, Arc::new(Notify::new()));
    provider.always(held(&go, "Late"));
    let settings = "[responses.background]\nconcurrency = 1";
    let running = Bench::new().settings(settings).provider("a", &provider).start().await;
    let client = storing(&running).await;
    let mut first = create_stream(&client).await;
    until_event(&mut first, "response.in_progress").await;
    let mut second = create_stream(&client).await;
    until_event(&mut second, "response.queued").await;
    let queued = String::from_utf8_lossy(&second.bytes).into_owned();
    assert!(!queued.contains("response.in_progress"), "it waits: {queued}");
    for stream in [&mut second, &mut first] {
        let id = id_of(stream);
        let cancelled = client.send("POST", &format!("{RESPONSES}/{id}/cancel"), &[], b"").await;
        assert_eq!(cancelled.json()["status"], "cancelled", "{}", cancelled.text());
        let text = within("the end", stream.finish()).await.text();
        assert_eq!(check_responses_stream(text.as_bytes()), Ok(()), "{text}");
        let last = events(&text).pop().unwrap();
        assert_eq!(
            (&last["type"], &last["response"]["status"]),
            (&json!("response.failed"), &json!("cancelled"))
        );
    }
    // The stream of a deleted response breaks off; it may show the cancellation before.
    let mut deleted = create_stream(&client).await;
    until_event(&mut deleted, "response.in_progress").await;
    let id = id_of(&deleted);
    assert_eq!(client.send("DELETE", &format!("{RESPONSES}/{id}"), &[], b"").await.status, 200);
    let end = within("the end", deleted.finish()).await;
    let is_cancelled = end.text().contains("\"status\":\"cancelled\"");
    assert_eq!(end.whole, is_cancelled, "{}", end.text());
    assert_eq!(client.get(&format!("{RESPONSES}/{id}?stream=true&starting_after=2")).await.status, 404);
    let refusal = json!({"error": {"message": "bad tool", "type": "invalid_request_error"}});
    provider.always(json_answer(400, &refusal));
    let failed = within("the failure", client.post(RESPONSES, &ask(true))).await.text();
    assert_eq!(check_responses_stream(failed.as_bytes()), Ok(()), "{failed}");
    assert_eq!(events(&failed).last().unwrap()["response"]["error"]["code"], "invalid_prompt", "{failed}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiting_stream_gets_heartbeats_and_ends_with_its_key() {
    let provider = Provider::start().await;
    provider.always(silent());
    let settings = "[limits]\nheartbeat = \"1s\"";
    let running = Bench::new().settings(settings).provider("a", &provider).start().await;
    let client = storing(&running).await;
    let mut stream = create_stream(&client).await;
    until_event(&mut stream, "response.in_progress").await;
    within("a heartbeat", stream.until(": keep-alive\n\n")).await;
    // A waiting stream holds no permit of admission control and no memory: only the run at the provider does.
    let mut other = open(&client, &format!("{RESPONSES}/{}?stream=true", id_of(&stream))).await;
    until_event(&mut other, "response.in_progress").await;
    let admission = &running.gateway.app.admission;
    let holds_nothing = || {
        let status = admission.load_status();
        status.requests == 1 && status.bytes < 100
    };
    until("streams without permits", holds_nothing).await;
    let id = &client.key["sk-svc-".len()..][..16];
    let revoked = running.admin().post(&format!("/admin/keys/{id}/revoke"), &json!({})).await;
    assert_eq!(revoked.status, 200, "{}", revoked.text());
    let end = within("the end", stream.finish()).await;
    assert!(!end.whole || end.text().contains("response.failed"), "{}", end.text());
    until("no exchange", || running.gateway.app.in_flight_exchanges() == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_has_no_stream_is_refused_by_name() {
    let provider = Provider::start().await;
    let running = Bench::new().provider("a", &provider).start().await;
    let client = storing(&running).await;
    let stored = client.post(RESPONSES, &json!({"model": "m", "store": true, "input": "x"})).await.json();
    let id = stored["id"].as_str().unwrap();
    let refused = client.get(&format!("{RESPONSES}/{id}?stream=true")).await;
    assert_eq!((refused.status, &refused.json()["error"]["param"]), (400, &json!("stream")));
    assert!(refused.text().contains("only background responses"), "{}", refused.text());
    let refused = client.get(&format!("{RESPONSES}/{id}?stream=true&starting_after=no")).await;
    assert_eq!((refused.status, &refused.json()["error"]["param"]), (400, &json!("starting_after")));
    assert_eq!(client.get(&format!("{RESPONSES}/resp_none?stream=true")).await.status, 404);
    assert_eq!(client.get(&format!("{RESPONSES}/{id}?stream=false")).await.json(), stored);
    // A key without `store_responses` cannot run a response in the background.
    let answer = running.client.post(RESPONSES, &ask(true)).await;
    assert_eq!((answer.status, &answer.json()["error"]["param"]), (400, &json!("background")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unfinished_response_is_not_continued_after_an_event_that_it_does_not_have() {
    let (provider, go) = (Provider::start().await, Arc::new(Notify::new()));
    provider.always(held(&go, "Done"));
    let running = Bench::new().provider("a", &provider).start().await;
    let client = storing(&running).await;
    let mut stream = create_stream(&client).await;
    until_event(&mut stream, "response.in_progress").await;
    let id = id_of(&stream);
    for after in ["3", "7000"] {
        let refused = client.get(&format!("{RESPONSES}/{id}?stream=true&starting_after={after}")).await;
        assert_eq!((refused.status, &refused.json()["error"]["param"]), (400, &json!("starting_after")));
    }
    let rest = let_go(&go, whole(&client, &id, "&starting_after=2")).await;
    assert!(rest.contains("\"sequence_number\":3"), "{rest}");
    assert!(within("the end", stream.finish()).await.whole);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_breaks_off_with_its_process_is_continued_by_the_next_one() {
    let (provider, go) = (Provider::start().await, Arc::new(Notify::new()));
    provider.always(held(&go, "Done"));
    let home = Home::new();
    home.write(&format!("[log]\nlevel = \"debug\"\n{}", catalogue(&provider, "")));
    let made = home.command(&["keys", "create", "--store-responses"]);
    let key = String::from_utf8(made.stdout).unwrap().trim().to_owned();
    let client = Client { address: home.http, key };
    let mut process = home.run().await;
    let mut stream = create_stream(&client).await;
    until_event(&mut stream, "response.in_progress").await;
    let id = id_of(&stream);
    provider.until_calls(1).await;
    process.signal("TERM");
    let broken = within("the end", stream.finish()).await;
    assert!(!broken.whole, "it is not the end of the response: {}", broken.text());
    assert!(process.until_ended().await.success(), "{}", process.output());
    process = home.run().await;
    provider.until_calls(2).await;
    let mut rest = open(&client, &format!("{RESPONSES}/{id}?stream=true&starting_after=2")).await;
    let rest = let_go(&go, within("the end", rest.finish())).await;
    let stream = broken.text() + &rest.text();
    assert_eq!(check_responses_stream(stream.as_bytes()), Ok(()), "{stream}");
    process.signal("TERM");
    assert!(process.until_ended().await.success(), "{}", process.output());
}
