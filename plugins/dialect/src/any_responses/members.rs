//! Top-level members of a chat body, and what becomes of each.

use penstock_core::OfferCapabilities;

/// Treatment of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Treatment {
    /// Member without a counterpart that has no effect on the answer, or which is only a hint.
    Dropped,
    /// Member of another form.
    Converted,
    /// Member of another name and the same value.
    Renamed(&'static str),
    /// Member of both dialects, or a parameter of the engine that the offer lists.
    Unchanged,
}

/// Sampling parameters that the dialect does not have. They are sent to engines whose catalogue entry lists them.
const HINTS: &[&str] = &["frequency_penalty", "presence_penalty", "seed"];

/// Returns the treatment of a member for an offer.
pub(super) fn treatment(name: &str, abilities: &OfferCapabilities) -> Treatment {
    match name {
        "max_tokens" | "max_completion_tokens" => Treatment::Renamed("max_output_tokens"),
        "messages" | "tools" | "tool_choice" | "response_format" | "reasoning_effort" | "verbosity"
        | "logprobs" => Treatment::Converted,
        "stream_options" => Treatment::Dropped,
        _ if HINTS.contains(&name) && !abilities.accepts_parameter(name) => Treatment::Dropped,
        _ => Treatment::Unchanged,
    }
}

/// Members of another form.
#[derive(Default)]
pub(super) struct ConvertedMembers<'a> {
    pub(super) messages: &'a [u8],
    pub(super) tools: Option<&'a [u8]>,
    pub(super) tool_choice: Option<&'a [u8]>,
    pub(super) format: Option<&'a [u8]>,
    pub(super) effort: Option<&'a [u8]>,
    pub(super) verbosity: Option<&'a [u8]>,
    pub(super) logprobs: Option<&'a [u8]>,
}

impl<'a> ConvertedMembers<'a> {
    /// Records a member.
    pub(super) fn set(&mut self, name: &str, value: &'a [u8]) {
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
