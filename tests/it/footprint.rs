//! Energy and cost of an answer, from the provider's report to the client's metadata.

use crate::billing::entries;
use crate::harness::gateway::PATIENT;
use crate::harness::script::{
    Script, ScriptStep, completion, delta, done, event, finish, json_answer, plain, role, sse, status,
    stream, text, usage,
};
use crate::harness::{Answer, Bench, Provider};
use rust_decimal::Decimal;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Joules that the providers below have measured.
const JOULES: f64 = 40.433;
const SECOND: &str = "price = { input = 50.0, output = 50.0 }";

/// Returns an answer with an additional member.
fn with(name: &str, value: Value) -> Script {
    let mut answer = completion("Hello");
    answer[name] = value;
    json_answer(200, &answer)
}

async fn answered(bench: Bench, script: Script) -> Value {
    let provider = Provider::start().await;
    provider.then(script);
    let answer = bench.provider("a", &provider).start().await.chat().await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

async fn streamed(bench: Bench, script: Script) -> Value {
    let provider = Provider::start().await;
    provider.then(script);
    let answer = bench.provider("a", &provider).start().await.chat_stream().await;
    penstock_dialect::conformance::check_chat_stream(&answer.body, false).unwrap();
    answer.events().last().unwrap().clone()
}

/// Energy in kWh, exactly as it is written.
fn kwh(answer: &Value) -> Decimal {
    let text = answer["environment_impact"]["energy_kwh"].to_string();
    Decimal::from_scientific(&text).or_else(|_| text.parse()).unwrap()
}

fn exact(value: &Value) -> Decimal {
    let text = value.to_string();
    text.parse().or_else(|_| Decimal::from_scientific(&text)).unwrap()
}

/// 40.433 J at the accelerators, times 1.30 for the host, 1.12 for idling and 1.16 for the building, in kWh. The
/// measured energy replaces the formula, so the token counts do not matter.
fn is_measured(answer: &Value) {
    let provenance = &answer["environment_impact"]["provenance"];
    assert_eq!(provenance["method"], "measured", "{answer}");
    let expected = JOULES * 1.30 * 1.12 * 1.16 / 3.6e6;
    let reported = answer["environment_impact"]["energy_kwh"].as_f64().unwrap();
    assert!((reported - expected).abs() < 1e-11, "{reported} is not {expected}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn energy_at_the_root_of_an_answer_is_taken_over_the_formula() {
    let energy = json!({"energy_joules": JOULES, "energy_kwh": JOULES / 3.6e6});
    is_measured(&answered(Bench::new(), with("energy", energy.clone())).await);
    let mut last = delta(json!({}), Some("stop"));
    last["energy"] = energy;
    let script = vec![sse(), role(), text("Hello"), event(&last), usage(11, 1), done(), ScriptStep::End];
    is_measured(&streamed(Bench::new(), script).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn energy_in_an_impact_object_is_taken_over_the_formula() {
    let impact = json!({"version": "20250922", "energy": {"total": 40433, "unit": "Wms"}});
    is_measured(&answered(Bench::new(), with("impact", impact.clone())).await);
    let counted = json!({"id": "prov-1", "object": "chat.completion.chunk", "created": 1, "model": "theirs",
        "choices": [], "usage": {"prompt_tokens": 11, "completion_tokens": 1, "total_tokens": 12}, "impact": impact});
    let script = vec![sse(), role(), text("Hello"), finish("stop"), event(&counted), done(), ScriptStep::End];
    is_measured(&streamed(Bench::new(), script).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn energy_in_a_comment_of_the_stream_is_taken_over_the_formula() {
    let comment = format!(": energy {}\n\n", json!({"energy_joules": JOULES, "duration_seconds": 0.13}));
    let mut script = vec![sse(), role(), text("Hello"), finish("stop"), usage(11, 1)];
    script.extend([ScriptStep::Chunk(comment.into_bytes()), done(), ScriptStep::End]);
    is_measured(&streamed(Bench::new(), script).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_formula_says_that_it_is_one() {
    let body = answered(Bench::new(), plain("Hello")).await;
    let impact = &body["environment_impact"];
    let provenance = &impact["provenance"];
    assert_eq!(provenance["method"], "benchmark");
    let (low, high) = (exact(&provenance["energy_kwh_low"]), exact(&provenance["energy_kwh_high"]));
    assert!(low < kwh(&body) && kwh(&body) < high);
    assert_eq!(provenance["grid"]["g_per_kwh"], 31);
    assert!(provenance.get("assumed").is_none(), "pue and wue are configured");
    assert!(exact(&provenance["embodied_g_co2"]) > Decimal::ZERO);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn provenance_can_be_left_out() {
    let bench = || Bench::new().settings("[impact]\nprovenance = false");
    for body in [answered(bench(), plain("Hello")).await, streamed(bench(), stream(&["Hello"])).await] {
        let impact = body["environment_impact"].as_object().unwrap();
        assert!(!impact.contains_key("provenance"));
        assert_eq!(impact.len(), 8, "the seven of the contract and the country: {impact:?}");
    }
}

/// Returns the answer of a good provider, after another provider has failed with the script `bad`.
async fn after(bad: Script) -> Answer {
    let (first, good) = (Provider::start().await, Provider::start().await);
    first.always(bad);
    let running = Bench::new()
        .settings("[routing]\nquick_retry = \"0s\"")
        .provider("bad", &first)
        .provider_with("good", &good, PATIENT, SECOND)
        .start()
        .await;
    let mut ask = running.ask_stream();
    ask["model"] = json!("m:price");
    let answer = running.client.post("/v1/chat/completions", &ask).await;
    assert_eq!(answer.header("x-penstock-provider"), Some("good"), "{}", answer.text());
    answer
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn energy_of_a_failed_attempt_is_reported_and_not_charged() {
    let alone = answered(Bench::new(), plain("Hello")).await;
    assert!(kwh(&alone) > Decimal::ZERO);
    let refused = after(status(503)).await.events().last().unwrap().clone();
    // The provider read the prompt and began to generate before its connection broke.
    let broken = after(vec![sse(), role(), ScriptStep::Cut]).await.events().last().unwrap().clone();
    assert!(kwh(&broken) > kwh(&refused), "{broken}\n{refused}");
    assert_eq!(broken["billing_cost"]["credits"], refused["billing_cost"]["credits"]);
    assert_eq!(broken["environment_impact"]["provider_id"], "good");
}

/// Returns a configuration of a chat model `t` at these providers, whose energy is computed from the duration of an
/// attempt only.
fn by_time(providers: &[(&str, &Provider)]) -> Bench {
    let mut toml = "[[models]]\nid = \"t\"\nkind = \"chat\"\ncontext_length = 4096\n\
                    supported_parameters = [\"stream\", \"max_tokens\"]\nprice = { input = 1.0, output = 2.0 }\n"
        .to_owned();
    for (id, provider) in providers {
        let price = if *id == "good" { SECOND } else { "" };
        toml.push_str(&format!(
            "[[providers]]\nid = \"{id}\"\noperator = \"Test\"\ncountry = \"FR\"\ncity = \"Paris\"\npue = 1.16\n\
             wue = 0.2\nbase_url = \"http://{}/v1\"\n{PATIENT}\n[[providers.offers]]\nmodel = \"t\"\n{price}\n",
            provider.address
        ));
    }
    Bench::new().settings("[routing]\nquick_retry = \"0s\"").more(&toml)
}

fn ask_by_time() -> Value {
    json!({"model": "t:price", "stream": true, "messages": [{"role": "user", "content": "Hi"}]})
}

const CHAT: &str = "/v1/chat/completions";
const WHILE: Duration = Duration::from_millis(300);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_time_alone_tells_the_time_of_failed_attempts_counts() {
    let (bad, good) = (Provider::start().await, Provider::start().await);
    let slow = |end: Vec<ScriptStep>| [vec![sse(), role(), ScriptStep::Pause(WHILE)], end].concat();
    good.streams(slow(vec![text("Hello"), finish("stop"), usage(11, 1), done(), ScriptStep::End]));
    let began = Instant::now();
    let one = by_time(&[("good", &good)]).start().await.client.post(CHAT, &ask_by_time()).await;
    let one = one.events().last().unwrap().clone();
    let took = began.elapsed();
    assert_eq!(one["environment_impact"]["provenance"]["method"], "latency_proxy", "{one}");
    bad.streams(slow(vec![ScriptStep::Cut]));
    good.streams(stream(&["Hello"]));
    let running = by_time(&[("bad", &bad), ("good", &good)]).start().await;
    let both = running.client.post(CHAT, &ask_by_time()).await;
    assert_eq!(both.header("x-penstock-provider"), Some("good"));
    assert!(bad.calls() > 0);
    let both = both.events().last().unwrap().clone();
    // Minimum share of the failed attempt: it took at least the pause of its script, and the successful attempt took
    // at most the time that the test measured.
    let share = Decimal::try_from(WHILE.as_secs_f64() / took.as_secs_f64() * 0.99).unwrap();
    assert!(kwh(&both) > kwh(&one) * share, "{both}\n{one}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_time_alone_tells_a_stream_that_is_left_has_drawn() {
    let provider = Provider::start().await;
    provider.streams(vec![sse(), role(), text("Hello"), ScriptStep::Hang]);
    let running = by_time(&[("a", &provider)]).start().await;
    drop(running.client.stream_until(CHAT, &ask_by_time(), "Hello").await);
    provider.until_left(1).await;
    let all = entries(&running).await;
    let charge = all.iter().find(|entry| entry["act"] == "settle").unwrap();
    let drawn: f64 = charge["kwh"].as_str().unwrap_or("0").parse().unwrap();
    assert!(drawn > 0.0, "{charge}");
}

/// Returns the last event of a long stream with three providers: the first breaks off, the second answers with the
/// script `second`, and the third continues the stream.
async fn rescued(second: Script) -> Value {
    let long = "x".repeat(40_000);
    let (first, between, good) = (Provider::start().await, Provider::start().await, Provider::start().await);
    first.always(vec![sse(), role(), text(&long), ScriptStep::Cut]);
    between.always(second);
    good.always(stream(&[&long, " end"]));
    let running = Bench::new()
        .provider("first", &first)
        .provider_with("between", &between, PATIENT, "price = { input = 5.0, output = 5.0 }")
        .provider_with("good", &good, PATIENT, SECOND)
        .start()
        .await;
    let mut ask = running.ask_stream();
    ask["model"] = json!("m:price");
    let answer = running.client.post("/v1/chat/completions", &ask).await;
    assert_eq!((first.calls(), between.calls(), good.calls()), (1, 1, 1));
    answer.events().last().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusing_failover_provider_has_no_energy_for_others_output() {
    // A provider that refuses with 429 did no work, and adds no energy. After a 503 it may have read the prompt.
    let (refused, full) = (rescued(status(503)).await, rescued(status(429)).await);
    let (refused, alone) = (kwh(&refused), kwh(&full));
    assert!(refused > alone, "it may have read the prompt");
    assert!((refused - alone) * Decimal::from(100) < alone, "{refused} {alone}");
    // A provider that repeated half of the text consumed energy for that half.
    let half = vec![sse(), role(), text(&"x".repeat(20_000)), ScriptStep::Cut];
    let again = kwh(&rescued(half).await) - alone;
    assert!(again * Decimal::from(3) > alone / Decimal::from(4) && again < alone, "{again} {alone}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cached_tokens_cost_and_draw_less() {
    let mut cached = completion("Hello");
    cached["usage"]["prompt_tokens_details"] = json!({"cached_tokens": 10});
    let with_cache = answered(Bench::new(), json_answer(200, &cached)).await;
    let without = answered(Bench::new(), plain("Hello")).await;
    // 1 token at 1 EUR, 10 at 0.1 EUR and 7 at 2 EUR a million: 16e-6 EUR, 0.0016 credits.
    assert_eq!(with_cache["billing_cost"]["credits"], json!(0.0016));
    assert_eq!(with_cache["usage"]["prompt_tokens_details"]["cached_tokens"], 10);
    assert!(kwh(&with_cache) < kwh(&without));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_billed_by_energy_is_paid_with_energy() {
    let bench = Bench::new().model("billing = \"energy\"").settings("[billing]\neur_per_kwh = 5.0");
    let body = answered(bench, plain("Hello")).await;
    let cost = &body["billing_cost"];
    assert_eq!((&cost["paid_with"], &cost["credits"]), (&json!("energy"), &json!(0)));
    let expected = (kwh(&body) * Decimal::from(5)).round_dp(8);
    assert_eq!(exact(&cost["energy"]), expected);
    assert!(expected > Decimal::ZERO);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn uncounted_tokens_are_counted_by_the_gateway_and_marked() {
    let mut silent = completion("Hello, this is an answer of some length.");
    silent.as_object_mut().unwrap().remove("usage");
    let plain_body = answered(Bench::new(), json_answer(200, &silent)).await;
    let words = ["Hello, this is an ", "answer of some length."];
    let script = vec![sse(), role(), text(words[0]), text(words[1]), finish("stop"), done(), ScriptStep::End];
    let stream_body = streamed(Bench::new(), script).await;
    for body in [plain_body, stream_body] {
        let impact = &body["environment_impact"];
        assert!(impact["provenance"].to_string().contains("gateway"), "{impact}");
        assert!(kwh(&body) > Decimal::ZERO);
        assert!(body["billing_cost"]["credits"].as_f64().unwrap() > 0.0);
    }
    let counted = answered(Bench::new(), plain("Hello")).await;
    assert!(!counted["environment_impact"]["provenance"].to_string().contains("gateway"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_reports_and_charges_the_same_as_a_plain_response() {
    let mut whole = completion("Hello");
    whole["usage"] = json!({"prompt_tokens": 11, "completion_tokens": 2, "total_tokens": 13});
    let whole = answered(Bench::new(), json_answer(200, &whole)).await;
    let stream = streamed(Bench::new(), stream(&["Hel", "lo"])).await;
    assert_eq!(whole["environment_impact"], stream["environment_impact"]);
    assert_eq!(whole["billing_cost"], stream["billing_cost"]);
}

/// Starts a gateway with the model and the provider of a test vector, and returns its answer.
async fn vector(all: &Value, vector: &Value) -> Value {
    let inputs = &vector["inputs"];
    let card = &all["models"][inputs["model"].as_str().unwrap()];
    let id = inputs["provider"].as_str().unwrap();
    let site = &all["providers"][id];
    let word = |value: &Value| value.as_str().unwrap().to_owned();
    let mut price = String::new();
    for (ours, theirs) in
        [("input", "p_in"), ("cached_input", "p_cached"), ("output", "p_out"), ("kwh", "eur_kwh")]
    {
        if let Some(value) = card[theirs].as_str() {
            // Test vectors have token prices in credits per million tokens; a credit is 0.01 EUR.
            let credit = if ours == "kwh" { Decimal::ONE } else { Decimal::new(1, 2) };
            let value = value.parse::<Decimal>().unwrap() * credit;
            price.push_str(&format!("{ours} = {value}, "));
        }
    }
    let provider = Provider::start().await;
    let tokens = |name: &str| inputs["usage"][name].as_u64().unwrap_or(0);
    // The text has one byte per token: with fewer bytes, the reported tokens would be implausible.
    let text = |name: &str| "x".repeat(usize::try_from(tokens(name)).unwrap());
    let mut reply = completion(&text("out"));
    reply["usage"] = json!({"prompt_tokens": tokens("in"), "completion_tokens": tokens("out"),
        "total_tokens": tokens("in") + tokens("out"), "prompt_tokens_details": {"cached_tokens": tokens("cached")}});
    let measured = inputs["measured"]["raw"].as_str().map(|raw| serde_json::from_str::<Value>(raw).unwrap());
    for (name, value) in measured.iter().filter_map(Value::as_object).flatten() {
        reply[name] = value.clone();
    }
    provider.then(json_answer(200, &reply));
    let more = format!(
        "[[models]]\nid = \"v\"\nkind = \"chat\"\ncontext_length = 131072\nbilling = {}\nprice = {{ {} }}\n\
         energy = {{ active_params_b = {}, joules_per_output_token = {}, method = {} }}\n\
         [[providers]]\nid = \"{id}\"\noperator = \"Test\"\ncountry = {}\ncity = \"There\"\npue = {}\nwue = {}\n\
         base_url = \"http://{}/v1\"\nbills_measured = {}\n{PATIENT}\n[[providers.offers]]\nmodel = \"v\"\n",
        card["bill"],
        price.trim_end_matches(", "),
        word(&card["active"]),
        word(&card["e_out"]),
        card["method"],
        site["location"],
        word(&site["pue"]),
        word(&site["wue"]),
        provider.address,
        measured.is_some(),
    );
    let other = Provider::start().await;
    let running = Bench::new().provider("other", &other).more(&more).start().await;
    let mut ask = running.ask();
    ask["model"] = json!("v");
    ask["messages"][0]["content"] = json!(text("in"));
    let answer = running.client.post("/v1/chat/completions", &ask).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_published_vectors_of_chat_are_answered_to_the_digit() {
    let all: Value =
        serde_json::from_str(include_str!("../../plugins/footprint/testdata/impact_vectors.json")).unwrap();
    let mut seen = 0;
    for row in all["vectors"].as_array().unwrap() {
        let inputs = &row["inputs"];
        if inputs["batch"] == true || inputs["failed"] == true || !inputs["usage"]["out"].is_u64() {
            continue;
        }
        seen += 1;
        let body = vector(&all, row).await;
        let impact = &body["environment_impact"];
        for (name, value) in row["environment_impact"].as_object().unwrap() {
            let value = value.as_str().unwrap();
            match value.parse::<Decimal>() {
                Ok(number) => assert_eq!(exact(&impact[name]), number, "{} {name}", row["id"]),
                Err(_) => assert_eq!(impact[name], value),
            }
        }
        let cost = &body["billing_cost"];
        assert_eq!(cost["paid_with"], row["billing_cost"]["paid_with"]);
        for name in ["energy", "credits"] {
            let value: Decimal = row["billing_cost"][name].as_str().unwrap().parse().unwrap();
            assert_eq!(exact(&cost[name]), value, "{} {name}", row["id"]);
        }
    }
    assert!(seen >= 4, "{seen}");
}

/// A provider that runs its models for throughput uses less energy for its output, at the same price.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_throughput_tier_lowers_the_footprint_of_output_alone() {
    let answer_of = async |offer: &str, output: u64| {
        let provider = Provider::start().await;
        let mut reply = completion("Hello");
        reply["usage"] = json!({"prompt_tokens": 1, "completion_tokens": output});
        provider.then(json_answer(200, &reply));
        let running = Bench::new().provider_with("a", &provider, PATIENT, offer).start().await;
        running.chat().await.json()
    };
    const TIER: &str = "throughput_tier = true";
    let (usual, tier) = (answer_of("", 60).await, answer_of(TIER, 60).await);
    // The difference to an answer without output is the energy of the output only.
    let of_output =
        (kwh(&usual) - kwh(&answer_of("", 10).await), kwh(&tier) - kwh(&answer_of(TIER, 10).await));
    let off = (of_output.1 - of_output.0 * Decimal::new(6, 1)).abs();
    assert!(off <= Decimal::new(2, 12), "{of_output:?}");
    assert!(kwh(&tier) > Decimal::ZERO);
    assert_eq!(tier["billing_cost"], usual["billing_cost"]);
}
