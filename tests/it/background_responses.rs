//! Background responses: `background: true` of `/v1/responses`, polled, cancelled, limited, and continued after a kill.

use crate::harness::batch_jobs::{ended, let_go, results, uploaded};
use crate::harness::process::{Home, catalogue};
use crate::harness::script::{held, json_answer, plain, status};
use crate::harness::{Bench, Client, Provider, gateway::Running, until, until_answered, within};
use penstock_dialect::conformance::check_response;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

const RESPONSES: &str = "/v1/responses";
const PROMPT: &str = "planted-in-the-background-prompt-93d1";

fn ask(input: &str) -> Value {
    json!({"model": "m", "background": true, "input": input, "metadata": {"a": "b"}})
}

async fn storing(running: &Running) -> Client {
    running.key(&json!({"name": "storing", "store_responses": true})).await
}

/// Creates a background response.
async fn created(client: &Client, input: &str) -> Value {
    let answer = client.post(RESPONSES, &ask(input)).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let response = answer.json();
    assert_eq!((&response["status"], &response["background"]), (&json!("queued"), &json!(true)));
    assert_eq!(check_response(&response), Ok(()), "{response}");
    response
}

fn path(response: &Value) -> String {
    format!("{RESPONSES}/{}", response["id"].as_str().unwrap())
}

async fn retrieve(client: &Client, response: &Value) -> Value {
    let answer = client.get(&path(response)).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let now = answer.json();
    assert_eq!(check_response(&now), Ok(()), "{now}");
    assert_eq!((&now["id"], &now["created_at"]), (&response["id"], &response["created_at"]));
    now
}

async fn cancel(client: &Client, response: &Value) -> Value {
    let answer = client.send("POST", &(path(response) + "/cancel"), &[], b"").await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

/// Returns the response once it has this status.
async fn when(client: &Client, response: &Value, status: &str) -> Value {
    within(status, async {
        loop {
            let now = retrieve(client, response).await;
            if now["status"] == status {
                return now;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
}

/// Balance and reserves of the account, as text.
fn spent(running: &Running) -> String {
    format!("{:?}", running.gateway.app.ledger.balance("default").credits)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_background_response_is_polled_to_its_end_and_charged_once() {
    let (provider, go) = (Provider::start().await, Arc::new(Notify::new()));
    provider.always(held(&go, "An answer."));
    let running = Bench::new().provider("a", &provider).start().await;
    let client = storing(&running).await;
    let response = created(&client, "Hi").await;
    let now = when(&client, &response, "in_progress").await;
    assert!(now["usage"].is_null() && now["output"] == json!([]), "{now}");
    provider.until_calls(1).await;
    // The provider gets the same request as for a response in the foreground.
    assert_eq!(provider.last().json()["messages"], json!([{"role": "user", "content": "Hi"}]));
    let mut more = json!({"model": "m", "input": "More", "previous_response_id": response["id"]});
    let early = client.post(RESPONSES, &more).await;
    assert!(early.status == 400 && early.text().contains("has no answer to continue"), "{}", early.text());

    let done = let_go(&go, when(&client, &response, "completed")).await;
    assert_eq!(done["output"][0]["content"][0]["text"], "An answer.");
    assert_eq!((&done["store"], &done["metadata"]), (&json!(true), &json!({"a": "b"})));
    assert!(done["environment_impact"]["energy_kwh"].as_f64().unwrap() > 0.0);
    // 11 tokens at 1 and 7 at 2 euro a million: the price of a request, not of a batch.
    assert_eq!(done["billing_cost"]["credits"].to_string(), "0.0025");
    assert_eq!(cancel(&client, &done).await, done, "it has ended already");
    let items = client.get(&(path(&response) + "/input_items")).await.json();
    assert_eq!(items["data"][0]["content"][0]["text"], "Hi");

    provider.always(plain("More."));
    more["background"] = json!(true);
    let second = client.post(RESPONSES, &more).await.json();
    let second = when(&client, &second, "completed").await;
    assert_eq!(second["previous_response_id"], response["id"]);
    assert_eq!(provider.last().json()["messages"].as_array().unwrap().len(), 3);
    assert_eq!(provider.calls(), 2);
    // Input items that the conversation already contains are neither sent nor stored a second time.
    more["input"] = json!([done["output"][0], {"role": "user", "content": "More"}]);
    let third = client.post(RESPONSES, &more).await.json();
    let third = when(&client, &third, "completed").await;
    assert_eq!(provider.last().json()["messages"].as_array().unwrap().len(), 3);
    let items = client.get(&(path(&third) + "/input_items")).await.json();
    assert_eq!(items["data"].as_array().unwrap().len(), 3, "{items}");
    let other = storing(&running).await;
    assert_eq!(other.get(&path(&response)).await.status, 404);
    assert_eq!(client.send("DELETE", &path(&response), &[], b"").await.json()["deleted"], true);
    assert_eq!(client.get(&path(&response)).await.status, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_response_leaves_its_provider_and_is_not_charged() {
    let (provider, go) = (Provider::start().await, Arc::new(Notify::new()));
    provider.always(held(&go, "Late"));
    let settings = "[responses.background]\nconcurrency = 1";
    let running = Bench::new().settings(settings).provider("a", &provider).start().await;
    let client = storing(&running).await;
    let before = spent(&running);
    let first = created(&client, "One").await;
    provider.until_calls(1).await;
    // The second response stays in the queue.
    let second = created(&client, "Two").await;
    assert_eq!(retrieve(&client, &second).await["status"], "queued");
    assert_eq!(cancel(&client, &second).await["status"], "cancelled");
    let end = cancel(&client, &first).await;
    assert_eq!(
        (&end["status"], &end["usage"], &end["output"]),
        (&json!("cancelled"), &Value::Null, &json!([]))
    );
    provider.until_left(1).await;
    assert_eq!(cancel(&client, &first).await, end, "a second cancel changes nothing");
    let more = json!({"model": "m", "input": "More", "previous_response_id": first["id"]});
    let refused = client.post(RESPONSES, &more).await;
    assert!(
        refused.status == 400 && refused.text().contains("ended without an answer"),
        "{}",
        refused.text()
    );
    assert_eq!(retrieve(&client, &first).await, end);
    assert_eq!(spent(&running), before);
    // Deleting a response ends it.
    let third = created(&client, "Three").await;
    provider.until_calls(2).await;
    assert_eq!(client.send("DELETE", &path(&third), &[], b"").await.status, 200);
    provider.until_left(2).await;
    assert_eq!((client.get(&path(&third)).await.status, provider.calls()), (404, 2));
    assert_eq!(spent(&running), before);
    let body = json!({"model": "m", "store": true, "input": "x"});
    let stored = let_go(&go, client.post(RESPONSES, &body)).await.json();
    let refused = client.send("POST", &(path(&stored) + "/cancel"), &[], b"").await;
    assert!(refused.status == 400 && refused.text().contains("background: true"), "{}", refused.text());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_whose_response_is_gone_is_not_charged() {
    let (provider, go) = (Provider::start().await, Arc::new(Notify::new()));
    provider.always(held(&go, "Nobody reads this."));
    let settings = "[responses.background]\nconcurrency = 1";
    let running = Bench::new().settings(settings).provider("a", &provider).start().await;
    let client = storing(&running).await;
    let before = spent(&running);
    let (first, second) = (created(&client, "One").await, created(&client, "Two").await);
    provider.until_calls(1).await;
    // Deletes the stored documents without a request of the client, as if they had expired.
    let key = &client.key["sk-svc-".len()..][..16];
    for response in [&first, &second] {
        let id = response["id"].as_str().unwrap();
        assert!(running.gateway.app.responses.delete(key, id).unwrap());
        assert_eq!(client.get(&path(response)).await.status, 404);
    }
    let failed = "penstock_background_responses_ended_total{state=\"failed\"} 2";
    let ended = async || running.admin().get("/metrics").await.text().contains(failed);
    let_go(&go, until_answered("the ends", ended)).await;
    assert_eq!(provider.calls(), 1, "no provider is asked for a response that is gone");
    assert_eq!(spent(&running), before);
    let entries = crate::billing::entries(&running).await;
    let count = |act: &str| entries.iter().filter(|entry| entry["act"] == act).count();
    assert_eq!((count("reserve"), count("settle"), count("void")), (1, 0, 1), "{entries:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_run_in_the_background_is_refused_by_name() {
    let provider = Provider::start().await;
    let running = Bench::new().provider("a", &provider).start().await;
    let client = storing(&running).await;
    for (client, member, value, param, says) in [
        (&running.client, "metadata", json!({}), "background", "keys change ID --store-responses true"),
        (&client, "store", json!(false), "store", "is stored until it is fetched"),
        (&client, "model", json!("none"), "model", "does not exist"),
        (&client, "max_output_tokens", json!(0), "max_output_tokens", "expected an integer"),
        (&client, "previous_response_id", json!("resp_1"), "previous_response_id", "no response of this id"),
    ] {
        let mut body = ask("Hi");
        body[member] = value;
        let answer = client.post(RESPONSES, &body).await;
        let error = answer.json()["error"].clone();
        assert!((400..=404).contains(&answer.status), "{error}");
        assert_eq!(error["param"], param, "{error}");
        assert!(error["message"].as_str().unwrap().contains(says), "{error}");
    }
    let line = json!({"custom_id": "a", "method": "POST", "url": RESPONSES, "body": ask("Hi")}).to_string();
    let file = uploaded(&client, &line).await;
    let create = json!({"input_file_id": file, "endpoint": RESPONSES, "completion_window": "24h"});
    let batch = client.post("/v1/batches", &create).await.json();
    let end = ended(&client, &batch).await;
    let found = results(&client, &end).await;
    assert_eq!(found["a"]["response"]["error"]["param"], "background", "{found:?}");
    assert_eq!(provider.calls(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_account_has_a_bounded_number_of_unfinished_responses() {
    let (provider, go) = (Provider::start().await, Arc::new(Notify::new()));
    provider.always(held(&go, "ok"));
    let settings = "[responses.background]\nopen = 2";
    let running = Bench::new().settings(settings).provider("a", &provider).start().await;
    let (client, other) = (storing(&running).await, storing(&running).await);
    let first = created(&client, "One").await;
    created(&client, "Two").await;
    let refused = other.post(RESPONSES, &ask("Three")).await;
    assert_eq!((refused.status, refused.header("retry-after").is_some()), (429, true), "{}", refused.text());
    assert!(refused.text().contains("limit of 2 unfinished background responses"), "{}", refused.text());
    // Batches have a separate limit, and do not list responses.
    assert_eq!(client.get("/v1/batches").await.json()["data"], json!([]));
    assert_eq!(client.get(&format!("/v1/batches/{}", first["id"].as_str().unwrap())).await.status, 404);
    assert_eq!(running.admin().get("/admin/batches").await.json()["data"], json!([]));
    let metrics = running.admin().get("/metrics").await.text();
    assert!(metrics.contains("penstock_background_responses_open{state=\"in_progress\"} "), "{metrics}");
    let_go(&go, when(&client, &first, "completed")).await;
    let_go(&go, async {
        created(&other, "Three").await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_of_the_provider_or_of_the_balance_fails_the_response() {
    let provider = Provider::start().await;
    let settings = "[routing]\nquick_retry = \"0s\"\n[batches]\nretries = 1\nretry_first = \"1ms\"\n[billing]\ncredit = \"prepaid\"";
    let running = Bench::new().settings(settings).provider("a", &provider).start().await;
    let client = storing(&running).await;
    let poor = created(&client, "Hi").await;
    let poor = when(&client, &poor, "failed").await;
    assert_eq!(poor["error"]["code"], "insufficient_quota", "{poor}");
    let grant = json!({"account": "default", "credits": 100});
    let granted = running.admin().post("/admin/credits/grant", &grant).await;
    assert!(granted.status < 300, "{}", granted.text());
    let before = spent(&running);
    provider.always(status(503));
    let broken = created(&client, "Hi").await;
    let broken = when(&client, &broken, "failed").await;
    assert_eq!((&broken["error"]["code"], &broken["usage"]), (&json!("server_error"), &Value::Null));
    assert!(!broken.to_string().contains("secret of the provider"), "{broken}");
    // No client waits for an attempt that may be sent again, so it is no failed request; nor is it a line of a batch.
    until("the end of every exchange", || running.gateway.app.in_flight_exchanges() == 0).await;
    let metrics = running.admin().get("/metrics").await.text();
    let series = |status: &str, work: &str| {
        let labels = format!("status=\"{status}\",work=\"{work}\"}}");
        metrics
            .lines()
            .filter(|line| line.starts_with("penstock_requests_total{") && line.contains(&labels))
            .count()
    };
    assert_eq!(
        (series("402", "request"), series("503", "batch"), series("503", "request")),
        (1, 1, 0),
        "{metrics}"
    );
    assert!(!metrics.contains("penstock_batch_lines_total{endpoint=\"responses\""), "{metrics}");
    provider.always(json_answer(
        400,
        &json!({"error": {"message": "bad tool", "type": "invalid_request_error"}}),
    ));
    let failed = created(&client, "Hi").await;
    let failed = when(&client, &failed, "failed").await;
    assert_eq!(failed["error"]["code"], "invalid_prompt", "{failed}");
    assert_eq!(spent(&running), before);
    let more = json!({"model": "m", "input": "More", "previous_response_id": failed["id"]});
    assert_eq!(client.post(RESPONSES, &more).await.status, 400);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_response_fails_when_its_window_ends() {
    let provider = Provider::start().await;
    provider.always(crate::harness::script::silent());
    let settings = "[responses.background]\nwindow = \"1s\"";
    let running = Bench::new().settings(settings).provider("a", &provider).start().await;
    let client = storing(&running).await;
    let late = created(&client, "Hi").await;
    let late = when(&client, &late, "failed").await;
    assert!(late["error"]["message"].as_str().unwrap().contains("did not end within"), "{late}");
    provider.until_left(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_response_ends_with_its_key() {
    let provider = Provider::start().await;
    provider.always(crate::harness::script::silent());
    let running = Bench::new().provider("a", &provider).start().await;
    let client = storing(&running).await;
    created(&client, "Hi").await;
    provider.until_calls(1).await;
    let id = &client.key["sk-svc-".len()..][..16];
    let revoked = running.admin().post(&format!("/admin/keys/{id}/revoke"), &json!({})).await;
    assert_eq!(revoked.status, 200, "{}", revoked.text());
    provider.until_left(1).await;
    let failed = "penstock_background_responses_ended_total{state=\"failed\"} 1";
    until_answered("the end", async || running.admin().get("/metrics").await.text().contains(failed)).await;
}

fn home(provider: &Provider) -> Home {
    let home = Home::new();
    home.write(&format!("[log]\nlevel = \"debug\"\n{}", catalogue(provider, "")));
    home
}

fn storing_key(home: &Home) -> Client {
    let made = home.command(&["keys", "create", "--store-responses"]);
    Client { address: home.http, key: String::from_utf8(made.stdout).unwrap().trim().to_owned() }
}

/// Asserts that the prompt is in no file below the folder.
fn assert_encrypted(folder: &std::path::Path) {
    for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            assert_encrypted(&path);
        } else if let Ok(bytes) = std::fs::read(&path) {
            let is_found = bytes.windows(PROMPT.len()).any(|window| window == PROMPT.as_bytes());
            assert!(!is_found, "{}", path.display());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_response_goes_on_after_a_kill_and_a_stop_and_is_charged_once() {
    let (provider, go) = (Provider::start().await, Arc::new(Notify::new()));
    provider.always(held(&go, "Done"));
    let home = home(&provider);
    let client = storing_key(&home);
    let mut process = home.run().await;
    let response = created(&client, PROMPT).await;
    provider.until_calls(1).await;
    process.kill().await;
    assert_encrypted(home.path());
    process = home.run().await;
    provider.until_calls(2).await;
    assert_eq!(when(&client, &response, "in_progress").await["output"], json!([]));
    process.signal("TERM");
    assert!(process.until_ended().await.success(), "{}", process.output());
    process = home.run().await;
    provider.until_calls(3).await;
    let done = let_go(&go, when(&client, &response, "completed")).await;
    assert_eq!(provider.calls(), 3);
    process.kill().await;
    process = home.run().await;
    assert_eq!(retrieve(&client, &response).await, done, "an end is durable");
    process.signal("TERM");
    assert!(process.until_ended().await.success(), "{}", process.output());
    let entries = String::from_utf8(home.command(&["credits", "export"]).stdout).unwrap();
    let settled = entries.lines().filter(|line| line.contains("\"settle\"")).count();
    assert_eq!(settled, 1, "{entries}");
    assert!(home.command(&["store", "verify"]).status.success());
    assert_encrypted(home.path());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_response_that_ends_the_process_again_and_again_fails() {
    let (provider, go) = (Provider::start().await, Arc::new(Notify::new()));
    provider.always(held(&go, "Never"));
    let home = home(&provider);
    let client = storing_key(&home);
    let mut process = home.run().await;
    let response = created(&client, "Hi").await;
    for start in 1..=3 {
        provider.until_calls(start).await;
        process.kill().await;
        process = home.run().await;
    }
    let failed = when(&client, &response, "failed").await;
    assert!(failed["error"]["message"].as_str().unwrap().contains("stopped three times"), "{failed}");
    assert_eq!(provider.calls(), 3);
    process.wait_for_line("background_response_ended").await;
    // A background request whose document was removed during the outage ends too, and its record is removed.
    let lost = created(&client, "Hi").await;
    provider.until_calls(4).await;
    process.kill().await;
    let folders = std::fs::read_dir(home.storage().join("responses")).unwrap();
    for folder in folders.map(|entry| entry.unwrap().path()) {
        std::fs::remove_file(folder.join(lost["id"].as_str().unwrap())).unwrap();
    }
    process = home.run().await;
    until("the end of the record", || process.output().matches("background_response_ended").count() == 2)
        .await;
    assert_eq!(client.get(&path(&lost)).await.status, 404);
    process.signal("TERM");
    assert!(process.until_ended().await.success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_retention_of_a_response_starts_at_its_end() {
    let (provider, go) = (Provider::start().await, Arc::new(Notify::new()));
    provider.always(held(&go, "An answer."));
    // The test sets the gateway's calendar clock forward instead of waiting.
    let settings = "[responses]\nretention = \"4h\"";
    let running = Bench::new().settings(settings).provider("a", &provider).start().await;
    let clock = running.gateway.app.clock;
    let pass =
        |hours: u64| clock.follow_system_clock(clock.calendar_now() + Duration::from_secs(hours * 3_600));
    let client = storing(&running).await;
    let response = created(&client, "Hi").await;
    provider.until_calls(1).await;
    pass(5);
    assert_eq!(retrieve(&client, &response).await["status"], "in_progress");
    let_go(&go, when(&client, &response, "completed")).await;
    pass(3);
    assert_eq!(retrieve(&client, &response).await["status"], "completed");
    pass(1);
    assert_eq!(client.get(&path(&response)).await.status, 404);
}
