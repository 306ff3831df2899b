//! Parts of the public listener besides the API: first page, health checks, API description, CORS, and request ids of
//! clients.

use crate::harness::process::{Home, catalogue};
use crate::harness::script::plain;
use crate::harness::{Bench, Client, Provider};
use crate::limits::{bench, limited, number};
use serde_json::{Value, json};

const PREFLIGHT: &str = "access-control-request-headers";

async fn running(listen: &str) -> (Provider, crate::harness::gateway::Running) {
    let provider = Provider::start().await;
    let running = Bench::new().listen(listen).provider("a", &provider).start().await;
    (provider, running)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_page_links_to_the_api_description() {
    let (_provider, running) = running("documentation = \"https://docs.example.eu\"").await;
    let nobody = Client { address: running.client.address, key: String::new() };
    let page = nobody.get("/").await;
    assert_eq!((page.status, page.header("content-type")), (200, Some("application/json")));
    let page = page.json();
    assert_eq!(page["documentation"], "https://docs.example.eu");
    let described = nobody.get(page["openapi"].as_str().unwrap()).await;
    assert_eq!((described.status, described.header("content-type")), (200, Some("application/json")));
    let described = described.json();
    assert_eq!(described["openapi"], "3.1.0");
    let documented: Value = serde_json::from_str(include_str!("../../docs/openapi.json")).unwrap();
    assert!(described == documented, "docs/openapi.json is not what is served");
    let asked = nobody.get("/v1/models").await;
    assert_eq!(asked.status, 401, "all else asks for a key");
    assert_eq!(asked.header("www-authenticate"), Some("Bearer"));
    let refused = nobody.send("POST", "/", &[], b"{}").await;
    assert_eq!((refused.status, refused.header("allow")), (405, Some("GET, HEAD")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn health_checks_need_no_key_and_give_no_details() {
    let (_provider, running) = running("").await;
    let nobody = Client { address: running.client.address, key: String::new() };
    for path in ["/health", "/healthz", "/health/"] {
        let health = nobody.get(path).await;
        assert_eq!((health.status, health.json()), (200, json!({"status": "ok"})));
        let head = nobody.send("HEAD", path, &[], b"").await;
        assert_eq!((head.status, head.body.len()), (200, 0));
        assert_eq!(head.header("content-length"), health.header("content-length"));
        assert_eq!(nobody.send("POST", path, &[], b"{}").await.status, 405);
    }
    assert_eq!(nobody.get("/v1/health").await.status, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_preflight_is_allowed_the_headers_that_it_asks_for() {
    let (_provider, running) = running("").await;
    let asked = "authorization,x-title, HTTP-Referer,x-fern-language,traceparent,baggage,b@d,a b";
    let headers =
        [("origin", "https://page.example"), ("access-control-request-method", "POST"), (PREFLIGHT, asked)];
    for path in ["/v1/chat/completions", "/v1/models", "/nowhere"] {
        let answer = running.client.send("OPTIONS", path, &headers, b"").await;
        assert_eq!((answer.status, answer.header("access-control-allow-origin")), (204, Some("*")));
        let allowed = answer.header("access-control-allow-headers").unwrap();
        assert_eq!(allowed, "authorization, x-title, HTTP-Referer, x-fern-language, traceparent, baggage");
        assert!(answer.header("access-control-allow-methods").unwrap().contains("DELETE"));
    }
    // A preflight without requested headers gets the usual headers of client libraries.
    let answer = running.client.send("OPTIONS", "/v1/models", &headers[..2], b"").await;
    assert!(answer.header("access-control-allow-headers").unwrap().contains("x-stainless-lang"));
    let answer = running.client.send("GET", "/v1/models", &headers[..1], b"").await;
    assert_eq!((answer.status, answer.header("access-control-allow-origin")), (200, Some("*")));
    let exposed = answer.header("access-control-expose-headers").unwrap();
    assert!(exposed.contains("x-request-id") && exposed.contains("x-ratelimit-remaining,"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn origins_are_restricted_or_turned_off() {
    let (_provider, listed) = running("cors = [\"https://app.example.eu\", \"http://localhost:3000\"]").await;
    for (origin, allowed) in [
        ("https://app.example.eu", true),
        ("http://localhost:3000", true),
        ("https://evil.example", false),
        ("https://app.example.eu.evil.example", false),
        ("http://app.example.eu", false),
        ("null", false),
    ] {
        let headers = [("origin", origin), ("access-control-request-method", "POST"), (PREFLIGHT, "x-title")];
        let preflight = listed.client.send("OPTIONS", "/v1/chat/completions", &headers, b"").await;
        let expected = allowed.then_some(origin);
        assert_eq!(preflight.status, 204);
        assert_eq!(preflight.header("access-control-allow-origin"), expected, "{origin}");
        assert_eq!(preflight.header("access-control-allow-headers"), allowed.then_some("x-title"));
        for (path, status) in [("/v1/models", 200), ("/v1/models/nobody", 404)] {
            let answer = listed.client.send("GET", path, &headers[..1], b"").await;
            assert_eq!((answer.status, answer.header("vary")), (status, Some("Origin")));
            assert_eq!(answer.header("access-control-allow-origin"), expected, "{origin}");
        }
    }
    // A cache must not give the response to a request without an origin to a page, or the other way round.
    for path in ["/openapi.json", "/v1/models", "/nowhere"] {
        let answer = listed.client.get(path).await;
        assert_eq!(answer.header("vary"), Some("Origin"), "{path}");
        assert_eq!(answer.header("access-control-allow-origin"), None, "{path}");
    }
    let (_provider, off) = running("cors = []").await;
    let headers = [("origin", "https://app.example.eu"), ("access-control-request-method", "POST")];
    assert_eq!(off.client.send("OPTIONS", "/v1/models", &headers, b"").await.status, 405);
    let answer = off.client.send("GET", "/v1/models", &headers, b"").await;
    assert_eq!(answer.status, 200);
    assert!(!answer.headers.iter().any(|(name, _)| name.starts_with("access-control") || name == "vary"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trace_goes_on_to_the_provider_and_a_broken_one_does_not() {
    let (provider, running) = running("").await;
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let send = async |headers: &[(&str, &str)]| {
        for ask in [running.ask(), running.ask_stream()] {
            if ask["stream"] == true {
                provider.then(crate::harness::script::stream(&["Hi"]));
            } else {
                provider.then(plain("Hi"));
            }
            let answer = running
                .client
                .send("POST", "/v1/chat/completions", headers, ask.to_string().as_bytes())
                .await;
            assert_eq!(answer.status, 200);
            let own = answer.header("x-request-id").unwrap();
            assert!(own.starts_with("req_") && own != "mine", "{own}");
        }
        let sent = provider.last();
        ["traceparent", "tracestate", "x-request-id"].map(|name| sent.header(name).map(str::to_owned))
    };
    let state = "rojo=00f067aa0ba902b7";
    let all = [("traceparent", parent), ("tracestate", state), ("x-request-id", "mine")];
    assert_eq!(send(&all).await, [Some(parent.to_owned()), Some(state.to_owned()), None]);
    assert_eq!(send(&all[..1]).await, [Some(parent.to_owned()), None, None]);
    assert_eq!(send(&all[1..]).await, [None, None, None], "a state without a parent means nothing");
    assert_eq!(send(&[("traceparent", "00-0-0-0"), ("tracestate", state)]).await, [None, None, None]);
    assert_eq!(
        send(&[("traceparent", parent), ("tracestate", "x y")]).await,
        [Some(parent.to_owned()), None, None]
    );
    let repeated = [("traceparent", parent), ("tracestate", "a=1"), ("x", "y"), ("tracestate", "b=2, c=3")];
    assert_eq!(send(&repeated).await, [Some(parent.to_owned()), Some("a=1,b=2, c=3".to_owned()), None]);
    assert_eq!(send(&[&repeated[..], &all[..1]].concat()).await, [None, None, None], "two parents");
    assert_eq!(send(&[]).await, [None, None, None]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_answer_to_a_key_tells_how_its_limits_stand() {
    let (_provider, running) = bench().await;
    let limits = json!({"requests_per_minute": 5, "tokens_per_minute": 5_000});
    let client = running
        .key(&json!({"name": "k", "limits": limits, "scopes": ["inference.chat", "inference.models"]}))
        .await;
    let ask = json!({"model": "m", "max_tokens": 50, "messages": [{"role": "user", "content": "Hi"}]});
    let nothing = json!({"model": "nobody", "messages": []});
    let answers = [
        (client.get("/v1/models").await, 200, 5),
        (client.get("/v1/models/m").await, 200, 5),
        (client.get("/v1/models/nobody").await, 404, 5),
        (client.get("/v1/files").await, 0, 5),
        (client.get("/v1/nothing").await, 404, 5),
        (client.get("/v1/chat/completions").await, 405, 5),
        (client.post("/v1/embeddings", &ask).await, 403, 5),
        (client.post("/v1/chat/completions", &nothing).await, 400, 5),
        (client.post("/v1/chat/completions", &running.ask()).await, 200, 4),
        (client.post("/v1/chat/completions", &running.ask_stream()).await, 200, 3),
        (client.post("/v1/messages", &ask).await, 200, 2),
        (client.post("/v1/messages/count_tokens", &ask).await, 0, 0),
    ];
    let now = running.gateway.app.clock.unix_seconds();
    for (index, (answer, status, remaining)) in answers.iter().enumerate() {
        assert!(*status == 0 || answer.status == *status, "{index}: {}", answer.text());
        assert_eq!(number(answer, "x-ratelimit-limit"), 5, "{index}");
        assert!(number(answer, "x-ratelimit-remaining") >= *remaining, "{index}");
        let reset = number(answer, "x-ratelimit-reset");
        assert!((now - 20..=now + 61).contains(&reset), "{index}: {reset} at {now}");
        let own = ["x-ratelimit-limit-requests", "anthropic-ratelimit-requests-limit"];
        assert_eq!(own.iter().filter(|name| answer.header(name).is_some()).count(), 1, "{index}");
    }
    // Without a request limit the headers state the token limit; without a key they state no limit.
    let client = limited(&running, json!({"tokens_per_minute": 5_000})).await;
    assert_eq!(number(&client.get("/v1/models").await, "x-ratelimit-limit"), 5_000);
    let nobody = Client { address: client.address, key: "sk-svc-no".to_owned() };
    assert_eq!(nobody.get("/v1/models").await.header("x-ratelimit-limit"), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_has_the_names_that_a_client_gave_and_no_health_checks() {
    let provider = Provider::start().await;
    let home = Home::new();
    home.write(&catalogue(&provider, ""));
    let running = home.run().await;
    let (client, _) = home.key();
    for _ in 0..3 {
        assert_eq!(client.get("/health").await.status, 200);
    }
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let headers = [("traceparent", parent), ("tracestate", "a=1"), ("x-request-id", "mine \"{7}\"")];
    let body = json!({"model": "m", "messages": [{"role": "user", "content": "Hi"}]}).to_string();
    let answer = client.send("POST", "/v1/chat/completions", &headers, body.as_bytes()).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    running.wait_for_line("client_request_id").await;
    let log = running.output();
    let line = log.lines().find(|line| line.contains("client_request_id")).unwrap();
    let line: Value = serde_json::from_str(line).unwrap();
    assert_eq!(line["id"].as_str(), answer.header("x-request-id"));
    let named = ["client_request_id", "traceparent", "tracestate"].map(|name| line[name].as_str().unwrap());
    assert_eq!(named, ["mine7", parent, "a=1"]);
    assert!(!log.contains("\"health\""), "{log}");
}
