//! Provider filters are honoured or rejected by name, and are not sent to providers.

use crate::harness::gateway::{PATIENT, Running};
use crate::harness::{Answer, Bench, Provider};
use serde_json::{Value, json};

const CHAT: &str = "/v1/chat/completions";
const MESSAGES: &str = "/v1/messages";

/// Returns the configuration of a provider in Finland at a low price.
fn finland_block(finland: &Provider, lines: &str) -> String {
    format!(
        "\n[[providers]]\nid = \"finland\"\noperator = \"Test\"\ncountry = \"FI\"\ncity = \"Helsinki\"\n\
         base_url = \"http://{}/v1\"\n{lines}\n[[providers.offers]]\nmodel = \"m\"\nname = \"theirs\"\n\
         price = {{ input = 0.05, output = 0.1 }}\n",
        finland.address
    )
}

/// France at a high price, Finland at a low one.
async fn running() -> (Provider, Provider, Running) {
    let (france, finland) = (Provider::start().await, Provider::start().await);
    let block = finland_block(&finland, PATIENT);
    let dear = "price = { input = 9.0, output = 9.0 }";
    let running = Bench::new().provider_with("france", &france, PATIENT, dear).more(&block).start().await;
    (france, finland, running)
}

async fn ask(running: &Running, path: &str, members: Value) -> Answer {
    let mut ask = running.ask();
    ask["model"] = json!("m:price");
    ask["max_tokens"] = json!(5);
    for (name, value) in members.as_object().unwrap() {
        ask[name] = value.clone();
    }
    running.client.post(path, &ask).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn filters_choose_the_provider_in_both_dialects_and_are_not_passed_on() {
    let (france, finland, running) = running().await;
    for path in [CHAT, MESSAGES] {
        for (filters, expected) in [
            (json!(null), "finland"),
            (json!({}), "finland"),
            (json!({"countries": ["FR"]}), "france"),
            (json!({"countries": ["fr", "DE"]}), "france"),
            (json!({"countries": ["FR", "FI"], "max_input_cost": 0.05}), "finland"),
            (json!({"max_input_cost": 5e-2}), "finland"),
            (json!({"max_carbon_intensity": 60}), "france"),
            (json!({"min_speed_tps": 0}), "finland"),
        ] {
            let answer = ask(&running, path, json!({"filters": filters})).await;
            assert_eq!(answer.status, 200, "{path} {filters}: {}", answer.text());
            assert_eq!(answer.header("x-penstock-provider"), Some(expected), "{path} {filters}");
        }
    }
    for seen in france.seen().iter().chain(&finland.seen()) {
        assert!(seen.json().get("filters").is_none(), "{}", seen.json());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unsatisfiable_filter_is_named_without_a_provider_call() {
    let (france, finland, running) = running().await;
    for (path, error) in [(CHAT, "/error/param"), (MESSAGES, "/error/details/param")] {
        for (filters, param) in [
            (json!({"countries": ["DE"]}), "filters.countries"),
            (json!({"countries": ["US"]}), "filters.countries"),
            (json!({"max_input_cost": 0.049_999}), "filters.max_input_cost"),
            (json!({"max_input_cost": 0}), "filters.max_input_cost"),
            (json!({"max_carbon_intensity": 0.001}), "filters.max_carbon_intensity"),
            (json!({"countries": ["FR"], "max_input_cost": 1}), "filters"),
        ] {
            let answer = ask(&running, path, json!({"filters": filters})).await;
            let body = answer.json();
            assert_eq!(answer.status, 400, "{path} {filters}: {body}");
            assert_eq!(body.pointer(error), Some(&json!(param)), "{path}: {body}");
            assert!(body["error"]["message"].as_str().unwrap().starts_with(param), "{body}");
        }
    }
    assert_eq!(france.calls() + finland.calls(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unsupported_parameter_is_rejected_by_name() {
    let (france, finland, running) = running().await;
    for (path, error) in [(CHAT, "/error/param"), (MESSAGES, "/error/details/param")] {
        for (members, param) in [
            (json!({"mode": "fast"}), "mode"),
            (json!({"custom_weights": {"price": 1}}), "custom_weights"),
            (json!({"custom_weights": {}}), "custom_weights"),
            (json!({"filters": []}), "filters"),
            (json!({"filters": "FR"}), "filters"),
            (json!({"filters": {"providers": ["a"]}}), "filters.providers"),
            (json!({"filters": {"countries": "FR"}}), "filters.countries"),
            (json!({"filters": {"countries": []}}), "filters.countries"),
            (json!({"filters": {"max_input_cost": -0.1}}), "filters.max_input_cost"),
            (json!({"filters": {"max_input_cost": "1"}}), "filters.max_input_cost"),
            (json!({"filters": {"max_carbon_intensity": 1e10}}), "filters.max_carbon_intensity"),
            (json!({"filters": {"min_speed_tps": true}}), "filters.min_speed_tps"),
        ] {
            let answer = ask(&running, path, members.clone()).await;
            let body = answer.json();
            assert_eq!(answer.status, 400, "{path} {members}: {body}");
            assert_eq!(body.pointer(error), Some(&json!(param)), "{path}: {body}");
        }
        let answer = ask(&running, path, json!({"mode": null, "custom_weights": null})).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    assert_eq!(france.calls() + finland.calls(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_measured_speed_is_a_bound_and_one_that_is_not_known_is_asked_last() {
    let (france, finland, running) = running().await;
    // The cheaper provider in Finland gets the first request, so only its speed is measured.
    assert_eq!(ask(&running, CHAT, json!({})).await.header("x-penstock-provider"), Some("finland"));
    let fast = json!({"filters": {"min_speed_tps": 1_000_000}});
    let answer = ask(&running, CHAT, fast.clone()).await;
    assert_eq!(answer.header("x-penstock-provider"), Some("france"), "it may be fast enough");
    let answer = ask(&running, CHAT, fast).await;
    assert_eq!((answer.status, &answer.json()["error"]["param"]), (400, &json!("filters.min_speed_tps")));
    let answer = ask(&running, CHAT, json!({"filters": {"min_speed_tps": 0.000_1}})).await;
    assert_eq!(answer.header("x-penstock-provider"), Some("finland"));
    assert_eq!((france.calls(), finland.calls()), (1, 2));
}

/// Starts a chat provider in France whose list lacks `response_format` and `logprobs`, and a chat provider in Finland
/// that takes both, at a low price. A messages provider in Poland cannot express log probabilities, and neither it nor
/// a responses provider in Germany a bias.
async fn with_other_dialects(has_finland: bool) -> ([Provider; 4], Running) {
    let start = Provider::start;
    let providers = [start().await, start().await, start().await, start().await];
    let listed = "supported_parameters = [\"tools\"]\nprice = { input = 9.0, output = 9.0 }";
    let model =
        "supported_parameters = [\"tools\", \"response_format\", \"logprobs\", \"stream\", \"max_tokens\"]";
    let mut bench = Bench::new().model(model).provider_with("france", &providers[0], PATIENT, listed);
    if has_finland {
        let block = finland_block(&providers[1], PATIENT);
        bench = bench.more(&block);
    }
    for (provider, id, country, city, dialect) in [
        (&providers[2], "poland", "PL", "Warsaw", "messages"),
        (&providers[3], "germany", "DE", "Berlin", "responses"),
    ] {
        bench = bench.more(&format!(
            "\n[[providers]]\nid = \"{id}\"\noperator = \"Test\"\ncountry = \"{country}\"\ncity = \"{city}\"\n\
             base_url = \"http://{}/v1\"\ndialects = [\"{dialect}\"]\n{PATIENT}\n[[providers.offers]]\n\
             model = \"m\"\nname = \"theirs\"\nprice = {{ input = 1.0, output = 1.0 }}\n",
            provider.address
        ));
    }
    (providers, bench.start().await)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_feature_that_the_offers_within_the_filters_lack_is_named() {
    let image = json!([{"role": "user", "content": [{"type": "image_url",
        "image_url": {"url": "https://example.com/a.png"}}]}]);
    let (providers, running) = with_other_dialects(true).await;
    for (members, param, available) in [
        (json!({"logprobs": true, "filters": {"countries": ["FR"]}}), "logprobs", json!(["DE", "FI"])),
        (json!({"logprobs": true, "filters": {"countries": ["PL"]}}), "logprobs", Value::Null),
        (
            json!({"logprobs": true, "filters": {"countries": ["SE"]}}),
            "filters.countries",
            json!(["DE", "FI"]),
        ),
        (
            json!({"response_format": {"type": "json_object"}, "filters": {"countries": ["FR"]}}),
            "response_format",
            json!(["DE", "FI", "PL"]),
        ),
        (
            json!({"logprobs": true, "filters": {"max_input_cost": 0.01}}),
            "filters.max_input_cost",
            json!(0.05),
        ),
        (
            json!({"logprobs": true, "filters": {"countries": ["FR"], "max_input_cost": 0.01}}),
            "filters.countries",
            json!(["DE", "FI"]),
        ),
        (json!({"messages": image, "filters": {"countries": ["FR"]}}), "messages", Value::Null),
    ] {
        let answer = ask(&running, CHAT, members.clone()).await;
        let body = answer.json();
        assert_eq!(answer.status, 400, "{members}: {body}");
        let named = body["error"]["param"].as_str().unwrap();
        assert!(named.starts_with(param), "{members}: {body}");
        let listed = body["error"]["details"].get("available").unwrap_or(&Value::Null);
        assert_eq!(listed, &available, "{members}: {body}");
        let message = body["error"]["message"].as_str().unwrap();
        assert!(!message.contains("of this model is in"), "{body}");
    }
    assert_eq!(providers.iter().map(Provider::calls).sum::<usize>(), 0);
    for country in ["FI", "DE", "PL", "FR"] {
        let answer = ask(&running, CHAT, json!({"filters": {"countries": [country]}})).await;
        assert!(answer.status == 200 || answer.status == 503, "{country}: {}", answer.text());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_feature_that_no_offer_has_is_named_and_not_the_filter() {
    let (providers, running) = with_other_dialects(false).await;
    for filters in [
        json!({"countries": ["FR"]}),
        json!({"countries": ["SE"]}),
        json!({"max_input_cost": 9.0}),
        json!({"max_input_cost": 0.01}),
    ] {
        let answer = ask(&running, CHAT, json!({"logit_bias": {"5": 1}, "filters": filters})).await;
        let body = answer.json();
        assert_eq!(
            (answer.status, &body["error"]["param"]),
            (400, &json!("logit_bias")),
            "{filters}: {body}"
        );
        assert!(body["error"]["details"].get("available").is_none(), "{filters}: {body}");
    }
    assert_eq!(providers.iter().map(Provider::calls).sum::<usize>(), 0);
}

/// Tests that an offer whose window is too small is not advised.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_offer_whose_window_is_too_small_is_not_available() {
    let (france, finland) = (Provider::start().await, Provider::start().await);
    let block = finland_block(&finland, PATIENT) + "context_length = 64\n";
    let running = Bench::new().provider("france", &france).more(&block).start().await;
    let long = json!([{"role": "user", "content": "too long ".repeat(100)}]);
    let members = json!({"messages": long, "filters": {"countries": ["SE"]}});
    let body = ask(&running, CHAT, members).await.json();
    assert_eq!(body["error"]["param"], "filters.countries", "{body}");
    assert_eq!(body["error"]["details"]["available"], json!(["FR"]), "{body}");
}

/// Tests that an engine that the filters exclude does not get the prompt to count its tokens.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_excluded_engine_does_not_count_tokens() {
    let engine = format!("{PATIENT}\ntokenize = \"vllm\"");
    for path in [CHAT, MESSAGES, "/v1/messages/count_tokens", "/v1/responses/input_tokens"] {
        let (france, finland) = (Provider::start().await, Provider::start().await);
        let bench = Bench::new().model("context_length = 64").provider_with("france", &france, &engine, "");
        let running = bench.more(&finland_block(&finland, &engine)).start().await;
        let in_country = |country: &str| {
            let long = "too long ".repeat(100);
            let text = json!([{"role": "user", "content": long}]);
            let conversation = if path.starts_with("/v1/responses") { "input" } else { "messages" };
            let mut body = json!({"model": "m", conversation: text, "filters": {"countries": [country]}});
            if path == MESSAGES {
                body["max_tokens"] = json!(5);
            }
            body
        };
        let refused = running.client.post(path, &in_country("US")).await;
        assert_eq!(refused.status, 400, "{path}: {}", refused.text());
        assert_eq!((france.calls(), finland.calls()), (0, 0), "{path}");
        // The engine in Finland is asked to count. Its answer is not a count, so the gateway falls back to an
        // estimate.
        running.client.post(path, &in_country("FI")).await;
        let is_count = |path: &str| path == "/tokenize" || path.ends_with("/count_tokens");
        assert!(finland.seen().iter().any(|seen| is_count(&seen.path)), "{path}");
        assert_eq!(france.calls(), 0, "{path}: {:?}", france.seen());
    }
    let (france, finland, running) = running().await;
    for path in ["/v1/messages/count_tokens", "/v1/responses/input_tokens"] {
        let mut body = json!({"model": "m", "filters": {"countries": ["US"]}});
        let conversation = if path.starts_with("/v1/responses") { "input" } else { "messages" };
        body[conversation] = json!([{"role": "user", "content": "hi"}]);
        let refused = running.client.post(path, &body).await;
        assert_eq!(refused.status, 400, "{path}: {}", refused.text());
        assert!(refused.text().contains("filters.countries"), "{path}: {}", refused.text());
    }
    assert_eq!(france.calls() + finland.calls(), 0);
}
