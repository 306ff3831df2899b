//! Validation of numbers, by the JSON grammar and the range of a double.

use super::JsonError;

/// Validates a number at `from`; returns its end.
pub fn number_end(bytes: &[u8], from: usize) -> Result<usize, JsonError> {
    let mut at = from;
    if bytes.get(at) == Some(&b'-') {
        at += 1;
    }
    at = match bytes.get(at) {
        Some(b'0') => at + 1,
        Some(b'1'..=b'9') => digits_end(bytes, at),
        _ => return Err(JsonError::syntax(at, "a number without digits")),
    };
    let mut may_overflow = at - from > 300;
    if bytes.get(at) == Some(&b'.') {
        at = required_digits_end(bytes, at + 1)?;
    }
    if let Some(b'e' | b'E') = bytes.get(at) {
        at += 1;
        if let Some(b'+' | b'-') = bytes.get(at) {
            at += 1;
        }
        at = required_digits_end(bytes, at)?;
        may_overflow = true;
    }
    if may_overflow && !is_finite(bytes.get(from..at)) {
        return Err(JsonError::unrepresentable(from, "a number out of range"));
    }
    Ok(at)
}

fn digits_end(bytes: &[u8], from: usize) -> usize {
    let rest = bytes.get(from..).unwrap_or_default();
    from + rest.iter().take_while(|byte| byte.is_ascii_digit()).count()
}

fn required_digits_end(bytes: &[u8], from: usize) -> Result<usize, JsonError> {
    let end = digits_end(bytes, from);
    if end == from { Err(JsonError::syntax(from, "a number without digits")) } else { Ok(end) }
}

fn is_finite(digits: Option<&[u8]>) -> bool {
    digits
        .and_then(|digits| std::str::from_utf8(digits).ok())
        .and_then(|digits| digits.parse::<f64>().ok())
        .is_some_and(f64::is_finite)
}
