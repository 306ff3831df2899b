//! Batches through a whole gateway: states, results and scheduling.

use crate::harness::batch_jobs::{
    CHAT, batch, cancel, content, create, ended, let_go, line, line_with, lines, results, retrieve, uploaded,
    when,
};
use crate::harness::script::{ScriptStep, held, plain, status};
use crate::harness::{Bench, Provider, until, within};
use penstock_storage::batches::{BatchStore, batch_row_writes};
use penstock_storage::{StoreOptions, Transaction, open};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// Retry settings with short waits.
const QUICK: &str = "[batches]\nretry_first = \"20ms\"\nretry_most = \"50ms\"\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_runs_to_its_last_line() {
    let provider = Provider::start().await;
    let running = Bench::new().provider("p", &provider).start().await;
    let client = &running.client;
    let file = uploaded(client, &lines(40)).await;
    let asked = json!({"input_file_id": file, "endpoint": CHAT, "metadata": {"job": "night", "a": "b"}});
    let made = client.post("/v1/batches", &asked).await;
    assert_eq!(made.status, 200, "{}", made.text());
    let made = made.json();
    assert_eq!((made["object"].as_str(), made["status"].as_str()), (Some("batch"), Some("validating")));
    assert!(made["id"].as_str().unwrap().starts_with("batch_"));
    assert_eq!(made["metadata"], json!({"job": "night", "a": "b"}));
    assert_eq!(made["completion_window"], "24h");
    let created = made["created_at"].as_u64().unwrap();
    assert_eq!(made["expires_at"], created + 86_400);

    let end = ended(client, &made).await;
    assert_eq!(end["status"], "completed", "{end}");
    assert_eq!(end["request_counts"]["completed"], 40);
    assert!(end["completed_at"].as_u64() >= Some(created) && end["in_progress_at"].as_u64() >= Some(created));
    assert!(end["errors"].is_null() && end["error_file_id"].is_null() && end["failed_at"].is_null());
    assert_eq!(end["model"], "m");
    assert_eq!(end["usage"]["input_tokens"], 40 * 11);
    assert_eq!(end["usage"]["total_tokens"], 40 * 18);
    assert_eq!(provider.calls(), 40);

    let found = results(client, &end).await;
    assert_eq!(found.len(), 40);
    for number in 0..40 {
        let result = &found[&format!("line-{number}")];
        assert_eq!(result["status_code"], 200);
        assert!(result["error"].is_null() && result["id"].as_str().unwrap().starts_with("batch_req_"));
        let response = &result["response"];
        assert_eq!(response["choices"][0]["message"]["content"], "Hello");
        assert!(response["environment_impact"]["energy_kwh"].is_number());
        assert!(response["billing_cost"]["credits"].is_number());
    }
    let output = client.get(&format!("/v1/files/{}", end["output_file_id"].as_str().unwrap())).await.json();
    assert_eq!(
        (output["purpose"].as_str(), output["status"].as_str()),
        (Some("batch_output"), Some("processed"))
    );
    assert_eq!(output["bytes"], content(client, &end["output_file_id"]).await.len());
    let input = client.get(&format!("/v1/files/{file}")).await;
    assert_eq!(input.status, 200, "its input stays");
    let metrics = running.admin().get("/metrics").await.text();
    assert!(metrics.contains("penstock_batch_results_total{outcome=\"completed\"} 40"), "{metrics}");
    assert!(metrics.contains("penstock_batches_ended_total{state=\"completed\"} 1"));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn results_are_there_from_the_first_one_on() {
    let (provider, go) = (Provider::start().await, Arc::new(Notify::new()));
    provider.then(plain("first")).then(plain("second")).always(held(&go, "Hello"));
    let running = Bench::new().provider("p", &provider).start().await;
    let client = &running.client;
    let made = batch(client, &lines(9)).await;
    let now = when(client, &made, "two results", |now| now["request_counts"]["completed"] == 2).await;
    assert_eq!(
        (now["status"].as_str(), now["request_counts"]["total"].as_u64()),
        (Some("in_progress"), Some(9))
    );
    assert_eq!(results(client, &now).await.len(), 2);
    let output = now["output_file_id"].as_str().unwrap();
    let listed = client.get("/v1/files?purpose=batch_output").await.json();
    assert_eq!(listed["data"][0]["id"], output);
    let deleted = client.send("DELETE", &format!("/v1/files/{output}"), &[], b"").await;
    assert_eq!((deleted.status, deleted.header("x-should-retry")), (409, Some("false")));
    let end = let_go(&go, ended(client, &made)).await;
    assert_eq!((end["status"].as_str(), &end["output_file_id"]), (Some("completed"), &now["output_file_id"]));
    assert_eq!(results(client, &end).await.len(), 9);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_line_retains_its_position() {
    let provider = Provider::start().await;
    let running = Bench::new().provider("p", &provider).start().await;
    let text = [
        line("good", "Hi"),
        line_with("empty", json!({"model": "m", "messages": []})),
        line_with("unknown", json!({"model": "nobody", "messages": [{"role": "user", "content": "Hi"}]})),
        line("better", "Hi"),
    ];
    let end = ended(&running.client, &batch(&running.client, &text.join("\n")).await).await;
    assert_eq!(end["status"], "completed");
    assert_eq!(
        (&end["request_counts"]["completed"], &end["request_counts"]["failed"]),
        (&json!(2), &json!(2))
    );
    let found = results(&running.client, &end).await;
    let status = |id: &str| found[id]["status_code"].as_u64().unwrap();
    assert_eq!([status("good"), status("empty"), status("unknown"), status("better")], [200, 400, 404, 200]);
    assert_eq!(found["unknown"]["response"]["error"]["code"], "INFERENCE_3101");
    assert!(found["empty"]["response"]["error"]["message"].as_str().unwrap().contains("messages"));
    assert!(found.values().all(|result| result["error"].is_null()));
    assert_eq!(provider.calls(), 2);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failure_that_passes_is_tried_again() {
    let provider = Provider::start().await;
    provider.then(status(503)).then(status(429)).then(status(503));
    let running = Bench::new().settings(QUICK).provider("p", &provider).start().await;
    let end = ended(&running.client, &batch(&running.client, &lines(3)).await).await;
    assert_eq!((end["status"].as_str(), &end["request_counts"]["completed"]), (Some("completed"), &json!(3)));
    assert!(provider.calls() >= 6, "{}", provider.calls());
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_that_never_succeeds_gets_an_error_result_after_its_retries() {
    let provider = Provider::start().await;
    provider.always(status(503));
    let settings = format!("{QUICK}retries = 2\n");
    let running = Bench::new().settings(&settings).provider("p", &provider).start().await;
    let end = ended(&running.client, &batch(&running.client, &lines(1)).await).await;
    assert_eq!((end["status"].as_str(), &end["request_counts"]["failed"]), (Some("completed"), &json!(1)));
    let found = results(&running.client, &end).await;
    assert_eq!(found["line-0"]["status_code"], 503);
    assert_eq!(found["line-0"]["response"]["error"]["code"], "INFERENCE_3103");
    assert!(provider.calls() <= 3, "{}", provider.calls());
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_batch_retains_its_results_and_sends_no_more_requests() {
    let provider = Provider::start().await;
    provider.then(plain("first")).always(vec![ScriptStep::Hang]);
    let running =
        Bench::new().settings("[batches]\nconcurrency = 4\n").provider("p", &provider).start().await;
    let client = &running.client;
    let made = batch(client, &lines(12)).await;
    when(client, &made, "a result", |now| now["request_counts"]["completed"] == 1).await;
    provider.until_calls(5).await;
    let answer = cancel(client, &made).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let end = answer.json();
    assert_eq!((end["status"].as_str(), &end["id"]), (Some("cancelled"), &made["id"]));
    assert!(end["cancelled_at"].is_u64() && end["errors"].is_null());
    assert_eq!(
        (&end["request_counts"]["completed"], &end["request_counts"]["cancelled"]),
        (&json!(1), &json!(11))
    );
    let calls = provider.calls();
    provider.until_left(4).await;
    assert_eq!(results(client, &end).await.len(), 1);
    assert_eq!(cancel(client, &made).await.json(), end, "once more changes nothing");
    assert_eq!(retrieve(client, &made).await, end);
    assert_eq!(provider.calls(), calls, "nobody was asked after the answer");
    let entries = crate::billing::entries(&running).await;
    let reasons: Vec<&Value> =
        entries.iter().filter(|entry| entry["act"] == "void").map(|entry| &entry["why"]).collect();
    assert_eq!(reasons, [&json!("cancelled"); 4], "a cancelled line was not left by a client");
    let usage = running.admin().get("/admin/usage?group_by=outcome").await.json();
    let outcomes: Vec<(&Value, &Value)> = usage["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (&row["outcome"], &row["requests_not_charged"]))
        .collect();
    assert!(outcomes.contains(&(&json!("cancelled"), &json!(4))), "{outcomes:?}");
    assert_eq!(running.admin().get("/admin/usage/verify").await.json()["good"], json!(true));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ended_batch_cannot_be_cancelled() {
    let provider = Provider::start().await;
    let running = Bench::new().provider("p", &provider).start().await;
    let end = ended(&running.client, &batch(&running.client, &lines(1)).await).await;
    let refused = cancel(&running.client, &end).await;
    assert_eq!((refused.status, refused.header("x-should-retry")), (409, Some("false")));
    assert_eq!(refused.json()["error"]["code"], "RESOURCE_5003");
    assert!(refused.json()["error"]["message"].as_str().unwrap().contains("completed"));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleting_the_input_of_a_running_batch_fails_it() {
    let provider = Provider::start().await;
    provider.then(plain("first")).always(vec![ScriptStep::Hang]);
    let running = Bench::new().provider("p", &provider).start().await;
    let client = &running.client;
    let made = batch(client, &lines(5)).await;
    when(client, &made, "a result", |now| now["request_counts"]["completed"] == 1).await;
    let input = format!("/v1/files/{}", made["input_file_id"].as_str().unwrap());
    let deleted = client.send("DELETE", &input, &[], b"").await;
    assert_eq!((deleted.status, &deleted.json()["deleted"]), (200, &json!(true)), "{}", deleted.text());
    let end = retrieve(client, &made).await;
    assert_eq!((end["status"].as_str(), &end["request_counts"]["cancelled"]), (Some("failed"), &json!(4)));
    assert_eq!(end["errors"]["object"], "list");
    assert_eq!(end["errors"]["data"][0]["code"], "input_file_deleted");
    assert!(end["failed_at"].is_u64());
    assert_eq!(client.get(&input).await.status, 404);
    assert_eq!(results(client, &end).await.len(), 1);
    assert_eq!(create(client, made["input_file_id"].as_str().unwrap()).await.status, 404);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_goes_on_where_the_stop_left_it() {
    let provider = Provider::start().await;
    for _ in 0..7 {
        provider.then(plain("before"));
    }
    provider.always(vec![ScriptStep::Hang]);
    let bench = || Bench::new().settings("[batches]\nconcurrency = 5\n").provider("p", &provider);
    let running = bench().start().await;
    let made = batch(&running.client, &lines(30)).await;
    when(&running.client, &made, "seven results", |now| now["request_counts"]["completed"] == 7).await;
    provider.until_calls(12).await;
    let left = running.halt().await;
    provider.always(plain("after"));
    // Appends what a crash may leave in the output file: the beginning of a group of results that was never
    // committed.
    let folder = left.0.path().join("files");
    let output = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let output = output.filter(|path| path.is_file()).max().unwrap();
    let mut grown = std::fs::read(&output).unwrap();
    grown.extend_from_slice(b"{\"id\":\"half a li");
    std::fs::write(&output, grown).unwrap();

    let running = bench().restart(left).await;
    let end = ended(&running.client, &made).await;
    assert_eq!(
        (end["status"].as_str(), &end["request_counts"]["completed"]),
        (Some("completed"), &json!(30))
    );
    let found = results(&running.client, &end).await;
    let count_of = |text: &str| {
        found.values().filter(|result| result["response"]["choices"][0]["message"]["content"] == text).count()
    };
    assert_eq!((count_of("before"), count_of("after")), (7, 23));
    assert_eq!(provider.calls(), 30 + 5, "only lines at work were asked again");
    assert_eq!(end["usage"]["total_tokens"], 30 * 18, "each counts once");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expired_window_fails_the_batch_once_and_retains_its_results() {
    let provider = Provider::start().await;
    provider.then(plain("in time")).always(vec![ScriptStep::Hang]);
    let bench = || Bench::new().provider("p", &provider);
    let running = bench().start().await;
    let made = batch(&running.client, &lines(4)).await;
    when(&running.client, &made, "a result", |now| now["request_counts"]["completed"] == 1).await;
    provider.until_calls(4).await;
    let left = running.halt().await;
    let calls = provider.calls();
    // Changes the stored batch as if its completion window of a day had passed.
    let store = within("the store", async {
        loop {
            match open(
                &left.0.path().join("store"),
                StoreOptions { ballast_bytes: 0, ..StoreOptions::default() },
            ) {
                Ok(store) => break store,
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    })
    .await;
    let batches = BatchStore::new(store.clone());
    let mut record = batches.get(made["id"].as_str().unwrap()).unwrap().unwrap();
    record.expires = 1;
    let step = |batch: Transaction, row: penstock_storage::ledger::RowWrite| match row.value {
        Some(value) => batch.put(row.table, row.key, value),
        None => batch.delete(row.table, row.key),
    };
    store.apply(batch_row_writes(&record, None).unwrap().into_iter().fold(Transaction::new(), step)).unwrap();
    drop((batches, store));
    let running = bench().restart(left).await;
    let end = ended(&running.client, &made).await;
    assert_eq!((end["status"].as_str(), &end["request_counts"]["expired"]), (Some("failed"), &json!(3)));
    assert_eq!(end["errors"]["data"][0]["code"], "batch_expired");
    assert_eq!(end["expired_at"], end["failed_at"]);
    assert_eq!(results(&running.client, &end).await.len(), 1);
    let left = running.halt().await;
    let running = bench().restart(left).await;
    assert_eq!(retrieve(&running.client, &made).await, end, "the next start finds it as it was");
    assert_eq!(provider.calls(), calls);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revoked_key_ends_its_batches() {
    let provider = Provider::start().await;
    provider.always(vec![ScriptStep::Hang]);
    let running = Bench::new().provider("p", &provider).start().await;
    let other = running.key(&json!({"name": "short", "account": "default"})).await;
    let made = batch(&other, &lines(3)).await;
    provider.until_calls(3).await;
    let id = other.key.strip_prefix("sk-svc-").unwrap()[..16].to_owned();
    let revoked = running.admin().send("POST", &format!("/admin/keys/{id}/revoke"), &[], b"").await;
    assert!(revoked.status < 300, "{} {}", revoked.status, revoked.text());
    provider.until_left(3).await;
    let store = BatchStore::new(running.gateway.app.stores.store.clone());
    let id = made["id"].as_str().unwrap();
    until("the end of the batch", || store.get(id).unwrap().unwrap().state.is_final()).await;
    let record = store.get(id).unwrap().unwrap();
    assert_eq!(record.errors[0].code, "key_revoked");
    assert_eq!((record.counts.cancelled, provider.calls()), (3, 3));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn accounts_are_served_round_robin() {
    let (provider, go) = (Provider::start().await, Arc::new(Notify::new()));
    provider.always(held(&go, "Hello"));
    let running =
        Bench::new().settings("[batches]\nconcurrency = 4\n").provider("p", &provider).start().await;
    let account = running.admin().post("/admin/accounts", &json!({"id": "other"})).await;
    assert!(account.status < 300, "{}", account.text());
    let other = running.key(&json!({"name": "other", "account": "other"})).await;
    let first = batch(&running.client, &lines(60)).await;
    provider.until_calls(4).await;
    let text: String = (0..20).map(|number| line(&format!("late-{number}"), "late") + "\n").collect();
    let second = batch(&other, &text).await;
    // The first line starts without a permit, and the first permit that becomes free compensates for it. From then
    // on, one line runs at a time.
    provider.until_calls(5).await;
    go.notify_one();
    for calls in 6..=25 {
        go.notify_one();
        provider.until_calls(calls).await;
    }
    let late =
        provider.seen().iter().filter(|seen| String::from_utf8_lossy(&seen.body).contains("late")).count();
    assert!((8..=14).contains(&late), "{late} of 25 are of the account that came later");
    let both = async { (ended(&running.client, &first).await, ended(&other, &second).await) };
    let (first, second) = let_go(&go, both).await;
    assert_eq!((first["status"].as_str(), second["status"].as_str()), (Some("completed"), Some("completed")));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_has_time_waits_for_a_greener_hour() {
    let provider = Provider::start().await;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let clean = (now / 3_600 + 4) % 24;
    let hours: Vec<u32> = (0..24).map(|hour| if hour == clean { 20 } else { 300 }).collect();
    let grid = format!("[grid]\nhours = {{ FR = {hours:?} }}\n");
    let running = Bench::new().settings(&grid).provider("p", &provider).start().await;
    let client = &running.client;
    let made = batch(client, &lines(3)).await;
    let now = when(client, &made, "its hour", |now| now["status"] == "in_progress").await;
    let hour = now["scheduled_for"].as_u64().unwrap();
    assert_eq!((hour % 3_600, hour / 3_600 % 24), (0, clean));
    let metrics = running.admin().get("/metrics").await.text();
    assert!(metrics.contains("penstock_batches_open{state=\"scheduled\"} 1"), "{metrics}");
    let end = cancel(client, &made).await.json();
    assert_eq!((end["status"].as_str(), end["scheduled_for"].as_u64()), (Some("cancelled"), Some(hour)));
    assert_eq!(provider.calls(), 0);
    // A batch starts at once if its completion window is too short to wait for a better time.
    let file = uploaded(client, &lines(2)).await;
    let asked = json!({"input_file_id": file, "endpoint": CHAT, "completion_window": "1h"});
    let end = ended(client, &client.post("/v1/batches", &asked).await.json()).await;
    assert_eq!((end["status"].as_str(), &end["scheduled_for"]), (Some("completed"), &Value::Null));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_whose_key_was_suspended_goes_on_where_it_was() {
    let (provider, go) = (Provider::start().await, Arc::new(Notify::new()));
    provider.always(held(&go, "Hello"));
    let running =
        Bench::new().settings("[batches]\nconcurrency = 4\n").provider("p", &provider).start().await;
    let account = running.admin().post("/admin/accounts", &json!({"id": "other"})).await;
    assert!(account.status < 300, "{}", account.text());
    let other = running.key(&json!({"name": "other", "account": "other"})).await;
    let made = batch(&other, &lines(40)).await;
    let_go(&go, provider.until_calls(8)).await;
    let state = async |state: &str| {
        let body = json!({"state": state}).to_string();
        let kind = ("content-type", "application/json");
        let path = "/admin/accounts/other";
        let answer = running.admin().send("PATCH", path, &[kind], body.as_bytes()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    };
    state("suspended").await;
    // The ended batch releases its share, its files, and the lines that it had read.
    let batches = &running.gateway.app.batches;
    let_go(&go, until("what it holds to be let go", || batches.active_batch_count() == 0)).await;
    state("active").await;
    until("its share", || batches.active_batch_count() == 1).await;
    let end = let_go(&go, ended(&other, &made)).await;
    assert_eq!(
        (end["status"].as_str(), &end["request_counts"]["completed"]),
        (Some("completed"), &json!(40))
    );
    assert_eq!(results(&other, &end).await.len(), 40);
    running.stop().await;
}
