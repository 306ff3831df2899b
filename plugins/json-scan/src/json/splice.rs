//! Insertion of members into a serialised object.

use super::scan::skip_space;
use bytes::Bytes;

/// Inserts `members` (`"a":1,"b":2`, no braces) before the last `}` of `json`. Returns the start of the object, the
/// members with the comma they need, and the end.
///
/// Without a closing brace, or without members, the first of the three is `json` unchanged, and the others are empty.
#[must_use]
pub fn insert_members(json: Bytes, members: &[u8]) -> [Bytes; 3] {
    let Some(brace) = memchr::memrchr(b'}', &json).filter(|_| !members.is_empty()) else {
        return [json, Bytes::new(), Bytes::new()];
    };
    let opening = skip_space(&json, 0);
    let empty = json.get(opening) == Some(&b'{') && skip_space(&json, opening + 1) == brace;
    let mut inserted = Vec::with_capacity(members.len() + 1);
    if !empty {
        inserted.push(b',');
    }
    inserted.extend_from_slice(members);
    [json.slice(..brace), Bytes::from(inserted), json.slice(brace..)]
}
