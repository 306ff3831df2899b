//! Putting members into an object that is already written.

use super::scan::skip_space;
use bytes::Bytes;

/// Inserts `members` (`"a":1,"b":2`, no braces) before the last `}` of `json`:
/// the object's beginning, the members with the comma they need, its end.
///
/// Without a closing brace, or without members, `json` comes back unchanged.
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
