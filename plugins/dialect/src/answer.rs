//! Complete answer of a provider, built from its events.

use crate::choices;
use crate::decode;
use crate::event::{Event, Text};
use crate::reply::Sent;
use crate::shape::Shape;
use bytes::Bytes;
use penstock_contract::{Ask, Fault, FaultKind, Finish, Measured, Noticed, Stated, Target, Usage};

/// Tool call of an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCall {
    /// Id of the call.
    pub id: Text,
    /// Name of the function.
    pub name: Text,
    /// JSON text of the arguments, escaped as in a JSON string; may be empty.
    pub arguments: Vec<Text>,
}

/// Choice of an answer. Each text is a list of consecutive fragments.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Candidate {
    /// Reasoning text.
    pub reasoning: Vec<Text>,
    /// Provider's signature of the reasoning.
    pub signature: Option<Text>,
    /// Text of the answer.
    pub text: Vec<Text>,
    /// Text that declines to answer.
    pub refusal: Vec<Text>,
    /// Tool calls in order.
    pub tools: Vec<ToolCall>,
    /// Log probabilities as the provider wrote them, one JSON object for each fragment.
    pub logprobs: Vec<Bytes>,
    /// Finish reason.
    pub finish: Option<Finish>,
    /// Matched stop sequence.
    pub stop_sequence: Option<Text>,
}

impl Candidate {
    /// Returns the bytes of generated text: reasoning, answer, tool names and arguments.
    #[must_use]
    pub fn output_bytes(&self) -> usize {
        let length = |texts: &[Text]| texts.iter().map(Text::len).sum::<usize>();
        let tools: usize = self.tools.iter().map(|call| call.name.len() + length(&call.arguments)).sum();
        length(&self.reasoning) + length(&self.text) + length(&self.refusal) + tools
    }
}

/// Decoded answer with all its choices.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// Choices in order.
    pub candidates: Vec<Candidate>,
    /// Token usage: the provider's counts, completed by the gateway's estimate.
    pub usage: Option<Usage>,
    /// Usage reported by the provider.
    pub stated: Option<Stated>,
    /// Energy measured by the provider.
    pub measured: Option<Measured>,
    /// Observations about the behaviour of the offer.
    pub noticed: Noticed,
}

impl Answer {
    /// Decodes a buffered answer of a provider and applies the constraints of the request.
    ///
    /// # Errors
    /// Returns `Malformed` if the body is no answer, `InBand` for an error object, and `Truncated` if a choice has no
    /// finish reason.
    pub fn read(ask: &Ask, target: &Target<'_>, body: Bytes) -> Result<Self, Fault> {
        let (mut events, mut shaped) = (Vec::new(), Vec::new());
        let streamed = decode::is_stream(&body);
        let read = decode::whole(target.dialect, body, target.id, &mut events);
        // An error after the end of a stream does not invalidate the answer.
        let read = if streamed { read } else { Ok(read?) };
        let reasoning = read.as_ref().ok().copied().flatten();
        let mut shape = Shape::new(ask, target);
        // Choices that were not requested make the indices of the others unreliable.
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
        // Clients read the usage of a buffered answer without checking that it exists.
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

    /// Builds an answer of `n` choices from its events; events of further choices are dropped.
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

    /// Returns the bytes of generated text: reasoning, answer, tool names and arguments.
    #[must_use]
    pub fn output_bytes(&self) -> usize {
        self.candidates.iter().map(Candidate::output_bytes).sum()
    }

    /// Returns the number of complete choices if all others have not started.
    fn answered(&self) -> Option<u32> {
        choices::answered(self.candidates.iter().map(|one| (one.finish.is_some(), one.output_bytes())))
    }
}
