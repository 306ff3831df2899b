//! Texts, compared with the `tokenizers` library (`testdata/families/`, see the README there).
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
    let tokenizer = FileTokenizer::from_json(file).unwrap();
    let texts: Vec<String> = serde_json::from_str(TEXTS).unwrap();
    let expected: Value = serde_json::from_str(expected).unwrap();
    let counts = expected["texts"].as_array().unwrap();
    assert_eq!(texts.len(), counts.len());
    let ours: Vec<_> = texts.iter().map(|text| tokenizer.count(text)).collect();
    let mismatches: Vec<_> = (0..texts.len())
        .filter(|at| ours[*at] != counts[*at].as_u64().unwrap())
        .map(|at| format!("{:?}: {} instead of {}", texts[at], ours[at], counts[at]))
        .collect();
    assert!(
        mismatches.is_empty(),
        "{} of {} differ:\n{}",
        mismatches.len(),
        texts.len(),
        mismatches.join("\n")
    );
    assert_eq!(tokenizer.special_token_count(), expected["special"].as_u64().unwrap());
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
    match FileTokenizer::from_json(file.to_string().as_bytes()) {
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
            "tokenizer.json: does not parse (invalid type: integer `1`, expected an object at line 1 column 10)",
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
    assert!(FileTokenizer::from_json(b"{").is_err());
}

/// Counts words that are longer than several windows, with and without characters that the vocabulary lacks.
#[test]
fn a_long_word_is_counted_as_a_whole() {
    use crate::windows::{PieceEncoder, WINDOW_BYTES};
    let parts = |unknown: bool, fused: bool, fallback: bool| {
        let tokens = ["a", "b", "ab", "ba", "aba", "<unk>"].map(str::to_owned).into_iter();
        let bytes = (0..256).filter(|_| fallback).map(|byte| format!("<0x{byte:02X}>"));
        bpe::BpeParams {
            tokens: tokens.chain(bytes).zip(0..).collect(),
            merges: vec![("b".into(), "a".into()), ("a".into(), "b".into()), ("a".into(), "ba".into())],
            unknown: unknown.then(|| "<unk>".to_owned()),
            fuse_unknown: fused,
            byte_fallback: fallback,
            ignore_merges: false,
            byte_level: false,
        }
    };
    for case in 0..8 {
        let (unknown, fused, fallback) = (case & 1 > 0, case & 2 > 0, case & 4 > 0);
        let bpe = BpeModel::new(parts(unknown, fused, fallback)).unwrap();
        for text in ["abbabaab", "abxyab€a", "x", "a🙂🙂🙂b", "ba"] {
            let text = text.repeat(3 * WINDOW_BYTES / text.len() + 1) + &"y".repeat(WINDOW_BYTES + 5) + "ab";
            let (mut symbols, mut meter) = (Vec::new(), TokenMeter::new(0, crate::CountBudget::unlimited()));
            bpe.count_into(&text, &mut symbols, &mut meter).unwrap();
            bpe.encode(text.as_bytes(), &mut symbols);
            assert_eq!(meter.tokens(), symbols.len() as u64, "case {case}: {:?}", text.chars().next());
        }
    }
}

/// Returns the number of tokens in the most probable segmentation of a word, as a reference for the tested code. A
/// table has the best segmentation up to each offset.
fn likeliest(tokens: &[(String, f64)], word: &str) -> u64 {
    let mut segmentations: Vec<Option<(f64, u64)>> = vec![None; word.len() + 1];
    segmentations[0] = Some((0.0, 0));
    for at in 0..word.len() {
        let Some((score, count)) = segmentations[at] else { continue };
        for (token, more) in tokens {
            if word[at..].starts_with(token.as_str()) {
                let best = &mut segmentations[at + token.len()];
                if best.is_none_or(|(best, _)| score + more > best) {
                    *best = Some((score + more, count + 1));
                }
            }
        }
    }
    segmentations[word.len()].unwrap().1
}

#[test]
fn a_long_unigram_word_is_counted_as_a_whole_within_its_budget() {
    let tokens = [("a", -2.0), ("b", -2.5), ("ab", -3.0), ("aba", -4.0), ("bbaab", -5.5), ("aaaaaaaa", -7.0)];
    let tokens: Vec<_> = tokens.iter().map(|(token, score)| (token.to_string(), *score)).collect();
    let unigram = UnigramModel::new(unigram::UnigramParams {
        tokens: tokens.clone(),
        unknown: None,
        byte_fallback: false,
    })
    .unwrap();
    for run in ["abbabaab", "a", "aab", "bbaaba"] {
        let text = run.repeat(20_000 / run.len());
        let all = likeliest(&tokens, &text);
        let stop = std::sync::atomic::AtomicBool::new(false);
        let counted = |most: u64| {
            let mut meter = TokenMeter::new(0, crate::CountBudget { max_tokens: most, stop: &stop });
            unigram.count_into(&text, &mut meter).map(|()| meter.tokens())
        };
        assert_eq!(
            (counted(all), counted(all - 1), counted(1)),
            (Ok(all), Err(CountHalt::OverBudget), Err(CountHalt::OverBudget)),
            "{run}"
        );
    }
}
