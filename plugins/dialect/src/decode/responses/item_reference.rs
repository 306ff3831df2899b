//! Reference of an event to an output item.

use super::text_record::Fingerprint;
use crate::json_cursor;

/// Index and ids by which events refer to an output item. Only fingerprints of the ids are stored.
#[derive(Clone, Copy, Debug)]
pub(super) struct ItemReference {
    /// Index in the output; `None` if the event states none.
    pub(super) index: Option<u64>,
    id: Option<Fingerprint>,
    call_id: Option<Fingerprint>,
}

impl ItemReference {
    /// Creates a reference; empty ids count as absent.
    pub(super) fn new(index: Option<u64>, id: Option<&str>, call_id: Option<&str>) -> Self {
        let hash = |id: Option<&str>| id.filter(|id| !id.is_empty()).map(|id| Fingerprint::of(id.bytes()));
        Self { index, id: hash(id), call_id: hash(call_id) }
    }

    /// Creates the reference to an item object at this index.
    pub(super) fn of_item(index: Option<u64>, item: &[u8]) -> Self {
        let text = |name| json_cursor::member_value(item, name).and_then(json_cursor::parse_string);
        Self::new(index, text("id").as_deref(), text("call_id").as_deref())
    }

    /// Returns true if both have the same index.
    pub(super) fn has_same_index(&self, other: &Self) -> bool {
        self.index.is_some() && self.index == other.index
    }

    /// Returns true if both have an id in common. The id of an item and that of its call count alike, because some
    /// engines name the item of a call by the id of the call.
    pub(super) fn has_same_id(&self, other: &Self) -> bool {
        [self.id, self.call_id].iter().flatten().any(|id| [other.id, other.call_id].contains(&Some(*id)))
    }

    /// Returns true if both have the same id of a call.
    pub(super) fn has_same_call_id(&self, other: &Self) -> bool {
        self.call_id.is_some() && self.call_id == other.call_id
    }

    /// Returns true if both have ids, and none in common.
    pub(super) fn has_other_id(&self, other: &Self) -> bool {
        let has_id = |reference: &Self| reference.id.or(reference.call_id).is_some();
        has_id(self) && has_id(other) && !self.has_same_id(other)
    }
}
