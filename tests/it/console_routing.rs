//! Pages about routing over real sockets: why a provider is chosen for each flavor, which offers are excluded and why,
//! the attempts of a past request, the time to the first token, and the reference of the API.

use crate::harness::browser::{holder, signed_in};
use crate::harness::gateway::{PATIENT, Running};
use crate::harness::{Bench, Provider};
use penstock_core::percent;
use serde_json::{Value, json};

/// A dear offer in France, and a cheap one in Poland with a small context window and without tools.
async fn two_offers() -> (Provider, Provider, Running) {
    let (france, poland) = (Provider::start().await, Provider::start().await);
    let block = format!(
        "\n[[providers]]\nid = \"poland\"\noperator = \"Test\"\ncountry = \"PL\"\ncity = \"Warsaw\"\n\
         base_url = \"http://{}/v1\"\n{PATIENT}\n[[providers.offers]]\nmodel = \"m\"\nname = \"theirs\"\n\
         context_length = 4096\nsupported_parameters = [\"temperature\", \"max_tokens\", \"stream\"]\n\
         price = {{ input = 0.05, output = 0.1 }}\n",
        poland.address
    );
    let dear = "price = { input = 9.0, output = 9.0 }";
    let running = Bench::new()
        .settings("[console]\nlisten = \"127.0.0.1:0\"\n")
        .provider_with("france", &france, PATIENT, dear)
        .more(&block)
        .start()
        .await;
    (france, poland, running)
}

async fn explained(running: &Running, query: &str) -> Value {
    let answer = running.admin().get(&format!("/admin/routing?model=m{query}")).await;
    assert_eq!(answer.status, 200, "{query}: {}", answer.text());
    answer.json()
}

/// Providers of the candidates of a flavor, best first, and the excluded ones with their reasons.
fn order(explained: &Value, flavor: &str) -> (Vec<String>, Vec<(String, String)>) {
    let route =
        explained["flavors"].as_array().unwrap().iter().find(|route| route["flavor"] == flavor).unwrap();
    let text = |row: &Value, name: &str| row[name].as_str().unwrap().to_owned();
    let rows = |name: &str| route[name].as_array().unwrap().clone();
    (
        rows("candidates").iter().map(|row| text(row, "provider")).collect(),
        rows("excluded").iter().map(|row| (text(row, "provider"), text(row, "reason"))).collect(),
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_explanation_names_the_provider_that_requests_get() {
    let (_france, _poland, running) = two_offers().await;
    let all = explained(&running, "").await;
    assert_eq!(all["flavors"].as_array().unwrap().len(), 5, "{all}");
    for flavor in ["price", "eco"] {
        let (candidates, _) = order(&all, flavor);
        assert_eq!(candidates.len(), 2);
        let mut ask = running.ask();
        ask["model"] = json!(format!("m:{flavor}"));
        let answer = running.client.post("/v1/chat/completions", &ask).await;
        assert_eq!(answer.header("x-penstock-provider"), Some(&*candidates[0]), "{flavor}: {all}");
    }
    assert_eq!(order(&all, "price").0, ["poland", "france"]);
    assert_eq!(order(&all, "eco").0, ["france", "poland"], "the grid of Poland is above the limit");
    for route in all["flavors"].as_array().unwrap() {
        for row in route["candidates"].as_array().unwrap() {
            let sum: f64 =
                row["terms"].as_object().unwrap().values().map(|term| term.as_f64().unwrap()).sum();
            assert!((sum - row["score"].as_f64().unwrap()).abs() < 1e-9, "{row}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_every_window_shortens_is_shortened_least_at_the_first_candidate() {
    let (_france, _poland, running) = two_offers().await;
    for max_tokens in [100_000, 1_000_000] {
        let found = explained(&running, &format!("&max_tokens={max_tokens}&prompt_tokens=160")).await;
        for flavor in ["price", "balanced", "speed", "eco", "batch"] {
            assert_eq!(order(&found, flavor).0, ["france", "poland"], "{flavor}: {found}");
        }
        let rows = found["flavors"][0]["candidates"].as_array().unwrap();
        let shortened: Vec<bool> =
            rows.iter().map(|row| row["is_answer_shortened"].as_bool().unwrap()).collect();
        assert_eq!(shortened, [max_tokens > 131_072, true], "{found}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_excluded_offer_has_its_reason() {
    let (_france, _poland, running) = two_offers().await;
    for (query, provider, reason) in [
        ("&countries=fr", "poland", "filters.countries"),
        ("&max_input_cost=1", "france", "filters.max_input_cost"),
        ("&max_carbon_intensity=100", "poland", "filters.max_carbon_intensity"),
        ("&prompt_tokens=100000", "poland", "context_window"),
        ("&needs=tools", "poland", "tools"),
    ] {
        let found = explained(&running, &format!("&flavor=price{query}")).await;
        let (candidates, excluded) = order(&found, "price");
        assert_eq!(excluded, [(provider.to_owned(), reason.to_owned())], "{query}: {found}");
        assert_eq!(candidates.len(), 1, "{query}");
    }
    // As for a request, scores are computed relative to all offers, including those with too small a window.
    let long = explained(&running, "&flavor=price&prompt_tokens=100000").await;
    let only = &long["flavors"][0]["candidates"][0];
    assert!(only["terms"]["price"].as_f64().unwrap() > 0.0, "{only}");
    // No offer is usable for a prompt that exceeds every window.
    let longer = explained(&running, "&flavor=price&prompt_tokens=200000").await;
    let reasons = ["france", "poland"].map(|provider| (provider.to_owned(), "context_window".to_owned()));
    let (candidates, mut excluded) = order(&longer, "price");
    excluded.sort();
    assert_eq!((candidates, excluded), (Vec::new(), reasons.to_vec()), "{longer}");
    let other = running.key(&json!({"account": "default", "scopes": ["*"], "models": ["other"]})).await;
    let id = &other.key["sk-svc-".len()..][..16];
    let found = explained(&running, &format!("&flavor=eco&key={id}")).await;
    assert_eq!(order(&found, "eco").1.len(), 2, "{found}");
    assert!(found.to_string().contains("This API key may not use this model."));
    for (query, field) in [
        ("&countries=France", "countries"),
        ("&max_input_cost=cheap", "max_input_cost"),
        ("&prompt_tokens=0", "prompt_tokens"),
        ("&flavor=fast", "flavor"),
        ("&needs=luck", "needs"),
        ("&key=nosuch", "key"),
    ] {
        let refused = running.admin().get(&format!("/admin/routing?model=m{query}")).await;
        assert!([400, 404].contains(&refused.status), "{query}: {}", refused.text());
        assert_eq!(refused.json()["error"]["param"], field, "{query}: {}", refused.text());
    }
    assert_eq!(running.admin().get("/admin/routing?model=nosuch").await.status, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ejected_offer_comes_last_and_the_page_says_so() {
    let (_france, poland, running) = two_offers().await;
    let live = running.gateway.app.config_snapshot();
    let offer = live.offers.iter().find(|offer| &*offer.offer.provider.id == "poland").unwrap();
    let now = running.gateway.app.clock.steady_now();
    for _ in 0..10 {
        offer.record_unreachable(now);
    }
    drop(poland);
    let found = explained(&running, "&flavor=price").await;
    assert_eq!(order(&found, "price").0, ["france", "poland"], "{found}");
    assert_eq!(found["flavors"][0]["candidates"][1]["health"], "ejected", "{found}");
    let browser = signed_in(&running, "ops", "operator").await;
    let page = browser.get("/console/routing?model=m&flavor=price").await.text();
    assert!(page.contains("france comes first") && page.contains("ejected, back in"), "{page}");
    assert!(page.contains("Expected price"), "{page}");
    let viewer = signed_in(&running, "vic", "viewer").await;
    let page = viewer.get("/console/routing?model=m&flavor=price").await.text();
    assert!(!page.contains("Expected price") && !page.contains("EUR</"), "{page}");
    let refused = browser.get("/console/routing?model=m&countries=France").await.text();
    assert!(refused.contains("error-countries") && refused.contains("value=\"France\""), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_past_request_shows_its_attempts_and_streams_their_first_token() {
    let (_france, poland, running) = two_offers().await;
    poland.always(crate::harness::script::status(500));
    let mut ask = running.ask_stream();
    ask["model"] = json!("m:price");
    let answer = running.client.post("/v1/chat/completions", &ask).await;
    assert_eq!((answer.status, answer.header("x-penstock-provider")), (200, Some("france")));
    let id = answer.header("x-request-id").unwrap().to_owned();
    crate::billing::entries(&running).await;
    let past = running.admin().get(&format!("/admin/requests/{id}")).await.json();
    let outcomes: Vec<_> =
        past["attempts"].as_array().unwrap().iter().map(|one| one["provider"].clone()).collect();
    assert_eq!((&outcomes[0], outcomes.last().unwrap()), (&json!("poland"), &json!("france")), "{past}");
    assert_eq!((&past["flavor"], &past["provider"]), (&json!("price"), &json!("france")));
    assert!(past["first_token_seconds"].as_f64().unwrap() > 0.0, "{past}");
    let browser = signed_in(&running, "ops", "operator").await;
    let page = browser.get(&format!("/console/routing?request={id}")).await.text();
    assert!(
        page.contains(&id) && page.contains("Attempts") && page.contains("Candidates of :price"),
        "{page}"
    );
    let unknown = browser.get("/console/routing?request=nosuch").await.text();
    assert!(unknown.contains("error-request"), "{unknown}");
    let latency = running.admin().get("/admin/latency?by=provider").await.json();
    assert_eq!(
        (&latency["data"][0]["name"], &latency["data"][0]["answers"]),
        (&json!("france"), &json!(1)),
        "{latency}"
    );
    let counted: u64 =
        latency["data"][0]["answers_per_minute"].as_array().unwrap().iter().filter_map(Value::as_u64).sum();
    assert_eq!((counted, latency["minutes"].as_array().unwrap().len()), (1, 60));
    let page = browser.get("/console/latency").await.text();
    assert!(page.contains("<svg") && page.contains("95th percentile"), "{page}");
    assert_eq!(running.admin().get("/admin/latency?by=key").await.status, 400);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_reference_has_every_operation_and_schema_of_the_document() {
    let (_france, _poland, running) = two_offers().await;
    running.admin().post("/admin/accounts", &json!({"id": "acme"})).await;
    let (browser, ada) = (signed_in(&running, "vic", "viewer").await, holder(&running, "ada", "acme").await);
    let document = running.client.get("/openapi.json").await.json();
    let list = browser.get("/console/api").await.text();
    let mut operations = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let id = operation["operationId"].as_str().unwrap();
            let link = format!("href=\"/console/api/{id}\">{path}</a>");
            assert!(list.contains(&link), "{method} {link}");
            let page = browser.get(&format!("/console/api/{id}")).await;
            assert_eq!(page.status, 200, "{id}");
            let page = page.text();
            for status in operation["responses"].as_object().unwrap().keys() {
                assert!(page.contains(status.as_str()), "{id} {status}");
            }
            for parameter in operation["parameters"].as_array().into_iter().flatten() {
                assert!(page.contains(parameter["name"].as_str().unwrap()), "{id} {parameter}");
            }
            assert!(page.len() < 100_000, "{id}: {} bytes", page.len());
            operations += 1;
        }
    }
    assert!(operations > 30);
    for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
        let page = ada
            .get(&format!("/dashboard/api/schemas/{}", percent::encode(name, percent::PATH_SEGMENT)))
            .await;
        assert_eq!(page.status, 200, "{name}");
        for member in schema["properties"].as_object().into_iter().flatten() {
            assert!(page.text().contains(member.0.as_str()), "{name}.{}", member.0);
        }
    }
    assert!(browser.get("/console/api/post_v1_chat_completions").await.text().contains("RATE_2001"));
    for missing in ["/console/api/nosuch", "/console/api/schemas/nosuch"] {
        assert_eq!(browser.get(missing).await.status, 404, "{missing}");
    }
}
