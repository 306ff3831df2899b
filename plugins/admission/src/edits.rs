//! Changes to a body that leave everything else where it stands.

use crate::json::Value;
use bytes::Bytes;
use penstock_contract::Edit;
use std::ops::Range;

/// Edits being collected, in any order.
#[derive(Debug, Default)]
pub(crate) struct Edits(Vec<Edit>);

impl Edits {
    /// Puts `with` where `range` stands.
    pub(crate) fn replace(&mut self, range: Range<usize>, with: impl Into<Bytes>) {
        self.0.push(Edit { range, with: with.into() });
    }

    /// Inserts before the byte at `at`.
    pub(crate) fn insert(&mut self, at: usize, with: impl Into<Bytes>) {
        self.replace(at..at, with);
    }

    /// Puts text around a value.
    pub(crate) fn wrap(&mut self, value: Value<'_>, before: impl Into<Bytes>, after: impl Into<Bytes>) {
        self.insert(value.range().start, before);
        self.insert(value.range().end, after);
    }

    /// Inserts members (`"a":1,`) at the start of an object of which something stays.
    pub(crate) fn prepend(&mut self, object: Value<'_>, members: impl Into<Bytes>) {
        self.insert(object.range().start + 1, members);
    }

    /// Drops the members of an object that are not kept.
    pub(crate) fn keep_members<'d>(
        &mut self,
        object: Value<'d>,
        keep: impl Fn(Value<'d>, Value<'d>) -> bool,
    ) {
        // Nearly every object is kept whole.
        if object.members().all(|(key, value)| keep(key, value)) {
            return;
        }
        let parts = object.members().map(|(key, value)| {
            let range = key.range().start..value.range().end;
            (range, keep(key, value))
        });
        self.keep(parts);
    }

    /// Drops the items of an array that are not kept; returns how many stay.
    pub(crate) fn keep_items<'d>(&mut self, array: Value<'d>, keep: impl Fn(Value<'d>) -> bool) -> usize {
        self.keep(array.items().map(|item| (item.range(), keep(item))))
    }

    /// Drops parts of a list together with one comma each.
    fn keep(&mut self, parts: impl Iterator<Item = (Range<usize>, bool)>) -> usize {
        let mut kept = 0;
        let mut previous_end = None;
        // Start of parts dropped before the first that stays.
        let mut leading: Option<Range<usize>> = None;
        for (part, keep) in parts {
            match (keep, kept) {
                (true, _) => {
                    if let Some(dropped) = leading.take() {
                        self.replace(dropped.start..part.start, Bytes::new());
                    }
                    kept += 1;
                }
                (false, 0) => {
                    let start = leading.as_ref().map_or(part.start, |dropped| dropped.start);
                    leading = Some(start..part.end);
                }
                (false, _) => {
                    self.replace(previous_end.unwrap_or(part.start)..part.end, Bytes::new());
                }
            }
            previous_end = Some(part.end);
        }
        if let Some(dropped) = leading {
            self.replace(dropped, Bytes::new());
        }
        kept
    }

    /// The edits in order. One inside a part that another takes away is dropped.
    pub(crate) fn finish(mut self) -> Vec<Edit> {
        self.0.sort_by_key(|edit| (edit.range.start, edit.range.end));
        let mut end = 0;
        self.0.retain(|edit| {
            let outside = edit.range.start >= end;
            end = end.max(edit.range.end);
            outside
        });
        self.0
    }
}

#[cfg(test)]
mod tests;
