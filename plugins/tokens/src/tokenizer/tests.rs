//! Texts against the `tokenizers` library (`testdata/families/`, see the README there).
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

use super::*;
use serde_json::{Value, json};

const TEXTS: &str = include_str!("../../testdata/families/texts.json");

macro_rules! family {
    ($name:literal) => {
        (
            include_bytes!(concat!("../../testdata/families/", $name, "/tokenizer.json")).as_slice(),
            include_str!(concat!("../../testdata/families/", $name, "/expected.json")),
        )
    };
}

fn equal((file, expected): (&[u8], &str)) {
    let tokenizer = Tokenizer::from_json(file).unwrap();
    let texts: Vec<String> = serde_json::from_str(TEXTS).unwrap();
    let expected: Value = serde_json::from_str(expected).unwrap();
    let counts = expected["texts"].as_array().unwrap();
    assert_eq!(texts.len(), counts.len());
    let ours: Vec<_> = texts.iter().map(|text| tokenizer.count(text)).collect();
    let wrong: Vec<_> = (0..texts.len())
        .filter(|at| ours[*at] != counts[*at].as_u64().unwrap())
        .map(|at| format!("{:?}: {} instead of {}", texts[at], ours[at], counts[at]))
        .collect();
    assert!(wrong.is_empty(), "{} of {} differ:\n{}", wrong.len(), texts.len(), wrong.join("\n"));
    assert_eq!(tokenizer.count_document(""), expected["special"].as_u64().unwrap());
}

#[test]
fn byte_level_bpe_that_ignores_merges_counts_as_the_reference() {
    equal(family!("llama3"));
}

#[test]
fn byte_level_bpe_with_composed_text_and_added_tokens_counts_as_the_reference() {
    equal(family!("qwen"));
}

#[test]
fn bpe_of_marked_words_with_byte_fallback_counts_as_the_reference() {
    equal(family!("mistral"));
}

#[test]
fn unigram_with_metaspace_and_single_digits_counts_as_the_reference() {
    equal(family!("gemma"));
}

#[test]
fn byte_level_with_a_prefix_space_counts_as_the_reference() {
    equal(family!("gpt2"));
}

#[test]
fn several_cuts_one_after_another_count_as_the_reference() {
    equal(family!("deepseek"));
}

fn refused(file: &Value) -> String {
    match Tokenizer::from_json(file.to_string().as_bytes()) {
        Ok(_) => panic!("accepted {file}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_file_that_cannot_be_used_says_why_in_one_sentence() {
    let bpe = json!({"type": "BPE", "vocab": {"a": 0}, "merges": []});
    let cases = [
        (
            json!({"model": 1}),
            "tokenizer.json: does not parse (invalid type: integer `1`, expected struct ModelFile at line 1 column 10)",
        ),
        (
            json!({"model": {"type": "WordPiece", "vocab": {"a": 0}}}),
            "tokenizer.json: the model's type WordPiece is not supported",
        ),
        (
            json!({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a b"]}}),
            "tokenizer.json: merge 0 of the model joins tokens that are not in its vocabulary",
        ),
        (
            json!({"model": {"type": "Unigram", "vocab": [["a", -1.0]], "unk_id": 4}}),
            "tokenizer.json: unk_id of the model is beyond its vocabulary",
        ),
        (
            json!({"model": bpe, "normalizer": {"type": "Nmt"}}),
            "tokenizer.json: the normalizer Nmt is not supported",
        ),
        (
            json!({"model": bpe, "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated"}}),
            "tokenizer.json: a pattern does not compile (Parsing error at position 1: Opening parenthesis without closing parenthesis)",
        ),
    ];
    for (file, sentence) in cases {
        assert_eq!(refused(&file), sentence);
    }
    assert!(Tokenizer::from_json(b"{").is_err());
}
