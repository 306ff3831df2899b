//! Top-level members of a chat body, and their treatment when the body is converted.

use penstock_core::OfferCapabilities;

/// Treatment of a top-level member when a chat body is converted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MemberConversion {
    /// Dropped: the member has no counterpart, and it is only a hint or does not affect the answer.
    Dropped,
    /// Converted to another form.
    Converted,
    /// Member that is written under this name with the same value.
    Renamed(&'static str),
    /// Written unchanged: any other member of the chat body. Both dialects have the member, or the configuration of the
    /// offer provides for it.
    Unchanged,
}

/// Sampling parameters that the responses dialect does not define. They are sent only to offers that list them.
const HINTS: &[&str] = &["frequency_penalty", "presence_penalty", "seed"];

/// Returns the treatment of a member for an offer.
pub(super) fn member_treatment(name: &str, abilities: &OfferCapabilities) -> MemberConversion {
    match name {
        "max_tokens" | "max_completion_tokens" => MemberConversion::Renamed("max_output_tokens"),
        "messages" | "tools" | "tool_choice" | "response_format" | "reasoning_effort" | "verbosity"
        | "logprobs" => MemberConversion::Converted,
        "stream_options" => MemberConversion::Dropped,
        _ if HINTS.contains(&name) && !abilities.accepts_parameter(name) => MemberConversion::Dropped,
        _ => MemberConversion::Unchanged,
    }
}

/// Values of the members that are converted to another form.
#[derive(Default)]
pub(super) struct MembersToConvert<'a> {
    pub(super) messages: &'a [u8],
    pub(super) tools: Option<&'a [u8]>,
    pub(super) tool_choice: Option<&'a [u8]>,
    pub(super) format: Option<&'a [u8]>,
    pub(super) effort: Option<&'a [u8]>,
    pub(super) verbosity: Option<&'a [u8]>,
    pub(super) logprobs: Option<&'a [u8]>,
}

impl<'a> MembersToConvert<'a> {
    /// Records the value of a member that must be converted.
    pub(super) fn record_value(&mut self, name: &str, value: &'a [u8]) {
        match name {
            "messages" => self.messages = value,
            "tools" => self.tools = Some(value),
            "tool_choice" => self.tool_choice = Some(value),
            "response_format" => self.format = Some(value),
            "reasoning_effort" => self.effort = Some(value),
            "verbosity" => self.verbosity = Some(value),
            "logprobs" => self.logprobs = Some(value),
            _ => {}
        }
    }
}
