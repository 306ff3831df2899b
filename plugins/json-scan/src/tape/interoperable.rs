//! Check for JSON that every parser reads alike.

use super::{JsonTape, JsonValue, StructureLimits, scan};
use std::collections::HashSet;

/// Maximum nesting depth of interoperable JSON: the limit of parsers such as `serde_json`.
const MAX_DEPTH: usize = 128;

/// Returns true for one JSON value that is also I-JSON (RFC 7493, section 2): UTF-8, numbers within the range of a
/// double, no lone surrogates, and no two members of one object with the same name. Strict parsers refuse other JSON,
/// and of members with the same name some parsers read the first one and others the last one.
#[must_use]
pub fn is_interoperable(json: &[u8]) -> bool {
    let limits = StructureLimits { depth: MAX_DEPTH, nodes: json.len() };
    let Ok(text) = std::str::from_utf8(json) else { return false };
    let Ok(nodes) = scan(json, limits, |_, _| false) else { return false };
    let tape = JsonTape { text, nodes: &nodes };
    let mut open: Vec<JsonValue<'_>> = tape.root().into_iter().collect();
    while let Some(value) = open.pop() {
        open.extend(value.items());
        let mut names = HashSet::new();
        for (name, member) in value.members() {
            if !names.insert(name.text()) {
                return false;
            }
            open.push(member);
        }
    }
    true
}
