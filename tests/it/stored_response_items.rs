//! Items of stored responses as clients list them, and the end of stored responses.

use crate::harness::{Bench, Provider};
use serde_json::{Value, json};
use std::time::Duration;

const IMAGE: &str = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listed_items_have_the_members_that_the_official_types_require() {
    let provider = Provider::start().await;
    let running =
        Bench::new().model("input_modalities = [\"text\", \"image\"]").provider("a", &provider).start().await;
    let client = running.key(&json!({"name": "storing", "store_responses": true})).await;
    let input = json!([
        {"role": "user", "content": [{"type": "input_image", "image_url": IMAGE}, {"type": "input_text", "text": "Look"}]},
        {"type": "reasoning"},
        {"role": "assistant", "content": [{"type": "output_text", "text": "I do"}]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": {"a": 1}, "namespace": null},
        {"type": "function_call_output", "call_id": "c", "output": "done"},
    ]);
    let body = json!({"model": "m", "store": true, "input": input});
    let answer = client.post("/v1/responses", &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let path = format!("/v1/responses/{}/input_items?order=asc", answer.json()["id"].as_str().unwrap());
    let list = client.get(&path).await.json();
    let mut items = list["data"].as_array().unwrap().clone();
    for item in &mut items {
        assert!(item.as_object_mut().unwrap().remove("id").is_some_and(|id| id.is_string()), "{list}");
    }
    let done = "completed";
    let expected: Value = json!([
        {"type": "message", "status": done, "role": "user", "content": [
            {"type": "input_image", "image_url": IMAGE, "detail": "auto"}, {"type": "input_text", "text": "Look"}]},
        {"type": "reasoning", "summary": []},
        {"type": "message", "status": done, "role": "assistant", "content": [
            {"type": "output_text", "text": "I do", "annotations": [], "logprobs": []}]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{\"a\":1}", "status": done},
        {"type": "function_call_output", "call_id": "c", "output": "done", "status": done},
    ]);
    assert_eq!(json!(items), expected);
    // The provider gets the items as the client sent them.
    let mut more = json!({"model": "m", "input": "More", "previous_response_id": answer.json()["id"]});
    more["store"] = json!(false);
    assert_eq!(client.post("/v1/responses", &more).await.status, 200);
    let image = &provider.last().json()["messages"][0]["content"][0]["image_url"];
    assert_eq!(image, &json!({"url": IMAGE}));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expired_response_is_not_found() {
    let provider = Provider::start().await;
    let settings = "[responses]\nretention = \"4h\"";
    let running = Bench::new().settings(settings).provider("a", &provider).start().await;
    let client = running.key(&json!({"name": "storing", "store_responses": true})).await;
    let body = json!({"model": "m", "store": true, "input": "Hi"});
    let mut paths = Vec::new();
    for _ in 0..2 {
        let response = client.post("/v1/responses", &body).await.json();
        paths.push(format!("/v1/responses/{}", response["id"].as_str().unwrap()));
    }
    let deleted = client.send("DELETE", &paths[0], &[], b"").await;
    assert_eq!((deleted.status, &deleted.json()["deleted"]), (200, &json!(true)));
    // The test sets the gateway's calendar clock forward instead of waiting.
    let clock = running.gateway.app.clock;
    clock.follow_system_clock(clock.calendar_now() + Duration::from_secs(4 * 3_600));
    for (method, path) in [
        ("GET", paths[1].clone()),
        ("GET", format!("{}/input_items", paths[1])),
        ("POST", format!("{}/cancel", paths[1])),
        ("DELETE", paths[1].clone()),
        ("DELETE", paths[1].clone()),
    ] {
        let refused = client.send(method, &path, &[], b"").await;
        assert_eq!(refused.status, 404, "{method} {path}: {}", refused.text());
    }
    running.stop().await;
}
