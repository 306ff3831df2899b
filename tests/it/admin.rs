//! The admin listener: health, status, metrics, keys, reload.

use crate::harness::script::{plain, retry_after, status};
use crate::harness::{Bench, Client, Provider};
use penstock::config::LoadedConfig;
use serde_json::json;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn health_readiness_and_status_need_no_token() {
    let provider = Provider::start().await;
    let running = Bench::new().provider("a", &provider).start().await;
    let anyone = Client { address: running.gateway.admin_address, key: String::new() };
    assert_eq!(anyone.get("/healthz").await.status, 200);
    assert_eq!(anyone.get("/readyz").await.text(), "ready\n");
    running.chat().await;
    provider.then(status(503));
    running.chat().await;
    let status = anyone.get("/status").await.json();
    assert_eq!(status["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(status["config"].as_str().map(str::len), Some(12));
    let a = &status["providers"][0];
    assert_eq!((&a["id"], &a["country"]), (&json!("a"), &json!("France")));
    assert_eq!(a["last_error"]["kind"], "status");
    assert_eq!((&a["offers"][0]["model"], &a["offers"][0]["name"]), (&json!("m"), &json!("theirs")));
    assert_eq!(anyone.get("/admin/keys").await.status, 401);
    assert_eq!(anyone.post("/admin/reload", &json!({})).await.status, 401);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readiness_falls_while_draining_and_not_for_provider_failures() {
    let provider = Provider::start().await;
    provider.always(status(503));
    let settings = "[routing.breaker]\nconsecutive = 2\nrest = \"1h\"\nrest_max = \"1h\"";
    let running = Bench::new().settings(settings).provider("a", &provider).start().await;
    for _ in 0..3 {
        running.chat().await;
    }
    let anyone = Client { address: running.gateway.admin_address, key: String::new() };
    let ready = anyone.get("/readyz").await;
    assert_eq!(
        (ready.status, ready.text().as_str()),
        (200, "ready, but no provider is healthy at the moment\n")
    );
    let status = anyone.get("/status").await.json();
    assert_eq!(
        (&status["ready"], &status["degraded_because"]),
        (&json!(true), &json!("no provider is healthy at the moment"))
    );
    assert_eq!(readiness_gauges(&anyone).await, ["penstock_draining 0", "penstock_ready 1"]);
    running.gateway.app.start_draining();
    assert_eq!(anyone.get("/readyz").await.text(), "draining\n");
    assert_eq!(readiness_gauges(&anyone).await, ["penstock_draining 1", "penstock_ready 0"]);
}

async fn readiness_gauges(client: &Client) -> Vec<String> {
    let metrics = client.get("/metrics").await.text();
    let lines = metrics.lines();
    let is_gauge =
        |line: &&str| line.starts_with("penstock_ready ") || line.starts_with("penstock_draining ");
    lines.filter(is_gauge).map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failing_check_says_so_at_once_and_a_passing_one_ends_an_outage() {
    let provider = Provider::start().await;
    provider.gets(status(500));
    // With this interval, the next check runs only when a reload starts it.
    let health = "health = { path = \"/models\", interval = \"1h\", timeout = \"20s\" }";
    let settings = "[routing.breaker]\nconsecutive = 2\nrest = \"1h\"\nrest_max = \"1h\"";
    let bench = || Bench::new().settings(settings).provider_with("a", &provider, health, "");
    let running = bench().start().await;
    let anyone = Client { address: running.gateway.admin_address, key: String::new() };
    let app = running.gateway.app.clone();
    let checked = |good: bool| {
        let app = app.clone();
        async move {
            crate::harness::until("the check", || {
                *app.config_snapshot().providers[0].last_check_passed.lock() == Some(good)
            })
            .await;
        }
    };
    checked(false).await;
    let ready = anyone.get("/readyz").await;
    let expected = "ready, but suspect: the last health check of a failed\n";
    assert_eq!((ready.status, ready.text().as_str()), (200, expected));
    let offer = async || running.admin().get("/admin/providers").await.json()["data"][0]["offers"][0].clone();
    assert_eq!(offer().await["state"], "suspect");
    // First requests fail as well; then a check that a reload starts passes.
    provider.always(status(503));
    for _ in 0..2 {
        assert_eq!(running.chat().await.status, 503);
    }
    let healthy = async || {
        let text = anyone.get("/metrics").await.text();
        text.contains("penstock_offer_healthy{model=\"m\",provider=\"a\"} 1")
    };
    assert_eq!(offer().await["state"], "open");
    assert!(!healthy().await);
    provider.gets(plain("ok"));
    app.config_snapshot().providers[0].last_check_passed.lock().take();
    running.reload(bench().load(running.storage())).await;
    checked(true).await;
    crate::harness::within("the metric", async {
        while !healthy().await {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(anyone.get("/readyz").await.text(), "ready\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_that_asks_for_patience_takes_no_gateway_out_of_its_balancer() {
    let provider = Provider::start().await;
    provider.always(retry_after(429, 600));
    let running = Bench::new().provider("a", &provider).start().await;
    assert_ne!(running.chat().await.status, 200);
    let rests =
        running.admin().get("/status").await.json()["providers"][0]["offers"][0]["rests_for_seconds"].clone();
    assert!(rests.as_f64().is_some_and(|rests| rests > 1.0), "{rests}");
    let ready = running.admin().get("/readyz").await;
    assert_eq!((ready.status, ready.text().as_str()), (200, "ready\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_are_made_listed_and_revoked_and_shown_once() {
    let provider = Provider::start().await;
    let running = Bench::new().provider("a", &provider).start().await;
    let admin = running.admin();
    let made = admin.post("/admin/keys", &json!({"name": "CI", "scopes": ["inference.chat"]})).await;
    assert_eq!(made.status, 201);
    let made = made.json();
    let key = made["key"].as_str().unwrap().to_owned();
    assert!(key.starts_with("sk-svc-") && key.len() == 7 + 62);
    let client = Client { address: running.client.address, key: key.clone() };
    assert_eq!(client.post("/v1/chat/completions", &running.ask()).await.status, 200);
    let list = admin.get("/admin/keys").await;
    assert!(list.text().contains("\"CI\"") && !list.text().contains(&key) && !list.text().contains("digest"));
    let id = made["id"].as_str().unwrap();
    assert_eq!(admin.post(&format!("/admin/keys/{id}/revoke"), &json!({})).await.status, 200);
    assert_eq!(client.post("/v1/chat/completions", &running.ask()).await.status, 401);
    assert_eq!(admin.post("/admin/keys/nobody/revoke", &json!({})).await.status, 404);
    let refused = admin.post("/admin/keys", &json!({"scopes": ["inference.chess"]})).await;
    assert_eq!((refused.status, refused.json()["error"]["param"].as_str()), (400, Some("scopes")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_tell_requests_attempts_tokens_and_energy() {
    let provider = Provider::start().await;
    provider.then(status(503));
    provider.always(plain("Hello"));
    let running = Bench::new().provider("a", &provider).start().await;
    assert_eq!(running.chat().await.status, 503);
    assert_eq!(running.chat().await.status, 200);
    crate::harness::until("the exchange to be logged", || running.gateway.app.in_flight_exchanges() == 0)
        .await;
    let metrics =
        Client { address: running.gateway.admin_address, key: String::new() }.get("/metrics").await.text();
    for line in [
        "penstock_requests_total{endpoint=\"chat\",model=\"m\",outcome=\"ok\",status=\"200\",work=\"request\"} 1",
        "penstock_requests_total{endpoint=\"chat\",model=\"m\",outcome=\"refused\",status=\"503\",work=\"request\"} 1",
        "penstock_attempts_total{outcome=\"ok\",provider=\"a\"} 1",
        "penstock_attempts_total{outcome=\"status\",provider=\"a\"} 1",
        "penstock_credits_total{model=\"m\",provider=\"a\"} 0.0025",
        "penstock_offer_healthy{model=\"m\",provider=\"a\"} 1",
    ] {
        assert!(metrics.contains(line), "{line} is missing in\n{metrics}");
    }
    assert!(metrics.contains("gen_ai_client_token_usage_sum{gen_ai_operation_name=\"chat\""));
    assert!(metrics.contains("penstock_energy_kwh_total"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_swaps_a_whole_configuration_or_keeps_the_old() {
    use parking_lot::Mutex;
    use std::sync::Arc;
    let (first, second) = (Provider::start().await, Provider::start().await);
    let folder = tempfile::tempdir().unwrap();
    let old = Bench::new().provider("first", &first).load(folder.path());
    let new = Bench::new().provider("second", &second).load(folder.path());
    let source = Arc::new(Mutex::new(Err(penstock::config::Diagnostics {
        mistakes: vec![penstock::config::Diagnostic {
            file: String::new(),
            line: None,
            key: "providers.first.country".to_owned(),
            value: None,
            reason: "Not a member state.".to_owned(),
            remedy: String::new(),
        }],
        warnings: Vec::new(),
    })));
    let read = source.clone();
    let gateway = penstock::app::gateway::RunningGateway::start(old, Arc::new(move || read.lock().clone()))
        .await
        .unwrap();
    let key = penstock::admin::keys::create_demo_key(&gateway.app).await.unwrap().1;
    let client = Client { address: gateway.http_addresses[0], key };
    let admin = Client { address: gateway.admin_address, key: gateway.app.stores.admin_token.to_string() };
    let ask = json!({"model": "m", "messages": [{"role": "user", "content": "Hi"}]});
    let who = async || {
        let answer = client.post("/v1/chat/completions", &ask).await;
        answer.header("x-penstock-provider").unwrap().to_owned()
    };
    assert_eq!(who().await, "first");
    let refused = admin.post("/admin/reload", &json!({})).await;
    assert_eq!(refused.status, 400);
    assert!(refused.text().contains("Not a member state"));
    assert_eq!(who().await, "first");
    *source.lock() = Ok(LoadedConfig { settings: new, warnings: Vec::new() });
    assert_eq!(admin.post("/admin/reload", &json!({})).await.status, 200);
    assert_eq!(who().await, "second");
}

/// Tests protection from DNS rebinding: a web page may resolve its own host name to this machine. A request with such
/// a host name is refused, even if it needs no token.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_admin_listener_answers_under_known_hosts_alone() {
    let provider = Provider::start().await;
    let bench = Bench::new()
        .listen("public_url = \"https://api.example.eu\"\nhosts = [\"Metrics.example.eu\", \"penstock\"]");
    let running = bench.provider("a", &provider).start().await;
    let paths =
        ["/metrics", "/healthz", "/readyz", "/status", "/admin/openapi.json", "/admin/keys", "/nothing"];
    for host in [
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "evil.example:9090",
        "penstock.evil.example",
    ] {
        for path in paths {
            let refused = running.admin().send("GET", path, &[("host", host)], b"").await;
            assert_eq!(refused.status, 421, "{host} {path}");
            let body = refused.json();
            assert_eq!(body["error"]["code"], "RESOURCE_5010", "{host} {path}: {body}");
            assert!(!refused.text().contains("evil") && refused.header("x-request-id").is_some(), "{body}");
        }
    }
    let machine = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    for host in [
        "localhost",
        "LOCALHOST:9090",
        "127.0.0.1",
        "[::1]:9090",
        "192.0.2.7:9090",
        "metrics.example.eu",
        "penstock:9090",
        "api.example.eu",
        machine.trim(),
    ] {
        let answer = running.admin().send("GET", "/status", &[("host", host)], b"").await;
        assert_eq!(answer.status, 200, "{host:?}: {}", answer.text());
    }
}
