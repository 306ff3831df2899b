//! Constraints on a response that providers do not always respect, enforced on its events: the number of choices, log
//! probabilities only if requested, a single tool call if parallel calls are not allowed, a unique id and the declared
//! name for each call, arguments without lone surrogates, the stop sequences that the provider did not get, and finish
//! reasons that fit the content.

use crate::argument_surrogates::ArgumentSurrogates;
use crate::decode::chat::generate_call_id;
use crate::event::{AnswerEvent, EscapedText};
use crate::json_cursor;
use crate::tool_names::DeclaredToolNames;
use penstock_core::{
    AdjustableMember, AttemptTarget, FinishReason, InferenceRequest, InferenceTask, MEMBER_ERROR_WORDS,
    OfferCapabilities, RequestBodyFormat,
};

/// Filter that enforces the constraints of a request on the events of one provider.
#[derive(Clone, Debug)]
pub struct ResponseConstraints {
    parallel_tools: bool,
    includes_logprobs: bool,
    /// Stop sequences of the request.
    stop_sequences: Vec<String>,
    /// Number of stop sequences sent to the provider; the gateway enforces those after them.
    upstream_stop_count: usize,
    /// Seed of the ids that replace repeated ids of tool calls.
    id_seed: String,
    /// Bytes of generated output that the constraints removed from the answer.
    discarded_bytes: usize,
    /// Names of the declared tools that the provider got in another form.
    tool_names: DeclaredToolNames,
    choices: Vec<ConstrainedChoice>,
}

#[derive(Clone, Debug, Default)]
struct ConstrainedChoice {
    tool_call_ids: ToolCallIds,
    /// Filters for the arguments of the calls, by number of the call.
    arguments: Vec<ArgumentSurrogates>,
    end: ChoiceEnd,
    /// Text that may be the start of a stop sequence.
    pending_text: String,
}

impl ConstrainedChoice {
    /// Returns a finish event with the reason `ToolCalls` if the choice had finished with `Stop` before its first call.
    fn correct_finish(&mut self, number: u32) -> Option<AnswerEvent> {
        if self.end != ChoiceEnd::Finished(FinishReason::Stop) {
            return None;
        }
        self.end = ChoiceEnd::Finished(FinishReason::ToolCalls);
        Some(AnswerEvent::Finish { choice: number, reason: FinishReason::ToolCalls, stop_sequence: None })
    }

    /// Returns the event with the next arguments of a call, without lone surrogates; `None` if all of them are held
    /// back.
    fn repair_arguments(&mut self, number: u32, tool: u32, fragment: EscapedText) -> Option<AnswerEvent> {
        let fragment = match self.arguments.get_mut(tool as usize) {
            Some(filter) => filter.repair_fragment(fragment),
            None => fragment,
        };
        let event = AnswerEvent::ToolCallArguments { choice: number, tool, fragment };
        event.text().is_some_and(|text| !text.is_empty()).then_some(event)
    }

    /// Returns the finish reason that fits the calls of the choice.
    fn consistent_reason(&self, reason: FinishReason) -> FinishReason {
        match reason {
            FinishReason::Stop if !self.tool_call_ids.is_empty() => FinishReason::ToolCalls,
            FinishReason::ToolCalls if self.tool_call_ids.is_empty() => FinishReason::Stop,
            other => other,
        }
    }
}

/// State of a choice: open, or ended by the gateway or the provider.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ChoiceEnd {
    /// Choice without a finish reason.
    #[default]
    Open,
    /// Choice with this finish reason from the provider; more content may follow.
    Finished(FinishReason),
    /// Choice that ended at a stop sequence which the gateway enforces; its further output is dropped.
    Stopped,
}

/// Ids of the tool calls of a choice.
#[derive(Clone, Debug, Default)]
pub(crate) struct ToolCallIds(Vec<EscapedText>);

impl ResponseConstraints {
    /// Creates the constraints of a request for this target.
    #[must_use]
    pub fn new(ask: &InferenceRequest, target: &AttemptTarget<'_>) -> Self {
        let mut constraints = Self {
            parallel_tools: ask.parallel_tools,
            includes_logprobs: requests_logprobs(ask),
            stop_sequences: ask.stop.clone(),
            upstream_stop_count: 0,
            id_seed: String::new(),
            discarded_bytes: 0,
            tool_names: DeclaredToolNames::new(ask),
            choices: vec![ConstrainedChoice::default(); ask.n.max(1) as usize],
        };
        constraints.restart(target);
        constraints
    }

    /// Resets the state for the answer of another provider.
    pub fn restart(&mut self, target: &AttemptTarget<'_>) {
        self.upstream_stop_count = upstream_stop_sequences(&self.stop_sequences, target).len();
        target.answer_id.clone_into(&mut self.id_seed);
        self.discarded_bytes = 0;
        self.tool_names.set_provider(target.dialect);
        self.choices.fill(ConstrainedChoice::default());
    }

    /// Returns the number of choices.
    #[must_use]
    pub fn choice_count(&self) -> usize {
        self.choices.len()
    }

    /// Returns true if the client requested log probabilities; otherwise they are removed.
    #[must_use]
    pub const fn allows_logprobs(&self) -> bool {
        self.includes_logprobs
    }

    /// Returns true if generated output was discarded: text from a stop sequence on, or further parallel tool calls.
    /// The usage that the provider reports then covers more than the client gets.
    #[must_use]
    pub const fn has_discarded_output(&self) -> bool {
        self.discarded_bytes > 0
    }

    /// Applies the constraints to one event and appends the result: unchanged, changed, split, delayed or dropped.
    pub fn apply(&mut self, mut event: AnswerEvent, out: &mut Vec<AnswerEvent>) {
        let Some(number) = event.choice() else {
            self.flush_before_message(&event, out);
            out.push(event);
            return;
        };
        let Some(choice) =
            self.choices.get_mut(number as usize).filter(|choice| choice.end != ChoiceEnd::Stopped)
        else {
            self.discarded_bytes += event.generated_bytes();
            return;
        };
        if let AnswerEvent::Text { text, logprobs, .. } = &mut event
            && !self.includes_logprobs
            && logprobs.take().is_some()
            && text.is_empty()
        {
            return;
        }
        let enforced = self.stop_sequences.get(self.upstream_stop_count..).unwrap_or_default();
        match event {
            AnswerEvent::Text { text, .. } if !enforced.is_empty() => {
                choice.pending_text.push_str(&text.decoded());
                self.apply_stop_sequences(number, out);
                return;
            }
            AnswerEvent::ToolCallStart { tool, .. } | AnswerEvent::ToolCallArguments { tool, .. }
                if tool > 0 && !self.parallel_tools =>
            {
                self.discarded_bytes += event.generated_bytes();
                return;
            }
            _ => {}
        }
        if !choice.pending_text.is_empty() {
            out.push(text_event(number, &std::mem::take(&mut choice.pending_text)));
        }
        match event {
            AnswerEvent::ToolCallStart { tool, id, name, .. } => {
                let id = choice.tool_call_ids.deduplicate_id(id, &self.id_seed, number);
                choice.arguments.resize_with(tool as usize + 1, ArgumentSurrogates::default);
                let name = self.tool_names.original_name(name);
                out.push(AnswerEvent::ToolCallStart { choice: number, tool, id, name });
                out.extend(choice.correct_finish(number));
            }
            AnswerEvent::ToolCallArguments { tool, fragment, .. } => {
                out.extend(choice.repair_arguments(number, tool, fragment));
            }
            AnswerEvent::Finish { reason, stop_sequence, .. } => {
                let reason = choice.consistent_reason(reason);
                choice.end = ChoiceEnd::Finished(reason);
                let asked = |met: &EscapedText| self.stop_sequences.iter().any(|stop| *stop == met.decoded());
                let stop_sequence = stop_sequence.filter(|met| reason == FinishReason::Stop && asked(met));
                out.push(AnswerEvent::Finish { choice: number, reason, stop_sequence });
            }
            other => out.push(other),
        }
    }

    /// Before a new message, appends the text that was held back as a possible start of a stop sequence.
    fn flush_before_message(&mut self, event: &AnswerEvent, out: &mut Vec<AnswerEvent>) {
        if let (AnswerEvent::MessageStart { .. }, Some(choice)) = (event, self.choices.first_mut())
            && !choice.pending_text.is_empty()
        {
            out.push(text_event(0, &std::mem::take(&mut choice.pending_text)));
        }
    }

    /// Appends the pending text up to the stop sequence that ends first, and ends the choice there. Without a stop
    /// sequence, retains only the suffix of the text that may be the start of one.
    fn apply_stop_sequences(&mut self, number: u32, out: &mut Vec<AnswerEvent>) {
        let enforced = self.stop_sequences.get(self.upstream_stop_count..).unwrap_or_default();
        let Some(choice) = self.choices.get_mut(number as usize) else { return };
        // The match that ends first counts, as in an engine that compares after each token. Of two matches with the
        // same end, the longer counts. The result therefore does not depend on how the text was divided.
        let met = enforced.iter().filter_map(|stop| Some((choice.pending_text.find(stop.as_str())?, stop)));
        if let Some((at, stop)) = met.min_by_key(|(at, stop)| (at + stop.len(), *at)) {
            self.discarded_bytes += choice.pending_text.len() - at;
            choice.pending_text.truncate(at);
            if !choice.pending_text.is_empty() {
                out.push(text_event(number, &std::mem::take(&mut choice.pending_text)));
            }
            choice.end = ChoiceEnd::Stopped;
            let reason = choice.consistent_reason(FinishReason::Stop);
            let stop_sequence = (reason == FinishReason::Stop).then(|| EscapedText::new(stop));
            out.push(AnswerEvent::Finish { choice: number, reason, stop_sequence });
            if self.choices.iter().all(|choice| choice.end != ChoiceEnd::Open) {
                // Generation can be stopped, because no further output can reach the client.
                out.push(AnswerEvent::End);
            }
            return;
        }
        let open = enforced
            .iter()
            .map(|stop| partial_stop_len(&choice.pending_text, stop))
            .max()
            .unwrap_or_default();
        let pending = choice.pending_text.split_off(choice.pending_text.len() - open);
        let free = std::mem::replace(&mut choice.pending_text, pending);
        if !free.is_empty() {
            out.push(text_event(number, &free));
        }
    }
}

impl ToolCallIds {
    /// Returns the id of the next call: the given id, or a generated one if an earlier call has the same id. With
    /// repeated ids, a result could not refer to exactly one call.
    pub(crate) fn deduplicate_id(&mut self, id: EscapedText, seed: &str, choice: u32) -> EscapedText {
        let next = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        let made_up = (next..).map(|number| EscapedText::new(&generate_call_id(seed, choice, number)));
        let own = std::iter::once(id.clone()).chain(made_up).find(|id| !self.0.contains(id));
        let id = own.unwrap_or(id);
        self.0.push(id.clone());
        id
    }

    /// Returns a generated id for the next call.
    pub(crate) fn generate_id(&mut self, seed: &str, choice: u32) -> EscapedText {
        let number = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        self.deduplicate_id(EscapedText::new(&generate_call_id(seed, choice, number)), seed, choice)
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Returns the first stop sequences of `stop`, which are sent to the provider; the gateway enforces those after them.
pub(crate) fn upstream_stop_sequences<'a>(stop: &'a [String], target: &AttemptTarget<'_>) -> &'a [String] {
    let takes_stop = target.dialect.spec().has_stop_sequences && target.allows_member(AdjustableMember::Stop);
    let taken = if takes_stop { usize::MAX } else { 0 };
    let most = target.capabilities.max_stop.unwrap_or(stop.len()).min(taken);
    stop.get(..most.min(stop.len())).unwrap_or_default()
}

/// Returns true if the client requests log probabilities.
pub(crate) fn requests_logprobs(ask: &InferenceRequest) -> bool {
    let wanted = ask.member_value("logprobs");
    match ask.task {
        InferenceTask::Complete(_) => wanted.is_some(),
        _ => ask.dialect.request_body_format() == RequestBodyFormat::Chat && wanted == Some(b"true"),
    }
}

/// Returns true if a sampling parameter may be sent. If the offer lists no parameters, all may be sent. Otherwise
/// only the listed ones may be sent, because the APIs of reasoning models answer 400 to others.
pub(crate) fn accepts_sampling_parameter(abilities: &OfferCapabilities, name: &str) -> bool {
    abilities.parameters.is_empty() || abilities.accepts_parameter(name)
}

/// Returns the name of the member for the limit on generated tokens of a chat provider: `max_completion_tokens` if the
/// offer lists only that name, and otherwise `max_tokens`. If the provider rejected this name, returns the other one.
pub(crate) fn token_cap_name(target: &AttemptTarget<'_>) -> &'static str {
    let newer = target.capabilities.accepts_parameter("max_completion_tokens")
        && !target.capabilities.accepts_parameter("max_tokens");
    if newer == target.allows_member(AdjustableMember::CapName) {
        "max_completion_tokens"
    } else {
        "max_tokens"
    }
}

/// Returns the members of the offer's preset, without those that the client sets or the provider rejected.
pub(crate) fn preset_members<'t>(
    ask: &'t InferenceRequest,
    target: &'t AttemptTarget<'_>,
) -> impl Iterator<Item = (&'t str, &'t [u8])> {
    let preset = target.preset.iter().map(|(name, value)| (&**name, value.as_bytes()));
    preset.filter(|(name, _)| {
        // The limit of the request may be a value that means "no limit", so the parsed limit is examined instead.
        let given = match *name {
            "max_tokens" | "max_completion_tokens" => target.max_tokens.or(ask.max_tokens).is_some(),
            name => ask.member_value(name).is_some(),
        };
        !given && preset_extra(name).is_none_or(|extra| target.allows_member(extra))
    })
}

/// Returns the optional member (see [`AdjustableMember`]) that a preset writes under this name; `None` for other
/// members.
fn preset_extra(name: &str) -> Option<AdjustableMember> {
    MEMBER_ERROR_WORDS.iter().find(|(_, words)| words.first() == Some(&name)).map(|(extra, _)| *extra)
}

/// Adjusts a sampling parameter for a messages provider, which answers 400 for values out of range: its temperature is
/// at most 1 instead of 2, and a `top_k` of -1 is omitted, for which `None` is returned.
pub(crate) fn messages_sampling_value<'a>(name: &str, value: &'a [u8]) -> Option<&'a [u8]> {
    let number = json_cursor::parse_float(value);
    match name {
        "temperature" if number.is_some_and(|number| number > 1.0) => Some(b"1"),
        "top_k" if number.is_some_and(|number| number < 0.0) => None,
        _ => Some(value),
    }
}

/// Returns the length of the longest suffix of `text` that is a proper prefix of `stop`.
fn partial_stop_len(text: &str, stop: &str) -> usize {
    let beginnings = stop.char_indices().map(|(at, _)| at).filter(|at| *at > 0 && *at <= text.len()).rev();
    beginnings
        .into_iter()
        .find(|at| stop.get(..*at).is_some_and(|beginning| text.ends_with(beginning)))
        .unwrap_or_default()
}

fn text_event(choice: u32, text: &str) -> AnswerEvent {
    AnswerEvent::Text { choice, text: EscapedText::new(text), logprobs: None }
}
