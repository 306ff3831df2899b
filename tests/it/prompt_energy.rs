//! Energy and price of prompts: they grow with the length of each prompt and not with their sum, and are less for cached
//! tokens.

use crate::harness::gateway::Running;
use crate::harness::script::{ScriptStep, completion, done, finish, json_answer, role, sse, text, usage};
use crate::harness::{Bench, Provider};
use rust_decimal::Decimal;
use serde_json::{Value, json};

const PROMPT_TOKENS: u64 = 4_900;

async fn running(provider: &Provider, lines: &str) -> Running {
    let offer = format!(
        "[[models]]\nid = \"c\"\nkind = \"chat\"\ncontext_length = 8192\nbilling = \"energy\"\n\
         price = {{ kwh = 5 }}\nenergy = {{ active_params_b = 8, joules_per_output_token = 0.119 }}\n\
         [[providers]]\nid = \"p\"\noperator = \"T\"\ncountry = \"FI\"\ncity = \"Turku\"\npue = 1.2\n\
         base_url = \"http://{}/v1\"\n[[providers.offers]]\nmodel = \"c\"\n{lines}\n",
        provider.address
    );
    Bench::new().more(&offer).start().await
}

fn number(value: &Value) -> Decimal {
    let text = value.to_string();
    text.parse().or_else(|_| Decimal::from_scientific(&text)).unwrap()
}

/// Returns the energy in kWh, and the charge in EUR.
fn figures(answer: &Value) -> (Decimal, Decimal) {
    let charge = &answer["billing_cost"];
    let eur = number(&charge["energy"]);
    (number(&answer["environment_impact"]["energy_kwh"]), eur)
}

/// Asserts that the figures are `times` those of one request, except for rounding.
fn are_multiples(times: u64, all: (Decimal, Decimal), one: (Decimal, Decimal)) {
    let times = Decimal::from(times);
    assert!((all.0 - one.0 * times).abs() <= Decimal::new(5, 12), "{all:?} {one:?}");
    assert!((all.1 - one.1 * times).abs() <= Decimal::new(5, 8), "{all:?} {one:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn choices_that_are_requested_separately_have_the_energy_of_that_many_requests() {
    let provider = Provider::start().await;
    let mut whole = completion("Hello");
    whole["usage"] = json!({"prompt_tokens": PROMPT_TOKENS, "completion_tokens": 5,
        "total_tokens": PROMPT_TOKENS + 5, "prompt_tokens_details": {"cached_tokens": 900}});
    provider.always(json_answer(200, &whole));
    let running = running(&provider, "max_n = 1").await;
    let ask = |n: u64, stream: bool| {
        json!({"model": "c", "n": n, "max_tokens": 50, "stream": stream,
            "messages": [{"role": "user", "content": "word ".repeat(4_000)}]})
    };
    let one = running.client.post("/v1/chat/completions", &ask(1, false)).await;
    let three = running.client.post("/v1/chat/completions", &ask(3, false)).await;
    assert_eq!((one.status, three.status), (200, 200), "{}", three.text());
    assert_eq!(three.json()["usage"]["prompt_tokens"], PROMPT_TOKENS * 3);
    are_multiples(3, figures(&three.json()), figures(&one.json()));
    let tokens = usage(PROMPT_TOKENS, 5);
    provider.always(vec![sse(), role(), text("Hello"), finish("stop"), tokens, done(), ScriptStep::End]);
    let one = running.client.post("/v1/chat/completions", &ask(1, true)).await;
    let three = running.client.post("/v1/chat/completions", &ask(3, true)).await;
    let last = |answer: &crate::harness::Answer| figures(answer.events().last().unwrap());
    are_multiples(3, last(&three), last(&one));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_of_prompts_has_the_energy_of_its_prompts() {
    let provider = Provider::start().await;
    let answer = |count: u64| {
        let choice = |index| json!({"index": index, "text": "Hello", "finish_reason": "stop"});
        json!({"id": "c", "object": "text_completion", "created": 1, "model": "t",
            "choices": (0..count).map(choice).collect::<Vec<Value>>(),
            "usage": {"prompt_tokens": PROMPT_TOKENS * count, "completion_tokens": 2 * count,
                "total_tokens": (PROMPT_TOKENS + 2) * count}})
    };
    let running = running(&provider, "completions = true").await;
    let prompt = "word ".repeat(4_000);
    let mut seen = Vec::new();
    for count in [1, 3] {
        provider.then(json_answer(200, &answer(count)));
        let prompts = vec![prompt.as_str(); usize::try_from(count).unwrap()];
        let body = json!({"model": "c", "prompt": prompts, "max_tokens": 50});
        let answer = running.client.post("/v1/completions", &body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        seen.push(figures(&answer.json()));
    }
    are_multiples(3, seen[1], seen[0]);
    // A long prompt keeps its energy if the list has short ones too.
    let mut with_short = answer(3);
    with_short["usage"] = json!({"prompt_tokens": PROMPT_TOKENS + 4, "completion_tokens": 6,
        "total_tokens": PROMPT_TOKENS + 10});
    provider.then(json_answer(200, &with_short));
    let body = json!({"model": "c", "prompt": [prompt.as_str(), "a", "b"], "max_tokens": 50});
    let answer = running.client.post("/v1/completions", &body).await;
    let (energy, _) = figures(&answer.json());
    assert!((energy - seen[0].0) / seen[0].0 < Decimal::new(1, 2), "{energy} {seen:?}");
    assert!(energy > seen[0].0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cached_tokens_of_embeddings_and_rerank_have_their_price_and_energy() {
    for (kind, path, ask, member, results) in [
        (
            "embedding",
            "/v1/embeddings",
            json!({"input": "word ".repeat(500)}),
            "data",
            json!([{"index": 0, "embedding": [0.5]}]),
        ),
        (
            "rerank",
            "/v1/rerank",
            json!({"query": "q", "documents": ["word ".repeat(500)]}),
            "results",
            json!([{"index": 0, "relevance_score": 0.5}]),
        ),
    ] {
        let provider = Provider::start().await;
        let mut answer = json!({"usage": {"prompt_tokens": 1000, "total_tokens": 1000,
            "prompt_tokens_details": {"cached_tokens": 800}}});
        answer[member] = results;
        provider.always(json_answer(200, &answer));
        let offer = "price = { input = 1.0, cached_input = 0.1 }";
        let running = Bench::new().kind(kind).provider_with("a", &provider, "", offer).start().await;
        let mut body = ask;
        body["model"] = json!("m");
        let answer = running.client.post(path, &body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let answer = answer.json();
        assert_eq!(number(&answer["billing_cost"]["credits"]), Decimal::new(28, 3), "{kind}");
        // 8e9 parameters at 0.0072 J, and a tenth of it for a cached token.
        let joules = (200.0 + 80.0) * 0.0072 * 8.0 * 1.30 * 1.12 * 1.16;
        let energy = answer["environment_impact"]["energy_kwh"].as_f64().unwrap();
        assert!((energy - joules / 3.6e6).abs() < 1e-12, "{energy}");
        assert_eq!(answer["environment_impact"]["provenance"]["cache"]["tokens"], 800, "{kind}");
    }
}
