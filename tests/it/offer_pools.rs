//! Pools of offers: ejection, recovery, and the effect of a reload.

use crate::harness::gateway::Running;
use crate::harness::script::{Script, cut, plain, status};
use crate::harness::{Bench, Client, Provider, until, within};
use serde_json::json;

const CHEAP: &str = "price = { input = 0.1, output = 0.1 }";
const DEAR: &str = "price = { input = 9.0, output = 9.0 }";
/// Number of consecutive failed checks after which the circuit breaker ejects an offer.
const THRESHOLD: u64 = 3;

/// Returns the provider that answers a request for the cheapest offer.
async fn cheapest(running: &Running) -> Option<String> {
    let mut ask = running.ask();
    ask["model"] = json!("m:price");
    let answer = running.client.post("/v1/chat/completions", &ask).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.header("x-penstock-provider").map(str::to_owned)
}

/// Returns the readiness of a provider's offer of the model `m`.
fn is_ready(running: &Running, provider: &str) -> bool {
    let live = running.gateway.app.config_snapshot();
    let offer = live.offers.iter().find(|offer| &*offer.offer.provider.id == provider).unwrap();
    live.model("m").unwrap().pool.is_offer_ready(offer.offer.index)
}

/// Returns the number of a provider's checks with this result, from the metrics.
async fn checks(running: &Running, provider: &str, result: &str) -> u64 {
    let anyone = Client { address: running.gateway.admin_address, key: String::new() };
    let text = anyone.get("/metrics").await.text();
    let line = text.lines().find(|line| {
        line.starts_with("penstock_health_checks_total")
            && line.contains(&format!("provider=\"{provider}\""))
            && line.contains(&format!("result=\"{result}\""))
    });
    line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).map_or(0, |count| count as u64)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_provider_leaves_after_a_threshold_of_checks_and_comes_back() {
    let (killed, good) = (Provider::start().await, Provider::start().await);
    let health = "health = { path = \"/models\", interval = \"100ms\", timeout = \"20s\" }";
    let settings = "[routing.breaker]\nrest = \"1h\"\nrest_max = \"1h\"";
    let running = Bench::new()
        .settings(settings)
        .provider_with("killed", &killed, health, CHEAP)
        .provider_with("good", &good, health, DEAR)
        .start()
        .await;
    assert!(is_ready(&running, "killed"), "an offer begins ready");
    assert_eq!(cheapest(&running).await.as_deref(), Some("killed"));
    killed.gets(cut()).always(cut());
    until("the ejection", || !is_ready(&running, "killed")).await;
    // The metric counts the check that ejects the offer only after the ejection, so it may lack one.
    let failed = checks(&running, "killed", "bad").await;
    assert!(failed + 1 >= THRESHOLD, "ejected after {failed} failed checks");
    within("the count", async { while checks(&running, "killed", "bad").await < THRESHOLD {} }).await;
    assert!(!is_ready(&running, "killed") && is_ready(&running, "good"));
    let calls = killed.calls();
    for _ in 0..5 {
        assert_eq!(cheapest(&running).await.as_deref(), Some("good"));
    }
    assert_eq!(killed.calls(), calls, "no request is risked on it");
    // A passing check permits probe requests, and successful probes close the breaker. The test does not have to wait
    // for a timer.
    killed.gets(plain("ok")).always(plain("back"));
    within("its return", async { while cheapest(&running).await.as_deref() != Some("killed") {} }).await;
    within("the end of its trial", async {
        while !is_ready(&running, "killed") {
            cheapest(&running).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_of_prices_alone_takes_effect_at_once() {
    let (one, two) = (Provider::start().await, Provider::start().await);
    let bench = |first: &str, second: &str| {
        Bench::new().provider_with("one", &one, "", first).provider_with("two", &two, "", second)
    };
    let running = bench(CHEAP, DEAR).start().await;
    for (first, second, expected) in [(DEAR, CHEAP, "two"), (CHEAP, DEAR, "one"), (DEAR, CHEAP, "two")] {
        running.reload(bench(first, second).load(running.storage())).await;
        assert_eq!(cheapest(&running).await.as_deref(), Some(expected));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_of_a_key_alone_takes_effect_at_once_for_requests_and_checks() {
    let provider = Provider::start().await;
    let bench = |key: &str| {
        let lines = format!(
            "api_key = {{ env = \"{key}\" }}\nhealth = {{ path = \"/models\", interval = \"1h\", timeout = \"20s\" }}"
        );
        Bench::new().provider_with("a", &provider, &lines, "")
    };
    let authorized = |method: &str| {
        let seen = provider.seen().into_iter().rev().find(|seen| seen.method == method);
        seen.and_then(|seen| seen.header("authorization").map(str::to_owned))
    };
    let running = bench("OLD").start().await;
    until("the first check", || authorized("GET").as_deref() == Some("Bearer value of OLD")).await;
    // A reload starts a check; the next check is an hour later.
    running.reload(bench("NEW").load(running.storage())).await;
    assert_eq!(running.chat().await.status, 200);
    assert_eq!(authorized("POST").as_deref(), Some("Bearer value of NEW"));
    until("the next check", || authorized("GET").as_deref() == Some("Bearer value of NEW")).await;
}

/// Fails the checks of one path and answers everything else.
fn only_bad_fails(seen: &crate::harness::provider::RecordedRequest) -> Script {
    if seen.path.ends_with("/bad") { status(500) } else { plain("ok") }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_providers_at_one_address_have_separate_health() {
    let shared = Provider::with_selector(Box::new(only_bad_fails)).await;
    let health =
        |path: &str| format!("health = {{ path = \"/{path}\", interval = \"100ms\", timeout = \"20s\" }}");
    let settings = "[routing.breaker]\nrest = \"1h\"\nrest_max = \"1h\"";
    let running = Bench::new()
        .settings(settings)
        .provider_with("bad", &shared, &health("bad"), CHEAP)
        .provider_with("good", &shared, &health("good"), DEAR)
        .start()
        .await;
    let health_checks = &running.gateway.app.health_checks;
    until("the ejection", || !is_ready(&running, "bad") && !health_checks.is_healthy("bad")).await;
    within("a check of the other", async { while checks(&running, "good", "good").await < THRESHOLD {} })
        .await;
    assert!(is_ready(&running, "good") && health_checks.is_healthy("good"));
    assert_eq!(checks(&running, "good", "bad").await, 0);
    assert_eq!(cheapest(&running).await.as_deref(), Some("good"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_is_checked_once_however_many_models_it_has() {
    let provider = Provider::start().await;
    let health = "health = { path = \"/models\", interval = \"1h\", timeout = \"20s\" }";
    let offers = (0..5).map(|n| {
        format!(
            "\n[[models]]\nid = \"n{n}\"\nkind = \"chat\"\ncontext_length = 1000\nprice = {{ input = 1, output = 1 }}\n\
             energy = {{ active_params_b = 8.0 }}\n"
        )
    });
    let models: String = offers.collect();
    let more: String = (0..5).map(|n| format!("[[providers.offers]]\nmodel = \"n{n}\"\n")).collect();
    let running = Bench::new().provider_with("a", &provider, health, &more).more(&models).start().await;
    within("the check", async { while checks(&running, "a", "good").await == 0 {} }).await;
    assert_eq!((checks(&running, "a", "good").await, provider.seen().len()), (1, 1));
}
