//! Batches: what creates one, the lines of its results, which of them are done, and windows.

use penstock_batch::create::Create;
use penstock_batch::done::Done;
use penstock_batch::jsonl::Urls;
use penstock_batch::{result, window};
use serde_json::Value;

/// What a batch may ask, as the gateway has it: the seeds name these.
pub(super) const URLS: Urls =
    &["/v1/chat/completions", "/v1/messages", "/v1/embeddings", "/v1/rerank", "/v1/images/generations"];

pub fn check(bytes: &[u8]) {
    if let Ok(create) = Create::read(bytes, URLS) {
        let value: Value = serde_json::from_slice(bytes).expect("JSON");
        assert_eq!(value["input_file_id"].as_str(), Some(&*create.input_file_id));
        assert_eq!(value["endpoint"].as_str(), Some(create.endpoint));
        assert_eq!(window::seconds(&create.completion_window), Ok(create.window));
        assert!(create.metadata.len() <= 16);
    }
    let done = Done::of(bytes);
    let lines = bytes.len() as u32 * 8;
    assert_eq!((0..lines).filter(|line| done.has(*line)).count(), done.count() as usize);
    let mut more = Done::of(bytes);
    for line in [0, lines / 2, lines, u32::MAX / 64] {
        let had = more.has(line);
        let before = more.count();
        if more.add(line) {
            assert!(!had && more.has(line) && more.count() == before + 1);
        } else {
            assert_eq!(more.count(), before);
        }
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = window::seconds(text);
        let mut out = Vec::new();
        let body = serde_json::from_slice::<Value>(bytes).is_ok().then_some(bytes);
        result::write(&mut out, result::Form::Flat, "batch_req_1", text, 200, body);
        assert_eq!(out.iter().filter(|byte| **byte == b'\n').count(), 1, "a line is a line");
        let value: Value = serde_json::from_slice(&out).expect("a result is JSON");
        assert_eq!(value["custom_id"].as_str(), Some(text));
        let expected: Value = body.and_then(|body| serde_json::from_slice(body).ok()).unwrap_or_default();
        assert_eq!(value["response"], expected);
    }
}
