//! Content as a string and as a list, and lists of texts and images, in messages and tool results: each client
//! dialect with providers of each dialect.

use crate::harness::gateway::{PATIENT, Running};
use crate::harness::script::{completion, json_answer, message};
use crate::harness::{Bench, Provider};
use serde_json::{Value, json};

const CHAT: &str = "/v1/chat/completions";
const MESSAGES: &str = "/v1/messages";
const DATA: &str = "iVBORw0KGgo=";

async fn running(dialect: &str, offer: &str) -> (Provider, Running) {
    let provider = Provider::start().await;
    let good = if dialect == "chat" { completion("Hello") } else { message("Hello", "end_turn") };
    provider.always(json_answer(200, &good));
    let lines = format!("{PATIENT}\ndialects = [\"{dialect}\"]");
    let model = "input_modalities = [\"text\", \"image\"]";
    let running = Bench::new().model(model).provider_with("a", &provider, &lines, offer).start().await;
    (provider, running)
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn chat_image() -> Value {
    json!({"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{DATA}")}})
}

fn block_image() -> Value {
    json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DATA}})
}

/// Returns a history in the chat dialect: contents alternate between strings and lists, and results have both forms.
fn chat() -> Value {
    let call = |id: &str| json!({"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}});
    json!([
        {"role": "system", "content": [text("be"), text("brief")]},
        {"role": "user", "content": [text("before"), chat_image(), text("after")]},
        {"role": "assistant", "content": null, "tool_calls": [call("A"), call("B"), call("C")]},
        {"role": "tool", "tool_call_id": "A", "content": [text("shot"), chat_image(), text("end")]},
        {"role": "tool", "tool_call_id": "B", "content": "two"},
        {"role": "tool", "tool_call_id": "C", "content": [text("three"), text("four")]},
        {"role": "assistant", "content": [text("said")]},
        {"role": "user", "content": "And?"},
    ])
}

/// Returns the same history in the messages dialect.
fn messages() -> Value {
    let call = |id: &str| json!({"type": "tool_use", "id": id, "name": "f", "input": {}});
    let result =
        |id: &str, content: Value| json!({"type": "tool_result", "tool_use_id": id, "content": content});
    json!([
        {"role": "user", "content": [text("before"), block_image(), text("after")]},
        {"role": "assistant", "content": [call("A"), call("B"), call("C")]},
        {"role": "user", "content": [
            result("A", json!([text("shot"), block_image(), text("end")])),
            result("B", json!("two")),
            result("C", json!([text("three"), text("four")])),
        ]},
        {"role": "assistant", "content": [text("said")]},
        {"role": "user", "content": "And?"},
    ])
}

/// The `messages` that the provider received.
async fn sent(dialect: &str, offer: &str, path: &str, messages: Value) -> Value {
    let (provider, running) = running(dialect, offer).await;
    let mut ask = json!({"model": "m", "max_tokens": 50, "messages": messages});
    ask["tools"] = match path {
        CHAT => json!([{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]),
        _ => json!([{"name": "f", "input_schema": {"type": "object"}}]),
    };
    let answer = running.client.post(path, &ask).await;
    assert_eq!(answer.status, 200, "{path} at {dialect}: {}", answer.text());
    provider.last().json()["messages"].clone()
}

/// Returns a message with this role, by its number among the messages of the role.
fn of_role<'v>(messages: &'v Value, role: &str, number: usize) -> &'v Value {
    messages.as_array().unwrap().iter().filter(|message| message["role"] == role).nth(number).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chat_providers_get_texts_and_images_in_order_and_results_as_they_take_them() {
    for (path, history) in [(CHAT, chat()), (MESSAGES, messages())] {
        let plain = sent("chat", "", path, history.clone()).await;
        let user = of_role(&plain, "user", 0);
        assert_eq!(user["content"], json!([text("before"), chat_image(), text("after")]), "{path}");
        // An engine that accepts no images in results gets them in a user message after all results.
        let result = |messages: &Value, number| of_role(messages, "tool", number)["content"].clone();
        assert_eq!(result(&plain, 0), json!("shot\n[image: see next message]\nend"), "{path}");
        assert_eq!(of_role(&plain, "user", 1)["content"], json!([chat_image()]), "{path}: {plain}");
        let inside = sent("chat", "tool_images = true", path, history).await;
        assert_eq!(result(&inside, 0), json!([text("shot"), chat_image(), text("end")]), "{path}");
        for messages in [&plain, &inside] {
            assert_eq!(result(messages, 1), json!("two"), "{path}");
            let third = result(messages, 2);
            assert!(
                third == json!([text("three"), text("four")]) || third == json!("three\nfour"),
                "{third}"
            );
            assert_eq!(messages.to_string().matches(DATA).count(), 2, "each image once: {messages}");
            let last = messages.as_array().unwrap().last().unwrap();
            assert_eq!((&last["role"], &last["content"]), (&json!("user"), &json!("And?")));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_providers_get_texts_and_images_in_order_and_results_in_the_user_message() {
    for (path, history) in [(CHAT, chat()), (MESSAGES, messages())] {
        let messages = sent("messages", "", path, history).await;
        let first = &of_role(&messages, "user", 0)["content"];
        assert_eq!(*first, json!([text("before"), block_image(), text("after")]), "{path}");
        let results = of_role(&messages, "user", 1)["content"].as_array().unwrap();
        let content: Vec<(&Value, &Value)> =
            results.iter().map(|result| (&result["tool_use_id"], &result["content"])).collect();
        let shot = json!([text("shot"), block_image(), text("end")]);
        let lines = json!([text("three"), text("four")]);
        let expected = [(&json!("A"), &shot), (&json!("B"), &json!("two")), (&json!("C"), &lines)];
        assert_eq!(content, expected, "{path}");
        assert!(results.iter().all(|result| result["type"] == "tool_result"));
        let assistant = &of_role(&messages, "assistant", 1)["content"];
        assert!(*assistant == json!("said") || *assistant == json!([text("said")]), "{assistant}");
        assert_eq!(of_role(&messages, "user", 2)["content"], json!("And?"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_element_of_an_invalid_form_is_named_with_its_index() {
    for dialect in ["chat", "messages"] {
        let (provider, running) = running(dialect, "").await;
        for (path, content, param) in [
            (CHAT, json!([text("a"), "b"]), "messages[0].content[1]"),
            (CHAT, json!([text("a"), {"type": "tool_result"}]), "messages[0].content[1].type"),
            (
                CHAT,
                json!([text("a"), {"type": "image_url", "image_url": 5}]),
                "messages[0].content[1].image_url",
            ),
            (MESSAGES, json!([text("a"), "b"]), "messages.0.content.1"),
            (MESSAGES, json!([text("a"), {"type": "image_url"}]), "messages.0.content.1.type"),
        ] {
            let ask =
                json!({"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": content}]});
            let answer = running.client.post(path, &ask).await;
            assert_eq!(answer.status, 400, "{content}");
            let body = answer.json();
            let named =
                if path == CHAT { &body["error"]["param"] } else { &body["error"]["details"]["param"] };
            assert_eq!(*named, json!(param), "{body}");
        }
        assert_eq!(provider.calls(), 0);
    }
}
