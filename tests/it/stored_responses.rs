//! Stored responses: `store`, `previous_response_id` and `/v1/responses/{id}`.

use crate::harness::batch_jobs::{ended, results, uploaded};
use crate::harness::process::{Home, catalogue};
use crate::harness::script::{ScriptStep, delta, done, event, finish, plain, role, sse, stream, text, usage};
use crate::harness::{Answer, Bench, Client, Provider, gateway::Running};
use penstock_dialect::conformance;
use serde_json::{Value, json};
use std::path::Path;

const RESPONSES: &str = "/v1/responses";
const PROMPT: &str = "planted-in-the-prompt-41c7";
const ANSWER: &str = "planted-in-the-answer-b20e";

/// A key that may store responses.
async fn storing(running: &Running) -> Client {
    running.key(&json!({"name": "storing", "store_responses": true})).await
}

fn ask(stream: bool, input: &str) -> Value {
    json!({"model": "m", "store": true, "stream": stream, "instructions": "Be brief.", "input": input})
}

/// Returns the response of a plain or a streamed answer.
fn response(answer: &Answer) -> Value {
    assert_eq!(answer.status, 200, "{}", answer.text());
    if answer.header("content-type").is_some_and(|kind| kind.starts_with("text/event-stream")) {
        assert_eq!(conformance::check_responses_stream(&answer.body), Ok(()), "{}", answer.text());
        let last = answer.text();
        let last = last.lines().rev().find_map(|line| line.strip_prefix("data: ")).unwrap().to_owned();
        return serde_json::from_str::<Value>(&last).unwrap()["response"].clone();
    }
    assert_eq!(conformance::check_response(&answer.json()), Ok(()));
    answer.json()
}

fn path(response: &Value) -> String {
    format!("{RESPONSES}/{}", response["id"].as_str().unwrap())
}

async fn refused(client: &Client, method: &str, path: &str) -> (u16, String) {
    let answer = client.send(method, path, &[], b"").await;
    (answer.status, answer.json()["error"]["code"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stored_response_is_retrieved_continued_and_deleted() {
    for streamed in [false, true] {
        let provider = Provider::start().await;
        let running = Bench::new().provider("a", &provider).start().await;
        let client = storing(&running).await;
        if streamed {
            provider.then(stream(&["One"])).then(stream(&["Two"])).then(stream(&["Three"]));
        }
        let first = response(&client.post(RESPONSES, &ask(streamed, "Hi")).await);
        assert_eq!((&first["store"], &first["previous_response_id"]), (&json!(true), &Value::Null));
        // The stored object is identical, with its footprint and its price.
        assert_eq!(client.get(&path(&first)).await.json(), first);
        assert!(first["environment_impact"].is_object() && first["billing_cost"].is_object());

        let mut body = ask(streamed, "More");
        body["previous_response_id"] = first["id"].clone();
        body["instructions"] = json!("Be long.");
        let second = response(&client.post(RESPONSES, &body).await);
        assert_eq!(second["previous_response_id"], first["id"]);
        let reply = first["output"][0]["content"][0]["text"].clone();
        let sent = provider.last().json()["messages"].clone();
        let expected = json!([{"role": "system", "content": "Be long."}, {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": reply}, {"role": "user", "content": "More"}]);
        assert_eq!(sent, expected);

        // Each response stores its complete conversation, so earlier responses may be deleted.
        let deleted = client.send("DELETE", &path(&first), &[], b"").await;
        assert_eq!(deleted.json(), json!({"id": first["id"], "object": "response", "deleted": true}));
        assert_eq!(refused(&client, "GET", &path(&first)).await.0, 404);
        assert_eq!(refused(&client, "DELETE", &path(&first)).await.0, 404);
        body["previous_response_id"] = second["id"].clone();
        body["store"] = Value::Null;
        let third = response(&client.post(RESPONSES, &body).await);
        assert_eq!(provider.last().json()["messages"].as_array().unwrap().len(), 6);
        assert_eq!(third["store"], false);
        assert_eq!(refused(&client, "GET", &path(&third)).await.0, 404);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parts_that_are_included_are_added_to_a_stored_response() {
    let provider = Provider::start().await;
    let thinks = event(&delta(json!({"reasoning_content": "Because."}), None));
    let end = [finish("stop"), usage(9, 5), done(), ScriptStep::End];
    let script = [sse(), role(), thinks, text("Yes.")].into_iter().chain(end).collect();
    provider.then(script).then(stream(&["More"]));
    let running = Bench::new().provider("a", &provider).start().await;
    let client = storing(&running).await;
    let first = response(&client.post(RESPONSES, &ask(true, "Hi")).await);
    let sealed = penstock_core::encode_opaque_reasoning("Because.");
    assert!(first["output"][0].get("encrypted_content").is_none(), "{first}");
    let get = async |query: &str| client.get(&format!("{}{query}", path(&first))).await;
    let whole =
        get("?include[]=reasoning.encrypted_content&include[]=message.output_text.logprobs").await.json();
    assert_eq!(whole["output"][0]["encrypted_content"], sealed);
    assert_eq!(conformance::check_response(&whole), Ok(()));
    assert_eq!(get("?include=message.output_text.logprobs").await.json(), first);
    for query in ["?include=zzz", "?include%5B%5D=reasoning", "/input_items?include[]=zzz"] {
        let refused = get(query).await;
        assert_eq!((refused.status, &refused.json()["error"]["param"]), (400, &json!("include")), "{query}");
    }
    let mut body = ask(true, "More");
    body["previous_response_id"] = first["id"].clone();
    let second = response(&client.post(RESPONSES, &body).await);
    let list = async |query: &str| {
        client.get(&format!("{}/input_items?order=asc{query}", path(&second))).await.json()
    };
    assert_eq!(list("&include[]=reasoning.encrypted_content").await["data"][1]["encrypted_content"], sealed);
    assert!(list("").await["data"][1].get("encrypted_content").is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_without_the_setting_stores_nothing_and_its_continuation_is_refused() {
    let provider = Provider::start().await;
    let running = Bench::new().provider("a", &provider).start().await;
    let answer = response(&running.client.post(RESPONSES, &ask(false, "Hi")).await);
    assert_eq!(answer["store"], false);
    assert_eq!(refused(&running.client, "GET", &path(&answer)).await.0, 404);
    let mut body = ask(false, "More");
    body["previous_response_id"] = answer["id"].clone();
    let error = running.client.post(RESPONSES, &body).await.json()["error"].clone();
    assert_eq!((&error["code"], &error["param"]), (&json!("INFERENCE_3202"), &json!("previous_response_id")));
    assert!(error["message"].as_str().unwrap().contains("stores no responses"), "{error}");
    assert_eq!(provider.calls(), 1);
    // The setting can be changed while the gateway runs.
    let id = &running.client.key["sk-svc-".len()..][..16];
    let change = json!({"store_responses": true}).to_string();
    let changed = running.admin().send("PATCH", &format!("/admin/keys/{id}"), &[], change.as_bytes()).await;
    assert_eq!(changed.json()["store_responses"], true, "{}", changed.text());
    let answer = response(&running.client.post(RESPONSES, &ask(false, "Hi")).await);
    assert_eq!(running.client.get(&path(&answer)).await.json(), answer);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_response_belongs_to_its_key() {
    let provider = Provider::start().await;
    let running = Bench::new().provider("a", &provider).start().await;
    let (owner, other) = (storing(&running).await, storing(&running).await);
    let stored = response(&owner.post(RESPONSES, &ask(false, "Hi")).await);
    for (method, path) in [
        ("GET", path(&stored)),
        ("DELETE", path(&stored)),
        ("GET", path(&stored) + "/input_items"),
        ("POST", path(&stored) + "/cancel"),
    ] {
        assert_eq!(
            refused(&other, method, &path).await,
            (404, "RESOURCE_5001".to_owned()),
            "{method} {path}"
        );
    }
    for id in [stored["id"].clone(), json!("resp_1"), json!("../../store"), json!("")] {
        let mut body = ask(false, "More");
        body["previous_response_id"] = id;
        let answer = other.post(RESPONSES, &body).await;
        let error = answer.json()["error"].clone();
        assert_eq!((answer.status, &error["param"]), (400, &json!("previous_response_id")), "{error}");
        assert!(error["message"].as_str().unwrap().contains("no response of this id is stored"), "{error}");
    }
    assert_eq!((provider.calls(), owner.get(&path(&stored)).await.status), (1, 200));
    assert_eq!(refused(&owner, "POST", &(path(&stored) + "/cancel")).await.0, 400);
    assert_eq!(refused(&owner, "GET", &(path(&stored) + "?stream=true")).await.0, 400);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tool_call_is_continued_with_its_output_and_its_reasoning() {
    let provider = Provider::start().await;
    let call = json!({"tool_calls": [{"index": 0, "id": "call_0", "type": "function",
        "function": {"name": "look", "arguments": "{}"}}]});
    let reasoning = event(&delta(json!({"reasoning_content": "A tool."}), None));
    provider.then(vec![
        sse(),
        role(),
        reasoning,
        event(&delta(call, None)),
        finish("tool_calls"),
        usage(20, 9),
        done(),
        ScriptStep::End,
    ]);
    let running = Bench::new().provider("a", &provider).start().await;
    let client = storing(&running).await;
    let mut body = ask(true, "Look");
    body["tools"] = json!([{"type": "function", "name": "look", "parameters": {"type": "object"}}]);
    let first = response(&client.post(RESPONSES, &body).await);
    body["previous_response_id"] = first["id"].clone();
    body["input"] = json!([{"type": "function_call_output", "call_id": "call_0", "output": "1"}]);
    body["stream"] = json!(false);
    let second = response(&client.post(RESPONSES, &body).await);
    let sent = provider.last().json()["messages"].clone();
    assert_eq!((&sent[2]["tool_calls"][0]["id"], &sent[3]["content"]), (&json!("call_0"), &json!("1")));
    // An output for an unknown call is still refused, with its path in the client's `input`.
    body["input"][0]["call_id"] = json!("call_9");
    assert_eq!(client.post(RESPONSES, &body).await.json()["error"]["param"], "input[0].call_id");

    let items = client.get(&(path(&second) + "/input_items?order=asc")).await.json();
    let kinds: Vec<&str> =
        items["data"].as_array().unwrap().iter().map(|item| item["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["message", "reasoning", "function_call", "function_call_output"]);
    assert_eq!(items["data"][0]["content"], json!([{"type": "input_text", "text": "Look"}]));
    let latest = client.get(&(path(&second) + "/input_items?limit=1")).await.json();
    assert_eq!((&latest["data"][0], &latest["has_more"]), (&items["data"][3], &json!(true)));
    let after = latest["last_id"].as_str().unwrap();
    let rest = client.get(&format!("{}/input_items?after={after}", path(&second))).await.json();
    assert_eq!((&rest["last_id"], &rest["has_more"]), (&items["first_id"], &json!(false)));
    assert_eq!(refused(&client, "GET", &(path(&second) + "/input_items?after=x")).await.0, 400);
    // The token count of a continued conversation includes its earlier items.
    let count = |previous: &Value| {
        let body = json!({"model": "m", "input": "Hi", "previous_response_id": previous});
        let client = &client;
        async move { client.post("/v1/responses/input_tokens", &body).await.json()["input_tokens"].as_u64() }
    };
    assert!(count(&second["id"]).await > count(&Value::Null).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_document_that_exceeds_the_memory_limit_is_refused_unread() {
    let provider = Provider::start().await;
    let running = Bench::new().provider("a", &provider).start().await;
    let client = storing(&running).await;
    response(&client.post(RESPONSES, &ask(false, "Hi")).await);
    let mut folders = std::fs::read_dir(running.storage().join("responses")).unwrap();
    let folder = folders.next().unwrap().unwrap().path();
    // A sparse file. It is no valid document, so reading it would give 404.
    std::fs::File::create(folder.join("resp_huge")).unwrap().set_len(3 << 30).unwrap();
    let path = format!("{RESPONSES}/resp_huge");
    for path in [path.clone(), format!("{path}/input_items")] {
        assert_eq!(refused(&client, "GET", &path).await.0, 503);
    }
    let continued = json!({"model": "m", "input": "Go on", "previous_response_id": "resp_huge"});
    assert_eq!(client.post(RESPONSES, &continued).await.status, 503);
    assert_eq!(provider.calls(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_write_does_not_change_the_answer() {
    let provider = Provider::start().await;
    let running = Bench::new().provider("a", &provider).start().await;
    let client = storing(&running).await;
    let folder = running.storage().join("responses");
    std::fs::remove_dir_all(&folder).unwrap();
    std::fs::write(&folder, b"no folder").unwrap();
    provider.then(stream(&["One"]));
    for streamed in [true, false] {
        let answer = client.post(RESPONSES, &ask(streamed, "Hi")).await;
        assert_eq!(response(&answer)["status"], "completed");
        assert!(answer.whole);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_stream_and_a_line_of_a_batch_are_not_stored() {
    let provider = Provider::start().await;
    let running = Bench::new().provider("a", &provider).start().await;
    let client = storing(&running).await;
    provider.then(vec![sse(), role(), text("One "), ScriptStep::Cut]);
    let failed = response(&client.post(RESPONSES, &ask(true, "Hi")).await);
    assert_eq!(failed["status"], "failed");
    assert_eq!(refused(&client, "GET", &path(&failed)).await.0, 404);

    provider.always(plain("Hello"));
    let stored = response(&client.post(RESPONSES, &ask(false, "Hi")).await);
    let mut body = ask(false, "More");
    body["previous_response_id"] = stored["id"].clone();
    let line = json!({"custom_id": "a", "method": "POST", "url": RESPONSES, "body": body}).to_string() + "\n";
    let file = uploaded(&client, &line).await;
    let create = json!({"input_file_id": file, "endpoint": RESPONSES, "completion_window": "24h"});
    let batch = client.post("/v1/batches", &create).await;
    let found = results(&client, &ended(&client, &batch.json()).await).await;
    let answer = &found["a"]["response"];
    assert_eq!(
        (&answer["store"], &answer["previous_response_id"]),
        (&json!(false), &stored["id"]),
        "{found:?}"
    );
    assert_eq!(provider.last().json()["messages"].as_array().unwrap().len(), 4);
    assert_eq!(refused(&client, "GET", &path(answer)).await.0, 404);
}

/// Asserts that neither text is in a file below the folder.
fn assert_encrypted(folder: &Path) -> usize {
    let mut count = 0;
    for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            count += assert_encrypted(&path);
            continue;
        }
        let bytes = std::fs::read(&path).unwrap();
        for word in [PROMPT, ANSWER] {
            assert!(!bytes.windows(word.len()).any(|window| window == word.as_bytes()), "{}", path.display());
        }
        count += usize::from(path.to_string_lossy().contains("/responses/"));
    }
    count
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stored_response_outlives_a_kill_and_is_in_no_log_and_no_file_in_clear_text() {
    let provider = Provider::start().await;
    provider.then(stream(&[ANSWER])).then(plain(ANSWER));
    let home = Home::new();
    home.write(&format!("[log]\nlevel = \"debug\"\n{}", catalogue(&provider, "")));
    let process = home.run().await;
    let made = home.command(&["keys", "create", "--store-responses"]);
    let key = String::from_utf8(made.stdout).unwrap().trim().to_owned();
    let client = Client { address: home.http, key };
    let first = response(&client.post(RESPONSES, &ask(true, PROMPT)).await);
    process.signal("KILL");
    drop(process);
    assert_eq!(assert_encrypted(home.path()), 1);

    let process = home.run().await;
    assert_eq!(client.get(&path(&first)).await.json(), first);
    let mut body = ask(false, PROMPT);
    body["previous_response_id"] = first["id"].clone();
    response(&client.post(RESPONSES, &body).await);
    assert_eq!(provider.last().json()["messages"][2]["content"], ANSWER);
    assert_eq!(assert_encrypted(home.path()), 2);
    client.send("DELETE", &path(&first), &[], b"").await;
    assert_eq!(assert_encrypted(home.path()), 1);
    process.wait_for_line("\"event\":\"request\"").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_item_that_the_conversation_has_already_is_sent_once() {
    let provider = Provider::start().await;
    provider.always(plain("An answer."));
    let running = Bench::new().provider("a", &provider).start().await;
    let client = running.key(&json!({"name": "storing", "store_responses": true})).await;
    let ask = json!({"model": "m", "store": true, "input": "Hi"});
    let first = client.post("/v1/responses", &ask).await.json();
    let answer = &first["output"][0];
    let reference = json!({"type": "item_reference", "id": answer["id"]});
    let question = json!({"type": "message", "id": "m1", "role": "user", "content": "More"});
    for previous in [Value::Null, first["id"].clone()] {
        let input = json!([reference, answer, reference, question, question]);
        let ask = json!({"model": "m", "store": true, "input": input, "previous_response_id": previous});
        let second = client.post("/v1/responses", &ask).await;
        assert_eq!(second.status, 200, "{}", second.text());
        let sent = provider.last().json();
        let roles: Vec<_> =
            sent["messages"].as_array().unwrap().iter().map(|sent| sent["role"].clone()).collect();
        let expected: &[&str] =
            if previous.is_null() { &["assistant", "user"] } else { &["user", "assistant", "user"] };
        assert_eq!(roles, expected, "{sent}");
        let path = format!("/v1/responses/{}/input_items", second.json()["id"].as_str().unwrap());
        assert_eq!(client.get(&path).await.json()["data"].as_array().unwrap().len(), expected.len());
        let count = client.post("/v1/responses/input_tokens", &ask).await;
        assert_eq!(count.status, 200, "{}", count.text());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stored_items_larger_than_a_body_are_named_by_their_member() {
    let provider = Provider::start().await;
    provider.always(plain(&"x".repeat(1500)));
    let limits = "[limits]\njson_body = \"2KiB\"";
    let running = Bench::new().settings(limits).provider("a", &provider).start().await;
    let client = storing(&running).await;
    let first = response(&client.post(RESPONSES, &ask(false, "Hi")).await);
    let continued = |previous: &Value, input: Value| {
        let mut request = json!({"model": "m", "store": true, "input": input});
        request["previous_response_id"] = previous.clone();
        request
    };
    let second = response(&client.post(RESPONSES, &continued(&first["id"], json!("More"))).await);
    let reference = json!({"type": "item_reference", "id": first["output"][0]["id"]});
    for (request, param) in [
        (continued(&second["id"], json!("More")), "previous_response_id"),
        (continued(&Value::Null, json!([reference, reference])), "input"),
    ] {
        let refused = client.post(RESPONSES, &request).await;
        let error = refused.json()["error"].clone();
        assert_eq!((refused.status, error["param"].as_str()), (413, Some(param)), "{error}");
        assert!(error["message"].as_str().unwrap().starts_with(&format!("{param}: ")), "{error}");
        assert_eq!(error["details"]["max_bytes"], 2048, "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_item_with_a_known_id_and_other_content_is_sent() {
    let provider = Provider::start().await;
    provider.always(plain("An answer."));
    let running = Bench::new().provider("a", &provider).start().await;
    let client = storing(&running).await;
    let message =
        |id: &Value, text: &str| json!({"type": "message", "id": id, "role": "user", "content": text});
    let mut ask = json!({"model": "m", "store": true, "input": [message(&json!("item_user_1"), "Hi")]});
    let first = response(&client.post(RESPONSES, &ask).await);
    ask["input"] = json!("Hi");
    let second = response(&client.post(RESPONSES, &ask).await);
    let items = client.get(&(path(&second) + "/input_items")).await.json();
    for (previous, id) in [(&first, json!("item_user_1")), (&second, items["data"][0]["id"].clone())] {
        let input = json!([message(&id, "Hi"), message(&id, "More")]);
        let ask =
            json!({"model": "m", "store": true, "input": input, "previous_response_id": previous["id"]});
        response(&client.post(RESPONSES, &ask).await);
        let sent = provider.last().json()["messages"].clone();
        let last = sent.as_array().unwrap().last().unwrap();
        assert!(last["role"] == "user" && last["content"].to_string().contains("More"), "{id}: {sent}");
    }
}
