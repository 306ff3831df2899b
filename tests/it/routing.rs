//! Order of the offers for each flavor.

use crate::harness::script::{ScriptStep, plain, status};
use crate::harness::{Bench, Provider, until};
use serde_json::json;
use std::time::Duration;

const CHEAP: &str = "price = { input = 0.1, output = 0.1 }";
const DEAR: &str = "price = { input = 9.0, output = 9.0 }";

async fn ask(running: &crate::harness::gateway::Running, model: &str) -> (Option<String>, Option<String>) {
    let mut ask = running.ask();
    ask["model"] = json!(model);
    let answer = running.client.post("/v1/chat/completions", &ask).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    (
        answer.header("x-penstock-provider").map(str::to_owned),
        answer.header("x-penstock-flavor").map(str::to_owned),
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn price_and_batch_ask_the_cheapest() {
    let (cheap, dear) = (Provider::start().await, Provider::start().await);
    let running = Bench::new()
        .provider_with("dear", &dear, "", DEAR)
        .provider_with("cheap", &cheap, "", CHEAP)
        .start()
        .await;
    for flavor in ["price", "batch"] {
        for _ in 0..5 {
            let (provider, named) = ask(&running, &format!("m:{flavor}")).await;
            assert_eq!((provider.as_deref(), named.as_deref()), (Some("cheap"), Some(flavor)));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eco_asks_the_cleaner_grid() {
    let (france, poland) = (Provider::start().await, Provider::start().await);
    let block = format!(
        "\n[[providers]]\nid = \"poland\"\noperator = \"Test\"\ncountry = \"PL\"\ncity = \"Warsaw\"\n\
         base_url = \"http://{}/v1\"\n[[providers.offers]]\nmodel = \"m\"\nname = \"theirs\"\n{CHEAP}\n",
        poland.address
    );
    let running = Bench::new().provider_with("france", &france, "", DEAR).more(&block).start().await;
    for _ in 0..5 {
        assert_eq!(ask(&running, "m:eco").await.0.as_deref(), Some("france"));
    }
    assert_eq!(ask(&running, "m:price").await.0.as_deref(), Some("poland"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn equals_share_the_load() {
    let (one, two) = (Provider::start().await, Provider::start().await);
    // One of the first answers is slow.
    let mut slow = vec![ScriptStep::Pause(Duration::from_millis(500))];
    slow.extend(plain("late"));
    two.then(slow);
    let running = Bench::new().provider("one", &one).provider("two", &two).start().await;
    for number in 0..60 {
        let mut body = running.ask();
        body["model"] = json!("m:price");
        body["messages"][0]["content"] = json!(format!("Question {number}"));
        assert_eq!(running.client.post("/v1/chat/completions", &body).await.status, 200);
    }
    assert!(one.calls() >= 5 && two.calls() >= 5, "{} and {}", one.calls(), two.calls());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_alias_comes_before_the_flavor_and_the_answer_wears_the_name_asked_for() {
    let provider = Provider::start().await;
    let running = Bench::new()
        .model("aliases = [\"claude-haiku-4-5\", \"org/m:v2\"]")
        .provider("a", &provider)
        .start()
        .await;
    for (name, shown) in
        [("claude-haiku-4-5:speed", "claude-haiku-4-5"), ("org/m:v2", "org/m:v2"), ("m:eco", "m")]
    {
        let mut body = running.ask();
        body["model"] = json!(name);
        let answer = running.client.post("/v1/chat/completions", &body).await;
        assert_eq!(answer.json()["model"], shown);
        assert_eq!(provider.last().json()["model"], "theirs");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_that_keeps_failing_is_ejected_and_comes_back() {
    let (bad, good) = (Provider::start().await, Provider::start().await);
    bad.always(status(503));
    let settings = "[routing.breaker]\nconsecutive = 3\nrest = \"200ms\"\nrest_max = \"200ms\"";
    let running = Bench::new()
        .settings(settings)
        .provider_with("bad", &bad, "", CHEAP)
        .provider_with("good", &good, "", DEAR)
        .start()
        .await;
    for _ in 0..12 {
        ask(&running, "m:price").await;
    }
    let ejected_after = bad.calls();
    assert!((3..12).contains(&ejected_after), "asked {ejected_after} times");
    bad.always(plain("back"));
    crate::harness::within("its return", async {
        while ask(&running, "m:price").await.0.as_deref() != Some("bad") {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn if_all_are_ejected_the_least_bad_is_asked() {
    let provider = Provider::start().await;
    provider.always(status(503));
    let settings = "[routing.breaker]\nconsecutive = 2\nrest = \"1h\"\nrest_max = \"1h\"";
    let running = Bench::new().settings(settings).provider("a", &provider).start().await;
    for _ in 0..4 {
        assert_eq!(running.chat().await.status, 503);
    }
    provider.always(plain("well again"));
    assert_eq!(running.chat().await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn active_checks_eject_a_provider_without_risking_a_request() {
    let (dead, good) = (Provider::start().await, Provider::start().await);
    let address = dead.address;
    drop(dead);
    let health = "health = { path = \"/models\", interval = \"100ms\", timeout = \"5s\" }";
    let running = Bench::new()
        .provider_at("dead", &format!("http://{address}/v1"), health, CHEAP)
        .provider_with("good", &good, "", DEAR)
        .start()
        .await;
    let app = running.gateway.app.clone();
    until("the ejection", || {
        let now = app.clock.steady_now();
        let live = app.config_snapshot();
        live.offers.iter().any(|offer| {
            &*offer.offer.provider.id == "dead"
                && offer.breaker.lock().state(now) != penstock_routing::BreakerState::Closed
        })
    })
    .await;
    let answer = running.chat().await;
    assert_eq!(answer.header("x-penstock-attempts"), Some("1"));
    assert_eq!(answer.header("x-penstock-provider"), Some("good"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fallback_model_answers_under_its_own_name() {
    let (bad, other) = (Provider::start().await, Provider::start().await);
    bad.always(status(503));
    let block = format!(
        "\n[[models]]\nid = \"n\"\nname = \"N\"\nkind = \"chat\"\ncreated = 1\ncontext_length = 1000\n\
         price = {{ input = 1, output = 1 }}\nenergy = {{ active_params_b = 8.0 }}\n\
         [[providers]]\nid = \"other\"\noperator = \"Test\"\ncountry = \"DE\"\ncity = \"Berlin\"\n\
         base_url = \"http://{}/v1\"\n[[providers.offers]]\nmodel = \"n\"\nname = \"their-n\"\n",
        other.address
    );
    let running = Bench::new().model("fallbacks = [\"n\"]").provider("bad", &bad).more(&block).start().await;
    let answer = running.chat().await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.json()["model"], "n");
    assert_eq!(other.last().json()["model"], "their-n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_preset_fills_in_absent_members() {
    let provider = Provider::start().await;
    let running = Bench::new()
        .model("presets = { reasoning = { temperature = 0.6, top_p = 0.95 } }")
        .provider("a", &provider)
        .start()
        .await;
    let mut body = running.ask();
    body["preset"] = json!("reasoning");
    body["temperature"] = json!(0.1);
    assert_eq!(running.client.post("/v1/chat/completions", &body).await.status, 200);
    let sent = provider.last().json();
    assert_eq!((sent["temperature"].as_f64(), sent["top_p"].as_f64()), (Some(0.1), Some(0.95)));
    assert!(sent.get("preset").is_none());
}

/// One provider with two models, the second the fallback of the first.
fn two_models(bench: Bench, address: std::net::SocketAddr) -> Bench {
    let offers = "[[providers.offers]]\nmodel = \"n\"\nname = \"their-n\"\nprice = { input = 1, output = 1 }";
    let base = format!("http://{address}/v1");
    let timeouts = "timeouts = { connect = \"20s\", first_byte = \"1s\", plain = \"1s\", first_token = \"1s\", idle = \"1s\" }";
    bench.model("fallbacks = [\"n\"]").provider_at("both", &base, timeouts, offers).more(
        "\n[[models]]\nid = \"n\"\nname = \"N\"\nkind = \"chat\"\ncreated = 1\ncontext_length = 1000\n\
         price = { input = 1, output = 1 }\nenergy = { active_params_b = 8.0 }\n",
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_model_s_silence_leaves_the_other_models_of_its_provider() {
    let provider = Provider::start().await;
    provider.then(crate::harness::script::silent());
    let running = two_models(Bench::new(), provider.address).start().await;
    let answer = running.chat().await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!((&answer.json()["model"], provider.calls()), (&json!("n"), 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_connections_count_for_every_offer_of_the_provider() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let bench = Bench::new().settings("[routing.breaker]\nconsecutive = 2\nrest = \"1h\"\nrest_max = \"1h\"");
    let running = two_models(bench, nobody).start().await;
    let state = |model: &str| {
        let app = &running.gateway.app;
        let live = app.config_snapshot();
        let offer = live.offers.iter().find(|offer| offer.offer.model.card.id == model).unwrap();
        offer.breaker.lock().state(app.clock.steady_now())
    };
    crate::harness::within("the ejection", async {
        while state("m") == penstock_routing::BreakerState::Closed {
            let answer = running.chat().await;
            assert_eq!(answer.status, 503);
            let attempts = answer.json()["error"]["details"]["attempts"].as_array().unwrap().len();
            assert_eq!(attempts, 1, "nor is it asked for the fallback");
        }
    })
    .await;
    assert_ne!(state("n"), penstock_routing::BreakerState::Closed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn balanced_is_advised_only_where_another_flavor_was_asked_for() {
    let provider = Provider::start().await;
    provider.always(status(503));
    let running = Bench::new().provider("a", &provider).start().await;
    for (model, advised) in [("m", false), ("m:balanced", false), ("m:eco", true), ("m:speed", true)] {
        let mut body = running.ask();
        body["model"] = json!(model);
        let answer = running.client.post("/v1/chat/completions", &body).await;
        assert_eq!(answer.status, 503);
        let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
        assert_eq!(message.contains(":balanced"), advised, "{model}: {message}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeated_failures_of_one_client_eject_the_provider_for_no_other() {
    let provider = Provider::start().await;
    let settings = "[routing]\nquick_retry = \"1ms\"\n[routing.breaker]\nconsecutive = 3\nrest = \"1h\"\nrest_max = \"1h\"";
    let running = Bench::new().settings(settings).provider("a", &provider).start().await;
    let other = running.key(&json!({"name": "other"})).await;
    assert_eq!(other.post("/v1/chat/completions", &running.ask()).await.status, 200);
    for _ in 0..10 {
        provider.then(status(503));
        assert_eq!(running.chat().await.status, 503);
    }
    let app = &running.gateway.app;
    let state = || app.config_snapshot().offers[0].breaker.lock().state(app.clock.steady_now());
    assert_eq!(state(), penstock_routing::BreakerState::Closed);
    provider.then(status(503));
    assert_eq!(other.post("/v1/chat/completions", &running.ask()).await.status, 503);
    assert_ne!(state(), penstock_routing::BreakerState::Closed, "now it is nobody's request");
}
