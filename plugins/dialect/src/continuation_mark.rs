//! Mark by which a chat provider knows that it must continue the last message of the assistant instead of answering it.

use crate::body_builder::BodyBuilder;
use penstock_core::{AttemptTarget, ContinuationMethod, PrefillMethod};

/// Mark of the message to continue. A request has exactly one mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContinuationMark {
    /// No mark is needed: the provider always continues a last message of the assistant.
    Implicit,
    /// Member `prefix` of the message.
    Prefix,
    /// Members `add_generation_prompt` and `continue_final_message` of the request.
    TemplateSwitch,
}

impl ContinuationMark {
    /// Returns the mark for a provider; `None` if it cannot continue the message. With `is_rescue` the message ends
    /// with the delivered part of a broken answer; otherwise the client itself wrote the message.
    pub(crate) fn for_target(target: &AttemptTarget<'_>, is_rescue: bool) -> Option<Self> {
        let is_automatic = target.capabilities.prefill == PrefillMethod::Automatic;
        if is_rescue {
            return Some(match target.continuation_method()? {
                ContinuationMethod::ContinueFinalMessage => Self::TemplateSwitch,
                ContinuationMethod::Prefill if is_automatic => Self::Implicit,
                ContinuationMethod::Prefill => Self::Prefix,
            });
        }
        match target.prefill_method() {
            PrefillMethod::None => None,
            PrefillMethod::ContinueFinalMessage => Some(Self::TemplateSwitch),
            PrefillMethod::Prefix => Some(Self::Prefix),
            PrefillMethod::Automatic => Some(Self::Implicit),
        }
    }

    /// Writes the part of the mark that belongs to the message, after a comma.
    pub(crate) fn write_message_member(self, out: &mut BodyBuilder<'_>) {
        if self == Self::Prefix {
            out.push_str(r#","prefix":true"#);
        }
    }

    /// Writes the part of the mark that belongs to the request, after a comma.
    pub(crate) fn write_request_members(self, out: &mut BodyBuilder<'_>) {
        if self == Self::TemplateSwitch {
            out.push_str(r#","add_generation_prompt":false,"continue_final_message":true"#);
        }
    }
}
