//! Benchmark of the largest answers: 2,048 vectors of 1,024 floats, sent as numbers or as base64, for clients that want
//! numbers or base64. A conversion is measured in bytes per second of the JSON with numbers.
#![allow(missing_docs, clippy::unwrap_used)]

use bytes::Bytes;
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use penstock_core::{
    AttemptTarget, BodyMembers, Dialect, EmbeddingInputs, EmbeddingTask, InferenceRequest, InferenceTask,
    ModelKind, OfferCapabilities, ProviderAdapter, UpstreamAnswer,
};
use std::fmt::Write as _;
use std::hint::black_box;

const VECTORS: usize = 2048;
const LENGTH: usize = 1024;

/// Returns numbers as embedding models produce them: around 0.03, all bits used.
fn number(seed: &mut u64) -> f32 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    ((*seed >> 40) as f32 / (1_u32 << 24) as f32 - 0.5) * 0.12
}

/// Returns an answer with numbers as Python engines write them (the `f64` of each `f32`), or in their shortest form.
fn answer(long: bool) -> String {
    let mut seed = 7;
    let mut text = String::from(r#"{"object":"list","model":"e","data":["#);
    for index in 0..VECTORS {
        let comma = if index > 0 { "," } else { "" };
        write!(text, r#"{comma}{{"object":"embedding","index":{index},"embedding":["#).unwrap();
        for at in 0..LENGTH {
            let comma = if at > 0 { "," } else { "" };
            let value = number(&mut seed);
            if long { write!(text, "{comma}{}", f64::from(value)) } else { write!(text, "{comma}{value}") }
                .unwrap();
        }
        text.push_str("]}");
    }
    text.push_str(r#"],"usage":{"prompt_tokens":9,"total_tokens":9}}"#);
    text
}

fn ask(base64: bool) -> InferenceRequest {
    let inputs = EmbeddingInputs::Texts(vec![Bytes::from_static(b"\"x\""); VECTORS]);
    let task = InferenceTask::Embed(EmbeddingTask {
        inputs,
        is_verbatim: true,
        as_base64: base64,
        dimensions: None,
    });
    InferenceRequest::from_non_chat_task(
        ModelKind::Embedding,
        Bytes::new(),
        BodyMembers::default(),
        "m".into(),
        task,
    )
}

fn translate(ask: &InferenceRequest, body: Bytes) -> Vec<Bytes> {
    let abilities = OfferCapabilities::default();
    let target = AttemptTarget {
        model: "e",
        dialect: Dialect::Chat,
        capabilities: &abilities,
        preset: &[],
        max_tokens: None,
        adjustment: penstock_core::RequestAdjustment::default(),
        answer_model: "m",
        answer_id: "1",
        answer_created: 0,
    };
    let shape: &dyn ProviderAdapter = *penstock_embeddings::ADAPTERS.first().unwrap();
    shape.translate(ask, &target, vec![UpstreamAnswer { body, ..UpstreamAnswer::default() }]).unwrap().body
}

fn forms(criterion: &mut Criterion) {
    let (floats, base64) = (ask(false), ask(true));
    let long = Bytes::from(answer(true));
    let compact = Bytes::from(answer(false));
    let packed = Bytes::from(translate(&base64, compact.clone()).concat());
    let mut group = criterion.benchmark_group("2048 vectors of 1024");
    group.sample_size(20);
    let cases = [
        ("numbers of f64 to base64", &base64, &long, long.len()),
        ("shortest numbers to base64", &base64, &compact, compact.len()),
        ("base64 to numbers", &floats, &packed, compact.len()),
        ("numbers untouched", &floats, &long, long.len()),
        ("base64 untouched", &base64, &packed, packed.len()),
    ];
    for (name, ask, body, size) in cases {
        group.throughput(Throughput::Bytes(size as u64));
        let run = |body: Bytes| black_box(translate(ask, body));
        group.bench_function(name, |bencher| {
            bencher.iter_batched(|| body.clone(), run, BatchSize::LargeInput)
        });
    }
    group.finish();
}

criterion_group!(benches, forms);
criterion_main!(benches);
