//! Decoder of a buffered message, which returns the events of its stream.

use super::usage::Count;
use super::{finish, input_text, kind_of, malformed, named, text_event, text_of};
use crate::classify;
use crate::decode::MAX_TOOLS;
use crate::event::Event;
use crate::scan;
use bytes::Bytes;
use penstock_contract::Fault;
use penstock_wire::{figures, json};

/// Appends the events of a buffered message.
///
/// # Errors
/// Returns `Malformed` if the body is no message, and `InBand` for an error object.
pub fn whole(body: Bytes, events: &mut Vec<Event>) -> Result<(), Fault> {
    let message = json::trim(&body);
    match &*scan::member(message, "type").and_then(scan::string).unwrap_or_default() {
        "message" => {}
        "error" => return Err(classify::in_band(message)),
        _ => return Err(malformed()),
    }
    let content = scan::member(message, "content").filter(|content| scan::is_array(content));
    events.push(Event::Start);
    let mut tool = 0;
    for block in scan::elements(content.ok_or_else(malformed)?) {
        match &*kind_of(block)? {
            "text" => {
                let text = scan::member(block, "text").ok_or_else(malformed)?;
                text_event(text_of(&body, Some(text))?, events);
            }
            "thinking" => {
                let text = text_of(&body, scan::member(block, "thinking"))?;
                let signature =
                    Some(text_of(&body, scan::member(block, "signature"))?).filter(|seal| !seal.is_empty());
                if !text.is_empty() || signature.is_some() {
                    events.push(Event::Reasoning { choice: 0, text, signature });
                }
            }
            "tool_use" => {
                let (id, name) = named(&body, block)?;
                if tool as usize >= MAX_TOOLS {
                    return Err(Fault::model_output());
                }
                events.push(Event::ToolStart { choice: 0, tool, id, name });
                let input = scan::member(block, "input")
                    .filter(|input| scan::is_object(input))
                    .ok_or_else(malformed)?;
                events.push(Event::ToolArguments { choice: 0, tool, fragment: input_text(input)? });
                tool += 1;
            }
            _ => {}
        }
    }
    for (key, value) in scan::members(message) {
        events.extend(match &*key {
            "energy" => figures::energy(value).map(Event::Energy),
            "impact" => figures::impact(value).map(Event::Energy),
            _ => None,
        });
    }
    if let Some(usage) = scan::member(message, "usage").filter(|usage| scan::is_object(usage)) {
        let mut count = Count::default();
        count.add(usage);
        events.extend(count.stated().map(Event::Usage));
    }
    events.extend(finish(&body, message)?);
    events.push(Event::End);
    Ok(())
}
