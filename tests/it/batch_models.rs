//! Models of batch lines: patterns, flavors and filters apply as for requests.

use crate::harness::batch_jobs::{batch, ended, line_with, results};
use crate::harness::gateway::PATIENT;
use crate::harness::script::plain;
use crate::harness::{Bench, Provider};
use serde_json::{Value, json};

/// A line for a model with these members.
fn line(id: &str, model: &str, more: Value) -> String {
    let mut body = json!({"model": model, "max_tokens": 5, "messages": [{"role": "user", "content": "Hi"}]});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    line_with(id, body) + "\n"
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_may_name_a_model_by_a_pattern_and_is_answered_under_that_name() {
    let provider = Provider::start().await;
    provider.always(plain("Hello"));
    let bench = Bench::new().model("aliases = [\"*sonnet*\", \"nick\"]").provider("a", &provider);
    let other = "[[models]]\nid = \"exact-sonnet\"\nkind = \"embedding\"\ncontext_length = 512\n";
    let running = bench.more(other).start().await;
    let names = ["m", "nick", "claude-sonnet-4-5-20250929", "org/Claude-SONNET", "any-sonnet:price"];
    let text: String = names.iter().map(|name| line(name, name, json!({}))).collect();
    let text = text + &line("exact", "exact-sonnet", json!({})) + &line("unknown", "opus", json!({}));
    let made = batch(&running.client, &text).await;
    let end = ended(&running.client, &made).await;
    let found = results(&running.client, &end).await;
    for name in names {
        let result = &found[name];
        let plain = name.split(':').next().unwrap();
        assert_eq!(
            (&result["status_code"], &result["response"]["model"]),
            (&json!(200), &json!(plain)),
            "{result}"
        );
    }
    for seen in provider.seen() {
        assert_eq!(seen.json()["model"], "theirs");
    }
    assert_eq!(provider.calls(), names.len());
    // The exact name of a model takes precedence over every pattern; a name that matches none is not found.
    for (id, status, param) in [("exact", 400, "model"), ("unknown", 404, "model")] {
        let result = &found[id];
        let error = &result["response"]["error"];
        assert_eq!((&result["status_code"], &error["param"]), (&json!(status), &json!(param)), "{result}");
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn filters_of_a_line_choose_its_provider_or_refuse_it_alone() {
    let (france, finland) = (Provider::start().await, Provider::start().await);
    france.always(plain("from France"));
    finland.always(plain("from Finland"));
    let block = format!(
        "\n[[providers]]\nid = \"finland\"\noperator = \"Test\"\ncountry = \"FI\"\ncity = \"Helsinki\"\n\
         base_url = \"http://{}/v1\"\n{PATIENT}\n[[providers.offers]]\nmodel = \"m\"\nname = \"theirs\"\n\
         price = {{ input = 0.05, output = 0.1 }}\n",
        finland.address
    );
    let dear = "price = { input = 9.0, output = 9.0 }";
    let running = Bench::new().provider_with("france", &france, PATIENT, dear).more(&block).start().await;
    let mut text = String::new();
    for (id, filters) in [
        ("none", json!(null)),
        ("france", json!({"countries": ["FR"]})),
        ("cheap", json!({"max_input_cost": 0.05})),
        ("clean", json!({"max_carbon_intensity": 60})),
        ("nowhere", json!({"countries": ["DE"]})),
        ("free", json!({"max_input_cost": 0})),
    ] {
        text.push_str(&line(id, "m:price", json!({"filters": filters})));
    }
    let made = batch(&running.client, &text).await;
    let end = ended(&running.client, &made).await;
    let found = results(&running.client, &end).await;
    for (id, expected) in [
        ("none", "from Finland"),
        ("france", "from France"),
        ("cheap", "from Finland"),
        ("clean", "from France"),
    ] {
        let result = &found[id];
        let content = &result["response"]["choices"][0]["message"]["content"];
        assert_eq!((&result["status_code"], content), (&json!(200), &json!(expected)), "{result}");
    }
    for (id, param) in [("nowhere", "filters.countries"), ("free", "filters.max_input_cost")] {
        let result = &found[id];
        let named = &result["response"]["error"]["param"];
        assert_eq!((&result["status_code"], named), (&json!(400), &json!(param)), "{result}");
    }
    assert_eq!((france.calls(), finland.calls()), (2, 2));
    for seen in france.seen().iter().chain(&finland.seen()) {
        assert!(seen.json().get("filters").is_none());
    }
    running.stop().await;
}
