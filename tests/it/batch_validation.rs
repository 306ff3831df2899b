//! Validation of batches and their input files: each mistake has its own message, and access is per account.

use crate::harness::batch_jobs::{
    CHAT, batch, cancel, create, ended, line, line_with, lines, uploaded, when,
};
use crate::harness::script::ScriptStep;
use crate::harness::{Bench, Client, Provider, until};
use penstock_storage::Transaction;
use penstock_storage::batches::{BatchRecord, BatchState, BatchStore};
use serde_json::{Value, json};
use std::time::Duration;

async fn refused(client: &Client, asked: &Value) -> (u16, String, String) {
    let answer = client.post("/v1/batches", asked).await;
    let error = answer.json()["error"].clone();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (answer.status, text(&error["param"]), text(&error["message"]))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_mistake_of_a_creation_names_its_field() {
    let provider = Provider::start().await;
    let running = Bench::new().provider("p", &provider).start().await;
    let client = &running.client;
    let file = uploaded(client, &lines(1)).await;
    let output = ended(client, &create(client, &file).await.json()).await["output_file_id"].clone();
    let good = json!({"input_file_id": file, "endpoint": CHAT});
    for (name, value, status, says) in [
        ("input_file_id", Value::Null, 400, "expected the id of a file"),
        ("input_file_id", json!("file-nobody"), 404, "no file of this id"),
        ("input_file_id", output, 400, "purpose \"batch\""),
        ("endpoint", json!("/v1/batches"), 400, "/v1/embeddings"),
        ("endpoint", json!("/v1/embeddings"), 400, "expected /v1/chat/completions"),
        ("completion_window", json!("soon"), 400, "such as \"24h\""),
        ("completion_window", json!("8d"), 400, "such as \"24h\""),
        ("metadata", json!([1]), 400, "expected an object of strings"),
    ] {
        let mut asked = good.clone();
        asked[name] = value.clone();
        let (got, param, message) = refused(client, &asked).await;
        assert_eq!((got, param.as_str()), (status, name), "{value}: {message}");
        assert!(message.starts_with(name) && message.contains(says), "{message}");
    }
    let (status, _, message) = refused(client, &json!([])).await;
    assert!(status == 400 && message.contains("expected an object, got an array"), "{message}");
    let twice = format!("{{\"endpoint\":\"/v1/rerank\",\"endpoint\":{CHAT:?},\"input_file_id\":{file:?}}}");
    let refused = client.send("POST", "/v1/batches", &[], twice.as_bytes()).await;
    assert_eq!((refused.status, &refused.json()["error"]["param"]), (400, &json!("endpoint")));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_are_those_of_the_account_and_files_those_of_the_key() {
    let provider = Provider::start().await;
    let running = Bench::new().provider("p", &provider).start().await;
    running.admin().post("/admin/accounts", &json!({"id": "acme"})).await;
    let same = running.key(&json!({"name": "same", "account": "default"})).await;
    let other = running.key(&json!({"name": "other", "account": "acme"})).await;
    let made = batch(&running.client, &lines(1)).await;
    let end = ended(&running.client, &made).await;
    let id = made["id"].as_str().unwrap();
    let (one, after) = (format!("/v1/batches/{id}"), format!("/v1/batches?after={id}"));
    // Every key of the account sees the batch; only the key that created the files sees them.
    assert_eq!(same.get(&one).await.json(), end);
    assert_eq!(same.get("/v1/batches").await.json()["data"], json!([end]));
    assert_eq!(same.get(&after).await.json()["data"], json!([]));
    assert_eq!(cancel(&same, &made).await.status, 409, "it is there, and has ended");
    let results = format!("/v1/files/{}/content", end["output_file_id"].as_str().unwrap());
    assert_eq!(same.get(&results).await.status, 404);
    assert_eq!(create(&same, made["input_file_id"].as_str().unwrap()).await.status, 404);
    assert_eq!(running.client.get(&results).await.status, 200);
    // Another account sees neither.
    assert_eq!(other.get(&one).await.status, 404);
    assert_eq!(cancel(&other, &made).await.status, 404);
    assert_eq!(create(&other, made["input_file_id"].as_str().unwrap()).await.status, 404);
    assert_eq!(other.get("/v1/batches").await.json()["data"], json!([]));
    assert_eq!(other.get(&after).await.status, 400);
    let refused = running.client.get("/v1/batches/batch_nobody").await;
    assert_eq!((refused.status, &refused.json()["error"]["code"]), (404, &json!("RESOURCE_5001")));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_sees_and_cancels_batches_of_other_keys_of_its_account() {
    let provider = Provider::start().await;
    provider.always(vec![ScriptStep::Hang]);
    let running = Bench::new().provider("p", &provider).start().await;
    let key = |scopes: Value| json!({"name": "k", "account": "default", "scopes": scopes});
    let maker = running.key(&key(json!(["inference.chat"]))).await;
    let (first, second) = (batch(&maker, &lines(2)).await, batch(&maker, &lines(2)).await);
    provider.until_calls(4).await;
    let images = running.key(&key(json!(["inference.images"]))).await;
    let refused = cancel(&images, &first).await;
    assert_eq!(refused.status, 403, "to end a batch takes the scope of its endpoint");
    assert_eq!(refused.json()["error"]["details"]["required_scope"], "inference.chat");
    let batches = running.key(&key(json!(["inference.batches"]))).await;
    assert_eq!(cancel(&batches, &first).await.json()["status"], "cancelled");
    let id = maker.key.strip_prefix("sk-svc-").unwrap()[..16].to_owned();
    let revoked = running.admin().send("POST", &format!("/admin/keys/{id}/revoke"), &[], b"").await;
    assert!(revoked.status < 300, "{}", revoked.text());
    let end = ended(&batches, &second).await;
    assert_eq!(
        (&end["status"], &end["errors"]["data"][0]["code"]),
        (&json!("failed"), &json!("key_revoked"))
    );
    let listed = running.client.get("/v1/batches").await.json();
    assert_eq!(listed["data"].as_array().unwrap().len(), 2);
    assert_eq!(maker.get("/v1/batches").await.status, 401);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_needs_the_scope_of_the_lines_to_make_a_batch() {
    let provider = Provider::start().await;
    let running = Bench::new().provider("p", &provider).start().await;
    let key = |scopes: Value| json!({"name": "k", "account": "default", "scopes": scopes});
    for scope in ["inference.batches", "inference.embeddings"] {
        let half = running.key(&key(json!([scope]))).await;
        let file = uploaded(&half, &lines(1)).await;
        let refused = create(&half, &file).await;
        assert_eq!(refused.status, 403);
        assert_eq!(refused.json()["error"]["details"]["required_scope"], "inference.chat");
        assert_eq!(half.get("/v1/batches").await.status, 200);
    }
    for scopes in [json!(["inference.chat"]), json!(["inference.batches", "inference.chat"])] {
        let whole = running.key(&key(scopes)).await;
        let end = ended(&whole, &batch(&whole, &lines(2)).await).await;
        let counts = &end["request_counts"];
        assert_eq!((&counts["completed"], &counts["succeeded"]), (&json!(2), &json!(2)), "{end}");
        assert_eq!((&counts["processing"], &counts["errored"]), (&json!(0), &json!(0)));
    }
    let models = running.key(&key(json!(["inference.models"]))).await;
    let refused = models.get("/v1/batches").await;
    assert_eq!(refused.json()["error"]["details"]["required_scope"], "inference.batches");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_come_in_pages_the_newest_first() {
    let provider = Provider::start().await;
    let running = Bench::new().provider("p", &provider).start().await;
    let client = &running.client;
    let file = uploaded(client, &lines(1)).await;
    let mut made = Vec::new();
    for _ in 0..5 {
        made.push(create(client, &file).await.json()["id"].as_str().unwrap().to_owned());
    }
    made.reverse();
    let (mut seen, mut after) = (Vec::new(), String::new());
    loop {
        let page = client.get(&format!("/v1/batches?limit=2{after}")).await.json();
        let ids: Vec<String> = page["data"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["id"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(
            (page["first_id"].as_str(), page["last_id"].as_str()),
            (ids.first().map(String::as_str), ids.last().map(String::as_str))
        );
        after = format!("&after={}", ids.last().unwrap());
        seen.extend(ids);
        if page["has_more"] == false {
            break;
        }
    }
    // Batches of the same millisecond may be listed in any order.
    let sorted = |mut ids: Vec<String>| {
        ids.sort();
        ids
    };
    assert_eq!(sorted(seen.clone()), sorted(made));
    assert_eq!(client.get("/v1/batches?limit=0").await.status, 400);
    assert_eq!(client.get("/v1/batches?after=batch_nobody").await.json()["error"]["param"], "after");
    assert_eq!(client.get("/v1/batches").await.json()["data"].as_array().unwrap().len(), 5);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_account_has_so_many_batches_at_a_time() {
    let provider = Provider::start().await;
    provider.always(vec![ScriptStep::Hang]);
    let running = Bench::new().settings("[batches]\nopen = 2\n").provider("p", &provider).start().await;
    let client = &running.client;
    let file = uploaded(client, &line("a", "Hi")).await;
    let first = create(client, &file).await.json();
    assert_eq!(create(client, &file).await.status, 200);
    let refused = create(client, &file).await;
    assert_eq!((refused.status, &refused.json()["error"]["code"]), (429, &json!("RATE_2001")));
    assert!(refused.json()["error"]["message"].as_str().unwrap().contains("limit of 2 batches"));
    assert_eq!(cancel(client, &first).await.status, 200);
    // The batch counts towards the limit until it has ended; the request to cancel it is not enough.
    when(client, &first, "its end", |now| now["status"] == "cancelled").await;
    assert_eq!(create(client, &file).await.status, 200);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn paths_take_their_own_method() {
    let provider = Provider::start().await;
    let running = Bench::new().provider("p", &provider).start().await;
    for (method, path, allow) in [
        ("DELETE", "/v1/batches", "POST, GET, HEAD"),
        ("GET", "/v1/batches/batch_x/cancel", "POST"),
        ("POST", "/v1/batches/batch_x", "GET, HEAD"),
    ] {
        let answer = running.client.send(method, path, &[], b"").await;
        assert_eq!((answer.status, answer.header("allow")), (405, Some(allow)), "{method} {path}");
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_with_an_endless_model_name_affects_no_other() {
    let provider = Provider::start().await;
    let bench = || Bench::new().provider("p", &provider);
    let running = bench().start().await;
    for (number, length) in [100 << 10, (1 << 20) - 300].into_iter().enumerate() {
        let body = json!({"model": "m".repeat(length), "messages": [{"role": "user", "content": "Hi"}]});
        let text = line_with("long", body) + "\n" + &line("good", "Hi");
        let made = batch(&running.client, &text).await;
        let end = ended(&running.client, &made).await;
        assert_eq!((end["status"].as_str(), end["model"].as_str()), (Some("completed"), None));
        assert_eq!(end["request_counts"]["completed"], 1);
        assert_eq!(end["request_counts"]["failed"], 1);
        // Requests of other clients are still charged, and the charges are written to the disk.
        let before = running.gateway.app.ledger.durability_snapshot().entries;
        assert_eq!(running.chat().await.status, 200);
        until("a charge", || running.gateway.app.ledger.durability_snapshot().entries >= before + 2).await;
        assert!(!running.gateway.app.ledger.is_failing(), "{number}");
    }
    let again = bench().restart(running.halt().await).await;
    assert_eq!(again.chat().await.status, 200);
    assert_eq!(ended(&again.client, &batch(&again.client, &lines(1)).await).await["status"], "completed");
    again.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelling_a_batch_without_a_worker_gets_503_at_once() {
    let provider = Provider::start().await;
    let running = Bench::new().provider("p", &provider).start().await;
    let made = ended(&running.client, &batch(&running.client, &lines(1)).await).await;
    // The same state as between the opening of the store and the first step of its open batches.
    let store = BatchStore::new(running.gateway.app.stores.store.clone());
    let old = store.get(made["id"].as_str().unwrap()).unwrap().unwrap();
    let last = if old.id.ends_with("0") { "1" } else { "0" };
    let id = format!("{}{last}", &old.id[..old.id.len() - 1]);
    let open = BatchRecord { id: id.clone(), state: BatchState::InProgress, ..old };
    store.insert(&open, Transaction::new()).unwrap();
    // Far less than the timeout of a request that waits for an answer.
    let open = json!({"id": id});
    let asked = cancel(&running.client, &open);
    let answer = tokio::time::timeout(Duration::from_secs(10), asked).await.unwrap();
    assert_eq!((answer.status, answer.header("retry-after")), (503, Some("5")), "{}", answer.text());
    running.stop().await;
}
