//! Writer of the members `thinking` and `output_config` of a request to a messages provider.

use crate::body_builder::BodyBuilder;
use crate::json_cursor;
use crate::reasoning_effort::{self, EffortLevel, ReasoningEffort};
use penstock_core::{AdjustableMember, AttemptTarget};

/// Format of the answer, as JSON of the request.
pub(crate) enum OutputFormat<'a> {
    /// Value of `output_config.format`.
    Format(&'a [u8]),
    /// Schema inside such a value.
    Schema(&'a [u8]),
}

/// Parts of the member `output_config`.
#[derive(Default)]
pub(crate) struct OutputConfig<'a> {
    /// Value of the client's own `output_config`.
    pub(crate) own: Option<&'a [u8]>,
    /// Effort that replaces the client's own.
    pub(crate) level: Option<EffortLevel>,
    /// Format that replaces the client's own.
    pub(crate) format: Option<OutputFormat<'a>>,
}

impl OutputConfig<'_> {
    /// Writes the member after a comma; writes nothing if it has no part.
    pub(crate) fn write(&self, out: &mut BodyBuilder<'_>) {
        match (self.own, self.level, &self.format) {
            (None, None, None) => return,
            (Some(own), None, None) => {
                out.push_str(r#","output_config":"#);
                return out.push_source(own);
            }
            _ => {}
        }
        let mut separator = r#","output_config":{"#;
        let is_replaced = |name: &str| match name {
            "effort" => self.level.is_some(),
            "format" => self.format.is_some(),
            _ => false,
        };
        let own = json_cursor::members(self.own.unwrap_or_default()).filter(|(name, _)| !is_replaced(name));
        for (name, value) in own {
            out.push_str(std::mem::replace(&mut separator, ","));
            out.push_json_string(&name);
            out.push_byte(b':');
            out.push_source(value);
        }
        if let Some(level) = self.level {
            out.push_str(std::mem::replace(&mut separator, ","));
            out.push_str(r#""effort":""#);
            out.push_str(level.messages_name());
            out.push_byte(b'"');
        }
        if let Some(format) = &self.format {
            out.push_str(separator);
            format.write(out);
        }
        out.push_byte(b'}');
    }
}

impl OutputFormat<'_> {
    fn write(&self, out: &mut BodyBuilder<'_>) {
        out.push_str(r#""format":"#);
        match self {
            Self::Format(format) => out.push_source(format),
            Self::Schema(schema) => {
                out.push_str(r#"{"type":"json_schema","schema":"#);
                out.push_source(schema);
                out.push_byte(b'}');
            }
        }
    }
}

/// Returns the requested effort, or else the effort of the preset, reduced to what the offer supports. Returns the
/// default (nothing specified) if the provider has rejected `thinking`.
pub(crate) fn supported_effort(requested: ReasoningEffort, target: &AttemptTarget<'_>) -> ReasoningEffort {
    let abilities = target.capabilities;
    if !target.allows_member(AdjustableMember::Thinking) {
        return ReasoningEffort::default();
    }
    let preset = || {
        let preset = target.preset.iter().find(|(name, _)| &**name == "reasoning_effort");
        preset.map(|(_, value)| reasoning_effort::parse_effort(value.as_bytes())).unwrap_or_default()
    };
    let effort = if requested == ReasoningEffort::default() { preset() } else { requested };
    if abilities.accepts_parameter("reasoning_effort") {
        let level = effort.level.filter(|_| effort.enabled != Some(false));
        ReasoningEffort { level, ..effort }
    } else if abilities.thinking_switch {
        // A model without effort levels thinks at every effort except `none`.
        ReasoningEffort { enabled: effort.enabled.or(effort.level.map(|_| true)), level: None }
    } else {
        ReasoningEffort::default()
    }
}

/// Writes the member `thinking` for an effort after a comma; writes nothing if the effort specifies nothing.
pub(crate) fn write_thinking(effort: ReasoningEffort, target: &AttemptTarget<'_>, out: &mut BodyBuilder<'_>) {
    if effort.enabled == Some(false) {
        out.push_str(r#","thinking":{"type":"disabled"}"#);
    } else if effort.enabled == Some(true) || effort.level.is_some() {
        // Newer models hide their thinking unless the request asks for it.
        out.push_str(r#","thinking":{"type":"adaptive""#);
        let is_shown = target.allows_member(AdjustableMember::ThinkingDisplay);
        out.push_str(if is_shown { r#","display":"summarized"}"# } else { "}" });
    }
}
