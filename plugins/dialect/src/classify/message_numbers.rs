//! Numbers of an error message that may be tokens of a text, or belong to somebody.

/// Returns the digits of a word that is a number.
fn number_digits(word: &str) -> Option<usize> {
    let core = word.trim_matches(|letter: char| !letter.is_alphanumeric());
    let is_number =
        !core.is_empty() && core.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b','));
    is_number.then(|| core.bytes().filter(u8::is_ascii_digit).count())
}

/// Returns true for one of at least three numbers in a row, which may be the tokens of a text.
pub(super) fn is_in_number_list(words: &[&str], index: usize) -> bool {
    let is_number = |at: usize| words.get(at).is_some_and(|word| number_digits(word).is_some());
    let before = (0..index).rev().take_while(|at| is_number(*at)).take(2).count();
    let after = (index + 1..words.len()).take_while(|at| is_number(*at)).take(2).count();
    is_number(index) && before + after >= 2
}

/// Returns true for the inside of brackets with numbers that are no range.
pub(super) fn is_number_list(inside: &str) -> bool {
    let mut numbers = inside.split(',').map(|part| part.trim().parse::<f64>());
    match (numbers.next(), numbers.next(), numbers.next()) {
        (Some(Ok(first)), Some(Ok(second)), None) => second < first,
        (Some(Ok(_)), Some(Ok(_)), Some(_)) => true,
        _ => false,
    }
}

/// Returns true for a number that may be that of an account: behind a word such as "account", or with many digits and
/// not behind a word of a comparison.
pub(super) fn is_identifying_number(before: &str, word: &str) -> bool {
    let Some(digits) = number_digits(word) else { return false };
    let before = before.to_lowercase();
    let name = before.trim_matches(|letter: char| !letter.is_alphanumeric());
    let is_owner = OWNER_WORDS.contains(&name) && digits >= MIN_OWNER_DIGITS;
    is_owner || digits >= MIN_LONG_DIGITS && !COMPARISON_WORDS.contains(&before.as_str())
}

/// Words before a number that belongs to somebody.
const OWNER_WORDS: [&str; 16] = [
    "account",
    "client",
    "customer",
    "id",
    "key",
    "org",
    "organisation",
    "organization",
    "phone",
    "pin",
    "project",
    "subscription",
    "team",
    "tenant",
    "user",
    "workspace",
];
/// Minimum digits of a number of an owner, and of a number that may be one behind any word.
const MIN_OWNER_DIGITS: usize = 3;
const MIN_LONG_DIGITS: usize = 8;
/// Words before a limit.
const COMPARISON_WORDS: [&str; 12] =
    ["than", "to", "most", "least", "exceed", "exceeds", "between", "<", ">", "<=", ">=", "="];
