//! Benchmark of the validation of a file of 50,000 requests, in chunks as they arrive from a socket.
#![allow(missing_docs)]

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use penstock_batch::jsonl::{FileValidator, MAX_REQUESTS};

const URLS: &[&str] = &["/v1/messages", "/v1/chat/completions"];

fn file(text: usize) -> Vec<u8> {
    let words = "The lock of a canal lifts a boat from the lower water to the upper. \\n\u{c9}cluse: ";
    let prompt: String = words.chars().cycle().take(text).collect();
    let line = |i: u32| {
        format!(
            "{{\"custom_id\":\"request-{i}\",\"method\":\"POST\",\"url\":\"/v1/chat/completions\",\"body\":\
             {{\"model\":\"llama\",\"max_tokens\":64,\"temperature\":0.2,\"messages\":[{{\"role\":\"system\",\
             \"content\":\"Answer in one word.\"}},{{\"role\":\"user\",\"content\":\"{prompt}\"}}]}}}}\n"
        )
    };
    (0..MAX_REQUESTS).map(line).collect::<String>().into_bytes()
}

fn proven(bench: &mut Criterion) {
    let mut group = bench.benchmark_group("jsonl");
    group.sample_size(10);
    for text in [150, 900, 8_000] {
        let file = file(text - text % 80);
        group.throughput(Throughput::Bytes(file.len() as u64));
        group.bench_with_input(BenchmarkId::new("50000 lines", text), &file, |bench, file| {
            bench.iter(|| {
                let mut lines = FileValidator::new(URLS, 1 << 20);
                for piece in file.chunks(64 << 10) {
                    lines.push(piece);
                }
                lines.end()
            });
        });
    }
    group.finish();
}

criterion_group!(benches, proven);
criterion_main!(benches);
