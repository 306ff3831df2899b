//! TLS and HTTP/2, to clients and to providers, behave like plain HTTP/1.1.

use crate::harness::certificates::{TestCertificate, at, connect, negotiated_protocol};
use crate::harness::gateway::{PATIENT, Running};
use crate::harness::h2_client::H2Client;
use crate::harness::{Bench, Provider, until, within};
use penstock_simulator::{FaultRule, SimulatedFault, SimulatedServer, SimulatorControl, SimulatorOptions};
use serde_json::json;

const CHAT: &str = "/v1/chat/completions";
/// Price of the second provider: the dearer one is tried second.
const SECOND: &str = "price = { input = 50.0, output = 50.0 }";

/// Starts a simulated provider, with TLS if a certificate is given.
async fn simulated(certified: Option<&TestCertificate>) -> SimulatedServer {
    let tls = certified.and_then(TestCertificate::files);
    SimulatedServer::start(SimulatorOptions {
        tls,
        context_length: 100_000_000,
        ..SimulatorOptions::default()
    })
    .await
    .unwrap()
}

fn secure_base(server: &SimulatedServer) -> String {
    format!("https://127.0.0.1:{}/v1", server.address.port())
}

/// Returns the settings of a provider with this root certificate.
fn behind(certified: &TestCertificate, http: &str) -> String {
    format!("{PATIENT}\nhttp = \"{http}\"\nca = {:?}", certified.root)
}

/// A connection to the gateway's TLS listener that has agreed on HTTP/2.
async fn h2(running: &Running, certified: &TestCertificate) -> H2Client {
    let socket = connect(running.gateway.https_address.unwrap(), &certified.root, &["h2", "http/1.1"]).await;
    assert_eq!(negotiated_protocol(&socket), "h2");
    H2Client::over(socket, &running.client.key).await
}

async fn until_cancelled(control: &SimulatorControl) {
    within("the provider to be left", control.until(|counts| counts.cancelled == 1)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_get_the_protocol_that_they_agree_on() {
    let (certified, provider) = (TestCertificate::make(), Provider::start().await);
    let running = Bench::new().listen(&certified.https()).provider("a", &provider).start().await;
    let address = running.gateway.https_address.unwrap();
    for protocols in [&["http/1.1"][..], &[]] {
        let socket = connect(address, &certified.root, protocols).await;
        assert_ne!(negotiated_protocol(&socket), "h2");
        let body = running.ask().to_string();
        let client = at(&running.client, address);
        let mut open = client.open_over(socket, "POST", CHAT, &[], body.as_bytes()).await;
        let answer = within("an answer", open.finish()).await;
        assert_eq!(answer.json()["choices"][0]["message"]["content"], "Hello");
    }
    let secure = h2(&running, &certified).await;
    let answer = secure.post(CHAT, &running.ask()).await;
    assert_eq!((answer.status, answer.header("x-penstock-provider")), (200, Some("a")));
    assert_eq!(answer.json()["choices"][0]["message"]["content"], "Hello");
    assert_eq!(running.chat().await.status, 200, "plain HTTP is served beside it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_over_h2_wears_its_envelope() {
    let (certified, provider) = (TestCertificate::make(), Provider::start().await);
    let running = Bench::new().listen(&certified.https()).provider("a", &provider).start().await;
    let secure = h2(&running, &certified).await;
    let answer = secure.post(CHAT, &json!({"model": "m", "messages": []})).await;
    assert_eq!(answer.status, 400);
    assert!(answer.json()["error"]["code"].as_str().unwrap().starts_with("INFERENCE_"));
    assert!(answer.header("x-request-id").is_some());
    assert_eq!(secure.post(CHAT, &running.ask()).await.status, 200, "the connection goes on");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_behind_its_own_root_is_asked_in_either_version() {
    let certified = TestCertificate::make();
    for (http, is_h2) in [("h1", false), ("auto", true), ("h2", true)] {
        let server = simulated(Some(&certified)).await;
        let running =
            Bench::new().provider_at("a", &secure_base(&server), &behind(&certified, http), "").start().await;
        let answer = running.chat().await;
        assert_eq!(answer.status, 200, "{http}: {}", answer.text());
        let stream = running.chat_stream().await;
        penstock_dialect::conformance::check_chat_stream(&stream.body, false).unwrap();
        let calls = server.control().calls();
        assert!(calls.iter().all(|call| call.h2 == is_h2), "{http}");
        assert!(calls.len() >= 2);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http2_is_spoken_with_prior_knowledge_where_the_configuration_says_so() {
    let server = simulated(None).await;
    let base = format!("http://{}/v1", server.address);
    let lines = format!("{PATIENT}\nhttp = \"h2\"");
    let running = Bench::new().provider_at("a", &base, &lines, "").start().await;
    assert_eq!(running.chat().await.status, 200);
    assert!(server.control().last_call().unwrap().h2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_under_another_root_is_never_trusted() {
    let (real, other) = (TestCertificate::make(), TestCertificate::make());
    let (bad, good) = (simulated(Some(&real)).await, Provider::start().await);
    let alone =
        Bench::new().provider_at("bad", &secure_base(&bad), &behind(&other, "auto"), "").start().await;
    let refused = alone.chat().await;
    assert_eq!(refused.status, 503);
    let attempt = &refused.json()["error"]["details"]["attempts"][0];
    assert_eq!((&attempt["provider"], &attempt["reason"]), (&json!("bad"), &json!("unavailable")));
    let both = Bench::new()
        .provider_at("bad", &secure_base(&bad), &behind(&other, "auto"), "")
        .provider_with("good", &good, PATIENT, SECOND)
        .start()
        .await;
    let mut ask = both.ask();
    ask["model"] = json!("m:price");
    let answer = both.client.post(CHAT, &ask).await;
    assert_eq!((answer.status, answer.header("x-penstock-provider")), (200, Some("good")));
    assert_eq!(bad.control().counts().calls, 0, "no request reached it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_mebibytes_fail_over_whole_on_h2() {
    let certified = TestCertificate::make();
    let (bad, good) = (simulated(Some(&certified)).await, simulated(Some(&certified)).await);
    bad.control().add_rule(SimulatedFault::status(503));
    let wide = "context_length = 100000000";
    let running = Bench::new()
        .listen(&certified.https())
        .model(wide)
        .provider_at("bad", &secure_base(&bad), &behind(&certified, "auto"), "")
        .provider_at("good", &secure_base(&good), &behind(&certified, "auto"), SECOND)
        .start()
        .await;
    let text = "Ünd so weiter. ".repeat((5 << 20) / 16 + 1);
    let part = json!({"type": "text", "text": text});
    let ask = json!({"model": "m:price", "max_tokens": 8, "messages": [{"role": "user", "content": [part]}]});
    assert!(ask.to_string().len() > 5 << 20);
    let answer = h2(&running, &certified).await.post(CHAT, &ask).await;
    assert_eq!((answer.status, answer.header("x-penstock-provider")), (200, Some("good")));
    assert_eq!(bad.control().last_call().unwrap().json()["messages"], ask["messages"]);
    assert_eq!(good.control().last_call().unwrap().json()["messages"], ask["messages"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_flow_over_h2_in_both_directions() {
    let certified = TestCertificate::make();
    let server = simulated(Some(&certified)).await;
    let running = Bench::new()
        .listen(&certified.https())
        .provider_at("a", &secure_base(&server), &behind(&certified, "auto"), "")
        .start()
        .await;
    let secure = h2(&running, &certified).await;
    let ask = running.ask_stream();
    let (one, two) = tokio::join!(secure.post(CHAT, &ask), secure.post(CHAT, &ask));
    for answer in [one, two] {
        assert!(answer.whole);
        penstock_dialect::conformance::check_chat_stream(&answer.body, false).unwrap();
        assert!(answer.streamed_text().contains("simulated"));
        assert!(answer.events().last().unwrap()["environment_impact"]["energy_kwh"].is_number());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reset_on_h2_cancels_that_providers_work_and_no_other() {
    let certified = TestCertificate::make();
    let server = simulated(Some(&certified)).await;
    let control = server.control();
    control.add_rule(FaultRule::new(vec![SimulatedFault::Stall { after: 6 }]).times(1));
    let running = Bench::new()
        .listen(&certified.https())
        .provider_at("a", &secure_base(&server), &behind(&certified, "auto"), "")
        .start()
        .await;
    let secure = h2(&running, &certified).await;
    let mut open = secure.open(CHAT, &running.ask_stream()).await;
    assert_eq!(open.status, 200);
    open.until("simulated").await;
    open.reset();
    until_cancelled(&control).await;
    until("the exchange to end", || running.gateway.app.in_flight_exchanges() == 0).await;
    let next = secure.post(CHAT, &running.ask_stream()).await;
    assert!(next.whole && next.text().ends_with("data: [DONE]\n\n"));
    assert_eq!(control.counts().cancelled, 1);
}
