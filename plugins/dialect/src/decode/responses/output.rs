//! Output items of a response: which item an event is about.

mod item_matching;

use super::buffered::ResponseEnd;
use super::context::OutputContext;
use super::event_members::EventMembers;
use super::item::OutputItemDecoder;
use super::item_reference::ItemReference;
use super::part::{LastParts, PartEvent, PartKind, part_kind_and_text};
use super::{MAX_ITEMS, malformed_error};
use crate::decode::text_channel::SplitSurrogate;
use crate::event::AnswerEvent;
use crate::json_cursor;
use bytes::Bytes;
use penstock_core::UpstreamError;

/// Output items of the response so far.
#[derive(Debug, Default)]
pub(super) struct DecodedOutput {
    items: Vec<OutputItemDecoder>,
    tool_count: u32,
    /// True if a message has text.
    has_message: bool,
    split_surrogate: SplitSurrogate,
    texts: LastParts,
    /// Bytes of memory of items and parts, of arguments, and of texts from the start of items and parts, which are
    /// compared with later events.
    stored_bytes: usize,
}

impl DecodedOutput {
    /// Returns the bytes that are stored for the comparison with later events.
    pub(super) const fn stored_bytes(&self) -> usize {
        self.stored_bytes
    }

    /// Adds the item of an event. An open item with the same index is closed first if the new item is another one.
    pub(super) fn add_item(
        &mut self,
        data: &Bytes,
        members: &EventMembers<'_>,
        events: &mut Vec<AnswerEvent>,
    ) -> Result<(), UpstreamError> {
        let (reference, item) = members.item_reference()?;
        let name = json_cursor::member_value(item, "type").and_then(json_cursor::parse_string);
        let is_same = |other: &OutputItemDecoder| {
            other.has_type(name.as_deref().unwrap_or_default()) && !other.reference.has_other_id(&reference)
        };
        let (items, mut context) = self.parts(data, events);
        for other in items.iter_mut().filter(|other| other.is_open) {
            let has_index = other.reference.has_same_index(&reference);
            let is_repeated =
                has_index || reference.index.is_none() && other.reference.has_same_id(&reference);
            if is_repeated && is_same(other) {
                return Err(malformed_error());
            }
            if has_index {
                other.is_open = false;
                other.emit_initial_texts(&mut context)?;
            }
        }
        let at = self.open_item(data, reference, item, events)?;
        let (items, mut context) = self.parts(data, events);
        items.get_mut(at).map_or(Ok(()), |open| open.store_initial_texts(item, &mut context))
    }

    /// Opens an output item; returns its index in `items`.
    fn open_item(
        &mut self,
        data: &Bytes,
        reference: ItemReference,
        item: &[u8],
        events: &mut Vec<AnswerEvent>,
    ) -> Result<usize, UpstreamError> {
        let number = self.next_number()?;
        let (items, mut context) = self.parts(data, events);
        items.push(OutputItemDecoder::open(reference, number, item, &mut context)?);
        Ok(number)
    }

    /// Returns the number of the next item, and counts its memory.
    fn next_number(&mut self) -> Result<usize, UpstreamError> {
        if self.items.len() >= MAX_ITEMS {
            // Too many items are an error of the model's output, because the model decides their number.
            return Err(UpstreamError::invalid_model_output());
        }
        self.stored_bytes += size_of::<OutputItemDecoder>();
        Ok(self.items.len())
    }

    /// Closes an item, and emits the rest of its content, beyond what the deltas had. An item without an opening
    /// event is opened first.
    pub(super) fn finish_item(
        &mut self,
        data: &Bytes,
        members: &EventMembers<'_>,
        events: &mut Vec<AnswerEvent>,
    ) -> Result<(), UpstreamError> {
        let (reference, item) = members.item_reference()?;
        let at = match item_matching::find_ended_item(&self.items, &reference, item)? {
            Some(at) => at,
            None => self.open_item(data, reference, item, events)?,
        };
        self.close_item(data, at, item, events)
    }

    fn close_item(
        &mut self,
        data: &Bytes,
        position: usize,
        item: &[u8],
        events: &mut Vec<AnswerEvent>,
    ) -> Result<(), UpstreamError> {
        let (items, mut context) = self.parts(data, events);
        items.get_mut(position).ok_or_else(malformed_error)?.close(item, &mut context)
    }

    /// Adds the content of an event about a part.
    pub(super) fn push_part(
        &mut self,
        data: &Bytes,
        members: &EventMembers<'_>,
        event: PartEvent,
        events: &mut Vec<AnswerEvent>,
    ) -> Result<(), UpstreamError> {
        let (kind, text_member) = match event {
            PartEvent::Delta(kind) => (kind, "delta"),
            PartEvent::Complete(kind, member) => (kind, member),
            PartEvent::Added | PartEvent::Done => return self.push_part_object(data, members, event, events),
        };
        let text = members.member_text(text_member).ok_or_else(malformed_error)?;
        let key = (kind, members.part_index(kind).ok_or_else(malformed_error)?);
        let complete = (event != PartEvent::Delta(kind)).then_some(text);
        let Some(at) = self.item_of_part(&members.part_reference()?, kind, complete)? else { return Ok(()) };
        let (items, mut context) = self.parts(data, events);
        let item = items.get_mut(at).ok_or_else(malformed_error)?;
        match complete {
            None => item.push_delta(key, text, members.logprobs, &mut context),
            Some(_) => item.push_complete_text(key, text, members.logprobs, &mut context),
        }
    }

    /// Returns the position of the item of a part. The item is created here if the engine sent no event for it. Returns
    /// `None` if `complete`, the complete text, belongs to no open item and is that of the last item.
    fn item_of_part(
        &mut self,
        reference: &ItemReference,
        kind: PartKind,
        complete: Option<&[u8]>,
    ) -> Result<Option<usize>, UpstreamError> {
        if let Some(at) = item_matching::find_open(&self.items, reference, |item| item.fits(kind)) {
            return Ok(Some(at));
        }
        let can_emit = |item: &OutputItemDecoder| !item.is_of_other_type() && item.fits(kind);
        let mut open = self.items.iter_mut().enumerate().filter(|(_, item)| item.is_open && can_emit(item));
        // Some engines state another index in the event that adds an item than in the later events, or another index
        // in the events that end its text.
        let adopts = |item: &OutputItemDecoder| match complete {
            Some(_) => item.has_unended_part(kind),
            None => !item.has_output(),
        };
        if kind != PartKind::Arguments
            && let Some((at, item)) = open.rfind(|(_, item)| adopts(item))
        {
            if complete.is_none() {
                item.reference = *reference;
            }
            return Ok(Some(at));
        }
        // Only the last text is compared, because a comparison with all of them could take too long.
        let mut texts = self.items.iter().rev().filter(|item| can_emit(item) && item.has_text());
        if complete.is_some_and(|text| texts.next().is_some_and(|item| item.has_emitted(kind, text))) {
            return Ok(None);
        }
        if self.items.iter().any(|item| item_matching::is_referred_to(item, reference)) {
            return Err(malformed_error());
        }
        let number = self.next_number()?;
        self.items.push(OutputItemDecoder::open_for_part(*reference, number, kind));
        Ok(Some(number))
    }

    /// Handles an event with the object of a part: its start or its end. An event without a known item is ignored,
    /// because most providers only repeat text in these events that they have already sent.
    fn push_part_object(
        &mut self,
        data: &Bytes,
        members: &EventMembers<'_>,
        event: PartEvent,
        events: &mut Vec<AnswerEvent>,
    ) -> Result<(), UpstreamError> {
        let reference = members.part_reference()?;
        let Some(part) = members.part else { return Ok(()) };
        let kind = part_kind_and_text(part).map(|(kind, _)| kind);
        let can_have =
            |item: &OutputItemDecoder| reference.index.is_some() || kind.is_some_and(|kind| item.fits(kind));
        let Some(at) = item_matching::find_open(&self.items, &reference, can_have) else { return Ok(()) };
        let (items, mut context) = self.parts(data, events);
        let item = items.get_mut(at).ok_or_else(malformed_error)?;
        if event == PartEvent::Done {
            return item.push_complete_part(part, |kind| members.part_index(kind), &mut context);
        }
        if let Some(kind) = kind {
            item.record_added_part(members.part_index(kind));
        }
        item.store_initial_part_text(part, |kind| members.part_index(kind), &mut context)
    }

    /// Handles the last event: the usage, the finish reason, and output that no earlier event contained.
    pub(super) fn finish_response(
        &mut self,
        data: &Bytes,
        response: &[u8],
        events: &mut Vec<AnswerEvent>,
    ) -> Result<(), UpstreamError> {
        let end = ResponseEnd::parse(response)?;
        self.push_output(data, end.output, events)?;
        events.extend(end.measured_energy.map(AnswerEvent::Energy));
        events.extend(end.usage.map(AnswerEvent::Usage));
        if let Some(reason) = end.finish_reason(self.tool_count > 0) {
            events.push(AnswerEvent::Finish { choice: 0, reason, stop_sequence: None });
        }
        events.push(AnswerEvent::End);
        Ok(())
    }

    /// Emits the rest of each text of the complete items in `output`, beyond what the deltas had. Then emits the
    /// texts from the start of items that `output` does not repeat. Returns `ModelOutput` for more than [`MAX_ITEMS`]
    /// items.
    fn push_output(
        &mut self,
        source: &Bytes,
        output: Option<&[u8]>,
        events: &mut Vec<AnswerEvent>,
    ) -> Result<(), UpstreamError> {
        let items = json_cursor::elements(output.unwrap_or_default());
        let complete: Vec<&[u8]> = items.take(MAX_ITEMS + 1).collect();
        if complete.len() > MAX_ITEMS {
            return Err(UpstreamError::invalid_model_output());
        }
        let known = item_matching::match_items(&self.items, &complete);
        for ((index, item), known) in (0_u64..).zip(complete).zip(known) {
            match known {
                Some(at) => {
                    let (items, mut context) = self.parts(source, events);
                    let known = items.get_mut(at).ok_or_else(malformed_error)?;
                    known.emit_missing_texts(item, &mut context)?;
                }
                None => {
                    let reference = ItemReference::of_item(Some(index), item);
                    let at = self.open_item(source, reference, item, events)?;
                    self.close_item(source, at, item, events)?;
                }
            }
        }
        if self.items.iter().any(OutputItemDecoder::is_unnamed_call) {
            return Err(malformed_error());
        }
        let (items, mut context) = self.parts(source, events);
        items.iter_mut().try_for_each(|item| item.emit_initial_texts(&mut context))
    }

    /// Returns the items together with the context for adding content to them.
    fn parts<'a>(
        &'a mut self,
        source: &'a Bytes,
        events: &'a mut Vec<AnswerEvent>,
    ) -> (&'a mut Vec<OutputItemDecoder>, OutputContext<'a>) {
        let Self { items, tool_count, has_message, split_surrogate, texts, stored_bytes } = self;
        let context =
            OutputContext { source, tool_count, has_message, split_surrogate, texts, stored_bytes, events };
        (items, context)
    }
}
