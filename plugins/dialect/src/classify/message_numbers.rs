//! Detection of numbers in an error message that may be the token ids of a text, or may identify an account.

/// Returns the number of digits of a word that is a number; `None` for other words.
fn number_digits(word: &str) -> Option<usize> {
    let core = word.trim_matches(|letter: char| !letter.is_alphanumeric());
    let is_number =
        !core.is_empty() && core.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b','));
    is_number.then(|| core.bytes().filter(u8::is_ascii_digit).count())
}

/// Returns true if the word is one of at least three consecutive numbers, which may be the token ids of a text.
pub(super) fn is_in_number_list(words: &[&str], index: usize) -> bool {
    let is_number = |at: usize| words.get(at).is_some_and(|word| number_digits(word).is_some());
    let before = (0..index).rev().take_while(|at| is_number(*at)).take(2).count();
    let after = (index + 1..words.len()).take_while(|at| is_number(*at)).take(2).count();
    is_number(index) && before + after >= 2
}

/// Returns true if the text between two brackets is a list of at least two numbers, and not a range of two ascending
/// numbers.
pub(super) fn is_number_list(inside: &str) -> bool {
    let mut numbers = inside.split(',').map(|part| part.trim().parse::<f64>());
    match (numbers.next(), numbers.next(), numbers.next()) {
        (Some(Ok(first)), Some(Ok(second)), None) => second < first,
        (Some(Ok(_)), Some(Ok(_)), Some(_)) => true,
        _ => false,
    }
}

/// Returns true if a number may identify an account or a person: it follows a word such as "account", or has many
/// digits and does not follow a word of a comparison, such as "than".
pub(super) fn is_identifying_number(before: &str, word: &str) -> bool {
    let Some(digits) = number_digits(word) else { return false };
    let before = before.to_lowercase();
    let name = before.trim_matches(|letter: char| !letter.is_alphanumeric());
    let is_owner = OWNER_WORDS.contains(&name) && digits >= MIN_OWNER_DIGITS;
    is_owner || digits >= MIN_LONG_DIGITS && !COMPARISON_WORDS.contains(&before.as_str())
}

/// Words before a number that identifies an account or a person.
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
/// Minimum digits of an identifying number after one of [`OWNER_WORDS`], and after any other word.
const MIN_OWNER_DIGITS: usize = 3;
const MIN_LONG_DIGITS: usize = 8;
/// Words and signs before a number that is a limit.
const COMPARISON_WORDS: [&str; 12] =
    ["than", "to", "most", "least", "exceed", "exceeds", "between", "<", ">", "<=", ">=", "="];
