//! Members of a chat message, as slices of the request.

use super::content_blocks::{BlockContent, OutputBlock};
use crate::json_cursor::{self, JsonCursor};
use penstock_core::ApiError;
use penstock_json_scan::json;
use std::borrow::Cow;
use std::convert::Infallible;

/// Members of a chat message that are translated. `content` is a JSON value; the other slices are bodies of JSON
/// strings, without the quotes.
#[derive(Default)]
pub(crate) struct ParsedMessage<'a> {
    pub(crate) role: Cow<'a, str>,
    pub(crate) content: Option<&'a [u8]>,
    pub(crate) name: Option<&'a [u8]>,
    /// `reasoning_content`, or else `reasoning`; an empty one counts as absent.
    pub(crate) reasoning: Option<&'a [u8]>,
    pub(crate) refusal: Option<&'a [u8]>,
    pub(crate) tool_calls: Vec<ParsedCall<'a>>,
    pub(crate) function_call: Option<CalledFunction<'a>>,
    pub(crate) tool_call_id: Option<&'a [u8]>,
}

impl<'a> ParsedMessage<'a> {
    /// Returns true if the message has tool calls or a legacy `function_call`.
    pub(crate) fn has_calls(&self) -> bool {
        !self.tool_calls.is_empty() || self.function_call.is_some()
    }

    /// Parses the members of a message; `null` counts as absent.
    pub(crate) fn parse(message: &mut JsonCursor<'a>) -> Self {
        let mut seen = Self::default();
        let Ok(()) = message.visit_members::<Infallible>(|key, value| {
            match (key, value.peek_byte()) {
                ("tool_calls", Some(b'[')) => {
                    return value.visit_elements(|_, call| {
                        seen.tool_calls.push(ParsedCall::parse(call));
                        Ok(())
                    });
                }
                ("function_call", Some(b'{')) => {
                    seen.function_call = Some(CalledFunction::parse(value));
                    return Ok(());
                }
                _ => {}
            }
            let value = value.take_value();
            match key {
                _ if json_cursor::is_null(value) => {}
                "role" => seen.role = json_cursor::parse_string(value).unwrap_or_default(),
                "content" => seen.content = Some(value),
                "name" => {
                    seen.name = json_cursor::string_body(value)
                        .filter(|name| !json_cursor::is_blank_string_body(name))
                }
                "reasoning_content" => seen.reasoning = non_empty_body(value).or(seen.reasoning),
                "reasoning" => seen.reasoning = seen.reasoning.or(non_empty_body(value)),
                "refusal" => seen.refusal = json_cursor::string_body(value),
                "tool_call_id" => seen.tool_call_id = json_cursor::string_body(value),
                _ => {}
            }
            Ok(())
        });
        seen
    }
}

fn non_empty_body(value: &[u8]) -> Option<&[u8]> {
    json_cursor::string_body(value).filter(|text| !text.is_empty())
}

/// Tool call: an element of `tool_calls` in a chat message.
#[derive(Default)]
pub(crate) struct ParsedCall<'a> {
    pub(crate) id: Option<&'a [u8]>,
    pub(crate) function: CalledFunction<'a>,
}

impl<'a> ParsedCall<'a> {
    fn parse(call: &mut JsonCursor<'a>) -> Self {
        let mut seen = Self::default();
        let Ok(()) = call.visit_members::<Infallible>(|key, value| {
            match key {
                "id" => seen.id = json_cursor::string_body(value.take_value()),
                "function" => seen.function = CalledFunction::parse(value),
                _ => {}
            }
            Ok(())
        });
        seen
    }
}

/// Called function: name and arguments as bodies of JSON strings, without the quotes.
#[derive(Default)]
pub(crate) struct CalledFunction<'a> {
    pub(crate) name: Option<&'a [u8]>,
    pub(crate) arguments: Option<&'a [u8]>,
}

impl<'a> CalledFunction<'a> {
    fn parse(function: &mut JsonCursor<'a>) -> Self {
        let mut seen = Self::default();
        let Ok(()) = function.visit_members::<Infallible>(|key, value| {
            match key {
                "name" => seen.name = json_cursor::string_body(value.take_value()),
                "arguments" => seen.arguments = json_cursor::string_body(value.take_value()),
                _ => {}
            }
            Ok(())
        });
        seen
    }

    /// Converts the call to a `tool_use` block; `id` comes with the number of earlier calls that have it, and `path` is
    /// the path of the function. Empty arguments become `{}`.
    ///
    /// # Errors
    /// Returns `InvalidRequest` if the name is missing, or the arguments are not a JSON object.
    pub(super) fn to_tool_use(
        &self,
        (id, repetition): (&'a [u8], u32),
        path: impl Fn() -> String,
    ) -> Result<OutputBlock<'a>, ApiError> {
        let name = self.name.ok_or_else(|| {
            ApiError::invalid(format!("{}.name", path()), "A function call needs a string `name`.")
        })?;
        let arguments = self.arguments.and_then(json::unescape).unwrap_or_default();
        let arguments = match arguments.trim() {
            "" => "{}".to_owned(),
            trimmed if trimmed.len() < arguments.len() => trimmed.to_owned(),
            _ => arguments.into_owned(),
        };
        let mut object = json::members(arguments.as_bytes());
        object.by_ref().for_each(drop);
        if !object.is_complete() {
            return Err(ApiError::invalid(
                format!("{}.arguments", path()),
                "The arguments of a call must be a JSON object.",
            ));
        }
        Ok(BlockContent::ToolUse { id, repetition, name, arguments }.into())
    }
}
