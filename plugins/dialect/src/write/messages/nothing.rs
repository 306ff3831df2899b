//! The answer to a client that asks for no tokens (`max_tokens: 0`).
//!
//! It is how the dialect asks for a prompt to be read into a cache. There is no
//! such order in what providers speak, so nobody is asked: the message is empty,
//! was cut at its first token, and nothing was used for it.

use super::Writer;
use super::manner::{self, Manner};
use crate::event::Event;
use crate::messages_chat::ids::Names;
use crate::write::{Face, Writer as _};
use penstock_contract::{Finish, Thinking, Usage};

/// A whole message, or all events of its stream. `objects` are JSON members
/// without braces, maybe none.
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
    // Quickstarts read `content[0].text`, whatever they asked for.
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
