//! Unusual provider responses reach clients in the standard form.

use crate::harness::gateway::{PATIENT, Running};
use crate::harness::{Answer, Bench};
use penstock_dialect::conformance;
use penstock_simulator::{FaultRule, SimulatedFault, SimulatedServer, SimulatorControl, SimulatorOptions};
use serde_json::{Value, json};

const CHAT: &str = "/v1/chat/completions";
const PARAMETERS: &str = r#"supported_parameters = ["tools", "tool_choice", "stream", "n", "max_tokens", "reasoning_effort", "seed"]"#;

/// A gateway in front of one simulated provider.
struct GatewayWithProvider {
    server: SimulatedServer,
    running: Running,
}

impl GatewayWithProvider {
    async fn start() -> Self {
        let server = SimulatedServer::start(SimulatorOptions::default()).await.unwrap();
        let base = format!("http://{}/v1", server.address);
        let bench = Bench::new().model(PARAMETERS).settings("[routing]\nquick_retry = \"0s\"");
        let running = bench.provider_at("a", &base, PATIENT, "").start().await;
        Self { server, running }
    }

    fn control(&self) -> SimulatorControl {
        self.server.control()
    }

    /// Returns an answer under these faults, which apply to this request only.
    async fn under(&self, faults: Vec<SimulatedFault>, ask: &Value) -> Answer {
        self.control().clear_rules();
        self.control().add_rule(FaultRule::new(faults));
        let answer = self.running.client.post(CHAT, ask).await;
        self.control().clear_rules();
        answer
    }

    /// Sends the same streamed request twice: first without faults, then with these faults.
    async fn both(&self, faults: Vec<SimulatedFault>, ask: &Value) -> (Answer, Answer) {
        (self.under(Vec::new(), ask).await, self.under(faults, ask).await)
    }
}

fn stream() -> Value {
    json!({"model": "m", "stream": true, "seed": 7, "max_tokens": 12, "messages": [{"role": "user", "content": "Hi"}]})
}

fn plain() -> Value {
    json!({"model": "m", "seed": 7, "max_tokens": 12, "messages": [{"role": "user", "content": "Hi"}]})
}

fn tools(stream: bool) -> Value {
    let parameters =
        json!({"type": "object", "required": ["city"], "properties": {"city": {"type": "string"}}});
    let tool = |name: &str| json!({"type": "function", "function": {"name": name, "parameters": parameters}});
    json!({"model": "m", "stream": stream, "seed": 7, "tools": [tool("weather"), tool("time")],
        "messages": [{"role": "user", "content": "Please use the tools"}]})
}

/// Checks that a stream follows every rule; returns its text and its last event.
fn clean(answer: &Answer) -> (String, Value) {
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(answer.whole);
    conformance::check_chat_stream(&answer.body, false).unwrap();
    assert!(answer.header("content-type").unwrap().starts_with("text/event-stream"));
    assert!(answer.header("content-encoding").is_none());
    let last = answer.events().last().unwrap().clone();
    assert!(last["environment_impact"]["energy_kwh"].is_number(), "{last}");
    assert!(last["billing_cost"]["credits"].as_f64().unwrap() > 0.0, "{last}");
    (answer.streamed_text(), last)
}

/// The arguments of each call in a stream, by index.
fn calls(answer: &Answer) -> Vec<(String, Value)> {
    let mut found: Vec<(String, String)> = Vec::new();
    for event in answer.events() {
        for call in event["choices"][0]["delta"]["tool_calls"].as_array().into_iter().flatten() {
            if let Some(name) = call["function"]["name"].as_str() {
                found.push((name.to_owned(), String::new()));
            }
            let at = call["index"].as_u64().unwrap() as usize;
            found[at].1.push_str(call["function"]["arguments"].as_str().unwrap_or_default());
        }
    }
    found.into_iter().map(|(name, arguments)| (name, serde_json::from_str(&arguments).unwrap())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_form_of_a_stream_makes_no_difference_to_clients() {
    let pair = GatewayWithProvider::start().await;
    let forms = [
        vec![SimulatedFault::Crlf {}],
        vec![SimulatedFault::Comments {}],
        vec![SimulatedFault::NoDone {}],
        vec![SimulatedFault::Gzip {}],
        vec![SimulatedFault::Split { bytes: 1 }],
        vec![SimulatedFault::Split { bytes: 3 }],
        vec![SimulatedFault::Split { bytes: 7 }],
        vec![SimulatedFault::Split { bytes: 61 }],
        vec![SimulatedFault::Merge { events: 5 }],
        vec![SimulatedFault::Merge { events: 10_000 }],
        vec![
            SimulatedFault::Crlf {},
            SimulatedFault::Comments {},
            SimulatedFault::Gzip {},
            SimulatedFault::Split { bytes: 5 },
        ],
        vec![SimulatedFault::NoDone {}, SimulatedFault::Comments {}, SimulatedFault::Merge { events: 3 }],
    ];
    let expected = clean(&pair.under(Vec::new(), &stream()).await);
    for faults in forms {
        let received = clean(&pair.under(faults.clone(), &stream()).await);
        assert_eq!(received.0, expected.0, "{faults:?}");
        assert_eq!(received.1["environment_impact"], expected.1["environment_impact"], "{faults:?}");
        assert_eq!(received.1["billing_cost"], expected.1["billing_cost"], "{faults:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_that_a_provider_adds_reaches_the_client() {
    let pair = GatewayWithProvider::start().await;
    let faults =
        vec![SimulatedFault::Comments {}, SimulatedFault::Energy { shape: Default::default(), joules: 3.0 }];
    let answer = pair.under(faults, &stream()).await;
    let (_, last) = clean(&answer);
    assert!(!answer.text().contains(": a comment"), "{}", answer.text());
    assert!(last.get("impact").is_none());
    assert_eq!(last["environment_impact"]["provenance"]["method"], "measured");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn usage_that_is_nowhere_is_counted_by_the_gateway() {
    let pair = GatewayWithProvider::start().await;
    let (reported, silent) = pair.both(vec![SimulatedFault::NoUsage {}], &stream()).await;
    let (reported, silent) = (clean(&reported), clean(&silent));
    assert_eq!(reported.0, silent.0);
    assert!(silent.1["environment_impact"]["provenance"].to_string().contains("gateway"), "{}", silent.1);
    let plain = pair.under(vec![SimulatedFault::NoUsage {}], &plain()).await.json();
    assert!(plain["usage"]["completion_tokens"].as_u64().unwrap() > 0, "{plain}");
    let mut asked = stream();
    asked["stream_options"] = json!({"include_usage": true});
    let answer = pair.under(vec![SimulatedFault::NoUsage {}], &asked).await;
    conformance::check_chat_stream(&answer.body, true).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plain_answer_may_be_compressed_split_or_of_another_type() {
    let pair = GatewayWithProvider::start().await;
    let expected = pair.under(Vec::new(), &plain()).await.json();
    for faults in [
        vec![SimulatedFault::Gzip {}],
        vec![SimulatedFault::Gzip {}, SimulatedFault::Split { bytes: 9 }],
        vec![SimulatedFault::Split { bytes: 1 }],
        vec![SimulatedFault::ContentType { value: "text/plain".into() }],
    ] {
        let answer = pair.under(faults.clone(), &plain()).await;
        assert_eq!(answer.status, 200, "{faults:?} {}", answer.text());
        assert!(answer.header("content-encoding").is_none());
        assert_eq!(answer.header("content-type"), Some("application/json"), "{faults:?}");
        for member in ["choices", "usage", "environment_impact", "billing_cost", "model"] {
            assert_eq!(answer.json()[member], expected[member], "{faults:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_huge_event_passes_whole() {
    let pair = GatewayWithProvider::start().await;
    // The request has no `max_tokens`, because a small limit would truncate the long text.
    let mut request = stream();
    request.as_object_mut().unwrap().remove("max_tokens");
    let answer = pair
        .under(
            vec![SimulatedFault::Huge { bytes: 3 << 20 }, SimulatedFault::Split { bytes: 65_537 }],
            &request,
        )
        .await;
    let (text, _) = clean(&answer);
    assert!(text.len() > 3 << 20, "{}", text.len());
    let longest = answer
        .events()
        .iter()
        .filter_map(|event| event["choices"][0]["delta"]["content"].as_str().map(str::len))
        .max();
    assert!(longest >= Some(1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_html_page_is_a_failure_with_any_status() {
    let pair = GatewayWithProvider::start().await;
    for status in [200, 404, 502] {
        for ask in [plain(), stream()] {
            let answer = pair.under(vec![SimulatedFault::Html { status }], &ask).await;
            assert_eq!(answer.status, 503, "{status} {}", answer.text());
            assert!(!answer.text().to_lowercase().contains("<html"));
            assert_eq!(answer.json()["error"]["code"], "INFERENCE_3103");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_with_another_content_type_is_a_clean_stream_or_a_true_failure() {
    let pair = GatewayWithProvider::start().await;
    for value in
        ["text/event-stream;charset=UTF-8", "TEXT/EVENT-STREAM", "text/plain", "application/octet-stream"]
    {
        let answer = pair.under(vec![SimulatedFault::ContentType { value: value.into() }], &stream()).await;
        if value.to_lowercase().starts_with("text/event-stream") || answer.status == 200 {
            clean(&answer);
        } else {
            assert_eq!(
                (answer.status, &answer.json()["error"]["code"]),
                (503, &json!("INFERENCE_3103")),
                "{value}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reasoning_has_one_name_for_clients() {
    let pair = GatewayWithProvider::start().await;
    let mut ask = stream();
    ask["reasoning_effort"] = json!("low");
    let (usual, vllm) = pair.both(vec![SimulatedFault::ReasoningField {}], &ask).await;
    let thought = |answer: &Answer| -> String {
        clean(answer);
        let events = answer.events();
        assert!(events.iter().all(|event| event["choices"][0]["delta"].get("reasoning").is_none()));
        events.iter().filter_map(|event| event["choices"][0]["delta"]["reasoning_content"].as_str()).collect()
    };
    assert!(thought(&usual).contains("Simulated reasoning"));
    assert_eq!(thought(&usual), thought(&vllm));
    assert_eq!(usual.streamed_text(), vllm.streamed_text());
    ask["stream"] = json!(false);
    let body = pair.under(vec![SimulatedFault::ReasoningField {}], &ask).await.json();
    let message = &body["choices"][0]["message"];
    assert!(message["reasoning_content"].as_str().unwrap().contains("Simulated"), "{body}");
    assert!(message.get("reasoning").is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tools_name_and_id_come_once_however_often_the_engine_says_them() {
    let pair = GatewayWithProvider::start().await;
    let forms = [
        vec![SimulatedFault::RepeatedToolFields {}],
        vec![SimulatedFault::RepeatedToolFields {}, SimulatedFault::Split { bytes: 1 }],
        vec![
            SimulatedFault::RepeatedToolFields {},
            SimulatedFault::Merge { events: 4 },
            SimulatedFault::Crlf {},
        ],
        vec![SimulatedFault::NoDone {}, SimulatedFault::NoUsage {}],
    ];
    let usual = pair.under(Vec::new(), &tools(true)).await;
    clean(&usual);
    let expected = calls(&usual);
    assert_eq!(expected.len(), 2);
    for faults in forms {
        let answer = pair.under(faults.clone(), &tools(true)).await;
        clean(&answer);
        assert_eq!(calls(&answer), expected, "{faults:?}");
        let finish = answer
            .events()
            .iter()
            .find_map(|event| event["choices"][0]["finish_reason"].as_str().map(str::to_owned));
        assert_eq!(finish.as_deref(), Some("tool_calls"));
    }
    let body = pair.under(vec![SimulatedFault::RepeatedToolFields {}], &tools(false)).await.json();
    let whole = body["choices"][0]["message"]["tool_calls"].as_array().unwrap().clone();
    let names: Vec<&str> = whole.iter().map(|call| call["function"]["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["weather", "time"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_candidates_stay_apart() {
    let pair = GatewayWithProvider::start().await;
    let mut ask = stream();
    ask["n"] = json!(2);
    for faults in [
        vec![],
        vec![SimulatedFault::Merge { events: 3 }, SimulatedFault::NoDone {}],
        vec![SimulatedFault::Split { bytes: 11 }],
    ] {
        let answer = pair.under(faults, &ask).await;
        assert_eq!(answer.status, 200);
        conformance::check_chat_stream(&answer.body, false).unwrap();
        for index in [0, 1] {
            let mine = |choice: &&Value| choice["index"] == index;
            let events = answer.events();
            let choices = events.iter().flat_map(|event| event["choices"].as_array().unwrap());
            let text: String =
                choices.filter(mine).filter_map(|choice| choice["delta"]["content"].as_str()).collect();
            assert!(text.starts_with("This is a simulated answer"), "{index}: {text}");
        }
    }
    ask["stream"] = json!(false);
    let body = pair.under(vec![SimulatedFault::Gzip {}], &ask).await.json();
    let indices: Vec<_> =
        body["choices"].as_array().unwrap().iter().map(|choice| choice["index"].clone()).collect();
    assert_eq!(indices, [json!(0), json!(1)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_head_that_drips_is_waited_for() {
    let pair = GatewayWithProvider::start().await;
    clean(&pair.under(vec![SimulatedFault::DripHead { ms: 1 }], &stream()).await);
    assert_eq!(pair.under(vec![SimulatedFault::DripHead { ms: 1 }], &plain()).await.status, 200);
}
