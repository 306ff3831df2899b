//! A whole answer, gathered from its events.

use crate::choices;
use crate::decode;
use crate::event::{Event, Text};
use crate::reply::Sent;
use crate::shape::Shape;
use bytes::Bytes;
use penstock_contract::{Ask, Fault, FaultKind, Finish, Measured, Noticed, Stated, Target, Usage};

/// One tool call.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCall {
    /// The call's id.
    pub id: Text,
    /// The function's name.
    pub name: Text,
    /// JSON text, escaped once more as a string holds it; may be empty.
    pub arguments: Vec<Text>,
}

/// One candidate. Texts are lists of pieces that follow one another.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Candidate {
    /// Reasoning.
    pub reasoning: Vec<Text>,
    /// The provider's seal on the reasoning.
    pub signature: Option<Text>,
    /// Text of the answer.
    pub text: Vec<Text>,
    /// Text that declines to answer.
    pub refusal: Vec<Text>,
    /// Tool calls in order.
    pub tools: Vec<ToolCall>,
    /// Log probabilities as the provider wrote them, one JSON object a piece.
    pub logprobs: Vec<Bytes>,
    /// Why it ended.
    pub finish: Option<Finish>,
    /// The stop sequence that was met.
    pub stop_sequence: Option<Text>,
}

impl Candidate {
    /// Bytes of generated text: reasoning, answer, tool names and arguments.
    #[must_use]
    pub fn output_bytes(&self) -> usize {
        let length = |texts: &[Text]| texts.iter().map(Text::len).sum::<usize>();
        let tools: usize = self.tools.iter().map(|call| call.name.len() + length(&call.arguments)).sum();
        length(&self.reasoning) + length(&self.text) + length(&self.refusal) + tools
    }
}

/// A whole answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// The candidates in order.
    pub candidates: Vec<Candidate>,
    /// What it used: the provider's word, completed by the gateway's own count.
    pub usage: Option<Usage>,
    /// What the provider says of it.
    pub stated: Option<Stated>,
    /// Energy that it measured.
    pub measured: Option<Measured>,
    /// What it shows of its offer.
    pub noticed: Noticed,
}

impl Answer {
    /// Reads a whole plain answer of a provider, shaped as the ask wants it.
    ///
    /// # Errors
    /// `Malformed` for what is no answer, `InBand` for an error object,
    /// `Truncated` where a candidate has no end.
    pub fn read(ask: &Ask, target: &Target<'_>, body: Bytes) -> Result<Self, Fault> {
        let (mut events, mut shaped) = (Vec::new(), Vec::new());
        let streamed = decode::is_stream(&body);
        let read = decode::whole(target.dialect, body, target.id, &mut events);
        // What goes wrong behind the end of a stream does not spoil it.
        let read = if streamed { read } else { Ok(read?) };
        let reasoning = read.as_ref().ok().copied().flatten();
        let mut shape = Shape::new(ask, target);
        // A candidate that nobody asked for: nothing tells what the others are.
        let unknown =
            |event: &Event| event.choice().is_some_and(|choice| choice as usize >= shape.candidates());
        if events.iter().any(unknown) {
            return Err(Fault::new(FaultKind::Malformed));
        }
        let mut sent = Sent::default();
        for event in events {
            sent.note(&event);
            shape.push(event, &mut shaped);
        }
        let mut answer = Self::gather(shaped, ask.n);
        // Clients read the usage of a plain answer without looking whether it is there.
        let counted = ask.counted(answer.output_bytes());
        let bounds = sent.bounds(&ask.usage_bounds(target), answer.candidates.len());
        let usage = answer.stated.map(|stated| stated.within(&bounds, &counted));
        answer.usage = Some(usage.unwrap_or_else(|| counted.within(&bounds)));
        if answer.candidates.iter().any(|candidate| candidate.finish.is_none()) {
            read?;
            return Err(Fault { answered: answer.answered(), ..Fault::new(FaultKind::Truncated) });
        }
        let sizes: Vec<usize> = answer.candidates.iter().map(Candidate::output_bytes).collect();
        if let Some(usage) = answer.usage.as_mut() {
            answer.noticed = Noticed { reasoning, miscounted: choices::correct(usage, &sizes) };
        }
        Ok(answer)
    }

    /// Gathers the events of one answer of `n` candidates; choices beyond are dropped.
    #[must_use]
    pub fn gather(events: impl IntoIterator<Item = Event>, n: u32) -> Self {
        let mut answer = Self::default();
        answer.candidates.resize(n as usize, Candidate::default());
        events.into_iter().for_each(|event| answer.add(event));
        answer
    }

    fn add(&mut self, event: Event) {
        let Some(choice) = event.choice() else {
            match event {
                Event::Usage(stated) => {
                    self.stated = Some(self.stated.unwrap_or_default().then(stated));
                }
                Event::Energy(measured) => self.measured = Some(measured),
                _ => {}
            }
            return;
        };
        let Some(candidate) = self.candidates.get_mut(choice as usize) else { return };
        match event {
            Event::Reasoning { text, signature, .. } => {
                candidate.reasoning.push(text);
                candidate.signature = signature.or(candidate.signature.take());
            }
            Event::Text { text, logprobs, .. } => {
                candidate.text.push(text);
                candidate.logprobs.extend(logprobs);
            }
            Event::Refusal { text, .. } => candidate.refusal.push(text),
            Event::ToolStart { id, name, .. } => {
                candidate.tools.push(ToolCall { id, name, arguments: Vec::new() });
            }
            Event::ToolArguments { tool, fragment, .. } => {
                if let Some(call) = candidate.tools.get_mut(tool as usize) {
                    call.arguments.push(fragment);
                }
            }
            Event::Finish { reason, stop_sequence, .. } => {
                candidate.finish = Some(reason);
                candidate.stop_sequence = stop_sequence;
            }
            _ => {}
        }
    }

    /// Bytes of generated text: reasoning, answer, tool names and arguments.
    #[must_use]
    pub fn output_bytes(&self) -> usize {
        self.candidates.iter().map(Candidate::output_bytes).sum()
    }

    /// How many choices are whole, where the others were not begun.
    fn answered(&self) -> Option<u32> {
        choices::answered(self.candidates.iter().map(|one| (one.finish.is_some(), one.output_bytes())))
    }
}
