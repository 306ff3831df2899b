//! Response to a request for zero tokens (`max_tokens: 0`).
//!
//! In this dialect such a request loads a prompt into a cache. Provider APIs have no equivalent, so no provider is
//! called: the message is empty, ends with `max_tokens`, and reports no usage.

use super::Writer;
use super::manner::{self, Manner};
use crate::event::Event;
use crate::messages_chat::ids::Names;
use crate::write::{Face, Writer as _};
use penstock_contract::{Finish, Thinking, Usage};

/// Returns a message, or all events of its stream. `objects` are JSON members without braces, may be empty.
#[must_use]
pub fn nothing(face: Face, stream: bool, objects: &[u8]) -> Vec<u8> {
    let names = Names::of(std::iter::empty());
    let manner = Manner { face, thinking: Thinking::Off, names, prompt_tokens: 0 };
    if stream { events(manner, objects) } else { whole(&manner, objects) }
}

fn events(manner: Manner, objects: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(1024);
    let mut writer = Writer::new(manner);
    writer.write(&Event::Finish { choice: 0, reason: Finish::Length, stop_sequence: None }, &mut out);
    writer.close(&Usage::default(), objects, &mut out);
    out
}

fn whole(manner: &Manner, objects: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    out.push(b'{');
    manner.face(&mut out);
    // Quickstarts read `content[0].text` in any case.
    out.extend_from_slice(br#","content":[{"type":"text","text":""}],"#);
    manner::stop_members(Finish::Length, None, false, &mut out);
    out.extend_from_slice(br#","usage":"#);
    manner::usage(&Usage::default(), &mut out);
    if !objects.is_empty() {
        out.push(b',');
        out.extend_from_slice(objects);
    }
    out.push(b'}');
    out
}
