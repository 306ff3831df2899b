//! Search for the item to which an event or a complete item belongs.

use super::super::item::OutputItemDecoder;
use super::super::item_reference::ItemReference;
use super::super::malformed_error;
use crate::json_cursor;
use penstock_core::UpstreamError;

/// Returns the position of the last open item that `fits` and to which the reference refers: by id and index, or else
/// by the id, or else by the index. A reference without an index refers to the last open item of a known type if no item
/// has its id.
pub(super) fn find_open(
    items: &[OutputItemDecoder],
    reference: &ItemReference,
    fits: impl Fn(&OutputItemDecoder) -> bool,
) -> Option<usize> {
    let find = |refers: &dyn Fn(&OutputItemDecoder) -> bool| {
        items.iter().rposition(|item| item.is_open && refers(item) && fits(item))
    };
    let has_id = |item: &OutputItemDecoder| item.reference.has_same_id(reference);
    let has_index = |item: &OutputItemDecoder| item.reference.has_same_index(reference);
    find(&|item| has_id(item) && has_index(item))
        .or_else(|| find(&has_id))
        .or_else(|| find(&has_index))
        .or_else(|| find(&|item| reference.index.is_none() && !item.is_of_other_type()))
}

/// Returns true if the reference refers to the item: they have the same index and no different ids, or an id in common
/// and no different indexes.
pub(super) fn is_referred_to(item: &OutputItemDecoder, reference: &ItemReference) -> bool {
    let has_index = item.reference.has_same_index(reference);
    let lacks_index = item.reference.index.is_none() || reference.index.is_none();
    has_index && !item.reference.has_other_id(reference)
        || lacks_index && item.reference.has_same_id(reference)
}

/// Returns the position of the open item that the complete item ends; `None` for a new item. Some engines state another
/// index and another id at the end of an item than at its start, so the last open item is also found if it has the same content.
///
/// # Errors
/// Returns `Malformed` if the item was already ended.
pub(super) fn find_ended_item(
    items: &[OutputItemDecoder],
    reference: &ItemReference,
    complete: &[u8],
) -> Result<Option<usize>, UpstreamError> {
    let name = json_cursor::member_value(complete, "type").and_then(json_cursor::parse_string);
    let name = name.ok_or_else(malformed_error)?;
    let has_type = |item: &OutputItemDecoder| item.has_type(&name);
    // Without an index, another call may be the last open one.
    let is_own = |item: &OutputItemDecoder| {
        let refers = reference.index.is_some() || item.reference.has_same_id(reference);
        has_type(item) && (refers || !item.is_call() || item.agrees_with(complete))
    };
    if let Some(at) = find_open(items, reference, is_own) {
        return Ok(Some(at));
    }
    let has_content = |item: &OutputItemDecoder| item.is_open && has_type(item) && item.has_text();
    // Only the last item is compared, because a comparison with all of them could take too long.
    let same = items.iter().rposition(has_content);
    let same = same.filter(|at| items.get(*at).is_some_and(|item| item.agrees_with(complete)));
    if same.is_none() && items.iter().any(|item| has_type(item) && is_referred_to(item, reference)) {
        return Err(malformed_error());
    }
    Ok(same)
}

/// Returns for each complete item the position of the known item to which it belongs; `None` for a new item. Items are
/// matched by index, or if their content then differs, by their order, because some engines count items in another way
/// in the deltas. Ids of items are not compared, because some engines change them between events.
pub(super) fn match_items(items: &[OutputItemDecoder], complete: &[&[u8]]) -> Vec<Option<usize>> {
    let complete: Vec<CompleteItem<'_>> = (0_u64..).zip(complete).map(CompleteItem::new).collect();
    let by_index =
        assign_items(items, &complete, &[Rule::CallId, Rule::Index, Rule::OrderOfOutput, Rule::Order]);
    let by_order = assign_items(items, &complete, &[Rule::CallId, Rule::OrderOfOutput, Rule::Order]);
    let agrees = |(known, complete): (&Option<usize>, &CompleteItem<'_>)| {
        known.and_then(|at| items.get(at)).is_none_or(|item| item.agrees_with(complete.json))
    };
    if by_index == by_order || by_index.iter().zip(&complete).all(agrees) { by_index } else { by_order }
}

/// Item of the complete output.
struct CompleteItem<'a> {
    json: &'a [u8],
    item_type: Option<std::borrow::Cow<'a, str>>,
    reference: ItemReference,
}

impl<'a> CompleteItem<'a> {
    fn new((index, json): (u64, &&'a [u8])) -> Self {
        let item_type = json_cursor::member_value(json, "type").and_then(json_cursor::parse_string);
        Self { json, item_type, reference: ItemReference::of_item(Some(index), json) }
    }
}

/// Rule that finds the known item of a complete item among those of its type that no other complete item has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// Call with the same id.
    CallId,
    /// Item with the same index.
    Index,
    /// First item of which something was emitted.
    OrderOfOutput,
    /// First item.
    Order,
}

impl Rule {
    fn accepts(self, item: &OutputItemDecoder, complete: &CompleteItem<'_>) -> bool {
        match self {
            Self::CallId => item.reference.has_same_call_id(&complete.reference),
            Self::Index => item.reference.has_same_index(&complete.reference),
            Self::OrderOfOutput => item.has_output(),
            Self::Order => true,
        }
    }
}

/// Returns for each complete item the position of its known item. Each rule applies to the items that the rules before
/// have not matched.
fn assign_items(
    items: &[OutputItemDecoder],
    complete: &[CompleteItem<'_>],
    rules: &[Rule],
) -> Vec<Option<usize>> {
    let mut found = vec![None; complete.len()];
    let mut is_taken = vec![false; items.len()];
    for rule in rules {
        for (complete, found) in complete.iter().zip(&mut found) {
            let Some(name) = complete.item_type.as_deref().filter(|_| found.is_none()) else { continue };
            let fits = |(item, taken): (&OutputItemDecoder, &bool)| {
                !taken && rule.accepts(item, complete) && item.has_type(name)
            };
            *found = items.iter().zip(&is_taken).position(fits);
            if let Some(taken) = found.and_then(|at| is_taken.get_mut(at)) {
                *taken = true;
            }
        }
    }
    found
}
