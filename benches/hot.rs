//! Benchmark of the processor time that a request costs in the plugins: `cargo bench --bench hot`; a single group with
//! `cargo bench --bench hot -- ask`.
//!
//! Only pure code is measured here, without sockets; `benches/load` compares the complete gateway with other proxies.
#![allow(missing_docs, reason = "the macros of the harness make items without docs")]
#![allow(clippy::unwrap_used, reason = "what is made up here is well-formed")]

use bytes::Bytes;
use criterion::{
    BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main, measurement::WallTime,
};
use penstock::billing::Ledger;
use penstock::config::{ResolveEnv, load_text};
use penstock::time::clock::ProcessClock;
use penstock::upstream::pricing::{ChargeContext, OfferPricing};
use penstock_core::{
    AttemptTarget, Dialect, InferenceRequest, ModelKind, OfferCapabilities, OutputBuffer, TokenUsage,
    WorkDone,
};
use penstock_dialect::find_translator;
use penstock_footprint::{
    AttemptWork, EnergyProfile, METHODOLOGY_VERSION, OfferFactors, ServiceSite, grid, meter_boundary_name,
};
use penstock_pricing::{BilledWork, PayingWallet, Tariff, compute_charge};
use penstock_request_validation::{MessagesPurpose, RequestLimits};
use penstock_response_metadata::{
    BillingCost, DataCentreInfo, EnergyProvenance, EnvironmentImpact, GridInfo, SiteJson,
};
use penstock_routing::{BALANCED, Candidate, ECO, SPEED, estimate_price, plan};
use penstock_storage::ledger::LedgerStore;
use penstock_tokens::{PromptConversation, TokenCounter};
use serde_json::{Value, json};
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

const PROSE: &str = "A gateway takes a request, proves it sane, picks a provider and hands it on; if that provider \
                     fails, another one answers, and the client never learns that anything was wrong. ";
const CODE: &str = "fn add(left: u64, right: &str) -> Result<u64, Error> {\n\tlet right: u64 = right.parse()?;\n\t\
                    debug!(\"{left} + {right}\\n\");\n\tOk(left + right)\n}\n\n";
const IMAGE: &str = "iVBORw0KGgoAAAANSUhEUgAAB9AAAAfQCAYAAACaOMR5AAAg+/aE";
const EVENTS: usize = 1024;

/// Returns `size` characters of a repeated sample.
fn repeat_text(sample: &str, size: usize) -> String {
    sample.chars().cycle().take(size).collect()
}

/// Returns a request body with these messages and the members that clients usually send.
fn body(messages: &Value) -> Bytes {
    json!({"model": "org/model:eco", "messages": messages, "temperature": 0.7, "max_tokens": 512, "stream": true})
        .to_string()
        .into()
}

/// Returns a conversation of about `size` bytes, in messages of 4 KiB; the last one is the user's.
fn conversation(sample: &str, size: usize) -> Bytes {
    let turns = size.div_ceil(4096) | 1;
    let role = |turn| if turn % 2 == 0 { "user" } else { "assistant" };
    let text = repeat_text(sample, (size / turns).saturating_sub(60));
    body(&(0..turns).map(|turn| json!({"role": role(turn), "content": text})).collect())
}

/// Returns a question about an image of about `size` bytes, in the chat dialect.
fn picture(size: usize) -> Bytes {
    let url = format!("data:image/png;base64,{}", repeat_text(IMAGE, size / 4 * 4));
    body(&json!([{"role": "user", "content": [
        {"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": url}}]}]))
}

fn target(abilities: &OfferCapabilities) -> AttemptTarget<'_> {
    AttemptTarget {
        model: "their/model",
        dialect: Dialect::Chat,
        capabilities: abilities,
        preset: &[],
        max_tokens: None,
        adjustment: penstock_core::RequestAdjustment::default(),
        answer_model: "org/model",
        answer_id: "4b8e3f0a",
        answer_created: 1_763_650_000,
    }
}

/// Returns offers that differ in price, speed, load and carbon intensity of the grid.
fn candidates(count: u32) -> Vec<Candidate> {
    let offers = 0..count;
    offers
        .map(|n| Candidate {
            price: estimate_price(0.05 + f64::from(n % 7), 0.15 + f64::from(n % 5), 500, 256),
            predicted_seconds: (n % 6 != 0).then(|| 1.5 + f64::from(n % 11)),
            in_flight: n % 13,
            max_in_flight: 64,
            ci_g_per_kwh: 20.0 + 45.0 * f64::from(n % 9),
            renewable: f64::from(n % 10) / 10.0,
            ..Candidate::new(usize::try_from(n).unwrap_or_default())
        })
        .collect()
}

fn bytes(length: usize) -> Throughput {
    Throughput::Bytes(u64::try_from(length).unwrap_or_default())
}

/// Measures the work on a request before it is sent: validation, the order of three offers, and the body for a
/// provider.
fn ask(c: &mut Criterion) {
    let limits = RequestLimits::default();
    let abilities = OfferCapabilities::default();
    let offers = candidates(3);
    let mut group = c.benchmark_group("ask");
    for (name, body) in [
        ("prose 1 KiB", conversation(PROSE, 1 << 10)),
        ("prose 200 KiB", conversation(PROSE, 200 << 10)),
        ("prose 2 MiB", conversation(PROSE, 2 << 20)),
        ("source code 200 KiB", conversation(CODE, 200 << 10)),
        ("source code 2 MiB", conversation(CODE, 2 << 20)),
        ("data: image 2 MiB", picture(2 << 20)),
    ] {
        group.throughput(bytes(body.len()));
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let ask =
                    penstock_request_validation::validate_chat_request(black_box(body.clone()), &limits)
                        .unwrap();
                let order = plan(ECO, &offers, 7);
                let translator = find_translator(ask.dialect, Dialect::Chat).unwrap();
                (translator.build_request(&ask, &target(&abilities)).unwrap(), order)
            });
        });
    }
    group.finish();
}

/// Returns the content events of a streamed answer of a chat provider, without finish reason, usage and `[DONE]`.
fn events() -> Vec<String> {
    let words = ["Ri", "vers", " bend", " because", " banks", " wear", ".", "\\n", " é"];
    let chunk = |(_, word): (usize, &&str)| {
        format!(
            "data: {{\"id\":\"chatcmpl-4b8e3f0a9c\",\"object\":\"chat.completion.chunk\",\"created\":1763650000,\
             \"model\":\"their/model\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{word}\"}},\
             \"logprobs\":null,\"finish_reason\":null}}]}}\n\n"
        )
    };
    (0..EVENTS).zip(words.iter().cycle()).map(chunk).collect()
}

/// Measures the translation of a provider's stream for the client of this request. The provider's bytes arrive in
/// chunks of `together` events.
fn stream(group: &mut BenchmarkGroup<'_, WallTime>, name: &str, ask: &InferenceRequest, together: usize) {
    let abilities = OfferCapabilities::default();
    let translator = find_translator(ask.dialect, Dialect::Chat).unwrap();
    let pieces: Vec<Bytes> = events().chunks(together).map(|events| events.concat().into()).collect();
    group.throughput(Throughput::Elements(EVENTS as u64));
    group.bench_function(format!("{name}, {together} a piece"), |bencher| {
        bencher.iter(|| {
            let mut reply = translator.translate_stream(ask, &target(&abilities));
            let mut sent = 0;
            for piece in &pieces {
                let mut out = OutputBuffer::default();
                reply.push(black_box(piece.clone()), &mut out).unwrap();
                sent += out.len();
            }
            assert!(sent > EVENTS, "the words arrive");
            sent
        });
    });
}

/// Measures a stream of a provider with the client's own dialect: unknown members are removed, the rest passes
/// unchanged.
fn filter(c: &mut Criterion) {
    let ask = penstock_request_validation::validate_chat_request(
        conversation(PROSE, 1 << 10),
        &RequestLimits::default(),
    )
    .unwrap();
    let mut group = c.benchmark_group("filter");
    for together in [1, 64] {
        stream(&mut group, "chat", &ask, together);
    }
    group.finish();
}

/// Measures the translation between a client of the messages dialect and a chat provider: of requests, and of a
/// stream.
fn translate(c: &mut Criterion) {
    let limits = RequestLimits::default();
    let messages = |body| {
        penstock_request_validation::validate_messages_request(body, &limits, MessagesPurpose::Generate)
            .unwrap()
    };
    let abilities = OfferCapabilities::default();
    let mut group = c.benchmark_group("translate");
    for (name, sample) in [("request, prose 200 KiB", PROSE), ("request, source code 200 KiB", CODE)] {
        let ask = messages(conversation(sample, 200 << 10));
        let translator = find_translator(Dialect::Messages, Dialect::Chat).unwrap();
        group.throughput(bytes(ask.body.len()));
        group.bench_function(name, |bencher| {
            bencher.iter(|| translator.build_request(black_box(&ask), &target(&abilities)).unwrap());
        });
    }
    let ask = messages(conversation(PROSE, 1 << 10));
    for together in [1, 64] {
        stream(&mut group, "stream", &ask, together);
    }
    group.finish();
}

/// Measures the ordering of twenty offers.
fn order(c: &mut Criterion) {
    let offers = candidates(20);
    let mut group = c.benchmark_group("plan");
    group.throughput(Throughput::Elements(1));
    for flavor in [BALANCED, ECO, SPEED] {
        let mut seed = 0;
        group.bench_function(format!("20 candidates, {}", flavor.name()), |bencher| {
            bencher.iter(|| {
                seed += 1;
                plan(flavor, black_box(&offers), seed)
            });
        });
    }
    group.finish();
}

/// Measures the computation of the footprint and the price of an answer, and the writing of the objects that state
/// them (`environment_impact` and `billing_cost`).
fn bill(c: &mut Criterion) {
    let grid = grid::parse_table(include_str!("../conf/grid/eu-2025.csv")).unwrap();
    let card = EnergyProfile {
        active_params_b: Some("8".parse().unwrap()),
        joules_per_output_token: Some("0.119".parse().unwrap()),
        ..EnergyProfile::new(ModelKind::Chat)
    };
    let row = grid.get("FR").unwrap();
    let site = ServiceSite { pue: Some("1.16".parse().unwrap()), ..ServiceSite::from_grid(row) };
    let prepared = OfferFactors::new(&card, &site).unwrap();
    let tariff = Tariff {
        input: Some("0.05".parse().unwrap()),
        output: Some("0.15".parse().unwrap()),
        ..Tariff::default()
    };
    let served = SiteJson::new(&DataCentreInfo {
        renewable_percent: "27".parse().unwrap(),
        pue: prepared.pue(),
        provider_id: "provider-a",
        location: "Paris, France",
        country: "FR",
        grid: GridInfo { source: "somebody", year: 2025, g_per_kwh: "31".parse().unwrap() },
        methodology: METHODOLOGY_VERSION,
    });
    let credit = "0.01".parse().unwrap();
    let usage = TokenUsage { input: 512, cached: 128, output: 300, ..TokenUsage::default() };
    let mut group = c.benchmark_group("bill");
    group.throughput(Throughput::Elements(1));
    group.bench_function("footprint, price, members", |bencher| {
        bencher.iter(|| {
            let usage = black_box(usage);
            let work = AttemptWork::from_tokens(usage, Duration::from_secs(3));
            let drawn = prepared.attempt_energy(&work, None).footprint();
            let billable = prepared.billable_kwh(&work, None);
            let charge = compute_charge(
                &tariff,
                &BilledWork::Tokens(usage),
                PayingWallet::Credits,
                false,
                billable,
                credit,
            );
            let provenance = EnergyProvenance {
                method: drawn.method.name(),
                boundary: Some(meter_boundary_name(drawn.boundary)),
                energy_kwh_low: drawn.energy_kwh_low,
                energy_kwh_high: drawn.energy_kwh_high,
                embodied_g_co2: Some(drawn.embodied_g),
                assumed: drawn.assumed.names(),
                counted_by_gateway: false,
                cache: None,
            };
            let impact = EnvironmentImpact {
                energy_kwh: drawn.energy_kwh,
                carbon_g_co2: drawn.carbon_g,
                water_liters: drawn.water_l,
                site: &served,
                provenance,
            };
            let cost = BillingCost {
                energy: charge.energy_eur,
                credits: charge.credits.credits(),
                paid_with: charge.paid_with.name(),
                amounts: penstock_response_metadata::AmountFormat::Numbers,
            };
            penstock_response_metadata::impact_and_billing_members(&impact, &cost, true)
        });
    });
    group.finish();
}

/// Configuration of one model at one provider.
const OFFER: &str = r#"
[[models]]
id = "m"
kind = "chat"
context_length = 131072
price = { input = 0.05, cached_input = 0.01, output = 0.15 }
energy = { active_params_b = 8.0, total_params_b = 8.0, joules_per_output_token = 0.119 }
[[providers]]
id = "a"
operator = "A"
country = "FR"
city = "Paris"
base_url = "http://127.0.0.1:9/v1"
[[providers.offers]]
model = "m"
"#;

/// Measures the billing of a request: reservation of its maximum price and settlement of its charge. The write to the
/// disk is done by another thread.
fn money(c: &mut Criterion) {
    let loaded = load_text("bench.toml", OFFER, ResolveEnv { env: &|_| None }).unwrap();
    let settings = loaded.settings;
    let offer = settings.offers.first().unwrap();
    let bill = OfferPricing::new(offer, &settings.billing);
    let rules =
        penstock::config::settings::LedgerSettings { debt: i64::MAX, backlog: usize::MAX, ..settings.ledger };
    let store = Arc::new(LedgerStore::open_read_only(penstock_storage::open_in_memory()));
    let ledger = Ledger::open(store, &rules, ProcessClock::start()).unwrap();
    let done = WorkDone::Tokens(TokenUsage { input: 512, cached: 128, output: 300, ..TokenUsage::default() });
    let most = WorkDone::Tokens(TokenUsage { input: 2_304, output: 4_096, ..TokenUsage::default() });
    let eur_per_credit = settings.billing.eur_per_credit;
    let amounts = penstock_response_metadata::AmountFormat::Numbers;
    let wallet = PayingWallet::Credits;
    let terms = ChargeContext { eur_per_credit, provenance: true, amounts, batch: false, wallet, at: 1 };
    let settled = bill.price_answer(done, done, None, Duration::from_secs(3), None, terms);
    let key: Arc<str> = "0123456789abcdef".into();
    let mut group = c.benchmark_group("money");
    group.throughput(Throughput::Elements(1));
    group.bench_function("reserve and settle", |bencher| {
        bencher.iter_custom(|rounds| {
            let mut took = Duration::ZERO;
            for portion in 0..rounds.div_ceil(PORTION) {
                let begun = Instant::now();
                for _ in 0..PORTION.min(rounds - portion * PORTION) {
                    let need = bill.reserve_amounts(black_box(&most), false, 1, eur_per_credit);
                    let hold =
                        ledger.reserve("default", &key, "req_abcdefghijklmnopqrstuvwx", need, false).unwrap();
                    hold.settle(bill.settlement(black_box(&settled), &done, false));
                }
                took += begun.elapsed();
                // Waits until the writer thread has emptied its queue, because the queue is short in normal operation
                // too.
                while ledger.durability_snapshot().waiting > 0 {
                    std::thread::yield_now();
                }
            }
            took
        });
    });
    group.finish();
}

/// Number of requests between two pauses in which the writer catches up.
const PORTION: u64 = 256;

/// Measures the exact token count of a prompt.
fn count(c: &mut Criterion) {
    let counter = TokenCounter::o200k_harmony();
    let mut group = c.benchmark_group("count");
    for (name, sample) in [("o200k, prose 200 KiB", PROSE), ("o200k, source code 200 KiB", CODE)] {
        let body = conversation(sample, 200 << 10);
        group.throughput(bytes(body.len()));
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let conversation = PromptConversation::from_chat(black_box(&body)).unwrap();
                counter.count(&conversation).unwrap()
            });
        });
    }
    group.finish();
}

criterion_group! {
    name = hot;
    config = Criterion::default().sample_size(20).warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2));
    targets = ask, filter, translate, order, bill, money, count
}
criterion_main!(hot);
