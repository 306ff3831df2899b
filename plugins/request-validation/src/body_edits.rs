//! Edits of a body that leave all other bytes in place.

use bytes::Bytes;
use penstock_core::BodyEdit;
use penstock_json_scan::tape::JsonValue;
use std::ops::Range;

/// Collector of the edits of a request body, in any order.
#[derive(Debug, Default)]
pub(crate) struct BodyEdits(Vec<BodyEdit>);

impl BodyEdits {
    /// Replaces the bytes in `range` by `with`.
    pub(crate) fn replace(&mut self, range: Range<usize>, with: impl Into<Bytes>) {
        self.0.push(BodyEdit { range, replacement: with.into() });
    }

    /// Inserts bytes before the byte at `offset`.
    pub(crate) fn insert(&mut self, offset: usize, bytes: impl Into<Bytes>) {
        self.replace(offset..offset, bytes);
    }

    /// Inserts text before and after a value.
    pub(crate) fn wrap(&mut self, value: JsonValue<'_>, before: impl Into<Bytes>, after: impl Into<Bytes>) {
        self.insert(value.range().start, before);
        self.insert(value.range().end, after);
    }

    /// Inserts members (`"a":1,`) at the start of an object. At least one member of the object must remain, because
    /// the text ends with a comma.
    pub(crate) fn prepend_members(&mut self, object: JsonValue<'_>, members: impl Into<Bytes>) {
        self.insert(object.range().start + 1, members);
    }

    /// Removes the members of an object for which `keep` is false.
    pub(crate) fn retain_members<'d>(
        &mut self,
        object: JsonValue<'d>,
        keep: impl Fn(JsonValue<'d>, JsonValue<'d>) -> bool,
    ) {
        // Most objects keep all members and need no edit.
        if object.members().all(|(key, value)| keep(key, value)) {
            return;
        }
        let parts = object.members().map(|(key, value)| {
            let range = key.range().start..value.range().end;
            (range, keep(key, value))
        });
        self.retain(parts);
    }

    /// Removes the items of an array for which `keep` is false; returns the number of remaining items.
    pub(crate) fn retain_items<'d>(
        &mut self,
        array: JsonValue<'d>,
        keep: impl Fn(JsonValue<'d>) -> bool,
    ) -> usize {
        self.retain(array.items().map(|item| (item.range(), keep(item))))
    }

    /// Removes the members or items whose flag is false, each together with one comma; returns the number that
    /// remain.
    fn retain(&mut self, parts: impl Iterator<Item = (Range<usize>, bool)>) -> usize {
        let mut retained = 0;
        let mut previous_end = None;
        // Range of the removed members before the first one that remains.
        let mut leading: Option<Range<usize>> = None;
        for (part, keep) in parts {
            match (keep, retained) {
                (true, _) => {
                    if let Some(dropped) = leading.take() {
                        self.replace(dropped.start..part.start, Bytes::new());
                    }
                    retained += 1;
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
        retained
    }

    /// Returns the edits sorted by position. An edit inside a range that another edit removes is dropped.
    pub(crate) fn into_sorted_edits(mut self) -> Vec<BodyEdit> {
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
