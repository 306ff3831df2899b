//! Images: both response formats for any provider format, URLs of the gateway itself, and downloads from configured
//! hosts only.

use crate::harness::gateway::PATIENT;
use crate::harness::script::{Script, ScriptStep, cut, json_answer, status};
use crate::harness::{Answer, Bench, Client, Provider, within};
use penstock::net::panic_injection::PanicInjectionPoint;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

pub const PATH: &str = "/v1/images/generations";
/// An image of eight bytes and its base64.
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";
pub const PNG64: &str = "iVBORw0KGgo=";

/// An image model `d` at these providers: name, provider, lines of the offer.
pub fn draws(providers: &[(&str, &Provider, &str)]) -> Bench {
    draws_with(providers, "")
}

fn draws_with(providers: &[(&str, &Provider, &str)], lines: &str) -> Bench {
    let mut toml = "[[models]]\nid = \"d\"\nkind = \"image\"\ncontext_length = 512\n\
        aliases = [\"gpt-image-1\", \"GPT-Image-1-mini\", \"openai/gpt-image-2\", \"dall-e-3\", \"my-gpt-image-1\"]\nprice = { image = 0.02 }\n\
        image_sizes = [\"1024x1024\", \"512x512\"]\nenergy = { joules_per_image = 2000.0, method = \"benchmark\" }\n"
        .to_owned();
    for (id, provider, offer) in providers {
        toml.push_str(&format!(
            "[[providers]]\nid = \"{id}\"\noperator = \"Test\"\ncountry = \"FR\"\ncity = \"Paris\"\npue = 1.16\nwue = 0.2\n\
             base_url = \"http://{}/v1\"\napi_key = {{ env = \"KEY\" }}\n{PATIENT}\n{lines}\n\
             [[providers.offers]]\nmodel = \"d\"\nname = \"their/d\"\n{offer}\n",
            provider.address
        ));
    }
    Bench::new().more(&toml)
}

/// A provider's answer with these images.
pub fn drawn(images: &[Value]) -> Script {
    json_answer(200, &json!({"created": 1, "data": images}))
}

pub fn inside(count: usize) -> Script {
    drawn(&vec![json!({"b64_json": PNG64}); count])
}

/// Response to a GET for an image.
fn image() -> Script {
    vec![ScriptStep::Head(200, vec![("content-type", "text/html".into())]), ScriptStep::Body(PNG.to_vec())]
}

pub fn ask(more: &Value) -> Value {
    let mut ask = json!({"model": "d", "prompt": "a cat"});
    for (name, value) in more.as_object().unwrap() {
        ask[name] = value.clone();
    }
    ask
}

/// Returns the path of the URL in an answer, without the client's host.
fn path(answer: &Value) -> String {
    let url = answer["data"][0]["url"].as_str().unwrap();
    let below = url.strip_prefix("http://127.0.0.1:").and_then(|rest| rest.find('/').map(|at| &rest[at..]));
    below.unwrap_or_else(|| panic!("{url}")).to_owned()
}

fn error(answer: &Answer, status: u16, code: &str) -> Value {
    let body = answer.json();
    assert_eq!((answer.status, body["error"]["code"].as_str()), (status, Some(code)), "{}", answer.text());
    body["error"].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_is_the_gateways_own_and_needs_no_key() {
    let provider = Provider::start().await;
    provider.then(inside(1));
    let running = draws(&[("a", &provider, "")]).start().await;
    let client = &running.client;
    let answer = client.post(PATH, &ask(&json!({}))).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let body = answer.json();
    assert_eq!(body["data"][0]["b64_json"], Value::Null);
    assert!(body["created"].is_u64());
    assert_eq!(body["environment_impact"]["provider_id"], "a");
    assert_eq!(answer.header("x-penstock-provider"), Some("a"));
    let sent = provider.last();
    assert_eq!(sent.path, "/v1/images/generations");
    assert_eq!(
        sent.json(),
        json!({"model": "their/d", "prompt": "a cat", "n": 1, "response_format": "b64_json"})
    );

    let path = path(&body);
    assert!(path.rsplit('/').next().unwrap().len() >= 32, "nobody guesses it: {path}");
    let nobody = Client { key: String::new(), ..client.clone() };
    let image = nobody.get(&path).await;
    assert_eq!((image.status, image.body.as_slice()), (200, PNG));
    assert_eq!(image.header("content-type"), Some("image/png"));
    assert_eq!(image.header("x-content-type-options"), Some("nosniff"));
    assert!(image.header("cache-control").unwrap().starts_with("private, max-age=3"));
    let head = nobody.send("HEAD", &path, &[], b"").await;
    assert_eq!((head.status, head.header("content-length")), (200, Some("8")));

    // An expired image is removed, and its space is free again.
    running.gateway.app.image_cache.remove_expired(Duration::MAX);
    error(&nobody.get(&path).await, 404, "RESOURCE_5001");
    assert_eq!(running.gateway.app.spools.used_bytes(), 0);
    error(&nobody.get("/v1/images/content/0123456789abcdef0123456789abcdef").await, 404, "RESOURCE_5001");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn images_that_are_asked_for_inside_pass_as_they_are() {
    let provider = Provider::start().await;
    provider.then(drawn(&[
        json!({"b64_json": PNG64, "revised_prompt": "a \"cat\""}),
        json!({"b64_json": PNG64}),
    ]));
    let running = draws(&[("a", &provider, "")]).start().await;
    let more =
        json!({"n": 2, "size": "512x512", "response_format": "b64_json", "quality": "hd", "user": "u"});
    let answer = running.client.post(PATH, &ask(&more)).await.json();
    assert_eq!(
        answer["data"],
        json!([
            {"url": null, "b64_json": PNG64, "revised_prompt": "a \"cat\""},
            {"url": null, "b64_json": PNG64}
        ])
    );
    let sent = provider.last().json();
    assert_eq!((sent["n"].as_u64(), sent["size"].as_str()), (Some(2), Some("512x512")));
    assert!(sent.get("quality").is_none() && sent.get("user").is_none());
    // Two images at 0.02 EUR are 4 credits. Energy is 2000 J per mebipixel, and each image has a quarter of a
    // mebipixel.
    assert_eq!(answer["billing_cost"]["credits"], json!(4));
    let expected = 2.0 * 2000.0 * 0.25 * 1.30 * 1.12 * 1.16 / 3.6e6;
    let reported = answer["environment_impact"]["energy_kwh"].as_f64().unwrap();
    assert!((reported - expected).abs() < 1e-11, "{reported} is not {expected}");
    assert!(running.gateway.app.image_cache.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_of_the_providers_is_fetched_and_not_shown() {
    let provider = Provider::start().await;
    provider.gets(image());
    let url = format!("http://{}/files/a.png?sig=1", provider.address);
    provider.then(drawn(&[json!({"url": url})])).then(drawn(&[json!({"url": "/files/b.png"})]));
    let running = draws(&[("a", &provider, "")]).start().await;
    let answer = running.client.post(PATH, &ask(&json!({"response_format": "b64_json"}))).await.json();
    assert_eq!(answer["data"], json!([{"url": null, "b64_json": PNG64}]));
    let fetched = provider.last();
    assert_eq!((fetched.method.as_str(), fetched.path.as_str()), ("GET", "/files/a.png?sig=1"));
    assert_eq!(fetched.header("authorization"), Some("Bearer value of KEY"), "it is the provider's own");
    let answer = running.client.post(PATH, &ask(&json!({}))).await;
    assert!(!answer.text().contains("/files/"), "{}", answer.text());
    assert_eq!(provider.last().path, "/files/b.png");
    let name = answer.json()["data"][0]["url"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
    let cached = running.client.get(&format!("/v1/images/content/{name}")).await;
    assert_eq!((cached.body.as_slice(), cached.header("content-type")), (PNG, Some("image/png")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_elsewhere_is_followed_only_where_the_configuration_says_so() {
    let (bad, good, elsewhere) = (Provider::start().await, Provider::start().await, Provider::start().await);
    elsewhere.gets(image());
    let there = elsewhere.address;
    let tricks = [
        format!("http://{there}/a.png"),
        format!("http://{}@{there}/a.png", bad.address),
        format!("https://{}/a.png", bad.address),
        format!("//{there}/a.png"),
        "http://169.254.169.254/latest/meta-data/".to_owned(),
        "file:///etc/passwd".to_owned(),
        "ftp://x/y".to_owned(),
    ];
    let lines = "price = { image = 0.01 }";
    let running = draws(&[("bad", &bad, lines), ("good", &good, "price = { image = 9.0 }")])
        .settings("[routing.breaker]\nconsecutive = 1000\nminimum = 100000")
        .start()
        .await;
    for url in &tricks {
        bad.then(drawn(&[json!({"url": url})]));
        good.then(inside(1));
        let more = json!({"model": "d:price", "response_format": "b64_json"});
        let answer = running.client.post(PATH, &ask(&more)).await;
        assert_eq!(answer.status, 200, "{url}: {}", answer.text());
        if answer.header("x-penstock-provider") == Some("bad") {
            panic!("{url} was followed");
        }
        bad.clear();
        good.clear();
    }
    assert!(elsewhere.seen().is_empty(), "nobody was asked");
    assert!(bad.seen().iter().all(|seen| seen.method == "POST"));

    let provider = Provider::start().await;
    provider.then(drawn(&[json!({"url": tricks[0]})]));
    let hosts = format!("image_hosts = [\"http://{there}\"]");
    let running = draws_with(&[("a", &provider, "")], &hosts).start().await;
    let answer = running.client.post(PATH, &ask(&json!({"response_format": "b64_json"}))).await;
    assert_eq!(answer.json()["data"][0]["b64_json"], PNG64);
    assert_eq!(elsewhere.last().header("authorization"), None, "the key stays with the provider");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_own_panic_is_no_failure_of_the_provider() {
    let (one, other) = (Provider::start().await, Provider::start().await);
    one.always(inside(1));
    let running = draws(&[("one", &one, "price = { image = 0.01 }"), ("other", &other, "")])
        .settings("[routing.breaker]\nconsecutive = 1\nrest = \"1h\"\nrest_max = \"1h\"")
        .start()
        .await;
    running.gateway.app.panic_injector.arm(PanicInjectionPoint::OffThread, 1);
    let ask = ask(&json!({"model": "d:price"}));
    error(&running.client.post(PATH, &ask).await, 500, "SERVER_9001");
    let void =
        crate::billing::entries(&running).await.into_iter().find(|entry| entry["act"] == "void").unwrap();
    assert!(void["kwh"].as_str().unwrap().parse::<f64>().unwrap() > 0.0, "it was drawn all the same: {void}");
    let metrics = running.admin().get("/metrics").await.text();
    assert!(
        metrics.contains("penstock_attempts_total{outcome=\"internal\",provider=\"one\"} 1"),
        "{metrics}"
    );
    assert!(metrics.contains("penstock_panics_total 1"), "{metrics}");
    let good = running.client.post(PATH, &ask).await;
    assert_eq!((good.status, good.header("x-penstock-provider")), (200, Some("one")));
    assert_eq!((one.calls(), other.calls()), (2, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_that_fails_is_followed_by_the_next() {
    let (bad, good) = (Provider::start().await, Provider::start().await);
    let (cheap, dear) = ("price = { image = 0.01 }", "price = { image = 9.0 }");
    let running = draws(&[("bad", &bad, cheap), ("good", &good, dear)])
        .settings("[routing.breaker]\nconsecutive = 1000\nminimum = 100000")
        .start()
        .await;
    let garbage = vec![ScriptStep::Head(200, Vec::new()), ScriptStep::Body(b"<html>".to_vec())];
    let gone = drawn(&[json!({"url": "/gone.png"})]);
    let mut failures =
        vec![status(503), cut(), garbage, drawn(&[]), drawn(&[json!({"b64_json": "?"})]), gone];
    // Base64 of "hello world", of a page and of an SVG image, which may contain scripts.
    for text in ["aGVsbG8gd29ybGQ=", "PGh0bWw+QmFkIGdhdGV3YXk8L2h0bWw+", "PHN2ZyB4bWxucz0iIi8+"] {
        failures.push(drawn(&[json!({ "b64_json": text })]));
    }
    bad.gets(status(404));
    good.always(inside(1));
    for failure in failures {
        bad.clear();
        bad.always(failure);
        let answer = running.client.post(PATH, &ask(&json!({"model": "d:price"}))).await;
        assert_eq!(
            (answer.status, answer.header("x-penstock-provider")),
            (200, Some("good")),
            "{}",
            answer.text()
        );
        assert_eq!(answer.json()["billing_cost"]["credits"], json!(900), "one answer is paid, and once");
    }
    // The image URL returns content that is not an image.
    bad.clear();
    bad.always(drawn(&[json!({"url": "/files/a.png"})])).gets(vec![
        ScriptStep::Head(200, vec![("content-type", "image/png".into())]),
        ScriptStep::Body(b"<html>Bad gateway</html>".to_vec()),
    ]);
    let answer = running.client.post(PATH, &ask(&json!({"model": "d:price"}))).await;
    assert_eq!((answer.status, answer.header("x-penstock-provider")), (200, Some("good")));
    good.always(status(500));
    bad.always(status(500));
    let refused = running.client.post(PATH, &ask(&json!({}))).await;
    let refusal = error(&refused, 503, "INFERENCE_3103");
    assert!(refusal["details"]["attempts"].as_array().unwrap().len() >= 2);
    assert!(refused.header("retry-after").is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_of_the_content_is_passed_on() {
    let (first, second) = (Provider::start().await, Provider::start().await);
    let refused = json!({"error": {"message": "blocked", "code": "content_policy_violation", "type": "x"}});
    first.always(json_answer(400, &refused));
    second.always(json_answer(400, &refused));
    let running = draws(&[("a", &first, ""), ("b", &second, "")]).start().await;
    error(&running.client.post(PATH, &ask(&json!({}))).await, 400, "INFERENCE_3203");
    assert_eq!(first.calls() + second.calls(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_images_than_one_call_takes_are_drawn_in_several() {
    let provider = Provider::start().await;
    provider.then(inside(2)).then(inside(2)).then(inside(2));
    let running = draws(&[("a", &provider, "max_images = 2")]).start().await;
    let answer =
        running.client.post(PATH, &ask(&json!({"n": 5, "response_format": "b64_json"}))).await.json();
    assert_eq!(answer["data"].as_array().unwrap().len(), 5);
    assert_eq!(answer["billing_cost"]["credits"], json!(10));
    // The counter increases once the answer has been written.
    let line = "penstock_images_total{model=\"d\",provider=\"a\"} 5\n";
    within("the images to be counted", async {
        while !running.admin().get("/metrics").await.text().contains(line) {}
    })
    .await;
    let asked: Vec<u64> = provider.seen().iter().map(|seen| seen.json()["n"].as_u64().unwrap()).collect();
    assert_eq!(asked, [2, 2, 1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invalid_image_parameter_is_rejected_by_name() {
    let provider = Provider::start().await;
    let running = draws(&[("a", &provider, "")]).start().await;
    for (more, field) in [
        (json!({"n": 0}), "n"),
        (json!({"n": 11}), "n"),
        (json!({"size": "big"}), "size"),
        (json!({"size": "640x480"}), "size"),
        (json!({"prompt": ""}), "prompt"),
        (json!({"response_format": "png"}), "response_format"),
        (json!({"stream": true}), "stream"),
        (json!({"model": "m"}), "model"),
    ] {
        let answer = running.client.post(PATH, &ask(&more)).await;
        let unsupported = field == "model" || field == "stream";
        let refusal = error(&answer, 400, if unsupported { "INFERENCE_3202" } else { "INFERENCE_3201" });
        assert_eq!(refusal["param"], field, "{more}");
        assert!(refusal["message"].as_str().unwrap().contains(if field == "model" { "/v1/" } else { field }));
    }
    let refusal = running.client.post(PATH, &ask(&json!({"size": "640x480"}))).await.json();
    assert_eq!(refusal["error"]["details"]["sizes"], json!(["1024x1024", "512x512"]));
    let chat = json!({"model": "d", "messages": [{"role": "user", "content": "Hi"}]});
    let answer = running.client.post("/v1/chat/completions", &chat).await;
    assert!(error(&answer, 400, "INFERENCE_3202")["message"].as_str().unwrap().contains(PATH));
    error(&running.client.post(PATH, &ask(&json!({"model": "nobody"}))).await, 404, "INFERENCE_3101");
    let reader = running.key(&json!({"name": "reader", "scopes": ["inference.chat"]})).await;
    let refusal = error(&reader.post(PATH, &ask(&json!({}))).await, 403, "AUTH_1003");
    assert_eq!(refusal["details"]["required_scope"], "inference.images");
    assert_eq!(provider.calls(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_simulated_provider_draws_in_every_shape() {
    let server = penstock_simulator::SimulatedServer::start(penstock_simulator::SimulatorOptions::default())
        .await
        .unwrap();
    for shape in ["openai-images", "openai-images-bare", "openai-images-star", "width-height"] {
        let toml = format!(
            "[[models]]\nid = \"d\"\nkind = \"image\"\ncontext_length = 512\nprice = {{ image = 0.02 }}\n\
             [[providers]]\nid = \"s\"\noperator = \"T\"\ncountry = \"FI\"\ncity = \"Turku\"\n\
             base_url = \"http://{}/v1\"\n{PATIENT}\n[[providers.offers]]\nmodel = \"d\"\nshape = \"{shape}\"\n",
            server.address
        );
        let running = Bench::new().more(&toml).start().await;
        let answer = running.client.post(PATH, &ask(&json!({"n": 2, "size": "96x64"}))).await;
        assert_eq!(answer.status, 200, "{shape}: {}", answer.text());
        for item in answer.json()["data"].as_array().unwrap() {
            let name = item["url"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
            let image = running.client.get(&format!("/v1/images/content/{name}")).await;
            assert_eq!(image.header("content-type"), Some("image/png"), "{shape}");
            assert_eq!(image.body[16..24], [0, 0, 0, 96, 0, 0, 0, 64], "{shape}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_was_closed_while_idle_is_no_failure_of_a_fetch() {
    let provider = Provider::start().await;
    let running = draws(&[("a", &provider, "")]).start().await;
    // The download reuses the connection of the answer, which the provider closes at that moment; the gateway repeats
    // it on a new connection.
    provider.then(drawn(&[json!({"url": "/files/1.png"})]));
    provider.get_then(vec![ScriptStep::Cut]).get_then(image());
    let answer = running.client.post(PATH, &ask(&json!({"response_format": "b64_json"}))).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.json()["data"][0]["b64_json"], PNG64);
    let gets = || provider.seen().iter().filter(|seen| seen.method == "GET").count();
    assert_eq!((provider.calls(), gets()), (1, 2));
    // If a new connection is also closed, the download has failed.
    provider.always(drawn(&[json!({"url": "/files/1.png"})])).gets(vec![ScriptStep::Cut]);
    error(&running.client.post(PATH, &ask(&json!({}))).await, 503, "INFERENCE_3103");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_image_can_be_fetched_for_its_lifetime_and_no_longer() {
    const LIFE: Duration = Duration::from_secs(1);
    let provider = Provider::start().await;
    provider.then(inside(1));
    let running = draws(&[("a", &provider, "")]).settings("[images]\nlifetime = \"1s\"").start().await;
    let asked = Instant::now();
    let answer = running.client.post(PATH, &ask(&json!({}))).await;
    let (answered, path) = (Instant::now(), path(&answer.json()));
    loop {
        let began = Instant::now();
        let image = running.client.get(&path).await;
        if image.status != 200 {
            error(&image, 404, "RESOURCE_5001");
            assert!(asked.elapsed() >= LIFE, "gone after {:?}", asked.elapsed());
            break;
        }
        assert!(began < answered + LIFE, "there after {:?}", began - answered);
        let age = image.header("cache-control").unwrap().strip_prefix("private, max-age=").unwrap();
        assert!(age.parse::<u64>().unwrap() <= 1, "a browser keeps it for {age} s");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
