//! Assignment of streamed fragments to tool calls.
//!
//! By the rules of the dialect, `index` identifies a call, and id and name come once. Engines omit the index, repeat
//! id and name, send null for absent members, give every call index 0, or send arguments as an object.
//!
//! If the index is ambiguous, a fragment with a name begins another call in three cases: its id and its name both
//! differ; the arguments so far are complete or empty and its id or name differs; or the arguments so far are complete
//! and it has arguments itself.
//!
//! Two decisions are delayed. A name that is repeated without id and arguments is another call only if no arguments
//! follow it. Arguments that mean "none", such as `{}`, are not emitted at once, because the real arguments of the call
//! may follow.

mod tracked_call;

pub(super) use tracked_call::begins_object;

use crate::decode::text_channel::{SplitSurrogate, TextChannel};
use crate::decode::{MAX_TOOL_CALLS, MAX_TOOL_NAME_BYTES};
use crate::event::{AnswerEvent, EscapedText};
use crate::json_cursor;
use crate::partial_json::JsonState;
use bytes::Bytes;
use penstock_core::{UpstreamError, UpstreamErrorKind};
use penstock_json_scan::json;
use std::hash::{DefaultHasher, Hash, Hasher};
use tracked_call::TrackedCall;

/// Maximum bytes of the stored arguments of one call. Arguments are stored until the call has a name, and to check
/// whether they are complete. A call that exceeds the maximum without a name is an error of the model's output.
const MAX_BUFFERED_BYTES: usize = 1 << 20;

/// Tool calls of one choice.
#[derive(Debug, Default)]
pub(super) struct ToolCallTracker {
    calls: Vec<TrackedCall>,
    /// Position in `calls` of the call to which fragments without index and id belong.
    last_call: usize,
    started_calls: u32,
    /// Total number of buffered bytes of arguments.
    buffered_bytes: usize,
}

/// Element of `tool_calls`, or a `function_call`, with raw values.
#[derive(Debug, Default)]
pub(super) struct ToolCallFragment<'a> {
    pub(super) index: Option<u64>,
    pub(super) id: Option<&'a [u8]>,
    pub(super) name: Option<&'a [u8]>,
    /// True if the fragment has a tool name that is empty.
    pub(super) is_name_empty: bool,
    pub(super) arguments: Option<&'a [u8]>,
    /// True if the fragment certainly begins a separate tool call.
    pub(super) is_separate_call: bool,
}

impl<'a> ToolCallFragment<'a> {
    /// Parses an element; null and empty members are absent. Returns `None` if it is no object, or a member has an
    /// invalid type.
    pub(super) fn parse(element: &'a [u8]) -> Option<Self> {
        let mut fragment = Self::default();
        let mut has_function = false;
        let mut members = json::members(element);
        while let Some((key, value)) = members.next_unescaped() {
            match &*key {
                _ if value == b"null" => {}
                "index" => fragment.index = Some(json_cursor::parse_index(value)?),
                "id" => fragment.id = string_body(value)?,
                "function" => {
                    has_function = true;
                    fragment.parse_function(value)?;
                }
                _ => {}
            }
        }
        if !has_function {
            // Some engines write the name and the arguments at the level of the id, instead of in `function`.
            fragment.parse_function(element)?;
        }
        json_cursor::is_object(element).then_some(fragment)
    }

    /// Returns true if the fragment has no recognised members.
    pub(super) const fn is_empty(&self) -> bool {
        self.index.is_none()
            && self.id.is_none()
            && self.name.is_none()
            && !self.is_name_empty
            && self.arguments.is_none()
    }

    /// Returns true if the arguments are a number or a boolean.
    pub(super) fn has_scalar_arguments(&self) -> bool {
        let first = self.arguments.and_then(|arguments| arguments.first());
        first.is_some_and(|first| !matches!(first, b'"' | b'{' | b'['))
    }

    /// Returns true if the fragment has arguments other than white space.
    fn has_arguments(&self) -> bool {
        let blank = |arguments: &[u8]| {
            nonempty_string_body(arguments)
                .is_some_and(|body| json::unescape(body).is_some_and(|body| body.trim().is_empty()))
        };
        self.arguments.is_some_and(|arguments| !blank(arguments))
    }

    /// Returns true if the fragment repeats the id and all arguments of a call.
    fn repeats(&self, call: &TrackedCall) -> bool {
        let arguments = self.arguments.and_then(nonempty_string_body);
        self.id.is_some_and(|id| has_id(call, id)) && arguments == Some(&call.arguments)
    }

    /// Parses a `function` object; returns `None` if it is no object, or its name is no string. Arguments may have any
    /// type: engines pass on what the model wrote.
    pub(super) fn parse_function(&mut self, object: &'a [u8]) -> Option<()> {
        let is_filled = |value: &&[u8]| *value != b"null" && *value != b"\"\"";
        let mut other_arguments = None;
        let mut members = json::members(object);
        while let Some((key, value)) = members.next_unescaped() {
            match &*key {
                "name" if value != b"null" => {
                    self.name = string_body(value)?;
                    self.is_name_empty = self.name.is_none();
                }
                "arguments" => self.arguments = Some(value).filter(is_filled),
                "parameters" | "input" => other_arguments = Some(value).filter(is_filled),
                _ => {}
            }
        }
        self.arguments = self.arguments.or(other_arguments);
        json_cursor::is_object(object).then_some(())
    }
}

/// Returns the body of a string, or `Some(None)` if the string is empty; `None` if the value is no string.
fn string_body(value: &[u8]) -> Option<Option<&[u8]>> {
    json_cursor::string_body(value).map(|inside| Some(inside).filter(|inside| !inside.is_empty()))
}

/// Returns the body of a string; `None` if the string is empty, or the value is no string.
fn nonempty_string_body(value: &[u8]) -> Option<&[u8]> {
    let inside = value.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    (!inside.is_empty()).then_some(inside)
}

/// Source of a fragment, and destination of the events that are decoded from it.
pub(super) struct FragmentContext<'a> {
    pub(super) source: &'a Bytes,
    pub(super) choice: u32,
    pub(super) seed: &'a str,
    /// True if arguments may still be held back: a finish reason may follow, at which they are emitted.
    pub(super) may_hold: bool,
    pub(super) split_surrogate: &'a mut SplitSurrogate,
    pub(super) events: &'a mut Vec<AnswerEvent>,
}

impl ToolCallTracker {
    /// Returns true if there are no calls.
    pub(super) const fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Returns the number of buffered bytes of arguments.
    pub(super) const fn stored_bytes(&self) -> usize {
        self.buffered_bytes
    }

    /// Adds one fragment of a tool call and appends its events.
    ///
    /// # Errors
    /// Returns `ModelOutput` for too many calls, too long a name, too many arguments without a name, and arguments that
    /// contradict earlier ones; `Malformed` for an invalid fragment.
    pub(super) fn add_fragment(
        &mut self,
        fragment: &ToolCallFragment<'_>,
        context: &mut FragmentContext<'_>,
    ) -> Result<(), UpstreamError> {
        let malformed = || UpstreamError::new(UpstreamErrorKind::Malformed);
        // Too many tool calls, or a tool name that is too long, is an error of the model's output.
        let at = match self.find_call(fragment) {
            Some(at) => at,
            None => {
                self.flush(context)?;
                self.add_call(fragment.index).ok_or_else(UpstreamError::invalid_model_output)?
            }
        };
        self.last_call = at;
        let number = self.started_calls;
        let call = self.calls.get_mut(at).ok_or_else(malformed)?;
        if call.id.is_none()
            && let Some(id) = fragment.id
        {
            call.id = Some(bounded_text(context.source, id).ok_or_else(malformed)?);
        }
        let mut fresh = EscapedText::default();
        if let Some(arguments) = fragment.arguments {
            fresh = match nonempty_string_body(arguments) {
                Some(inside) => {
                    context.split_surrogate.join(TextChannel::Arguments(at), context.source, inside)
                }
                // Arguments that are not a JSON string are used unchanged.
                None => std::str::from_utf8(arguments).ok().map(EscapedText::new),
            }
            .ok_or_else(malformed)?;
            fresh = call.filter_repeated_arguments(fresh)?;
            self.buffered_bytes += call.buffer_arguments(&fresh);
        } else if fragment.name.is_some() && fragment.id.is_none() && context.may_hold {
            call.count_repeated_name();
        }
        if call.number.is_none() {
            let Some(name) = fragment.name else {
                let is_full = call.arguments.len() > MAX_BUFFERED_BYTES;
                return if is_full { Err(UpstreamError::invalid_model_output()) } else { Ok(()) };
            };
            if name.len() > MAX_TOOL_NAME_BYTES {
                return Err(UpstreamError::invalid_model_output());
            }
            let name = bounded_text(context.source, name).ok_or_else(malformed)?;
            call.start(name, number, context);
            self.started_calls += 1;
            fresh = EscapedText::from_json(Bytes::copy_from_slice(&call.arguments)).ok_or_else(malformed)?;
        }
        call.emit_arguments(fresh, context);
        Ok(())
    }

    /// Emits output that was held back: arguments that mean "none", and calls of which only the name has arrived.
    pub(super) fn flush(&mut self, context: &mut FragmentContext<'_>) -> Result<(), UpstreamError> {
        for at in 0..self.calls.len() {
            let Some(call) = self.calls.get_mut(at) else { continue };
            if let Some((tool, fragment)) = call.number.zip(call.placeholder.take()) {
                context.events.push(AnswerEvent::ToolCallArguments {
                    choice: context.choice,
                    tool,
                    fragment,
                });
            }
            let (index, count) = (call.index, std::mem::take(&mut call.repeated_names));
            let Some(name) = call.name.clone().filter(|_| count > 0) else { continue };
            for _ in 0..count {
                let number = self.started_calls;
                let at = self.add_call(index).ok_or_else(UpstreamError::invalid_model_output)?;
                self.last_call = at;
                self.started_calls += 1;
                if let Some(call) = self.calls.get_mut(at) {
                    call.start(name.clone(), number, context);
                }
            }
        }
        Ok(())
    }

    /// Records arguments from a chunk on the fast path.
    pub(super) fn record_fast_path_arguments(&mut self, tool: u32, fragment: &EscapedText) {
        let call = self.calls.iter_mut().rfind(|call| call.number == Some(tool));
        self.buffered_bytes += call.map_or(0, |call| call.buffer_arguments(fragment));
    }

    /// Checks at the end of a choice that each call with arguments has a name.
    ///
    /// # Errors
    /// Returns `ModelOutput` otherwise, because the model writes the names.
    pub(super) fn check_names_present(&self) -> Result<(), UpstreamError> {
        let is_named = |call: &TrackedCall| call.number.is_some() || call.arguments.is_empty();
        if self.calls.iter().all(is_named) { Ok(()) } else { Err(UpstreamError::invalid_model_output()) }
    }

    /// Returns the position of the call to which a fragment belongs; `None` if the fragment begins a new call.
    fn find_call(&mut self, fragment: &ToolCallFragment<'_>) -> Option<usize> {
        if fragment.is_separate_call {
            return None;
        }
        let by_index = |index| self.calls.iter().rposition(|call| call.index == Some(index));
        let by_both =
            |index, id| self.calls.iter().rposition(|call| call.index == Some(index) && has_id(call, id));
        let by_id = |id| self.calls.iter().rposition(|call| has_id(call, id));
        // If a fragment has an index, a call with another index is another call even if it has the same id. So only
        // calls without an index are searched by id.
        let unnumbered = |id| self.calls.iter().rposition(|call| call.index.is_none() && has_id(call, id));
        let known = match (fragment.index, fragment.id) {
            (Some(index), Some(id)) => {
                by_both(index, id).or_else(|| by_index(index)).or_else(|| unnumbered(id))
            }
            (Some(index), None) => by_index(index),
            (None, Some(id)) => by_id(id),
            (None, None) => (self.last_call < self.calls.len()).then_some(self.last_call),
        };
        known.filter(|at| !self.begins_new_call(*at, fragment))
    }

    /// Adds a call and returns its position; `None` if there are too many calls.
    fn add_call(&mut self, index: Option<u64>) -> Option<usize> {
        if self.calls.len() >= MAX_TOOL_CALLS {
            return None;
        }
        self.calls.push(TrackedCall::new(index));
        Some(self.calls.len() - 1)
    }

    /// Returns true if a fragment begins another call although its index or id is that of this call.
    fn begins_new_call(&mut self, index: usize, fragment: &ToolCallFragment<'_>) -> bool {
        let Some(call) = self.calls.get_mut(index).filter(|call| call.number.is_some()) else { return false };
        let Some(name) = fragment.name else { return false };
        let renamed = !equals_text(call.name.as_ref(), name);
        let other_id = fragment.id.is_some_and(|id| !has_id(call, id));
        if renamed && other_id {
            return true;
        }
        // If the call started without an id and got a generated one, an id that arrives later is that of the same call.
        let differs = renamed || (other_id && !call.has_generated_id);
        match call.arguments_state() {
            JsonState::Empty => differs,
            // After arguments that mean "none", the real ones may follow with the same id.
            JsonState::Complete if call.placeholder.is_some() && fragment.id.is_some() => differs,
            // An engine that sends all arguments so far with each fragment repeats complete ones too.
            JsonState::Complete if call.has_snapshots || fragment.repeats(call) => differs,
            JsonState::Complete => differs || fragment.has_arguments(),
            JsonState::Incomplete | JsonState::NonObject | JsonState::Invalid => false,
        }
    }
}

fn has_id(call: &TrackedCall, id: &[u8]) -> bool {
    equals_text(call.id.as_ref(), id)
}

/// Returns true if `text` equals `inside`, the body of a JSON string, after both are unescaped.
fn equals_text(text: Option<&EscapedText>, inside: &[u8]) -> bool {
    text.is_some_and(|text| text.escaped() == inside || json::escaped_text_equals(inside, &text.decoded()))
}

/// Returns a name or an id as text; `None` if it is invalid or longer than [`MAX_TOOL_NAME_BYTES`].
fn bounded_text(source: &Bytes, inside: &[u8]) -> Option<EscapedText> {
    if inside.len() > MAX_TOOL_NAME_BYTES {
        return None;
    }
    EscapedText::from_json(source.slice_ref(inside))
}

/// Generates an id for a call without one: `call_` and 24 hexadecimal digits, derived from the seed, the choice and the
/// number of the call.
pub(crate) fn generate_call_id(seed: &str, choice: u32, number: u32) -> String {
    let hash = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        (seed, choice, number, salt).hash(&mut hasher);
        hasher.finish()
    };
    format!("call_{:016x}{:08x}", hash(0), hash(1) >> 32)
}
