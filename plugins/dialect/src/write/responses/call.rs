//! Tool call of a response, with its arguments or with the input text of a custom tool.

use super::custom_input::CustomInputReader;
use super::item::ItemStatus;
use super::item_text::ItemText;
use crate::event::EscapedText;
use crate::partial_json::{JsonState, PartialJson};
use crate::write::EventBuffer;
use penstock_core::MappedTool;
use std::io::Write as _;

/// Tool call of a response, with the state of its arguments while they are written.
#[derive(Debug)]
pub(super) struct CallState {
    call_id: EscapedText,
    /// Name of the client's tool, as the body of a JSON string.
    pub(super) name: Vec<u8>,
    namespace: Option<Vec<u8>>,
    /// Reader of the input, for a custom tool.
    pub(super) custom_input_reader: Option<CustomInputReader>,
    pub(super) arguments_parser: PartialJson,
    /// Arguments, or the input of a custom tool, as the body of a JSON string.
    pub(super) text: ItemText,
}

impl CallState {
    /// Creates a call. `tool` is set if the client's tool was renamed for the provider: for custom tools and tools in a
    /// namespace.
    pub(super) fn new(call_id: EscapedText, name: &EscapedText, tool: Option<&MappedTool>) -> Self {
        let escaped = |text: &str| EscapedText::new(text).escaped().to_vec();
        Self {
            call_id,
            name: tool.map_or_else(|| name.escaped().to_vec(), |tool| escaped(&tool.name)),
            namespace: tool.and_then(|tool| tool.namespace.as_deref()).map(escaped),
            custom_input_reader: tool.filter(|tool| tool.is_custom).map(|_| CustomInputReader::new()),
            arguments_parser: PartialJson::new(),
            text: ItemText::default(),
        }
    }

    /// Returns true if the arguments are complete.
    pub(super) fn is_complete(&self) -> bool {
        match &self.custom_input_reader {
            Some(input) => input.is_complete(),
            None => self.arguments_parser.state() == JsonState::Complete,
        }
    }

    /// Writes the members of a tool call that follow its id.
    pub(super) fn write_members(&self, status: ItemStatus, out: &mut EventBuffer) {
        let (kind, text) = match self.custom_input_reader {
            Some(_) => ("custom_tool_call", "input"),
            None => ("function_call", "arguments"),
        };
        let _ = write!(out, r#"","type":"{kind}","status":"{}","call_id":""#, status.name());
        out.extend_from_slice(self.call_id.escaped());
        out.extend_from_slice(br#"","name":""#);
        out.extend_from_slice(&self.name);
        if let Some(namespace) = &self.namespace {
            out.extend_from_slice(br#"","namespace":""#);
            out.extend_from_slice(namespace);
        }
        let _ = write!(out, r#"","{text}":""#);
        if status != ItemStatus::Open {
            self.text.write(out);
        }
        out.extend_from_slice(b"\"}");
    }
}
