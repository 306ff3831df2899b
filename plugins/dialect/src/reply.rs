//! One streamed answer: a decoder and a writer, and between them what is held,
//! counted, compared and rescued.
//!
//! Nothing reaches the client before the first content token. Whatever was
//! delivered is on record (up to a cap), so that another provider's answer can
//! be held against it.

use crate::choices;
use crate::decode::{self, Decoder};
use crate::event::Event;
use crate::record::{Comparison, Record};
use crate::shape::Shape;
use crate::write::Writer;
use bytes::Bytes;
use penstock_contract::{
    Ask, Fault, FaultKind, Finish, Measured, Noticed, Out, Progress, Refusal, Reply, Rescue, Stated, Target,
    Usage, UsageBounds,
};

/// Room that is made ahead for what goes out.
const USUAL: usize = 16 << 10;

/// A reply that speaks through `writer` what a provider of `target` says.
#[must_use]
pub fn reply(ask: &Ask, target: &Target<'_>, writer: impl Writer + 'static) -> Box<dyn Reply> {
    Box::new(Answering::new(ask, target, Box::new(writer)))
}

/// Generated text of one provider.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sent {
    bytes: usize,
    calls: usize,
}

impl Sent {
    pub(crate) fn note(&mut self, event: &Event) {
        self.bytes += event.generated();
        self.calls += usize::from(matches!(event, Event::ToolStart { .. }));
    }

    /// The bounds of an ask with what its bytes can hold.
    pub(crate) fn bounds(self, bounds: &UsageBounds, candidates: usize) -> UsageBounds {
        UsageBounds { delivered: UsageBounds::delivered(candidates, self.bytes, self.calls), ..*bounds }
    }
}

/// A streamed answer under way.
pub struct Answering {
    decoder: Box<dyn Decoder>,
    shape: Shape,
    writer: Box<dyn Writer>,
    record: Record,
    /// While another provider says again what the client has.
    comparison: Option<Comparison>,
    /// Another provider continued: the last usage is not the whole.
    continued: bool,
    progress: Progress,
    finished: Vec<bool>,
    finish: Option<Finish>,
    finality: Finality,
    stated: Option<Stated>,
    /// Of the prompt, for a count where the provider says nothing of it.
    prompt_bytes: usize,
    /// What may be stated, as far as the ask tells.
    bounds: UsageBounds,
    /// Bytes of text of each candidate, where there are several.
    sizes: Vec<usize>,
    measured: Option<Measured>,
    output_bytes: usize,
    /// The same of the provider at work alone, with what it said again.
    sent_bytes: usize,
    /// All that the provider at work sent, with what was cut from it.
    sent: Sent,
    /// What would be sent; goes out once something is committed.
    held: Vec<u8>,
    events: Vec<Event>,
    shaped: Vec<Event>,
}

impl Answering {
    /// An answer at its beginning.
    #[must_use]
    pub fn new(ask: &Ask, target: &Target<'_>, writer: Box<dyn Writer>) -> Self {
        let shape = Shape::new(ask, target);
        let n = shape.candidates();
        Self {
            decoder: decode::decoder(target.dialect, target.id),
            shape,
            record: Record::new(n, writer.shows_reasoning()),
            writer,
            comparison: None,
            continued: false,
            progress: Progress::Waiting,
            finished: vec![false; n],
            finish: None,
            finality: Finality::Believed,
            stated: None,
            prompt_bytes: ask.prompt_bytes,
            bounds: ask.usage_bounds(target),
            sizes: if n > 1 { vec![0; n] } else { Vec::new() },
            measured: None,
            output_bytes: 0,
            sent_bytes: 0,
            sent: Sent::default(),
            held: Vec::new(),
            events: Vec::new(),
            shaped: Vec::new(),
        }
    }

    /// Takes what another decoder makes of its bytes, as [`Reply::push`] takes bytes.
    pub(crate) fn hear(
        &mut self,
        decode: impl FnOnce(&mut Vec<Event>) -> Result<(), Fault>,
        out: &mut Out,
    ) -> Result<(), Fault> {
        if self.progress == Progress::Ended {
            return Ok(());
        }
        let decoded = decode(&mut self.events);
        self.relay(out)?;
        self.judge(decoded)
    }

    /// Takes the decoded events on their way; the first fault ends it.
    fn relay(&mut self, out: &mut Out) -> Result<(), Fault> {
        let (mut events, mut shaped) = (std::mem::take(&mut self.events), std::mem::take(&mut self.shaped));
        let mut result = Ok(());
        for event in events.drain(..) {
            if self.progress == Progress::Ended {
                // How the bytes were cut must not decide what still counts.
                break;
            }
            if event.choice().is_some_and(|choice| choice as usize >= self.finished.len()) {
                // A candidate that nobody asked for: nothing tells what the others are.
                result = self.judge(Err(Fault::new(FaultKind::Malformed)));
                break;
            }
            self.sent.note(&event);
            self.shape.push(event, &mut shaped);
            result = shaped.drain(..).try_for_each(|event| self.take(event));
            if result.is_err() {
                break;
            }
        }
        (self.events, self.shaped) = (events, shaped);
        self.release(out);
        result
    }

    fn take(&mut self, event: Event) -> Result<(), Fault> {
        if self.progress == Progress::Ended {
            // How the bytes were cut must not decide what still counts.
            return Ok(());
        }
        self.sent_bytes += event.generated();
        let event = match &mut self.comparison {
            None => event,
            Some(comparison) => match comparison.pass(event) {
                Ok(Some(event)) => event,
                Ok(None) => return Ok(()),
                Err(_) => return Err(Fault::new(FaultKind::Diverged)),
            },
        };
        match &event {
            Event::Text { .. }
            | Event::Reasoning { .. }
            | Event::Refusal { .. }
            | Event::ToolArguments { .. }
            | Event::ToolStart { .. } => self.commit(&event),
            Event::Finish { choice, reason, .. } => self.note_finish(*choice, *reason),
            Event::Usage(stated) => self.stated = Some(self.stated.unwrap_or_default().then(*stated)),
            Event::Energy(measured) => self.measured = Some(*measured),
            Event::End => return self.over(),
            Event::Start | Event::Ping => {}
        }
        self.writer.write(&event, &mut self.held);
        Ok(())
    }

    fn commit(&mut self, event: &Event) {
        let bytes = event.generated();
        self.output_bytes += bytes;
        if let Some(size) = event.choice().and_then(|choice| self.sizes.get_mut(choice as usize)) {
            *size += bytes;
        }
        let finished = event.choice().and_then(|choice| self.finished.get(choice as usize));
        if finished == Some(&true) {
            // It goes on after its end, so only the provider's last word or close is one.
            self.finality = Finality::Doubted;
            self.progress = Progress::Committed;
        }
        self.progress = self.progress.max(Progress::Committed);
        self.record.note(event);
    }

    /// The fault of a stream that ended too early; fewer choices than were asked for are none of the provider's.
    fn truncated(&self) -> Fault {
        let choices = self.finished.iter().copied().zip(self.sizes.iter().copied());
        let answered = if self.comparison.is_none() { choices::answered(choices) } else { None };
        Fault { answered, ..Fault::new(FaultKind::Truncated) }
    }

    /// The provider has said its last word, or closed.
    fn over(&mut self) -> Result<(), Fault> {
        if !self.finished.iter().all(|finished| *finished) {
            return Err(self.truncated());
        }
        self.progress = Progress::Ended;
        Ok(())
    }

    fn note_finish(&mut self, choice: u32, reason: Finish) {
        if let Some(finished) = self.finished.get_mut(choice as usize) {
            *finished = true;
        }
        if choice == 0 || self.finish.is_none() {
            self.finish = Some(reason);
        }
        if self.finality == Finality::Believed && self.finished.iter().all(|finished| *finished) {
            self.progress = self.progress.max(Progress::Finished);
        }
    }

    /// What goes wrong after every candidate has finished cannot spoil the answer.
    fn judge(&mut self, result: Result<(), Fault>) -> Result<(), Fault> {
        match result {
            Err(_) if self.progress >= Progress::Finished => self.over(),
            result => result,
        }
    }

    fn release(&mut self, out: &mut Out) {
        if self.progress > Progress::Waiting && !self.held.is_empty() {
            // As much as went out is likely to go out again; one large event is not.
            let capacity = self.held.len().min(USUAL);
            out.push(Bytes::from(std::mem::replace(&mut self.held, Vec::with_capacity(capacity))));
        }
    }
}

/// What a finish of all candidates is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Finality {
    /// The provider has no more to say but usage.
    Believed,
    /// It has said more after one before.
    Doubted,
}

impl Reply for Answering {
    fn push(&mut self, bytes: Bytes, out: &mut Out) -> Result<(), Fault> {
        if self.progress == Progress::Ended {
            return Ok(());
        }
        let decoded = self.decoder.push(bytes, &mut self.events);
        self.relay(out)?;
        self.judge(decoded)
    }

    fn end(&mut self, out: &mut Out) -> Result<(), Fault> {
        if self.progress == Progress::Ended {
            return Ok(());
        }
        let decoded = self.decoder.end(&mut self.events);
        self.relay(out)?;
        if self.progress == Progress::Ended {
            return Ok(());
        }
        self.judge(decoded)?;
        self.over()
    }

    fn progress(&self) -> Progress {
        self.progress
    }

    fn usage(&self) -> Option<Usage> {
        let bounds = self.sent.bounds(&self.bounds, self.finished.len());
        let counted = Usage::counted(self.prompt_bytes, self.output_bytes);
        let mut usage =
            self.stated.filter(|_| !self.continued).map(|stated| stated.within(&bounds, &counted))?;
        if self.progress >= Progress::Finished {
            choices::correct(&mut usage, &self.sizes);
        }
        Some(usage)
    }

    fn counted(&self) -> Usage {
        Usage::counted(self.prompt_bytes, self.output_bytes).within(&self.bounds)
    }

    fn noticed(&self) -> Noticed {
        let bounds = self.sent.bounds(&self.bounds, self.finished.len());
        let counted = Usage::counted(self.prompt_bytes, self.output_bytes);
        let usage = self.stated.filter(|_| !self.continued && self.progress >= Progress::Finished);
        let usage = usage.map(|stated| stated.within(&bounds, &counted));
        let miscounted = usage.is_some_and(|mut usage| choices::correct(&mut usage, &self.sizes));
        Noticed { reasoning: self.decoder.reasoning_name(), miscounted }
    }

    fn open(&mut self, out: &mut Out) {
        self.writer.open(&mut self.held);
        self.progress = self.progress.max(Progress::Committed);
        self.release(out);
    }

    fn adopt(&mut self, choice: u32, finish: Finish) {
        if let Some(finished) = self.finished.get_mut(choice as usize) {
            *finished = true;
        }
        self.writer.adopt(choice, finish);
    }

    fn output_bytes(&self) -> usize {
        self.output_bytes
    }

    fn generated(&self) -> usize {
        self.sent_bytes
    }

    fn worked(&self) -> Usage {
        let counted = Usage::counted(self.prompt_bytes, self.sent_bytes);
        let mut bounds = self.sent.bounds(&self.bounds, self.finished.len());
        if self.continued {
            // What the client had already is a part of this provider's prompt.
            bounds.input = bounds.input.saturating_add(self.output_bytes as u64);
        }
        let mut said = self.stated.map_or(counted, |stated| stated.within(&bounds, &counted));
        if self.progress >= Progress::Finished {
            choices::correct(&mut said, &self.sizes);
        }
        // Until it has ended, what it says may be behind what it has sent.
        if self.progress < Progress::Finished && said.output < counted.output {
            return Usage { output: counted.output, source: counted.source, ..said };
        }
        said
    }

    fn kept(&self) -> usize {
        self.held.len() + self.decoder.kept() + self.writer.kept()
    }

    fn measured(&self) -> Option<Measured> {
        self.measured
    }

    fn is_spoilt(&self) -> bool {
        self.writer.is_spoilt()
    }

    fn finish(&self) -> Option<Finish> {
        self.finish
    }

    fn delivered(&mut self) -> Option<String> {
        self.record.text()
    }

    fn rescue(&mut self, target: &Target<'_>, how: Rescue) -> bool {
        if self.progress >= Progress::Finished {
            return false;
        }
        let comparison = match how {
            Rescue::Continue if self.record.text().is_none() => return false,
            Rescue::Continue => None,
            // They cannot be compared.
            Rescue::StartOver if self.shape.gives_logprobs() => return false,
            Rescue::StartOver => match self.record.compare() {
                None => return false,
                comparison => comparison,
            },
        };
        self.comparison = comparison;
        self.continued = how == Rescue::Continue;
        self.decoder = decode::decoder(target.dialect, target.id);
        self.shape.restart(target);
        self.finished.fill(false);
        (self.finish, self.finality) = (None, Finality::Believed);
        (self.stated, self.measured) = (None, None);
        (self.sent_bytes, self.sent) = (0, Sent::default());
        true
    }

    fn close(&mut self, usage: &Usage, objects: &[u8], out: &mut Out) {
        self.writer.close(usage, objects, &mut self.held);
        self.progress = Progress::Ended;
        self.release(out);
    }

    fn fail(&mut self, refusal: &Refusal, request_id: &str, out: &mut Out) {
        self.writer.fail(refusal, request_id, &mut self.held);
        self.progress = Progress::Ended;
        self.release(out);
    }
}
