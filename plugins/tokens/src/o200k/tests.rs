//! The built-in tokenizer, compared with the published one.
#![allow(clippy::unwrap_used)]

use super::*;
use proptest::prelude::*;
use tiktoken_rs::{CoreBPE, o200k_base};

fn reference() -> &'static CoreBPE {
    static REFERENCE: OnceLock<CoreBPE> = OnceLock::new();
    REFERENCE.get_or_init(|| o200k_base().unwrap())
}

fn same(text: &str) {
    let ours = O200kTokenizer::shared().count(text);
    assert_eq!(ours, reference().encode_ordinary(text).len() as u64, "{text:?}");
}

#[test]
fn the_built_in_vocabulary_is_the_published_one() {
    let ours = &O200kTokenizer::shared().vocabulary;
    for token in 0..TOKENS {
        let published = reference().decode_bytes(&[token]).unwrap();
        assert_eq!(ours.bytes(token), published, "token {token}");
    }
}

#[test]
fn long_runs_count_as_the_reference_counts_them() {
    for run in ["a", "qz", " ", "\n", "-", "=", "ab\u{301}", "漢", "🙂", "0", "'s", "\t \r\n", "A", "\u{a0}"]
    {
        for times in [1, 2, 3, 63, 64, 65, 66, 300, 4000] {
            same(&run.repeat(times));
            same(&format!("{} x", run.repeat(times)));
        }
    }
}

/// Asserts for a text without spaces, longer than several windows, that the windows do not change the count.
#[test]
fn text_of_several_windows_counts_as_a_whole() {
    use crate::windows::WINDOW_BYTES;
    let whole = |text: &str| {
        let mut symbols = Vec::new();
        O200kTokenizer::shared().encode(text.as_bytes(), &mut symbols);
        symbols.len() as u64
    };
    let mut seed = 1_u64;
    let mut letter = |of: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        char::from(b'a' + ((seed >> 33) % of) as u8)
    };
    for of in [26, 4, 2] {
        let random: String = (0..3 * WINDOW_BYTES + 77).map(|_| letter(of)).collect();
        assert_eq!(O200kTokenizer::shared().count(&random), whole(&random), "{of} letters");
    }
    for run in ["a", "qz", "internationalization", "thequickbrownfox", "и", "漢字", "ab\u{301}"] {
        let text = run.repeat(3 * WINDOW_BYTES / run.len() + 5);
        let mut pieces = 0;
        O200kTokenizer::shared()
            .pattern
            .for_each_piece(&text, |_, _| {
                pieces += 1;
                Ok(())
            })
            .unwrap();
        if pieces == 1 {
            assert_eq!(O200kTokenizer::shared().count(&text), whole(&text), "{run}");
        }
    }
    for run in [" ", "-", "=", "_*"] {
        let text = run.repeat(3 * WINDOW_BYTES / run.len());
        assert_eq!(O200kTokenizer::shared().count(&text), whole(&text), "{run}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn any_text_counts_as_the_reference_counts_it(text in ".{0,200}") {
        same(&text);
    }

    #[test]
    fn text_of_words_spaces_and_marks_counts_as_the_reference_counts_it(
        text in "([a-zA-Z]{1,9}|[ \t\r\n]{1,4}|[0-9]{1,7}|[!-/]{1,5}|'(s|LL|re)|[à-ž]{1,4}|\\p{Han}{1,4}|\\PC){0,60}",
    ) {
        same(&text);
    }

    #[test]
    fn one_long_word_counts_as_the_reference_counts_it(text in "[a-z]{60,600}") {
        same(&text);
    }
}
