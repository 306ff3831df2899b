//! Commit markers in the log: each group of transactions writes one, alone or as part of the first page of rows.

use super::super::commit_marker::{CONTENT_DIGEST_KEY, ContentDigest};
use super::format::{Body, FieldReader, Message, MessageKind};
use crate::row;

/// Discriminant of a change that sets a row, and of a page with rows.
const SET_ROW: u8 = 0;
const ROWS_PAGE: u8 = 0;

/// Returns the commit marker that a message writes, if it writes one.
pub(crate) fn find_marker(message: &Message<'_>) -> Option<ContentDigest> {
    let encoded = match message.kind {
        MessageKind::Link(Body::Inline) => linked_row(message.body),
        MessageKind::Replace(Body::Inline) => first_row(message.body),
        _ => None,
    }?;
    ContentDigest::from_bytes(row::decode_checksummed(CONTENT_DIGEST_KEY, encoded).ok()?).ok()
}

/// Returns the value of the marker row if the change of a page sets it.
fn linked_row(change: &[u8]) -> Option<&[u8]> {
    let mut fields = FieldReader(change);
    let sets_marker = fields.byte()? == SET_ROW && fields.sized_bytes()? == CONTENT_DIGEST_KEY;
    if sets_marker { fields.sized_bytes() } else { None }
}

/// Returns the value of the marker row if a page starts with it. Its key is the least of all, so it can only be the
/// first one of the page without a lower bound, which has no prefix of keys either.
fn first_row(page: &[u8]) -> Option<&[u8]> {
    let mut fields = FieldReader(page);
    let (_next, _merging_child) = (fields.integer()?, fields.integer()?);
    let (_merging, _prefix_len) = (fields.byte()?, fields.byte()?);
    if !fields.sized_bytes()?.is_empty() {
        return None;
    }
    let _upper_bound = fields.sized_bytes()?;
    if fields.byte()? != ROWS_PAGE {
        return None;
    }
    let rows = fields.integer()?;
    if rows == 0 || fields.sized_bytes()? != CONTENT_DIGEST_KEY {
        return None;
    }
    for _ in 1..rows {
        fields.sized_bytes()?;
    }
    fields.sized_bytes()
}
