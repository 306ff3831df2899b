//! Tests only: plausibility of reported tokens.

use super::*;
use serde_json::json;

fn answer(body: String) -> UpstreamAnswer {
    UpstreamAnswer { body: Bytes::from(body), ..UpstreamAnswer::default() }
}

#[test]
fn moderation_has_tokens_for_its_text() {
    let request = InferenceRequest {
        prompt_bytes: 20_000,
        ..ask(ModelKind::Moderation, &json!({"model": "m", "input": ["x".repeat(20_000)]}).to_string())
    };
    let abilities = OfferCapabilities::default();
    let usage = |usage: &str| {
        let body = answer(format!(r#"{{"results":[{{"flagged":true}}]{usage}}}"#));
        let adapter = shape(ModelKind::Moderation, "openai");
        adapter.translate(&request, &target(&abilities), vec![body]).unwrap().usage().unwrap()
    };
    let reported = |tokens: u64| usage(&format!(r#","usage":{{"prompt_tokens":{tokens}}}"#));
    // At least one token for each 256 bytes, rounded up.
    for low in [0, 1, 78] {
        assert_eq!((reported(low).input, reported(low).source), (5_000, UsageSource::Understated), "{low}");
    }
    for plausible in [79, 4_000] {
        assert_eq!(
            (reported(plausible).input, reported(plausible).source),
            (plausible, UsageSource::Provider)
        );
    }
    assert_eq!((usage("").input, usage("").source), (5_000, UsageSource::Gateway));
}

#[test]
fn moderation_has_a_template_for_each_text() {
    let body = json!({"model": "m", "input": vec!["is this ok?"; 10]}).to_string();
    let request = InferenceRequest { prompt_bytes: 130, ..ask(ModelKind::Moderation, &body) };
    let results = [r#"{"flagged":true}"#; 10].join(",");
    let read = |window: Option<u64>, tokens: u64| {
        let abilities = OfferCapabilities { context_length: window, ..OfferCapabilities::default() };
        let body = answer(format!(r#"{{"results":[{results}],"usage":{{"prompt_tokens":{tokens}}}}}"#));
        let adapter = shape(ModelKind::Moderation, "openai");
        let usage = adapter.translate(&request, &target(&abilities), vec![body]).unwrap().usage().unwrap();
        (usage.input, usage.source)
    };
    // Llama Guard puts each text into a policy of about 200 tokens.
    assert_eq!(read(None, 2_150), (2_150, UsageSource::Provider));
    // A token for each byte of text and 1,024 for each template, but at most the window of each text.
    for (window, bound) in [(None, 130 + 10 * 1_024), (Some(131_072), 130 + 10 * 1_024), (Some(512), 5_120)] {
        assert_eq!(read(window, bound), (bound, UsageSource::Provider), "{window:?}");
        assert_eq!(read(window, bound + 1), (33, UsageSource::Overstated), "{window:?}");
    }
}

#[test]
fn a_part_of_a_split_list_without_tokens_leaves_the_count_to_the_gateway() {
    let abilities = OfferCapabilities { max_inputs: Some(1), ..OfferCapabilities::default() };
    let embedding = |tokens: &str| format!(r#"{{"data":[{{"index":0,"embedding":[1]}}]{tokens}}}"#);
    let score = |tokens: &str| format!(r#"{{"results":[{{"index":0,"relevance_score":1}}]{tokens}}}"#);
    let verdict = |tokens: &str| format!(r#"{{"results":[{{"flagged":true}}]{tokens}}}"#);
    let documents = r#"{"model":"m","query":"q","documents":["a","b","c"]}"#;
    let texts = r#"{"model":"m","input":["a","b","c"]}"#;
    type Body<'a> = &'a dyn Fn(&str) -> String;
    let kinds: [(ModelKind, &str, &str, Body<'_>); 3] = [
        (ModelKind::Embedding, "openai", texts, &embedding),
        (ModelKind::Rerank, "vllm", documents, &score),
        (ModelKind::Moderation, "openai", texts, &verdict),
    ];
    for (kind, name, body, part) in kinds {
        let usage = |tokens: [&str; 3]| {
            let answers = tokens.map(|tokens| answer(part(tokens))).into();
            let read = shape(kind, name).translate(&ask(kind, body), &target(&abilities), answers);
            let usage = read.unwrap().usage().unwrap();
            (usage.input, usage.source)
        };
        let five = r#","usage":{"total_tokens":5}"#;
        assert_eq!(usage([five; 3]), (15, UsageSource::Provider), "{name}");
        // The gateway's count of 40 bytes is 10.
        for zero in ["", r#","usage":{"total_tokens":0}"#, r#","usage":{"prompt_tokens":0,"total_tokens":0}"#]
        {
            for tokens in [[zero, five, five], [five, zero, five], [five, five, zero], [zero; 3]] {
                assert_eq!(usage(tokens), (10, UsageSource::Gateway), "{name} {tokens:?}");
            }
        }
    }
}

#[test]
fn a_part_of_a_split_list_has_no_tokens_in_its_header() {
    let abilities = OfferCapabilities { max_inputs: Some(1), ..OfferCapabilities::default() };
    let request = ask(ModelKind::Embedding, r#"{"model":"m","input":["a","b"]}"#);
    for (tokens, expected) in [(["5", "4"], 9), (["0", "5"], 10), (["5", "0"], 10)] {
        let answers = tokens.map(|number| UpstreamAnswer {
            body: Bytes::from_static(b"[[1]]"),
            headers: vec![Some(number.into())],
            measured_energy: None,
        });
        let read =
            shape(ModelKind::Embedding, "tei").translate(&request, &target(&abilities), answers.into());
        assert_eq!(read.unwrap().usage().unwrap().input, expected, "{tokens:?}");
    }
}

#[test]
fn cached_tokens_are_read_under_each_name_and_added_up() {
    let texts = json!({"model": "m", "input": ["x".repeat(2_000), "x".repeat(2_000)]}).to_string();
    let documents =
        json!({"model": "m", "query": "q", "documents": ["x".repeat(2_000), "x".repeat(2_000)]}).to_string();
    let embedding = |index: usize| format!(r#"{{"index":{index},"embedding":[1]}}"#);
    let score = |index: usize| format!(r#"{{"index":{index},"relevance_score":1}}"#);
    let verdict = |_: usize| r#"{"flagged":true}"#.to_owned();
    type Result<'a> = &'a dyn Fn(usize) -> String;
    let kinds: [(ModelKind, &str, &str, &str, Result<'_>); 3] = [
        (ModelKind::Embedding, "openai", "data", &texts, &embedding),
        (ModelKind::Rerank, "vllm", "results", &documents, &score),
        (ModelKind::Moderation, "openai", "results", &texts, &verdict),
    ];
    for (kind, name, list, body, result) in kinds {
        let request = InferenceRequest { prompt_bytes: 4_000, ..ask(kind, body) };
        let usage = |parts: &[&str]| {
            let each = 2 / parts.len();
            let abilities = OfferCapabilities { max_inputs: Some(each), ..OfferCapabilities::default() };
            let results = (0..each).map(result).collect::<Vec<_>>().join(",");
            let part = |usage: &&str| answer(format!(r#"{{"{list}":[{results}],"usage":{usage}}}"#));
            let answers = parts.iter().map(part).collect();
            let read = shape(kind, name).translate(&request, &target(&abilities), answers);
            let usage = read.unwrap().usage().unwrap();
            (usage.input, usage.cached, usage.source)
        };
        let details = r#"{"prompt_tokens":1000,"prompt_tokens_details":{"cached_tokens":800}}"#;
        for stated in [
            details,
            r#"{"total_tokens":1000,"cached_tokens":800}"#,
            r#"{"prompt_cache_hit_tokens":800,"prompt_tokens":1000,"total_tokens":1000}"#,
            r#"{"input_tokens":1000,"input_tokens_details":{"cached_tokens":800}}"#,
        ] {
            assert_eq!(usage(&[stated]), (1_000, 800, UsageSource::Provider), "{name} {stated}");
        }
        let fresh = r#"{"prompt_tokens":200,"prompt_tokens_details":{"cached_tokens":null}}"#;
        assert_eq!(usage(&[details, fresh]), (1_200, 800, UsageSource::Provider), "{name}");
        let silent = r#"{"cached_tokens":800}"#;
        assert_eq!(usage(&[silent]), (1_000, 0, UsageSource::Gateway), "{name}");
        assert_eq!(usage(&[silent, details]), (1_000, 0, UsageSource::Gateway), "{name}");
        let absurd = r#"{"prompt_tokens":1000,"cached_tokens":1001}"#;
        assert_eq!(usage(&[absurd]), (1_000, 0, UsageSource::Overstated), "{name}");
    }
}
