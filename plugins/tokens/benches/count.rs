//! Benchmark of token counting, in bytes of text per second on one core.
#![allow(missing_docs, clippy::unwrap_used)]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use penstock_tokens::{PromptConversation, TokenCounter, max_text_tokens};
use std::hint::black_box;

/// Prose, code and other scripts.
fn text() -> String {
    let files = [
        include_str!("../src/tokenizer/file.rs"),
        include_str!("../testdata/families.py"),
        include_str!("../assets/README.md"),
    ];
    let scripts = "Привет, мир! 你好,世界。 こんにちは世界。 안녕하세요. naïve café 🙂 3.14159\n".repeat(20);
    files.concat() + &scripts
}

/// English only.
fn prose() -> String {
    "The window of a model bounds what a conversation may hold, and a gateway that counts every prompt exactly \
     can refuse early, with both numbers, instead of letting a provider fail late. Counting has to be cheap. \n"
        .repeat(200)
}

macro_rules! family {
    ($name:literal) => {
        TokenCounter::from_files(
            include_bytes!(concat!("../testdata/families/", $name, "/tokenizer.json")),
            Some(include_str!(concat!("../testdata/families/", $name, "/chat_template.jinja"))),
            Some(include_bytes!(concat!("../testdata/families/", $name, "/tokenizer_config.json"))),
        )
        .unwrap()
    };
}

fn speed(criterion: &mut Criterion) {
    for (kind, text) in [("mixed", text()), ("prose", prose())] {
        let mut group = criterion.benchmark_group(kind);
        group.throughput(Throughput::Bytes(text.len() as u64));
        let body = serde_json::json!({"messages": [{"role": "user", "content": text}]}).to_string();
        let counters = [
            ("o200k_harmony", TokenCounter::o200k_harmony()),
            ("byte_level_bpe", family!("llama3")),
            ("nfc_byte_level_bpe", family!("qwen")),
            ("marked_bpe", family!("mistral")),
            ("unigram", family!("gemma")),
        ];
        for (name, counter) in counters {
            group.bench_function(name, |bencher| {
                bencher.iter(|| {
                    let conversation = PromptConversation::from_chat(black_box(body.as_bytes())).unwrap();
                    counter.count(&conversation).unwrap()
                });
            });
        }
        group.bench_function("estimate", |bencher| bencher.iter(|| max_text_tokens(black_box(&text))));
        group.finish();
    }
}

criterion_group!(benches, speed);
criterion_main!(benches);
