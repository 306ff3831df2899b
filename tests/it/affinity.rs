//! Conversations go to the offer that has their prefix in its cache. The tests run whole gateways with simulated
//! providers, which report the cached tokens of prefixes that they have received before.

use crate::harness::Bench;
use crate::harness::gateway::Running;
use penstock_simulator::{SimulatedServer, SimulatorOptions};
use serde_json::{Value, json};

const CONVERSATIONS: usize = 16;
const ROUNDS: usize = 6;

/// Simulated providers that differ only in their names.
struct Providers(Vec<SimulatedServer>);

impl Providers {
    async fn start(count: u64) -> Self {
        let mut all = Vec::new();
        for seed in 0..count {
            let options = SimulatorOptions { seed, ..SimulatorOptions::default() };
            all.push(SimulatedServer::start(options).await.unwrap());
        }
        Self(all)
    }

    fn bench(&self) -> Bench {
        let add = |bench: Bench, (number, server): (usize, &SimulatedServer)| {
            bench.provider_at(&format!("p{number}"), &format!("http://{}/v1", server.address), "", "")
        };
        self.0.iter().enumerate().fold(Bench::new(), add)
    }
}

/// Conversation from the view of its client.
struct Conversation {
    model: &'static str,
    messages: Vec<Value>,
    /// Prompt tokens of the last request.
    prefix: u64,
    provider: String,
}

impl Conversation {
    fn new(number: usize) -> Self {
        let first = format!("Conversation {number}. {}", "Tell me of the pipes of a mill. ".repeat(6));
        Self {
            model: "m",
            messages: vec![json!({"role": "user", "content": first})],
            prefix: 0,
            provider: String::new(),
        }
    }

    /// Sends the next request; returns its answer, and true if the prefix of the previous one was cached.
    async fn take(&mut self, running: &Running, headers: &[(&str, &str)]) -> (Value, bool) {
        let body = json!({"model": self.model, "messages": self.messages, "max_tokens": 24});
        let body = serde_json::to_vec(&body).unwrap();
        let mut all = vec![("content-type", "application/json")];
        all.extend_from_slice(headers);
        let answer = running.client.send("POST", "/v1/chat/completions", &all, &body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        self.provider = answer.header("x-penstock-provider").unwrap().to_owned();
        let answer = answer.json();
        let usage = &answer["usage"];
        let cached = usage["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
        // The cache works in blocks of 16 tokens, so up to 15 tokens of the prefix are not cached.
        let hit = self.prefix > 0 && cached + 16 > self.prefix;
        self.prefix = usage["prompt_tokens"].as_u64().unwrap();
        self.messages
            .push(json!({"role": "assistant", "content": answer["choices"][0]["message"]["content"]}));
        self.messages
            .push(json!({"role": "user", "content": "And then? Tell me more of it, in other words."}));
        (answer, hit)
    }
}

/// Returns the share of later requests whose prefix was cached; the gateways alternate.
async fn hits(gateways: &[&Running]) -> f64 {
    let mut all: Vec<Conversation> = (0..CONVERSATIONS).map(Conversation::new).collect();
    let (mut hits, mut later) = (0_u32, 0_u32);
    for round in 0..ROUNDS {
        for (number, conversation) in all.iter_mut().enumerate() {
            let gateway = gateways[(round + number) % gateways.len()];
            let (_, hit) = conversation.take(gateway, &[]).await;
            hits += u32::from(hit);
            later += u32::from(round > 0);
        }
    }
    f64::from(hits) / f64::from(later)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conversations_over_four_offers_find_their_prefix_cached() {
    let providers = Providers::start(4).await;
    let running = providers.bench().start().await;
    let hits = hits(&[&running]).await;
    assert!(hits >= 0.9, "{hits}");
    let used = providers.0.iter().filter(|server| server.control().counts().generations > 0).count();
    assert!(used >= 3, "the load is spread over {used} providers");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_without_affinity_spreads_each_request() {
    let providers = Providers::start(4).await;
    let running = providers.bench().model("affinity = false").start().await;
    let hits = hits(&[&running]).await;
    assert!((0.05..0.6).contains(&hits), "{hits}");
    let metrics = running.admin().get("/metrics").await.text();
    assert!(!metrics.contains("penstock_session_requests_total{"), "no session is looked for");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_saving_is_in_the_provenance_and_in_the_metrics() {
    let providers = Providers::start(4).await;
    let running = providers.bench().start().await;
    let mut conversation = Conversation::new(0);
    let (first, _) = conversation.take(&running, &[]).await;
    assert_eq!(first["environment_impact"]["provenance"].get("cache"), None, "absent without cached tokens");
    let (second, hit) = conversation.take(&running, &[]).await;
    assert!(hit);
    let cached = second["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
    let cache = &second["environment_impact"]["provenance"]["cache"];
    assert_eq!(cache["tokens"], cached);
    // Cached input costs a tenth of a euro per million tokens, other input one euro; a credit is a cent.
    let credits = cached as f64 * 0.9 / 1e6 / 0.01;
    assert!((cache["credits_saved"].as_f64().unwrap() - credits).abs() < 1e-6, "{cache}");
    // 0.0036 J per token and billion parameters. A cached token takes a tenth; the energy of an uncached one grows
    // with the length of the prompt.
    let prompt = second["usage"]["prompt_tokens"].as_f64().unwrap();
    let joules = 0.0036 * 8.0 * cached as f64 * (1.0 + prompt / 1e5 - 0.1) * 1.30 * 1.12 * 1.16;
    assert!((cache["energy_kwh_saved"].as_f64().unwrap() - joules / 3.6e6).abs() < 1e-11, "{cache}");
    let metrics = running.admin().get("/metrics").await.text();
    for line in [
        r#"penstock_session_requests_total{model="m",outcome="new"} 1"#,
        r#"penstock_session_requests_total{model="m",outcome="stayed"} 1"#,
    ] {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
    let provider = &conversation.provider;
    let tokens = format!("penstock_cached_tokens_total{{model=\"m\",provider=\"{provider}\"}} {cached}");
    assert!(metrics.contains(&tokens), "{tokens}\n{metrics}");
    assert!(metrics.contains("penstock_cache_saved_kwh_total{"));
    assert!(metrics.contains("penstock_cache_saved_credits_total{"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateways_that_share_nothing_send_a_conversation_to_the_same_offer() {
    let providers = Providers::start(4).await;
    let one = providers.bench().start().await;
    let two = providers.bench().start().await;
    // Warm-up: unmeasured offers are tried at random. Afterwards, the flavor `price` tries no other offers at random.
    let agreed = async |name: &str| {
        let mut agreed = 0;
        for number in 0..CONVERSATIONS {
            let session = format!("{name}_{number}");
            let header = [("x-session-affinity", session.as_str())];
            let new = || Conversation { model: "m:price", ..Conversation::new(number) };
            let (mut first, mut second) = (new(), new());
            first.take(&one, &header).await;
            second.take(&two, &header).await;
            agreed += usize::from(first.provider == second.provider);
        }
        agreed
    };
    agreed("warm").await;
    let agreed = agreed("ses").await;
    // The gateways need not always agree: a slow answer makes an offer look slower to one of them for a while.
    assert!(agreed * 10 >= CONVERSATIONS * 7, "{agreed} of {CONVERSATIONS}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_header_of_an_agent_keeps_different_prompts_together() {
    let providers = Providers::start(4).await;
    let running = providers.bench().start().await;
    let mut used = Vec::new();
    for number in 0..12 {
        let mut conversation = Conversation::new(number);
        conversation.take(&running, &[("x-claude-code-session-id", "0b7e")]).await;
        used.push(conversation.provider);
    }
    // On a busy machine a slow answer may move the session once.
    used.dedup();
    assert!(used.len() <= 2, "{used:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conversation_leaves_an_offer_that_is_gone_and_stays_at_the_next() {
    let mut providers = Providers::start(3).await;
    let running = providers.bench().start().await;
    let mut conversation = Conversation::new(0);
    conversation.take(&running, &[]).await;
    conversation.take(&running, &[]).await;
    let gone = conversation.provider.clone();
    let number: usize = gone.trim_start_matches('p').parse().unwrap();
    providers.0.remove(number).stop().await;
    conversation.take(&running, &[]).await;
    let next = conversation.provider.clone();
    assert_ne!(next, gone);
    for _ in 0..3 {
        let (_, hit) = conversation.take(&running, &[]).await;
        assert!(hit);
        assert_eq!(conversation.provider, next);
    }
    let metrics = running.admin().get("/metrics").await.text();
    assert!(metrics.contains(r#"penstock_session_requests_total{model="m",outcome="moved"} 1"#), "{metrics}");
}

/// Runs three conversations of `/v1/responses` for four turns each; returns the numbers of new and of returning
/// sessions. Unless responses are stored, the prompts have different beginnings.
async fn responses_sessions(names: impl Fn(usize) -> Value, is_stored: bool) -> (u64, u64) {
    let providers = Providers::start(4).await;
    let running = providers.bench().start().await;
    let client = running.key(&json!({"name": "storing", "store_responses": true})).await;
    for number in 0..3 {
        let mut previous = Value::Null;
        for turn in 0..4 {
            let input = format!("Conversation {number}, turn {turn}. {}", "Tell me of mills. ".repeat(6));
            let mut body = json!({"model": "m", "input": input, "max_output_tokens": 24, "store": is_stored,
                "previous_response_id": previous});
            body.as_object_mut().unwrap().extend(names(number).as_object().unwrap().clone());
            let answer = client.post("/v1/responses", &body).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
            if is_stored {
                previous = answer.json()["id"].clone();
            }
        }
    }
    let metrics = running.admin().get("/metrics").await.text();
    let count = |outcome: &str| {
        let series = format!("penstock_session_requests_total{{model=\"m\",outcome=\"{outcome}\"}} ");
        let line = metrics.lines().find_map(|line| line.strip_prefix(&series));
        line.map_or(0, |number| number.parse().unwrap())
    };
    // On a busy machine a slow answer may move a session to another offer. Of four offers, a random one is the same in two
    // of nine requests.
    assert!(count("stayed") >= 6, "{metrics}");
    (count("new"), count("stayed") + count("moved"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_of_a_responses_request_name_its_session() {
    let by_key = responses_sessions(|number| json!({"prompt_cache_key": format!("k{number}")}), false).await;
    assert_eq!(by_key, (3, 9));
    for name in ["session_id", "thread_id", "conversation_id"] {
        let names = |number: usize| json!({"metadata": {name: format!("s{number}")}});
        assert_eq!(responses_sessions(names, false).await, (3, 9), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_beginning_of_a_stored_conversation_names_its_session() {
    assert_eq!(responses_sessions(|_| json!({}), true).await, (3, 9));
}
