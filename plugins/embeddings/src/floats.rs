//! Vectors in their two forms: a JSON array of numbers, and base64 of little-endian `f32`.
//!
//! A decimal is converted to the closest `f32`, and an `f32` to the shortest decimal that reads back as the same value,
//! so a vector survives any number of conversions.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Reads an array of numbers at the start of `json`, appending each as a little-endian `f32`. Returns the number of
/// JSON bytes read, with the closing bracket.
///
/// Returns `None` if `json` does not start with an array of numbers, or if a number does not fit an `f32`.
pub(crate) fn read_array(json: &[u8], out: &mut Vec<u8>) -> Option<usize> {
    let taken = for_each_number(json, |rest| {
        // The float parser also accepts `nan`, `inf` and a plus sign, which are not JSON.
        let first = usize::from(rest.first() == Some(&b'-'));
        rest.get(first).filter(|byte| byte.is_ascii_digit())?;
        let (value, taken): (f32, usize) = fast_float2::parse_partial(rest).ok()?;
        out.extend_from_slice(&value.to_le_bytes());
        value.is_finite().then_some(taken)
    });
    taken.map(|(taken, _)| taken)
}

/// Returns the length in bytes and the number of elements of the array of numbers at the start of `json`; `None` if
/// `json` does not start with one, or if a number does not fit an `f32`.
pub(crate) fn measure_array(json: &[u8]) -> Option<(usize, usize)> {
    for_each_number(json, |rest| {
        let length = number_length(rest)?;
        let number = rest.get(..length)?;
        // Only a number with an exponent, or with as many digits as `f32::MAX`, can exceed the range of `f32`.
        let is_in_range = length < 39 && !number.iter().any(|byte| matches!(byte, b'e' | b'E'));
        (is_in_range || fast_float2::parse::<f32, _>(number).is_ok_and(f32::is_finite)).then_some(length)
    })
}

/// Iterates over the array of numbers at the start of `json`; `number` returns the length of the number at the start of
/// its input. Returns the length in bytes and the number of elements of the array; `None` if `json` starts with no
/// array, or if `number` returns `None`.
#[inline(always)]
fn for_each_number(json: &[u8], mut number: impl FnMut(&[u8]) -> Option<usize>) -> Option<(usize, usize)> {
    if json.first() != Some(&b'[') {
        return None;
    }
    let mut rest = space(json.get(1..)?);
    let mut count = 0;
    if let Some((b']', after)) = rest.split_first() {
        return Some((json.len() - after.len(), 0));
    }
    loop {
        let length = number(rest)?;
        count += 1;
        let (mark, after) = space(rest.get(length..)?).split_first()?;
        match mark {
            b',' => rest = space(after),
            b']' => return Some((json.len() - after.len(), count)),
            _ => return None,
        }
    }
}

#[inline(always)]
fn space(mut json: &[u8]) -> &[u8] {
    while let Some((b' ' | b'\n' | b'\r' | b'\t', after)) = json.split_first() {
        json = after;
    }
    json
}

/// Returns the length in bytes of the JSON number at the start of `json`; `None` if there is none.
#[inline(always)]
fn number_length(json: &[u8]) -> Option<usize> {
    let start = usize::from(json.first() == Some(&b'-'));
    let mut at = match json.get(start)? {
        b'0' => start + 1,
        _ => digits(json, start)?,
    };
    if json.get(at) == Some(&b'.') {
        at = digits(json, at + 1)?;
    }
    if let Some(b'e' | b'E') = json.get(at) {
        let sign = usize::from(matches!(json.get(at + 1), Some(b'+' | b'-')));
        at = digits(json, at + 1 + sign)?;
    }
    Some(at)
}

/// Returns the offset after the digits that begin at `offset`; `None` if there is none.
#[inline(always)]
fn digits(json: &[u8], offset: usize) -> Option<usize> {
    let mut end = offset;
    // Tests eight digits at a time: a digit is 0x30 to 0x39, and adding 6 to it leaves the high half byte 3.
    while let Some(eight) = json.get(end..).and_then(<[u8]>::first_chunk) {
        let word = u64::from_le_bytes(*eight);
        let high = |word: u64| word & 0xf0f0_f0f0_f0f0_f0f0;
        const THIRTIES: u64 = 0x3030_3030_3030_3030;
        if high(word) != THIRTIES || high(word.wrapping_add(0x0606_0606_0606_0606)) != THIRTIES {
            break;
        }
        end += 8;
    }
    let more = json.get(end..)?.iter().take_while(|byte| byte.is_ascii_digit()).count();
    (end + more > offset).then_some(end + more)
}

/// Writes little-endian `f32` values as a JSON array. Returns `None` if a value is not finite.
pub(crate) fn write_array(floats: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let mut buffer = zmij::Buffer::new();
    out.reserve(floats.len().saturating_mul(4));
    out.push(b'[');
    for (index, four) in floats.chunks_exact(4).enumerate() {
        let value = f32::from_le_bytes(four.try_into().ok()?);
        if !value.is_finite() {
            return None;
        }
        if index > 0 {
            out.push(b',');
        }
        out.extend_from_slice(buffer.format_finite(value).as_bytes());
    }
    out.push(b']');
    Some(())
}

/// Decodes base64 of little-endian `f32` values to `out` and returns their number; `None` if the base64 is invalid or a
/// value is not finite.
pub(crate) fn decode_base64(base64: &[u8], out: &mut Vec<u8>) -> Option<usize> {
    let before = out.len();
    STANDARD.decode_vec(base64, out).ok()?;
    let (floats, rest) = out.get(before..)?.as_chunks::<4>();
    let are_finite = floats.iter().all(|four| f32::from_le_bytes(*four).is_finite());
    (rest.is_empty() && are_finite).then_some(floats.len())
}

/// Writes the bytes of a vector as a base64 string with quotes; `None` if its length overflows.
pub(crate) fn encode_base64(floats: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let start = out.len() + 1;
    let end = start + base64::encoded_len(floats.len(), true)?;
    out.push(b'"');
    out.resize(end, 0);
    STANDARD.encode_slice(floats, out.get_mut(start..end)?).ok()?;
    out.push(b'"');
    Some(())
}
