//! Words that may be passed on from a provider's error message: common words of technical English. Any other word may
//! be the name of a machine, a person or an organization, or a secret.

use std::collections::HashSet;
use std::sync::LazyLock;

static WORDS: LazyLock<HashSet<&str>> =
    LazyLock::new(|| include_str!("common_words.txt").split_ascii_whitespace().collect());

/// Endings of inflected words, each with the ending of the base form.
const ENDINGS: [(&str, &str); 15] = [
    ("'s", ""),
    ("s", ""),
    ("es", ""),
    ("ies", "y"),
    ("ied", "y"),
    ("ed", ""),
    ("ed", "e"),
    ("ing", ""),
    ("ing", "e"),
    ("ly", ""),
    ("er", ""),
    ("er", "e"),
    ("ity", ""),
    ("ion", ""),
    ("ion", "e"),
];

/// Returns true for a common word in lower case, or for such words joined by hyphens, underscores or slashes.
pub(super) fn is_common_word(word: &str) -> bool {
    let is_part = |part: &str| is_known(part) || is_small_number(part);
    match word.split_once('-') {
        Some((prefix, rest)) if PREFIXES.contains(&prefix) => rest.split(['-', '_', '/']).all(is_part),
        _ => word.split(['-', '_', '/']).all(is_part),
    }
}

/// Prefixes of words.
const PREFIXES: [&str; 6] = ["non", "un", "re", "pre", "sub", "multi"];

fn is_known(word: &str) -> bool {
    let word = PREFIXES
        .iter()
        .find_map(|prefix| word.strip_prefix(prefix).filter(|rest| rest.len() > 3 && is_inflected(rest)))
        .unwrap_or(word);
    is_inflected(word)
}

/// Returns true for the base form of a common word that an error message may contain.
pub(super) fn is_common_base_form(word: &str) -> bool {
    WORDS.contains(word) || super::sanitized_message::is_neutral_word(word)
}

fn is_inflected(word: &str) -> bool {
    let is_base = |(ending, base): &(&str, &str)| {
        let stem = word.strip_suffix(ending).filter(|stem| stem.len() > 1);
        stem.is_some_and(|stem| is_common_base_form(&format!("{stem}{base}")) || has_doubled_base(stem))
    };
    is_common_base_form(word)
        || ENDINGS.iter().any(is_base)
        || word.strip_suffix("n't").is_some_and(|verb| verb.len() > 1)
}

/// Returns true for a stem whose last letter is doubled, as in "stopp" of "stopped".
fn has_doubled_base(stem: &str) -> bool {
    let mut ends = stem.bytes().rev();
    let is_doubled = ends.next() == ends.next();
    is_doubled && stem.get(..stem.len() - 1).is_some_and(|base| base.len() > 2 && WORDS.contains(base))
}

fn is_small_number(part: &str) -> bool {
    !part.is_empty() && part.len() <= 2 && part.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_words_are_known_in_their_forms() {
        for word in [
            "supported",
            "unsupported",
            "stopping",
            "stopped",
            "entries",
            "doesn't",
            "non-empty",
            "tool_calls",
            "user/assistant",
            "re-encoded",
            "decoding",
            "values",
            "larger",
            "identifier",
            "base-64",
            "inputs",
            "properties",
        ] {
            assert!(is_common_word(word), "{word}");
        }
        for word in [
            "",
            "llama-prod-service",
            "redis-master",
            "acme-gmbh",
            "phoenix",
            "qwertzuiopasdfghjkl",
            "secretpassword",
            "johansson",
            "vllm.internal",
            "n't",
            "gpu-node-17",
            "s",
        ] {
            assert!(!is_common_word(word), "{word}");
        }
    }
}
