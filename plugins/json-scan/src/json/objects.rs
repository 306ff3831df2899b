//! Visit of the objects of an array in one pass.

use super::scan::{members, skip_space, value_end};
use std::ops::ControlFlow;

/// Visits the members of each object of the array `json` as (raw key without quotes, value) and each object's
/// end, until `visit` returns [`ControlFlow::Break`]. Elements that are no objects are passed over.
///
/// One pass: an element is not scanned for its end before its members are. Ends silently at malformed bytes.
pub fn for_each_object<'a, B>(
    json: &'a [u8],
    mut visit: impl FnMut(ObjectEvent<'a>) -> ControlFlow<B>,
) -> Option<B> {
    let mut at = skip_space(json, 0);
    let mut expected = b'[';
    while json.get(at) == Some(&expected) {
        expected = b',';
        at = skip_space(json, at + 1);
        if json.get(at) != Some(&b'{') {
            at = skip_space(json, value_end(json, at)?);
            continue;
        }
        let mut members = members(json.get(at..)?);
        while let Some((key, value)) = members.next_pair() {
            if let ControlFlow::Break(result) = visit(ObjectEvent::Member(key, value)) {
                return Some(result);
            }
        }
        at = skip_space(json, at + members.end()?);
        if let ControlFlow::Break(result) = visit(ObjectEvent::End) {
            return Some(result);
        }
    }
    None
}

/// Event of [`for_each_object`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectEvent<'a> {
    /// Member: raw key without quotes, and value.
    Member(&'a [u8], &'a [u8]),
    /// End of an object.
    End,
}
