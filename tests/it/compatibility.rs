//! Behaviours of other services that `[compatibility]` enables: each can be enabled alone, and is off by default.

use crate::harness::batch_jobs::{batch, content, ended, line, line_with};
use crate::harness::script::json_answer;
use crate::harness::{Bench, Provider};
use rust_decimal::Decimal;
use serde_json::{Value, json};

const CHAT: &str = "/v1/chat/completions";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batch_results_can_have_status_and_body_in_the_response() {
    let provider = Provider::start().await;
    let running = Bench::new()
        .settings("[compatibility]\nbatch_results = \"nested\"\n")
        .provider("p", &provider)
        .start()
        .await;
    let text = [line("good", "Hi"), line_with("bad", json!({"model": "m", "messages": []}))].join("\n");
    let end = ended(&running.client, &batch(&running.client, &text).await).await;
    let lines = content(&running.client, &end["output_file_id"]).await;
    for line in lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()) {
        let response = &line["response"];
        let status = if line["custom_id"] == "good" { 200 } else { 400 };
        assert_eq!((&response["status_code"], &line["status_code"]), (&json!(status), &json!(status)));
        assert_eq!(
            format!("batch_{}", response["request_id"].as_str().unwrap()),
            line["id"].as_str().unwrap()
        );
        let body = &response["body"];
        assert!(body["billing_cost"]["credits"].is_number() || body["error"]["code"].is_string(), "{line}");
    }
    assert_eq!(lines.lines().count(), 2);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn amounts_can_be_strings_and_a_credit_a_euro() {
    let provider = Provider::start().await;
    let cost = async |settings: &str| {
        let running = Bench::new().settings(settings).provider("p", &provider).start().await;
        let (plain, streamed) = (running.chat().await.json(), running.chat_stream().await);
        let streamed = streamed.events().iter().find_map(|event| event.get("billing_cost").cloned()).unwrap();
        running.stop().await;
        assert_eq!(plain["billing_cost"]["credits"].is_string(), streamed["credits"].is_string());
        plain["billing_cost"].clone()
    };
    let plain = cost("[billing]\neur_per_credit = 1\n").await;
    let strings = cost("[billing]\neur_per_credit = 1\n[compatibility]\nbilling_cost = \"string\"\n").await;
    assert!(plain["credits"].is_number() && plain["energy"].is_number());
    for member in ["credits", "energy"] {
        let text = strings[member].as_str().unwrap();
        let exact = text.parse::<Decimal>().unwrap();
        assert_eq!(
            exact,
            plain[member]
                .to_string()
                .parse::<Decimal>()
                .or_else(|_| Decimal::from_scientific(&plain[member].to_string()))
                .unwrap()
        );
    }
    assert_eq!(strings["paid_with"], "credits");
    // 11 and 7 tokens at 1 and 2 EUR per million are 25 millionths of a EUR.
    assert_eq!(strings["credits"], "0.000025");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_preset_can_choose_the_flavor_of_a_request_that_names_none() {
    let provider = Provider::start().await;
    for (settings, line) in [("", "balanced"), ("[compatibility]\npreset_flavor = true\n", "speed")] {
        let running = Bench::new().settings(settings).provider("p", &provider).start().await;
        let flavor = async |model: &str, preset: Option<&str>| {
            let mut ask = running.ask();
            ask["model"] = json!(model);
            if let Some(preset) = preset {
                ask["preset"] = json!(preset);
            }
            let answer = running.client.post(CHAT, &ask).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
            answer.header("x-penstock-flavor").unwrap().to_owned()
        };
        assert_eq!(flavor("m", Some("non_reasoning")).await, line);
        assert_eq!(flavor("m", Some("reasoning")).await, "balanced");
        assert_eq!(flavor("m", None).await, "balanced");
        assert_eq!(flavor("m:eco", Some("non_reasoning")).await, "eco", "what is named counts");
        running.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn images_are_inline_where_configured_as_the_default() {
    let provider = Provider::start().await;
    provider.always(json_answer(200, &json!({"created": 1, "data": [{"b64_json": "iVBORw0KGgo="}]})));
    for (settings, inline) in [("", false), ("[compatibility]\nimages = \"b64_json\"\n", true)] {
        let running = Bench::new().settings(settings).kind("image").provider("p", &provider).start().await;
        for (requested, expected) in [
            (None, inline),
            (Some(Value::Null), inline),
            (Some(json!("url")), false),
            (Some(json!("b64_json")), true),
        ] {
            let mut ask = json!({"model": "m", "prompt": "a cat"});
            if let Some(format) = &requested {
                ask["response_format"] = format.clone();
            }
            let answer = running.client.post("/v1/images/generations", &ask).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
            let image = answer.json()["data"][0].clone();
            assert_eq!(image["b64_json"].is_string(), expected, "{requested:?}: {image}");
            assert_eq!(image["url"].is_string(), !expected, "{requested:?}: {image}");
        }
        running.stop().await;
    }
}
