//! Removal of the parts of an error text that repeat the request, so that the client's words do not affect the
//! classification.
//!
//! Four consecutive words, or all words between two quotation marks, count as repeated if a text of the request has
//! them in the same order. Both sides are compared by words in lower case, because an error may escape the characters
//! in between.

use super::error_signals::is_client_visible_field;
use super::inline_media::is_inline_media;
use super::request_texts::is_unspaced_script;
use memchr::memmem;
use penstock_core::AdjustableMemberSet;
use penstock_json_scan::json;
use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

/// Number of consecutive words that count as repeated if the request has them.
const RUN_WORDS: usize = 4;
/// Maximum bytes of an error text that are compared; the rest is dropped.
const MAX_TEXT_BYTES: usize = 16 << 10;
/// Maximum bytes of the request's texts that are compared.
const MAX_REQUEST_BYTES: usize = 8 << 20;
pub(super) const QUOTES: [char; 7] = ['\'', '"', '`', '\u{2018}', '\u{2019}', '\u{201c}', '\u{201d}'];
/// Seed and factor of FNV-1a.
const HASH_SEED: u64 = 0xcbf2_9ce4_8422_2325;
const HASH_FACTOR: u64 = 0x0100_0000_01b3;

/// Returns the first [`MAX_TEXT_BYTES`] of an error text, without the parts that repeat the request.
pub(super) fn remove_echo(text: &str, request: &[u8]) -> String {
    let end = (0..=MAX_TEXT_BYTES.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    let text = text.get(..end.unwrap_or_default()).unwrap_or_default();
    let words: Vec<Word> = words(text).collect();
    let mut runs = RunIndex::new(text, &words);
    if runs.is_empty() {
        return text.to_owned();
    }
    let mut is_repeated = vec![false; words.len()];
    visit_texts(request, |part| runs.mark(part, &mut is_repeated));
    without_words(text, &words, &is_repeated)
}

/// Removes the phrases, in lower case, that a text of the request contains.
pub(super) fn remove_echoed_phrases<T>(request: &[u8], phrases: &mut Vec<(T, &str)>) {
    if phrases.is_empty() {
        return;
    }
    visit_texts(request, |text| {
        let text = text.to_lowercase();
        phrases.retain(|(_, phrase)| memmem::find(text.as_bytes(), phrase.as_bytes()).is_none());
    });
}

/// Visits the strings of a JSON document, except keys and inline media, up to a total of [`MAX_REQUEST_BYTES`].
fn visit_texts(request: &[u8], mut visit: impl FnMut(&str)) {
    let (mut at, mut total) = (0, 0);
    while let Some(found) = request.get(at..).and_then(|rest| memchr::memchr(b'"', rest)) {
        let start = at + found;
        let Some(end) = json::string_end(request, start) else { return };
        at = end;
        let inside = request.get(start + 1..end - 1).unwrap_or_default();
        if request.get(json::skip_space(request, end)) == Some(&b':') || is_inline_media(inside) {
            continue;
        }
        total += inside.len();
        if total > MAX_REQUEST_BYTES {
            return;
        }
        visit(&json::unescape_lossy(inside).unwrap_or(Cow::Borrowed("")));
    }
}

/// Word of a text, or one letter of a script without blanks.
struct Word {
    range: Range<usize>,
    /// Hash of the lower-case letters.
    hash: u64,
}

fn words(text: &str) -> impl Iterator<Item = Word> + '_ {
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    let mut letters = text.char_indices().peekable();
    std::iter::from_fn(move || {
        let (start, first) = letters.by_ref().find(|(_, letter)| is_part(*letter))?;
        let mut word = Word { range: start..start + first.len_utf8(), hash: add_letter(HASH_SEED, first) };
        while !is_unspaced_script(first)
            && let Some((at, letter)) =
                letters.next_if(|(_, next)| is_part(*next) && !is_unspaced_script(*next))
        {
            word.range.end = at + letter.len_utf8();
            word.hash = add_letter(word.hash, letter);
        }
        Some(word)
    })
}

fn add_letter(hash: u64, letter: char) -> u64 {
    letter.to_lowercase().fold(hash, |hash, letter| (hash ^ u64::from(letter)).wrapping_mul(HASH_FACTOR))
}

/// Returns the hash of consecutive words.
fn run_hash(words: impl Iterator<Item = u64>) -> u64 {
    words.fold(HASH_SEED, |hash, word| (hash.rotate_left(5) ^ word).wrapping_mul(HASH_FACTOR))
}

/// Runs of words of an error text that were not found in the request.
struct RunIndex {
    /// Positions of the first words of runs, by the hash of the run. The index is the number of words minus 1.
    runs: [HashMap<u64, Vec<usize>>; RUN_WORDS],
}

impl RunIndex {
    fn new(text: &str, words: &[Word]) -> Self {
        let mut runs: [HashMap<u64, Vec<usize>>; RUN_WORDS] = Default::default();
        let mut add = |range: Range<usize>| {
            let Some(run) = words.get(range.clone()) else { return };
            let Some(runs) = run.len().checked_sub(1).and_then(|index| runs.get_mut(index)) else { return };
            runs.entry(run_hash(run.iter().map(|word| word.hash))).or_default().push(range.start);
        };
        (0..words.len().saturating_sub(RUN_WORDS - 1)).for_each(|start| add(start..start + RUN_WORDS));
        let quotes: Vec<usize> = text.match_indices(QUOTES).map(|(at, _)| at).collect();
        for pair in quotes.windows(2) {
            let [open, close] = *pair else { continue };
            let start = words.partition_point(|word| word.range.start < open);
            let end = words.partition_point(|word| word.range.start < close);
            let is_name = || text.get(open..close).is_some_and(is_member_name);
            if end - start < RUN_WORDS && !is_name() {
                add(start..end);
            }
        }
        Self { runs }
    }

    fn is_empty(&self) -> bool {
        self.runs.iter().all(HashMap::is_empty)
    }

    /// Marks the words whose run occurs in a text of the request. A run is marked once and then removed, because the
    /// request may repeat it a million times.
    fn mark(&mut self, text: &str, is_repeated: &mut [bool]) {
        let mut last = [0_u64; RUN_WORDS];
        for (count, word) in words(text).enumerate() {
            last.rotate_left(1);
            if let Some(newest) = last.last_mut() {
                *newest = word.hash;
            }
            for (length, runs) in (1..=count + 1).zip(&mut self.runs).filter(|(_, runs)| !runs.is_empty()) {
                let run = run_hash(last.iter().skip(RUN_WORDS - length).copied());
                for start in runs.remove(&run).unwrap_or_default() {
                    is_repeated.iter_mut().skip(start).take(length).for_each(|word| *word = true);
                }
            }
        }
    }
}

/// Returns true if a quoted text is the name of a member. Errors name members of their own accord, so such a name does
/// not count as repeated.
fn is_member_name(quoted: &str) -> bool {
    let name = quoted.trim_start_matches(QUOTES);
    is_client_visible_field(name)
        || crate::parameters::is_listable_parameter(name)
        || !AdjustableMemberSet::named_in_message(|word| word == name).is_empty()
}

/// Returns the text with an ellipsis in place of each run of marked words. A run of words directly before a number that
/// the request does not have remains, because it is the engine's own sentence. The request may contain the same
/// sentence with other numbers, for example in a log.
fn without_words(text: &str, words: &[Word], is_repeated: &[bool]) -> String {
    let mut out = String::with_capacity(text.len());
    let mut copied = 0;
    let mut index = 0;
    while let Some(first) = words.get(index) {
        let length = is_repeated.iter().skip(index).take_while(|repeated| **repeated).count();
        let last = words.get(index + length.saturating_sub(1)).unwrap_or(first);
        let next = words.get(index + length).and_then(|word| text.get(word.range.clone()));
        let is_before_number = next.is_some_and(|next| next.bytes().all(|byte| byte.is_ascii_digit()));
        if length > 0 && !is_before_number {
            out.push_str(text.get(copied..first.range.start).unwrap_or_default());
            out.push('\u{2026}');
            copied = last.range.end;
        }
        index += length.max(1);
    }
    out.push_str(text.get(copied..).unwrap_or_default());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cleaned(prompt: &str, text: &str) -> String {
        let request =
            serde_json::json!({"model": "org/m", "messages": [{"content": prompt}], "max_tokens": 5});
        remove_echo(text, request.to_string().as_bytes())
    }

    #[test]
    fn a_repeated_run_or_quotation_is_removed() {
        let prompt = "Explain, in detail:\nthe CONTENT \"policy\" of our moderation team";
        for (text, expected) in [
            ("value explain in detail the content policy is no list", "value \u{2026} is no list"),
            (r"value 'explain, in detail:\nthe' is no list", r"value 'explain, in detail:\nthe' is no list"),
            ("value 'moderation' is no list", "value '\u{2026}' is no list"),
            ("value \"content policy\" is no list", "value \"\u{2026}\" is no list"),
            ("the moderation team is no list", "the moderation team is no list"),
            ("unknown field `messages` or `content_policy`", "unknown field `messages` or `content_policy`"),
            ("our moderation team is busy", "our moderation team is busy"),
        ] {
            assert_eq!(cleaned(prompt, text), expected, "{text}");
        }
    }

    #[test]
    fn a_sentence_with_other_numbers_is_kept() {
        let log =
            "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens. Why?";
        for text in [
            "this model's maximum context length is 4096 tokens. however, you requested 5000 tokens.",
            "this model's maximum context length is 8192 tokens. however, you requested 9001 tokens.",
        ] {
            assert!(cleaned(log, text).contains("maximum context length is"), "{text}");
        }
        let echo = format!("bad value: {}", log.to_lowercase());
        assert_eq!(cleaned(log, &echo), "bad value: \u{2026}?");
    }

    #[test]
    fn letters_without_blanks_are_compared_one_by_one() {
        let prompt = "\u{8bf7}\u{89e3}\u{91ca}\u{8f93}\u{5165}\u{957f}\u{5ea6}\u{8d85}\u{957f}";
        assert_eq!(cleaned(prompt, &format!("bad content: {prompt}")), "bad content: \u{2026}");
        let remaining = |request: &str, phrase: &'static str| {
            let mut phrases = vec![(1, phrase), (2, "unrelated")];
            remove_echoed_phrases(request.as_bytes(), &mut phrases);
            phrases
        };
        let chinese = "\u{8d85}\u{957f}";
        assert_eq!(remaining(&format!("[\"{prompt}\"]"), chinese), [(2, "unrelated")]);
        let key = remaining(r#"{"overloaded": "x"}"#, "overloaded");
        assert_eq!(key, [(1, "overloaded"), (2, "unrelated")], "a key is no text");
        let shouted = remaining(r#"{"x": "The server is OVERLOADED"}"#, "overloaded");
        assert_eq!(shouted, [(2, "unrelated")]);
    }

    #[test]
    fn a_run_that_error_and_request_repeat_is_marked_once() {
        // Marking each run of the error for each word of the request would take minutes.
        for (prompt, text) in [("a ", "a "), ("\u{8d85}", "\u{8d85}"), ("a b ", "b a ")] {
            let cleaned = cleaned(&prompt.repeat(300_000), &text.repeat(MAX_TEXT_BYTES / text.len()));
            assert_eq!(cleaned.trim_end(), "\u{2026}", "{prompt}");
        }
    }

    #[test]
    fn no_input_is_too_odd() {
        for text in ["", "'", "''''", "a b", "\u{8d85}"] {
            assert_eq!(remove_echo(text, b"{\"a\":\"b"), text);
            assert_eq!(remove_echo(text, b""), text);
        }
        let long = "word ".repeat(20_000);
        assert!(remove_echo(&long, b"[]").len() <= MAX_TEXT_BYTES);
    }
}
