//! The estimate, compared with real vocabularies.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use super::*;
use crate::counter::TokenCounter;
use proptest::prelude::*;
use std::sync::OnceLock;
use tiktoken_rs::{CoreBPE, cl100k_base, o200k_base, p50k_base};

/// Vocabularies of 200 000, 100 000 and 50 000 tokens; the last is for English and code.
fn references() -> &'static [CoreBPE; 3] {
    static REFERENCES: OnceLock<[CoreBPE; 3]> = OnceLock::new();
    REFERENCES.get_or_init(|| [o200k_base().unwrap(), cl100k_base().unwrap(), p50k_base().unwrap()])
}

fn never_below(text: &str) {
    let estimate = max_text_tokens(text);
    let served = if text.is_ascii() { 3 } else { 2 };
    for (which, reference) in references().iter().take(served).enumerate() {
        let tokens = reference.encode_ordinary(text).len() as u64;
        assert!(estimate >= tokens, "vocabulary {which} gives {tokens}, the estimate {estimate}: {text:?}");
    }
    assert!(estimate <= text.len() as u64, "more than bytes: {text:?}");
}

const PROSE: &str = "The quick brown fox jumps over the lazy dog, while internationalization committees deliberate \
    about telecommunications. Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich. Portez ce vieux whisky \
    au juge blond qui fume. Съешь же ещё этих мягких французских булок. 我能吞下玻璃而不伤身体。私はガラスを食べられます。\
    나는 유리를 먹을 수 있어요. أنا قادر على أكل الزجاج. अहं काचं शक्नोमि. ฉันกินกระจกได้. 🙂👍🏽 3.14159, 1 000 000.\n\n\
    fn main() {\n        let x = vec![1, 2, 3];\n\t\treturn x.iter().map(|v| v * 2).collect::<Vec<_>>();\n}\n";

#[test]
fn prose_and_code_are_never_below() {
    never_below(PROSE);
    for sentence in PROSE.split(['.', '\n']) {
        never_below(sentence);
    }
    for file in [
        include_str!("../estimate.rs"),
        include_str!("../../testdata/families.py"),
        include_str!("../../assets/README.md"),
    ] {
        never_below(file);
        file.lines().for_each(never_below);
    }
}

#[test]
fn prose_is_at_most_a_half_more_than_it_is() {
    let english = include_str!("../../assets/README.md");
    let tokens = references()[0].encode_ordinary(english).len() as u64;
    assert!(2 * max_text_tokens(english) <= 3 * tokens, "{} for {tokens}", max_text_tokens(english));
}

#[test]
fn regression_inputs_pass() {
    for text in ["\u{200d}या°F", "या°F", "Zwölf°F", "A\u{200d}B\u{301}C", "»Wort«“x”"] {
        never_below(text);
    }
}

#[test]
fn whole_conversations_are_never_below_the_exact_count() {
    let cases: serde_json::Value = serde_json::from_str(include_str!("../../testdata/cases.json")).unwrap();
    for (name, body) in cases.as_object().unwrap() {
        let body = body.to_string();
        let chat = PromptConversation::from_chat(body.as_bytes()).unwrap();
        let estimate = max_conversation_tokens(&chat, None).tokens;
        if let Ok(exact) = TokenCounter::o200k_harmony().count(&chat) {
            assert!(estimate >= exact.tokens, "{name}");
            assert!(max_prompt_tokens(body.len(), 0, 0) >= exact.tokens, "{name}");
        }
    }
}

#[test]
fn an_unknown_size_has_a_high_cost() {
    let body =
        br#"{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://a/b"}},
        {"type":"file","file":{"file_id":"f"}},{"type":"input_audio","input_audio":{"data":"AAAA"}}]}]}"#;
    let chat = PromptConversation::from_chat(body).unwrap();
    assert!(max_conversation_tokens(&chat, None).tokens >= 2 * UNKNOWN_TOKENS);
    assert_eq!(
        max_prompt_tokens(100, 2, UNKNOWN_TOKENS),
        100 + 2 * UNKNOWN_TOKENS + FRAME_TOKENS + TOOLS_TOKENS
    );
    assert_eq!(max_prompt_tokens(usize::MAX, u32::MAX, u64::MAX), u64::MAX);
}

/// Number of cases of each property; a larger `PROPTEST_CASES` with another `PROPTEST_RNG_SEED` searches further.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").map_or(1_000, |cases| cases.parse().unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    #[test]
    fn any_text_is_never_below(text in ".{0,160}") {
        never_below(&text);
    }

    #[test]
    fn words_marks_and_spaces_are_never_undercounted(
        text in "([a-zA-Z]{1,14}|[ \t\r\n]{1,6}|[0-9]{1,7}|[!-/:-@\\[-`{-~]{1,9}|[à-žА-яα-ωא-תا-ي]{1,9}|[一-鿿]{1,5}|[ぁ-ヿ가-힣]{1,5}|[ऀ-ॿก-๛]{1,5}){0,40}",
    ) {
        never_below(&text);
    }

    #[test]
    fn a_vocabulary_word_is_never_undercounted(ranks in proptest::collection::vec(0..199_998_u32, 1..20)) {
        let bytes: Vec<u8> = ranks.iter().flat_map(|rank| references()[0].decode_bytes(&[*rank]).unwrap()).collect();
        never_below(&String::from_utf8_lossy(&bytes));
    }
}
