//! Delivered text of an answer, and its comparison with the answer of another provider.

use crate::event::{Event, Text};
use penstock_wire::json;

/// Maximum bytes of recorded text; a longer answer has no rescue.
const CAP: usize = 256 << 10;
/// Minimum growth of a buffer, in bytes.
const STEP: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Reasoning,
    Text,
    Refusal,
    Tool(u32),
}

/// Segment of text of one kind. It is unescaped only if needed.
#[derive(Debug)]
struct Stretch {
    kind: Kind,
    /// Name of the function, for a tool call.
    name: Option<Text>,
    escaped: Vec<u8>,
}

/// Record of the delivered text of each choice.
#[derive(Debug)]
pub(crate) struct Record {
    reasoning_counts: bool,
    size: usize,
    choices: Vec<Vec<Stretch>>,
}

/// Appends text and grows the buffer by a quarter instead of doubling it, since an answer may stay in memory for
/// minutes.
fn add(escaped: &mut Vec<u8>, text: &[u8]) {
    let room = escaped.capacity() - escaped.len();
    if room < text.len() {
        escaped.reserve_exact(text.len().max(escaped.len() / 4).max(STEP));
    }
    escaped.extend_from_slice(text);
}

impl Record {
    /// Creates an empty record of `n` choices. Reasoning that the client does not see is not recorded.
    pub(crate) fn new(n: usize, reasoning_counts: bool) -> Self {
        Self { reasoning_counts, size: 0, choices: (0..n).map(|_| Vec::new()).collect() }
    }

    /// Records a delivered event.
    pub(crate) fn note(&mut self, event: &Event) {
        let Some((choice, kind, text)) = parts(event) else { return };
        if self.size > CAP || (kind == Kind::Reasoning && !self.reasoning_counts) {
            return;
        }
        let Some(stretches) = self.choices.get_mut(choice as usize) else { return };
        let name = match event {
            Event::ToolStart { name, .. } => Some(name),
            _ => None,
        };
        self.size += text.len() + name.map_or(0, |name| name.escaped().len());
        match stretches.last_mut() {
            Some(last) if last.kind == kind && name.is_none() => add(&mut last.escaped, text),
            _ => stretches.push(Stretch { kind, name: name.cloned(), escaped: text.to_vec() }),
        }
        if self.size > CAP {
            self.choices.iter_mut().for_each(|stretches| *stretches = Vec::new());
        }
    }

    /// Returns true if the record contains everything that was delivered.
    pub(crate) const fn is_complete(&self) -> bool {
        self.size <= CAP
    }

    /// Returns the text, if there is one choice with text only.
    pub(crate) fn text(&self) -> Option<String> {
        let [stretches] = self.choices.as_slice() else { return None };
        match stretches.as_slice() {
            [only] if only.kind == Kind::Text && self.is_complete() => {
                Some(json::unescape(&only.escaped)?.into_owned())
            }
            _ => None,
        }
    }

    /// Creates a matcher that compares the answer of another provider with this record.
    pub(crate) fn compare(&self) -> Option<Comparison> {
        if !self.is_complete() {
            return None;
        }
        let mut choices = Vec::with_capacity(self.choices.len());
        for stretches in &self.choices {
            let mut expected = Vec::with_capacity(stretches.len());
            for stretch in stretches {
                let text = json::unescape(&stretch.escaped)?.into_owned();
                expected.push(Expected { kind: stretch.kind, name: stretch.name.clone(), text });
            }
            choices.push(Place { expected, stretch: None, offset: 0, live: false });
        }
        Some(Comparison { reasoning_counts: self.reasoning_counts, choices })
    }
}

#[derive(Debug)]
struct Expected {
    kind: Kind,
    name: Option<Text>,
    text: String,
}

#[derive(Debug)]
struct Place {
    expected: Vec<Expected>,
    /// Index of the segment under comparison; `offset` is the number of matched bytes.
    stretch: Option<usize>,
    offset: usize,
    /// True if the recorded text has been matched completely; later text is new.
    live: bool,
}

/// Matcher that drops the events that the client already has.
#[derive(Debug)]
pub(crate) struct Comparison {
    reasoning_counts: bool,
    choices: Vec<Place>,
}

/// Error of an answer that differs from the delivered text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Diverged;

impl Comparison {
    /// Returns the part of the event that is new to the client.
    pub(crate) fn pass(&mut self, event: Event) -> Result<Option<Event>, Diverged> {
        let Some(place) = event.choice().and_then(|choice| self.choices.get_mut(choice as usize)) else {
            return Ok(Some(event));
        };
        let Some((_, kind, _)) = parts(&event) else {
            // A finish before the end of the recorded text is another answer.
            return if place.is_through() { Ok(Some(event)) } else { Err(Diverged) };
        };
        if kind == Kind::Reasoning && !self.reasoning_counts {
            return Ok(Some(event));
        }
        if let Event::ToolStart { name, .. } = &event {
            let known = place.begin(kind, Some(name))?;
            return Ok((!known).then_some(event));
        }
        let text = match &event {
            Event::Reasoning { text, .. } | Event::Text { text, .. } | Event::Refusal { text, .. } => text,
            Event::ToolArguments { fragment, .. } => fragment,
            _ => return Ok(Some(event)),
        };
        let rest = place.advance(kind, &text.decoded())?;
        Ok(match rest {
            Rest::All => Some(event),
            Rest::None => None,
            Rest::Some(rest) => Some(remake(&event, &rest)),
        })
    }
}

enum Rest {
    All,
    None,
    Some(String),
}

impl Place {
    fn is_through(&self) -> bool {
        self.live || (self.rest().is_empty() && self.next() == self.expected.len())
    }

    /// Returns the unmatched part of the current segment.
    fn rest(&self) -> &str {
        let now = self.stretch.and_then(|now| self.expected.get(now));
        now.and_then(|now| now.text.get(self.offset..)).unwrap_or_default()
    }

    fn next(&self) -> usize {
        self.stretch.map_or(0, |now| now + 1)
    }

    /// Begins a segment; returns false if it is new to the client.
    fn begin(&mut self, kind: Kind, name: Option<&Text>) -> Result<bool, Diverged> {
        if self.live {
            return Ok(false);
        }
        if !self.rest().is_empty() {
            return Err(Diverged);
        }
        let next = self.next();
        match self.expected.get(next) {
            None => {
                self.live = true;
                Ok(false)
            }
            Some(expected) if expected.kind == kind && expected.name.as_ref() == name => {
                self.stretch = Some(next);
                self.offset = 0;
                Ok(true)
            }
            Some(_) => Err(Diverged),
        }
    }

    fn advance(&mut self, kind: Kind, said: &str) -> Result<Rest, Diverged> {
        let now = self.stretch.and_then(|now| self.expected.get(now));
        let goes_on = now.is_some_and(|now| now.kind == kind);
        if self.live || !(goes_on || self.begin(kind, None)?) {
            return Ok(Rest::All);
        }
        let due = self.rest();
        if due.starts_with(said) {
            self.offset += said.len();
            return Ok(Rest::None);
        }
        let more = said.strip_prefix(due).ok_or(Diverged)?;
        if self.next() < self.expected.len() {
            // The text continues where the first answer had begun another segment.
            return Err(Diverged);
        }
        let rest = if due.is_empty() { Rest::All } else { Rest::Some(more.to_owned()) };
        self.live = true;
        Ok(rest)
    }
}

fn parts(event: &Event) -> Option<(u32, Kind, &[u8])> {
    Some(match event {
        Event::Reasoning { choice, text, .. } => (*choice, Kind::Reasoning, text.escaped()),
        Event::Text { choice, text, .. } => (*choice, Kind::Text, text.escaped()),
        Event::Refusal { choice, text } => (*choice, Kind::Refusal, text.escaped()),
        Event::ToolStart { choice, tool, .. } => (*choice, Kind::Tool(*tool), &[]),
        Event::ToolArguments { choice, tool, fragment } => (*choice, Kind::Tool(*tool), fragment.escaped()),
        _ => return None,
    })
}

/// Returns the same event with this text.
fn remake(event: &Event, text: &str) -> Event {
    let new = Text::new(text);
    let mut event = event.clone();
    match &mut event {
        Event::Reasoning { text, .. } | Event::Refusal { text, .. } => *text = new,
        Event::Text { text, logprobs, .. } => {
            *text = new;
            *logprobs = None;
        }
        Event::ToolArguments { fragment, .. } => *fragment = new,
        _ => {}
    }
    event
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_takes_a_quarter_more_room_than_it_has_bytes() {
        let mut escaped = Vec::new();
        for number in 0..20_000_u32 {
            add(&mut escaped, number.to_string().as_bytes());
            let most = escaped.len() + (escaped.len() / 4).max(STEP) + STEP;
            assert!(escaped.capacity() <= most, "{} of {}", escaped.capacity(), escaped.len());
        }
        assert_eq!(escaped.len(), 88_890);
    }
}
