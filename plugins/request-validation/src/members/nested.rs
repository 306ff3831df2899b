//! Members of the objects inside a messages request: of its messages, content blocks, tools and settings.

/// Way in which the gateway treats a nested member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NestedTreatment {
    /// Forwarded, translated, or enforced by the gateway.
    Supported,
    /// Forwarded only to providers of the messages dialect. For others it is dropped, because it does not change the
    /// meaning of the request.
    Harmless,
    /// Refused by name under this condition, which is written as the end of a sentence.
    Refused(&'static str),
}

/// Member of an object inside a messages request that the gateway knows.
#[derive(Clone, Copy, Debug)]
pub struct NestedMember {
    /// Object that has the member: a path in the request, or the type of a content block.
    pub object: &'static str,
    /// Name in the object.
    pub name: &'static str,
    /// Treatment of the member.
    pub treatment: NestedTreatment,
    /// Purpose of the member, or the reason for refusing it, written as the end of a sentence.
    pub description: &'static str,
}

const fn nested(
    object: &'static str,
    name: &'static str,
    treatment: NestedTreatment,
    about: &'static str,
) -> NestedMember {
    NestedMember { object, name, treatment, description: about }
}

use NestedTreatment::{Harmless, Refused, Supported};

/// Table of the members of objects in messages requests, sorted by object and name. Objects that the gateway refuses or
/// leaves out as a whole, such as tools that run on the vendor's servers, are not listed.
#[rustfmt::skip]
pub const NESTED_MESSAGES_MEMBERS: &[NestedMember] = &[
    nested("cache_control", "ttl", Harmless, "other inference engines manage their prompt cache"),
    nested("cache_control", "type", Harmless, "other inference engines manage their prompt cache"),
    nested("citations", "enabled", Refused("`true` is refused by providers of other dialects"), "citations"),
    nested("document", "cache_control", Harmless, "other inference engines manage their prompt cache"),
    nested("document", "citations", Supported, "see `citations`"),
    nested("document", "context", Supported, "written before the document"),
    nested("document", "source", Supported, "see `source`"),
    nested("document", "title", Supported, "written before the document"),
    nested("document", "type", Supported, "type of the block"),
    nested("image", "cache_control", Harmless, "other inference engines manage their prompt cache"),
    nested("image", "source", Supported, "see `source`"),
    nested("image", "transformations", Supported, "see `image.transformations`"),
    nested("image", "type", Supported, "type of the block"),
    nested("image.transformations", "oversized_image", Refused("`error` is refused by providers of other dialects"), "other inference engines may scale an image down"),
    nested("messages[]", "content", Supported, "text or content blocks"),
    nested("messages[]", "role", Supported, "author of the message"),
    nested("metadata", "user_id", Harmless, "not forwarded; can identify the session for routing"),
    nested("output_config", "effort", Supported, "reasoning effort"),
    nested("output_config", "format", Supported, "see `output_config.format`"),
    nested("output_config", "task_budget", Harmless, "hint about the tokens of a whole task; `max_tokens` limits the response"),
    nested("output_config.format", "schema", Supported, "JSON schema of the response"),
    nested("output_config.format", "type", Supported, "only `json_schema`"),
    nested("redacted_thinking", "data", Harmless, "encrypted by another vendor"),
    nested("redacted_thinking", "type", Harmless, "encrypted by another vendor"),
    nested("search_result", "cache_control", Harmless, "other inference engines manage their prompt cache"),
    nested("search_result", "citations", Supported, "see `citations`"),
    nested("search_result", "content", Supported, "text of the result"),
    nested("search_result", "source", Supported, "written before the result"),
    nested("search_result", "title", Supported, "written before the result"),
    nested("search_result", "type", Supported, "type of the block"),
    nested("source", "content", Supported, "text or content blocks of a document"),
    nested("source", "data", Supported, "base64, or the text of a document"),
    nested("source", "file_id", Refused("always refused"), "files by id are not supported"),
    nested("source", "media_type", Supported, "media type of the data"),
    nested("source", "type", Supported, "type of the source"),
    nested("source", "url", Supported, "sent to providers that fetch it themselves"),
    nested("system message", "clear_at", Supported, "the gateway leaves the message out once a later message of the user exists"),
    nested("system message", "content", Supported, "may be absent if `output_config` sets the effort"),
    nested("system message", "output_config", Supported, "see `system message.output_config`"),
    nested("system message", "role", Supported, "author of the message"),
    nested("system message.output_config", "effort", Refused("refused by providers of other dialects"), "providers of the messages dialect need `system_anywhere`; others have one effort for the request"),
    nested("text", "cache_control", Harmless, "other inference engines manage their prompt cache"),
    nested("text", "citations", Harmless, "citations of an earlier response"),
    nested("text", "text", Supported, "the text"),
    nested("text", "type", Supported, "type of the block"),
    nested("thinking", "block_binding", Harmless, "check of thinking blocks that the client sends back"),
    nested("thinking", "budget_tokens", Supported, "translated to an effort for providers of other dialects; lowered together with `max_tokens`"),
    nested("thinking", "display", Supported, "shows or hides the thinking"),
    nested("thinking", "type", Supported, "enables or disables thinking"),
    nested("thinking block", "signature", Harmless, "not verified"),
    nested("thinking block", "thinking", Supported, "sent to offers with `replay_reasoning`"),
    nested("thinking block", "type", Supported, "type of the block"),
    nested("thinking.block_binding", "prefix_mismatch_behavior", Harmless, "check of thinking blocks that the client sends back"),
    nested("tool_choice", "disable_parallel_tool_use", Supported, "the gateway enforces it"),
    nested("tool_choice", "name", Supported, "name of the tool"),
    nested("tool_choice", "type", Supported, "selects the tool that the model calls"),
    nested("tool_result", "cache_control", Harmless, "other inference engines manage their prompt cache"),
    nested("tool_result", "content", Supported, "text or content blocks"),
    nested("tool_result", "is_error", Supported, "marks the text for providers of other dialects"),
    nested("tool_result", "tool_use_id", Supported, "id of the call"),
    nested("tool_result", "toolset_name", Harmless, "toolset of the vendor in an earlier response"),
    nested("tool_result", "type", Supported, "type of the block"),
    nested("tool_use", "cache_control", Harmless, "other inference engines manage their prompt cache"),
    nested("tool_use", "caller", Harmless, "caller of an earlier call"),
    nested("tool_use", "id", Supported, "id of the call"),
    nested("tool_use", "input", Supported, "arguments of the call"),
    nested("tool_use", "name", Supported, "name of the tool"),
    nested("tool_use", "toolset_name", Harmless, "toolset of the vendor in an earlier response"),
    nested("tool_use", "type", Supported, "type of the block"),
    nested("tools[]", "allowed_callers", Refused("refused without `direct`"), "the model calls each tool itself"),
    nested("tools[]", "cache_control", Harmless, "other inference engines manage their prompt cache"),
    nested("tools[]", "defer_loading", Harmless, "without tool search, all tools are loaded"),
    nested("tools[]", "description", Supported, "description of the tool"),
    nested("tools[]", "eager_input_streaming", Harmless, "arguments are streamed as they arrive"),
    nested("tools[]", "input_examples", Harmless, "examples of arguments"),
    nested("tools[]", "input_schema", Supported, "JSON schema of the arguments"),
    nested("tools[]", "name", Supported, "name of the tool"),
    nested("tools[]", "strict", Supported, "arguments that follow the schema"),
    nested("tools[]", "type", Supported, "only `custom`"),
];
