//! Writers of JSON numbers and strings.

use rust_decimal::Decimal;

/// Writes a decimal as a JSON number: plain digits, no exponent, no trailing zeros.
pub fn write_number(out: &mut Vec<u8>, number: Decimal) {
    if number.is_sign_negative() && !number.is_zero() {
        out.push(b'-');
    }
    let mantissa = number.mantissa().unsigned_abs();
    let mut digits = itoa::Buffer::new();
    let digits = match u64::try_from(mantissa) {
        Ok(small) => digits.format(small),
        Err(_) => digits.format(mantissa),
    };
    write_with_point(out, digits.as_bytes(), number.scale() as usize);
}

/// Writes digits with the decimal point before the last `scale` of them.
fn write_with_point(out: &mut Vec<u8>, digits: &[u8], scale: usize) {
    let (whole, fraction) = digits.split_at(digits.len().saturating_sub(scale));
    out.extend_from_slice(if whole.is_empty() { b"0" } else { whole });
    let Some(last) = fraction.iter().rposition(|digit| *digit != b'0') else { return };
    out.push(b'.');
    out.resize(out.len() + scale.saturating_sub(fraction.len()), b'0');
    out.extend_from_slice(fraction.get(..=last).unwrap_or(fraction));
}

/// Writes a JSON string in ASCII.
pub(crate) fn write_string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    if text.bytes().all(|mark| matches!(mark, b' '..=b'~') && mark != b'"' && mark != b'\\') {
        out.extend_from_slice(text.as_bytes());
        out.push(b'"');
        return;
    }
    for unit in text.encode_utf16() {
        match u8::try_from(unit) {
            Ok(mark @ (b'"' | b'\\')) => out.extend_from_slice(&[b'\\', mark]),
            Ok(mark @ b' '..=b'~') => out.push(mark),
            _ => escape(out, unit),
        }
    }
    out.push(b'"');
}

fn escape(out: &mut Vec<u8>, unit: u16) {
    out.extend_from_slice(b"\\u");
    for shift in [12_u16, 8, 4, 0] {
        let digit = (unit >> shift & 15) as u8;
        out.push(if digit < 10 { b'0' + digit } else { b'a' + digit - 10 });
    }
}

/// Writes `"name":`, after a comma unless the member is the first of its object.
pub(crate) fn write_key(out: &mut Vec<u8>, name: &str) {
    if out.last().is_some_and(|last| *last != b'{') {
        out.push(b',');
    }
    out.push(b'"');
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
}
