//! Insertion of members into a serialised answer.

use bytes::Bytes;

/// Inserts `members` (`"a":…,"b":…`, no braces) before the last `}` of a JSON object that comes in pieces. The pieces
/// are sliced, not copied; white space after the object is dropped. The body is returned unchanged if `members` is
/// empty or the body does not end with `}`.
#[must_use]
pub fn insert_members(mut body: Vec<Bytes>, members: &[u8]) -> Vec<Bytes> {
    let Some((piece, at)) = last_json_byte(&body) else { return body };
    if members.is_empty() || body.get(piece).and_then(|last| last.get(at)) != Some(&b'}') {
        return body;
    }
    body.truncate(piece + 1);
    if let Some(last) = body.last_mut() {
        last.truncate(at);
    }
    body.retain(|piece| !piece.is_empty());
    let before = last_json_byte(&body).and_then(|(piece, at)| body.get(piece)?.get(at).copied());
    let mut tail = Vec::with_capacity(members.len() + 2);
    if before != Some(b'{') {
        tail.push(b',');
    }
    tail.extend_from_slice(members);
    tail.push(b'}');
    body.push(Bytes::from(tail));
    body
}

/// Returns the position of the last byte that is not JSON white space: the index of its piece and the offset in it.
fn last_json_byte(body: &[Bytes]) -> Option<(usize, usize)> {
    body.iter().enumerate().rev().find_map(|(piece, bytes)| {
        let at = bytes.iter().rposition(|byte| !matches!(byte, b' ' | b'\t' | b'\r' | b'\n'))?;
        Some((piece, at))
    })
}
