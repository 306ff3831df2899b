//! Edits of a JSON document, applied without a copy of the unchanged bytes.

use crate::json_cursor;
use bytes::Bytes;
use penstock_json_scan::json;
use std::borrow::Cow;
use std::ops::Range;

/// Edits of a JSON document, which are applied together at the end.
pub(crate) struct DocumentPatches<'a> {
    document: &'a Bytes,
    edits: Vec<(Range<usize>, Cow<'static, [u8]>)>,
}

impl<'a> DocumentPatches<'a> {
    /// Starts without edits; all slices given to the other methods must lie within `document`.
    pub(crate) const fn new(document: &'a Bytes) -> Self {
        Self { document, edits: Vec::new() }
    }

    /// Returns true if nothing was edited.
    pub(crate) fn is_empty(&self) -> bool {
        self.edits.is_empty()
    }

    /// Returns the offset of `part` in the document.
    fn offset_of(&self, part: &[u8]) -> usize {
        (part.as_ptr() as usize).saturating_sub(self.document.as_ptr() as usize)
    }

    /// Replaces `part`, a slice of the document, by other bytes.
    pub(crate) fn replace(&mut self, part: &[u8], with: impl Into<Cow<'static, [u8]>>) {
        let start = self.offset_of(part);
        self.edits.push((start..start + part.len(), with.into()));
    }

    /// Sets the member `name` of `object` to `value`. `reported` is its present value, if any; without one, the object
    /// must have other members.
    pub(crate) fn set_member(&mut self, object: &[u8], name: &str, reported: Option<&[u8]>, value: Vec<u8>) {
        if let Some(reported) = reported {
            return self.replace(reported, value);
        }
        let end = self.offset_of(object) + object.len().saturating_sub(1);
        let member = [br#",""#, name.as_bytes(), br#"":"#, &value].concat();
        self.edits.push((end..end, member.into()));
    }

    /// Removes the list items whose flag is true, each with the comma after it. For items at the end of the list,
    /// removes the comma before them instead.
    fn remove_items(&mut self, items: impl Iterator<Item = (Range<usize>, bool)>) {
        let (mut retained_end, mut run, mut end) = (None, None, 0);
        for (item, gone) in items {
            if gone {
                run.get_or_insert(item.start);
                end = item.end;
            } else {
                self.edits.extend(run.take().map(|start| (start..item.start, Cow::default())));
                retained_end = Some(item.end);
            }
        }
        if let Some(start) = run {
            self.edits.push((retained_end.unwrap_or(start)..end, Cow::default()));
        }
    }

    /// Removes the members of `object` for whose name and value `gone` returns true.
    pub(crate) fn remove_members(&mut self, object: &[u8], gone: impl Fn(&[u8], &[u8]) -> bool) {
        let at = self.offset_of(object);
        self.remove_items(json::members(object).map(|member| {
            let key = object.get(member.key.clone()).and_then(json_cursor::string_body).unwrap_or_default();
            let gone = gone(key, object.get(member.value.clone()).unwrap_or_default());
            (at + member.key.start..at + member.value.end, gone)
        }));
    }

    /// Removes the elements of `array` for which `gone` returns true.
    pub(crate) fn remove_elements(&mut self, array: &[u8], gone: impl Fn(&[u8]) -> bool) {
        let at = self.offset_of(array);
        self.remove_items(json::elements(array).map(|element| {
            let gone = gone(array.get(element.clone()).unwrap_or_default());
            (at + element.start..at + element.end, gone)
        }));
    }

    /// Returns the edited document as a list of slices. An edit that overlaps an earlier one is dropped.
    pub(crate) fn finish(mut self) -> Vec<Bytes> {
        self.edits.sort_by_key(|(range, _)| range.start);
        let mut slices = Vec::with_capacity(1 + 2 * self.edits.len());
        let mut at = 0;
        for (range, with) in self.edits {
            if range.start < at || range.end > self.document.len() {
                continue;
            }
            slices.extend([self.document.slice(at..range.start), Bytes::from(with.into_owned())]);
            at = range.end;
        }
        slices.push(self.document.slice(at..));
        slices.retain(|slice| !slice.is_empty());
        slices
    }
}

/// Returns the data of a block event with its `index` replaced by this one.
pub(crate) fn with_block_index(data: &Bytes, index: usize) -> Vec<u8> {
    let mut patches = DocumentPatches::new(data);
    for (_, value) in json_cursor::members(data).filter(|(key, _)| key == "index") {
        patches.replace(value, index.to_string().into_bytes());
    }
    patches.finish().concat()
}
