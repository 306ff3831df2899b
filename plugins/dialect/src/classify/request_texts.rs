//! Texts of a request, prepared for the comparison with the words of a provider's error message.

use super::inline_media::is_inline_media;
use memchr::memmem;
use penstock_json_scan::json;
use std::cell::Cell;
use std::collections::HashSet;

/// Maximum total bytes of the texts in a request. For a larger request, no message of the provider is passed on.
const MAX_REQUEST_TEXT_BYTES: usize = 1 << 20;
/// Members at the top of a request whose values are words of an API and no free text.
const WORD_MEMBERS: &[&str] = &[
    "background",
    "encoding_format",
    "lang_code",
    "language",
    "output_format",
    "quality",
    "reasoning_effort",
    "response_format",
    "size",
    "stream_format",
    "style",
    "task_type",
    "voice",
];
/// Maximum bytes of a value that counts as a word of an API and not as free text.
const MAX_WORD_BYTES: usize = 32;
/// Maximum bytes that are searched for the words of one message. Each search reads all texts of the request.
const MAX_SEARCHED_BYTES: usize = 32 << 20;

/// Returns the strings of a request in lower case, one per line; `None` if they are too long to compare. Leaves out
/// inline media and, at the top level, single words that are the names of members or the values of [`WORD_MEMBERS`].
pub(super) fn collect_lowercase_strings(request: &[u8]) -> Option<String> {
    let mut out = String::new();
    let (mut at, mut depth) = (0, 0_usize);
    let mut member: &[u8] = b"";
    while let Some(found) = request.get(at..).and_then(|rest| memchr::memchr(b'"', rest)) {
        let start = at + found;
        depth = depth_after(depth, request.get(at..start).unwrap_or_default());
        let Some(end) = json::string_end(request, start) else { break };
        at = end;
        let inside = request.get(start + 1..end - 1).unwrap_or_default();
        let is_key = request.get(end..).unwrap_or_default().trim_ascii_start().first() == Some(&b':');
        if depth == 1 && is_key && is_word(inside) {
            member = inside;
            continue;
        }
        let is_of_api = WORD_MEMBERS.iter().any(|name| name.as_bytes() == member) && is_word(inside);
        if depth == 1 && !is_key && is_of_api {
            continue;
        }
        if is_inline_media(inside) {
            continue;
        }
        if out.len() + inside.len() > MAX_REQUEST_TEXT_BYTES {
            return None;
        }
        push_text(inside, &mut out);
    }
    Some(out)
}

/// Returns the nesting depth after the bytes between two JSON strings.
fn depth_after(depth: usize, between: &[u8]) -> usize {
    between.iter().fold(depth, |depth, byte| match byte {
        b'{' | b'[' => depth + 1,
        b'}' | b']' => depth.saturating_sub(1),
        _ => depth,
    })
}

/// Returns true for a single word.
fn is_word(text: &[u8]) -> bool {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    !text.is_empty() && text.len() <= MAX_WORD_BYTES && text.iter().all(is_part)
}

/// Returns the keys of all objects of a JSON document, with their original escapes.
fn object_keys(json: &[u8]) -> HashSet<&[u8]> {
    let mut keys = HashSet::new();
    let mut at = 0;
    while let Some(found) = json.get(at..).and_then(|rest| memchr::memchr(b'"', rest)) {
        let start = at + found;
        let Some(end) = json::string_end(json, start) else { break };
        at = end;
        if json.get(json::skip_space(json, end)) == Some(&b':') {
            keys.extend(json.get(start + 1..end - 1));
        }
    }
    keys
}

/// Appends the text inside a JSON string. JSON inside it, such as the arguments of a call, may escape letters once
/// more.
fn push_text(inside: &[u8], out: &mut String) {
    let text = json::unescape_lossy(inside).unwrap_or_default();
    out.push_str(&text.to_lowercase());
    out.push('\n');
    if text.contains("\\u") {
        let units = text.split("\\u").skip(1).filter_map(|rest| rest.get(..4));
        let units = units.filter_map(|digits| u16::from_str_radix(digits, 16).ok());
        let letters = char::decode_utf16(units).map(|letter| letter.unwrap_or(' '));
        out.extend(letters.flat_map(char::to_lowercase));
        out.push('\n');
    }
}

/// Returns true for a letter of a script that has no blanks between words: Thai, Lao, Burmese, Khmer, Chinese and
/// Japanese.
pub(super) fn is_unspaced_script(letter: char) -> bool {
    matches!(
        letter,
        '\u{0e00}'..='\u{0eff}'
            | '\u{1000}'..='\u{109f}'
            | '\u{1780}'..='\u{17ff}'
            | '\u{2e80}'..='\u{312f}'
            | '\u{31a0}'..='\u{9fff}'
            | '\u{f900}'..='\u{faff}'
            | '\u{ff66}'..='\u{ff9f}'
            | '\u{20000}'..='\u{3ffff}'
    )
}

/// Texts of a request, in lower case.
pub(super) struct RequestTexts<'t> {
    text: &'t str,
    /// Words of at least [`MIN_PART_BYTES`] bytes, so that a word of a message can be looked up without a pass over
    /// the text.
    words: HashSet<&'t str>,
    /// Keys of the request's objects.
    keys: HashSet<&'t [u8]>,
    /// Number of bytes searched so far.
    searched_bytes: Cell<usize>,
}

/// Minimum bytes of a word that is also compared with parts of words. A shorter word is compared with whole words
/// only.
const MIN_PART_BYTES: usize = 4;

impl<'t> RequestTexts<'t> {
    /// Creates the lookup of words; `text` has the strings of `request`, in lower case.
    pub(super) fn new(text: &'t str, request: &'t [u8]) -> Self {
        let words = text.split(|letter: char| !letter.is_alphanumeric());
        let words = words.filter(|word| word.len() >= MIN_PART_BYTES).collect();
        Self { text, words, keys: object_keys(request), searched_bytes: Cell::new(0) }
    }

    /// Returns true if an object of the request has this key.
    pub(super) fn has_key(&self, word: &str) -> bool {
        self.keys.contains(word.as_bytes())
    }

    /// Returns true if a word, in lower case, may repeat the texts of the request:
    ///
    /// - a word of at least [`MIN_PART_BYTES`] bytes, if the texts contain it, even inside of a longer word, or if it
    ///   contains a word of the texts of at least that length;
    /// - a shorter word, if the texts have it as a whole word;
    /// - a word with letters beyond ASCII, if the texts contain any three consecutive letters of it, or two of a script
    ///   without blanks, where the word may be a whole sentence;
    /// - any word, after [`MAX_SEARCHED_BYTES`] were searched.
    pub(super) fn may_contain_word(&self, word: &str) -> bool {
        if !word.is_ascii() {
            let letters: Vec<char> = word.chars().collect();
            let is_pair = |pair: &[char]| pair.iter().copied().all(is_unspaced_script);
            let occurs = |part: &[char]| self.contains_text(&part.iter().collect::<String>());
            // Three letters that contain such a pair need no search of their own, because the pair is searched for.
            let mut others =
                letters.windows(3.min(letters.len())).filter(|part| !part.windows(2).any(is_pair));
            return letters.windows(2).filter(|pair| is_pair(pair)).any(occurs) || others.any(occurs);
        }
        if word.len() >= MIN_PART_BYTES {
            return self.contains_text(word) || self.has_word_inside(word);
        }
        let edge = |letter: Option<char>| letter.is_none_or(|letter| !letter.is_alphanumeric());
        !self.start_search()
            || memmem::find_iter(self.text.as_bytes(), word).any(|at| {
                let before = self.text.get(..at).and_then(|text| text.chars().next_back());
                let after = self.text.get(at + word.len()..).and_then(|text| text.chars().next());
                edge(before) && edge(after)
            })
    }

    /// Returns true if the texts contain `part`, or if [`MAX_SEARCHED_BYTES`] were searched.
    fn contains_text(&self, part: &str) -> bool {
        !self.start_search() || memmem::find(self.text.as_bytes(), part.as_bytes()).is_some()
    }

    /// Counts a search of all texts; returns false if it would exceed [`MAX_SEARCHED_BYTES`].
    fn start_search(&self) -> bool {
        let searched = self.searched_bytes.get() + self.text.len();
        let is_allowed = searched <= MAX_SEARCHED_BYTES;
        if is_allowed {
            self.searched_bytes.set(searched);
        }
        is_allowed
    }

    /// Returns true if a word of the texts, of at least [`MIN_PART_BYTES`] bytes, is a part of this one.
    fn has_word_inside(&self, word: &str) -> bool {
        let ends = |start: usize| start + MIN_PART_BYTES..=word.len();
        (0..word.len())
            .flat_map(|start| ends(start).map(move |end| start..end))
            .any(|part| word.get(part).is_some_and(|part| self.words.contains(part)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns distinct words of two letters of a script without blanks.
    fn pairs(count: u32) -> impl Iterator<Item = String> {
        let letter = |number: u32| char::from_u32(0x5000 + number).into_iter();
        (0..count).map(move |number| letter(number).chain(letter(number + 1)).collect())
    }

    #[test]
    fn the_bytes_searched_for_one_message_are_bounded() {
        let text = "\u{6211}".repeat(MAX_REQUEST_TEXT_BYTES / 3);
        for words in [
            pairs(600).collect::<Vec<_>>(),
            (0..600).map(|number| number.to_string()).collect(),
            (0..600).map(|number| format!("word{number}")).collect(),
            vec![pairs(600).collect()],
        ] {
            let texts = RequestTexts::new(&text, b"{}");
            let repeated = words.iter().filter(|word| texts.may_contain_word(word)).count();
            assert!(texts.searched_bytes.get() <= MAX_SEARCHED_BYTES);
            // After the limit of searched bytes, each further word counts as repeated.
            let searched = MAX_SEARCHED_BYTES / text.len();
            assert_eq!(repeated, words.len().saturating_sub(searched).max(1), "{}", words.len());
        }
        // A message of usual length can be compared with the largest request within the limit.
        let texts = RequestTexts::new(&text, b"{}");
        assert!(pairs(30).all(|word| !texts.may_contain_word(&word)));
        assert!(RequestTexts::new(&text, b"{}").may_contain_word("\u{6211}\u{6211}"));
    }

    #[test]
    fn letters_are_compared_in_pairs_or_triples() {
        let texts = RequestTexts::new("caf\u{e9} m\u{fc}ller \u{5f20}\u{4f1f}a", b"{}");
        for (word, is_repeated) in [
            ("\u{e9}", true),
            ("\u{e8}", false),
            ("m\u{fc}", true),
            ("m\u{f6}", false),
            ("xm\u{fc}ly", true),
            ("xf\u{e9}y", false),
            ("\u{5f20}\u{4f1f}", true),
            ("b\u{5f20}\u{4f1f}b", true),
            ("\u{4f1f}\u{5f20}", false),
            ("\u{4f1f}ab", false),
        ] {
            assert_eq!(texts.may_contain_word(word), is_repeated, "{word}");
        }
    }
}
