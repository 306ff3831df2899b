//! Comparison of two numbers of tokens in a sentence: the number that was sent, and the limit that it exceeds.
//!
//! Engines state the two numbers in either order and in any words. In a sentence about an excess, the larger number is
//! the one that was sent.

use super::number_phrases::CHARACTER_WORDS;
use super::phrases::EXCESS_PHRASES;
use super::token_numbers::leading_number;

/// Minimum of a number of tokens that is compared. A smaller one may be the version of a model or an index.
const MIN_TOKENS: u64 = 64;
/// Endings of the words before the status or the code of an error.
const STATUS_ENDINGS: [&str; 4] = ["code", "status", "error", "http"];
/// Numbers after one of [`STATUS_ENDINGS`] that are not compared.
const STATUSES: std::ops::Range<u64> = 400..600;

/// Two different numbers of tokens, of which the larger was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ExceededLimit {
    pub(super) sent: u64,
    pub(super) limit: u64,
}

/// Returns the numbers of the first line of an error text that is about an excess and has exactly two different
/// numbers; `None` without such a line, and for a text that counts characters or bytes. `text` is in lower case.
pub(super) fn exceeded_limit(text: &str) -> Option<ExceededLimit> {
    if CHARACTER_WORDS.iter().any(|word| text.contains(word)) {
        return None;
    }
    let is_excess = |line: &&str| EXCESS_PHRASES.iter().any(|phrase| line.contains(phrase));
    text.lines().filter(is_excess).find_map(compared_numbers)
}

fn compared_numbers(line: &str) -> Option<ExceededLimit> {
    let mut numbers = token_numbers(line)?;
    numbers.sort_unstable();
    numbers.dedup();
    match numbers[..] {
        [limit, sent] => Some(ExceededLimit { sent, limit }),
        _ => None,
    }
}

/// Returns the numbers of a line that may be numbers of tokens; `None` if one of them is a difference, as in "by 808".
fn token_numbers(line: &str) -> Option<Vec<u64>> {
    let mut numbers = Vec::new();
    let mut end = 0;
    for (at, _) in line.match_indices(|letter: char| letter.is_ascii_digit()) {
        if at < end {
            continue;
        }
        let (before, rest) = line.split_at(at);
        let digits =
            rest.bytes().take_while(|byte| byte.is_ascii_digit() || matches!(byte, b',' | b'.')).count();
        end = at + digits;
        let Some((number, after)) = leading_number(rest) else { continue };
        let is_part = before.ends_with(|letter: char| letter.is_alphanumeric() || "-_./[".contains(letter))
            || after.starts_with(|letter: char| letter.is_alphanumeric() || "-_/".contains(letter));
        let words = before.trim_end_matches([' ', ':']);
        let is_status = STATUSES.contains(&number) && STATUS_ENDINGS.iter().any(|word| words.ends_with(word));
        if is_part || is_status || number < MIN_TOKENS {
            continue;
        }
        if before.ends_with("by ") {
            return None;
        }
        numbers.push(number);
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_larger_of_two_numbers_was_sent() {
        for text in [
            "input too long: 5000 tokens, max 4096",
            "input too long: max 4096, got 5000 tokens",
            "input too long (4096 < 5000)",
            "error code: 400 - prompt is too long: 5,000 tokens (limit 4,096)",
            "type\nllama-3.1-405b: prompt too long: 4096 allowed, 5000.0 given, 5000 counted",
        ] {
            assert_eq!(exceeded_limit(text), Some(ExceededLimit { sent: 5000, limit: 4096 }), "{text}");
        }
        for text in [
            "",
            "prompt too long: 5000",
            "prompt too long: exceeds 4096 by 904",
            "prompt too long: 4096, 5000, 6000",
            "prompt too long: 5000 characters, limit 4096 characters",
            "input[5000] is too long, limit 4096",
            "the numbers 5000 and 4096",
            "llama 3 has a maximum of 8192 tokens",
            "too long: 99999999999999999999999999 and 4096",
        ] {
            assert_eq!(exceeded_limit(text), None, "{text}");
        }
    }
}
