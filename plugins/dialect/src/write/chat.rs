//! Writer of the chat-completions dialect, for its strictest clients.
//!
//! Every chunk has id, object, created, model and choices. The role comes first and once, for all choices in order. Id,
//! type and name of a tool call come once. The chunk with the finish reason is written at the end, because it contains
//! usage and the Penstock objects if there is no usage chunk. No chunk has a member `error`, and no delta has a member
//! that the dialect does not define.

mod parts;
mod whole;

pub use whole::{plain, whole};

use super::Face;
use crate::event::{Event, Text};
pub(crate) use parts::usage_object;
use parts::{finish_word, number};
use penstock_contract::{Choices, Finish, Refusal, Usage};
use penstock_wire::error;

/// Writer of one streamed answer.
#[derive(Debug)]
pub struct Writer {
    /// Start of each chunk: `data: {"id":…,"choices":[`.
    head: Vec<u8>,
    /// Bytes before the text of the first choice: nearly every event has them.
    before_text: Vec<u8>,
    include_usage: bool,
    /// Index of the only choice, if separate requests answer the others.
    first: Option<u32>,
    /// Finish reason of each choice, until the end.
    finishes: Vec<Option<Finish>>,
    /// Calls without arguments so far, as (choice, call).
    bare: Vec<(u32, u32)>,
    begun: bool,
}

impl Writer {
    /// Creates a writer for `n` choices, or for one of several, which writes no end: that is written once for all of
    /// them.
    #[must_use]
    pub fn new(face: &Face, n: u32, include_usage: bool, choices: Choices) -> Self {
        let (first, begun) = match choices {
            Choices::All => (None, false),
            Choices::One(index) => (Some(index), true),
        };
        let mut head = b"data: {".to_vec();
        parts::face(&mut head, face, "chat.completion.chunk");
        head.extend_from_slice(b",\"choices\":[");
        let index = first.unwrap_or_default().to_string();
        let before_text =
            [&head, &b"{\"index\":"[..], index.as_bytes(), b",\"delta\":{\"content\":\""].concat();
        Self {
            head,
            before_text,
            include_usage,
            first,
            finishes: vec![None; n.max(1) as usize],
            bare: Vec::new(),
            begun,
        }
    }

    fn start(&self, choice: u32, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.head);
        out.extend_from_slice(b"{\"index\":");
        number((choice + self.first.unwrap_or_default()).into(), out);
        out.extend_from_slice(b",\"delta\":{");
    }

    /// Writes the roles of all choices, before any other content.
    fn begin(&mut self, out: &mut Vec<u8>) {
        if self.begun {
            return;
        }
        self.begun = true;
        for choice in (0_u32..).take(self.finishes.len()) {
            self.start(choice, out);
            out.extend_from_slice(b"\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null");
            out.extend_from_slice(GOES_ON);
        }
    }

    fn text(&self, choice: u32, key: &[u8], text: &Text, logprobs: Option<&[u8]>, out: &mut Vec<u8>) {
        self.start(choice, out);
        out.extend_from_slice(key);
        out.extend_from_slice(text.escaped());
        out.extend_from_slice(b"\"}");
        if let Some(logprobs) = logprobs {
            out.extend_from_slice(b",\"logprobs\":");
            out.extend_from_slice(logprobs);
        }
        out.extend_from_slice(GOES_ON);
    }

    fn tool(&self, choice: u32, tool: u32, call: &[&[u8]], out: &mut Vec<u8>) {
        self.start(choice, out);
        out.extend_from_slice(b"\"tool_calls\":[{\"index\":");
        number(tool.into(), out);
        call.iter().for_each(|part| out.extend_from_slice(part));
        out.extend_from_slice(b"\"}}]}");
        out.extend_from_slice(GOES_ON);
    }
}

/// End of a chunk whose choice continues.
const GOES_ON: &[u8] = b",\"finish_reason\":null}]}\n\n";

impl super::Writer for Writer {
    fn write(&mut self, event: &Event, out: &mut Vec<u8>) {
        if event.is_content() {
            self.begin(out);
        }
        match event {
            Event::Text { choice: 0, text, logprobs: None } => {
                out.reserve(self.before_text.len() + text.escaped().len() + 32);
                out.extend_from_slice(&self.before_text);
                out.extend_from_slice(text.escaped());
                out.extend_from_slice(b"\"},\"finish_reason\":null}]}\n\n");
            }
            Event::Text { choice, text, logprobs } => {
                self.text(*choice, b"\"content\":\"", text, logprobs.as_deref(), out);
            }
            Event::Reasoning { choice, text, .. } if !text.is_empty() => {
                self.text(*choice, b"\"reasoning_content\":\"", text, None, out);
            }
            Event::Refusal { choice, text } => self.text(*choice, b"\"refusal\":\"", text, None, out),
            Event::ToolStart { choice, tool, id, name } => {
                self.bare.push((*choice, *tool));
                self.tool(
                    *choice,
                    *tool,
                    &[
                        b",\"id\":\"",
                        id.escaped(),
                        b"\",\"type\":\"function\",\"function\":{\"name\":\"",
                        name.escaped(),
                        b"\",\"arguments\":\"",
                    ],
                    out,
                );
            }
            Event::ToolArguments { choice, tool, fragment } => {
                self.bare.retain(|call| *call != (*choice, *tool));
                self.tool(*choice, *tool, &[b",\"function\":{\"arguments\":\"", fragment.escaped()], out);
            }
            Event::Finish { choice, reason, .. } => {
                if let Some(finish) = self.finishes.get_mut(*choice as usize) {
                    *finish = Some(*reason);
                }
            }
            Event::Reasoning { .. }
            | Event::Start
            | Event::Usage(_)
            | Event::Energy(_)
            | Event::Ping
            | Event::End => {}
        }
    }

    fn open(&mut self, out: &mut Vec<u8>) {
        self.begin(out);
    }

    fn adopt(&mut self, choice: u32, finish: Finish) {
        if let Some(known) = self.finishes.get_mut(choice as usize) {
            *known = Some(finish);
        }
    }

    fn shows_reasoning(&self) -> bool {
        true
    }

    fn close(&mut self, usage: &Usage, objects: &[u8], out: &mut Vec<u8>) {
        self.begin(out);
        for (choice, tool) in std::mem::take(&mut self.bare) {
            // Clients parse the arguments of a finished call, and an empty text is not JSON.
            if self.finishes.get(choice as usize) == Some(&Some(Finish::ToolCalls)) {
                self.tool(choice, tool, &[b",\"function\":{\"arguments\":\"", b"{}"], out);
            }
        }
        if self.first.is_some() {
            return;
        }
        let last = self.finishes.len().saturating_sub(1);
        for (at, (choice, finish)) in (0_u32..).zip(&self.finishes).enumerate() {
            self.start(choice, out);
            out.extend_from_slice(b"},\"logprobs\":null,\"finish_reason\":\"");
            out.extend_from_slice(finish_word(finish.unwrap_or(Finish::Stop)));
            out.extend_from_slice(b"\"}]");
            if at == last && !self.include_usage {
                // Clients without `include_usage` may read usage here; other clients ignore it.
                out.extend_from_slice(b",\"usage\":");
                usage_object(out, usage);
                parts::objects(out, objects);
            }
            out.extend_from_slice(b"}\n\n");
        }
        if self.include_usage {
            out.extend_from_slice(&self.head);
            out.extend_from_slice(b"],\"usage\":");
            usage_object(out, usage);
            parts::objects(out, objects);
            out.extend_from_slice(b"}\n\n");
        }
        out.extend_from_slice(DONE);
    }

    fn fail(&mut self, refusal: &Refusal, request_id: &str, out: &mut Vec<u8>) {
        out.extend_from_slice(b"data: ");
        out.extend_from_slice(&error::chat_envelope(refusal, request_id));
        out.extend_from_slice(b"\n\n");
        out.extend_from_slice(DONE);
    }
}

const DONE: &[u8] = b"data: [DONE]\n\n";
