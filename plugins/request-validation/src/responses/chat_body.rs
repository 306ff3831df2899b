//! Writer of a request body in the chat form.

use super::settings::ResponseSettings;
use crate::body::RootObject;
use crate::members::{MemberTreatment, RefusedValues, find_member};
use penstock_core::Dialect;

/// Members that are not copied to the chat form: each is converted, or only repeated in the answer, or ignored.
const NOT_COPIED: &[&str] = &[
    "access_programs",
    "background",
    "background_options",
    "client_metadata",
    "context_management",
    "conversation",
    "image",
    "include",
    "input",
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "messages",
    "metadata",
    "model",
    "moderation",
    "n",
    "previous_response_id",
    "prompt",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "reasoning",
    "safety_identifier",
    "service_tier",
    "store",
    "stream_options",
    "text",
    "tool_choice",
    "tools",
    "top_logprobs",
    "truncation",
    "user",
];

/// Body of a chat request while it is written.
#[derive(Debug)]
pub(super) struct ChatBodyWriter {
    out: Vec<u8>,
}

impl ChatBodyWriter {
    /// Starts the body; `size` is the total length in bytes of the texts from which it is made.
    pub(super) fn new(size: usize) -> Self {
        let mut out = Vec::with_capacity(size + size / 8 + 256);
        out.push(b'{');
        Self { out }
    }

    /// Writes the key of a member.
    pub(super) fn write_key(&mut self, name: &str) {
        if self.out.len() > 1 {
            self.out.push(b',');
        }
        self.write_string(name);
        self.out.push(b':');
    }

    /// Writes a member whose value is JSON text.
    pub(super) fn write_member(&mut self, name: &str, json: &str) {
        self.write_key(name);
        self.write_raw_json(json);
    }

    /// Writes a member whose value is a string.
    pub(super) fn write_string_member(&mut self, name: &str, text: &str) {
        self.write_key(name);
        self.write_string(text);
    }

    /// Appends JSON text unchanged; it may be a fragment such as `,"content":`.
    pub(super) fn write_raw_json(&mut self, json: &str) {
        self.out.extend_from_slice(json.as_bytes());
    }

    /// Appends a string with quotes and escapes.
    pub(super) fn write_string(&mut self, text: &str) {
        self.out.push(b'"');
        self.write_escaped(text);
        self.out.push(b'"');
    }

    /// Appends text with JSON escapes, without quotes, as a part of a JSON string. The text may itself be JSON, which
    /// is then nested in the string.
    pub(super) fn write_escaped(&mut self, text: &str) {
        for character in text.chars() {
            match character {
                '"' => self.out.extend_from_slice(br#"\""#),
                '\\' => self.out.extend_from_slice(br"\\"),
                '\n' => self.out.extend_from_slice(br"\n"),
                '\r' => self.out.extend_from_slice(br"\r"),
                '\t' => self.out.extend_from_slice(br"\t"),
                control if u32::from(control) < 0x20 => {
                    self.out.extend_from_slice(format!("\\u{:04x}", u32::from(control)).as_bytes());
                }
                other => self.out.extend_from_slice(other.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
    }

    /// Closes the JSON object and returns the body.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.out.push(b'}');
        self.out
    }
}

/// Copies the members that the chat form has too, and engine parameters, except those that the settings write
/// themselves, and the empty values of members that are refused otherwise: on chat completions, these members may have
/// other valid values.
pub(super) fn copy_shared_members(
    top: &RootObject<'_>,
    settings: &ResponseSettings<'_>,
    out: &mut ChatBodyWriter,
) {
    for (name, value) in top.present_members() {
        if !NOT_COPIED.contains(&name) && !settings.writes_member(name) && !is_empty_refused_member(name) {
            out.write_member(name, value.raw());
        }
    }
}

/// Returns true for a member that responses refuse unless it is empty, or a format unless it is plain text.
fn is_empty_refused_member(name: &str) -> bool {
    find_member(Dialect::Responses, name).is_some_and(|row| {
        matches!(
            row.treatment,
            MemberTreatment::Refused(RefusedValues::NonEmpty | RefusedValues::FormatNotText)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_converted_members_is_sorted() {
        assert!(NOT_COPIED.windows(2).all(|two| two.first() < two.last()));
    }

    #[test]
    fn every_character_is_escaped_as_json_requires() {
        let mut out = ChatBodyWriter::new(0);
        out.write_string_member("a", "q\" b\\ n\n t\t r\r c\u{1} ü \u{1F600}");
        let body = String::from_utf8(out.finish()).unwrap_or_default();
        assert_eq!(body, "{\"a\":\"q\\\" b\\\\ n\\n t\\t r\\r c\\u0001 ü \u{1F600}\"}");
    }
}
