//! Batches: requests that create them, lines of results, bitmaps of finished lines, and windows.

use penstock_batch::completion_bitmap::CompletionBitmap;
use penstock_batch::create_request::CreateBatchRequest;
use penstock_batch::jsonl::AllowedPaths;
use penstock_batch::{completion_window, result_line};
use serde_json::Value;

/// Paths that a batch may use; the same as in the gateway, because the seeds contain these paths.
pub(super) const URLS: AllowedPaths =
    &["/v1/chat/completions", "/v1/messages", "/v1/embeddings", "/v1/rerank", "/v1/images/generations"];

pub fn check(bytes: &[u8]) {
    if let Ok(create) = CreateBatchRequest::parse(bytes, URLS) {
        let value: Value = serde_json::from_slice(bytes).expect("JSON");
        assert_eq!(value["input_file_id"].as_str(), Some(&*create.input_file_id));
        assert_eq!(value["endpoint"].as_str(), Some(create.endpoint));
        assert_eq!(completion_window::parse_window(&create.completion_window), Ok(create.window_seconds));
        assert!(create.metadata.len() <= 16);
    }
    let done = CompletionBitmap::from_bytes(bytes);
    let lines = bytes.len() as u32 * 8;
    assert_eq!(
        (0..lines).filter(|line| done.is_line_finished(*line)).count(),
        done.finished_count() as usize
    );
    let mut more = CompletionBitmap::from_bytes(bytes);
    for line in [0, lines / 2, lines, u32::MAX / 64] {
        let had = more.is_line_finished(line);
        let before = more.finished_count();
        if more.mark_finished(line) {
            assert!(!had && more.is_line_finished(line) && more.finished_count() == before + 1);
        } else {
            assert_eq!(more.finished_count(), before);
        }
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = completion_window::parse_window(text);
        let mut out = Vec::new();
        let body = serde_json::from_slice::<Value>(bytes).is_ok().then_some(bytes);
        result_line::write_result_line(
            &mut out,
            result_line::ResultLineFormat::Flat,
            "batch_req_1",
            text,
            200,
            body,
        );
        assert_eq!(out.iter().filter(|byte| **byte == b'\n').count(), 1, "a line is a line");
        let value: Value = serde_json::from_slice(&out).expect("a result is JSON");
        assert_eq!(value["custom_id"].as_str(), Some(text));
        let expected: Value = body.and_then(|body| serde_json::from_slice(body).ok()).unwrap_or_default();
        assert_eq!(value["response"], expected);
    }
}
