//! What the client asked for and providers do not always keep, enforced on events:
//! the number of candidates, log probabilities only where they were asked for, one
//! tool call at a time, an id of its own for each call, stop sequences beyond what
//! the provider takes, and finish reasons that fit what was said.

use crate::decode::chat::made_up;
use crate::event::{Event, Text};
use crate::scan;
use penstock_contract::{Abilities, Ask, Dialect, EXTRAS, Extra, Finish, Target};

/// Enforces an ask on the events of one provider.
#[derive(Clone, Debug)]
pub struct Shape {
    parallel_tools: bool,
    logprobs: bool,
    /// All stop sequences of the ask.
    stop: Vec<String>,
    /// How many of them the provider was given; the rest are ours to enforce.
    given: usize,
    /// Of ids that are made up.
    seed: String,
    choices: Vec<Choice>,
}

#[derive(Clone, Debug, Default)]
struct Choice {
    tools: Ids,
    end: End,
    /// Text that may be the beginning of a stop sequence.
    kept: String,
}

/// How far a candidate is from its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum End {
    /// It goes on.
    #[default]
    Open,
    /// The provider gave this reason; more may follow all the same.
    Said(Finish),
    /// A stop sequence that is enforced here was met: what follows is nobody's.
    Cut,
}

/// Ids of the calls of a candidate.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ids(Vec<Text>);

impl Shape {
    /// The rules of an ask at this target.
    #[must_use]
    pub fn new(ask: &Ask, target: &Target<'_>) -> Self {
        let mut shape = Self {
            parallel_tools: ask.parallel_tools,
            logprobs: wants_logprobs(ask),
            stop: ask.stop.clone(),
            given: 0,
            seed: String::new(),
            choices: vec![Choice::default(); ask.n.max(1) as usize],
        };
        shape.restart(target);
        shape
    }

    /// The same rules for the events of another provider, from the beginning.
    pub fn restart(&mut self, target: &Target<'_>) {
        self.given = given(&self.stop, target).len();
        target.id.clone_into(&mut self.seed);
        self.choices.fill(Choice::default());
    }

    /// The number of candidates.
    #[must_use]
    pub fn candidates(&self) -> usize {
        self.choices.len()
    }

    /// Whether log probabilities are in the answer.
    #[must_use]
    pub const fn gives_logprobs(&self) -> bool {
        self.logprobs
    }

    /// Passes one event on: as it is, changed, split, kept back or not at all.
    pub fn push(&mut self, mut event: Event, out: &mut Vec<Event>) {
        let Some(number) = event.choice() else {
            out.push(event);
            return;
        };
        let Some(choice) = self.choices.get_mut(number as usize).filter(|choice| choice.end != End::Cut)
        else {
            return;
        };
        if let Event::Text { text, logprobs, .. } = &mut event
            && !self.logprobs
            && logprobs.take().is_some()
            && text.is_empty()
        {
            return;
        }
        let enforced = self.stop.get(self.given..).unwrap_or_default();
        match event {
            Event::Text { text, .. } if !enforced.is_empty() => {
                choice.kept.push_str(&text.decoded());
                self.cut(number, out);
                return;
            }
            Event::ToolStart { tool, .. } | Event::ToolArguments { tool, .. }
                if tool > 0 && !self.parallel_tools =>
            {
                return;
            }
            _ => {}
        }
        if !choice.kept.is_empty() {
            out.push(text(number, &std::mem::take(&mut choice.kept)));
        }
        match event {
            Event::ToolStart { tool, id, name, .. } => {
                let id = choice.tools.own(id, &self.seed, number);
                out.push(Event::ToolStart { choice: number, tool, id, name });
                if choice.end == End::Said(Finish::Stop) {
                    // The reason came before the call that it did not know of.
                    choice.end = End::Said(Finish::ToolCalls);
                    out.push(Event::Finish {
                        choice: number,
                        reason: Finish::ToolCalls,
                        stop_sequence: None,
                    });
                }
            }
            Event::Finish { reason, stop_sequence, .. } => {
                let reason = match reason {
                    Finish::Stop if !choice.tools.is_empty() => Finish::ToolCalls,
                    Finish::ToolCalls if choice.tools.is_empty() => Finish::Stop,
                    other => other,
                };
                choice.end = End::Said(reason);
                let asked = |met: &Text| self.stop.iter().any(|stop| *stop == met.decoded());
                let stop_sequence = stop_sequence.filter(|met| reason == Finish::Stop && asked(met));
                out.push(Event::Finish { choice: number, reason, stop_sequence });
            }
            other => out.push(other),
        }
    }

    /// Lets go of the kept text up to the first stop sequence, or up to what
    /// may still become one.
    fn cut(&mut self, number: u32, out: &mut Vec<Event>) {
        let enforced = self.stop.get(self.given..).unwrap_or_default();
        let Some(choice) = self.choices.get_mut(number as usize) else { return };
        // The earliest one counts; of two at the same place the one listed first.
        let met = enforced.iter().filter_map(|stop| Some((choice.kept.find(stop.as_str())?, stop)));
        if let Some((at, stop)) = met.min_by_key(|(at, _)| *at) {
            choice.kept.truncate(at);
            if !choice.kept.is_empty() {
                out.push(text(number, &std::mem::take(&mut choice.kept)));
            }
            choice.end = End::Cut;
            let stop_sequence = Some(Text::new(stop));
            out.push(Event::Finish { choice: number, reason: Finish::Stop, stop_sequence });
            if self.choices.iter().all(|choice| choice.end != End::Open) {
                // Nothing that is still generated can reach the client.
                out.push(Event::End);
            }
            return;
        }
        let open = enforced.iter().map(|stop| open_end(&choice.kept, stop)).max().unwrap_or_default();
        let kept = choice.kept.split_off(choice.kept.len() - open);
        let free = std::mem::replace(&mut choice.kept, kept);
        if !free.is_empty() {
            out.push(text(number, &free));
        }
    }
}

impl Ids {
    /// The id of the next call, or a made-up one where another call has it: results
    /// could not say whose they are.
    pub(crate) fn own(&mut self, id: Text, seed: &str, choice: u32) -> Text {
        let next = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        let made_up = (next..).map(|number| Text::new(&made_up(seed, choice, number)));
        let own = std::iter::once(id.clone()).chain(made_up).find(|id| !self.0.contains(id));
        let id = own.unwrap_or(id);
        self.0.push(id.clone());
        id
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The stop sequences that a provider is given; what is beyond is enforced here.
pub(crate) fn given<'a>(stop: &'a [String], target: &Target<'_>) -> &'a [String] {
    let taken = if target.says(Extra::Stop) { usize::MAX } else { 0 };
    let most = target.abilities.max_stop.unwrap_or(stop.len()).min(taken);
    stop.get(..most.min(stop.len())).unwrap_or_default()
}

/// Whether log probabilities are to be in the answer. A bias on tokens needs offers of the same kind and is none.
pub(crate) fn wants_logprobs(ask: &Ask) -> bool {
    ask.dialect == Dialect::Chat && ask.value("logprobs") == Some(b"true")
}

/// Whether a figure of sampling may be said: the catalogue lists what the model takes only where somebody wrote it down,
/// and APIs of reasoning models answer with 400 to what is not on their list.
pub(crate) fn takes(abilities: &Abilities, name: &str) -> bool {
    abilities.parameters.is_empty() || abilities.accepts(name)
}

/// What a chat provider calls the cap on generated tokens: its newer name where the catalogue has that one alone, and
/// the other name where it refused the first.
pub(crate) fn cap(target: &Target<'_>) -> &'static str {
    let newer = target.abilities.accepts("max_completion_tokens") && !target.abilities.accepts("max_tokens");
    if newer == target.says(Extra::CapName) { "max_completion_tokens" } else { "max_tokens" }
}

/// What of the preset is said: not what the client says itself, nor what the provider refused.
pub(crate) fn preset<'t>(ask: &'t Ask, target: &'t Target<'_>) -> impl Iterator<Item = (&'t str, &'t [u8])> {
    let preset = target.preset.iter().map(|(name, value)| (&**name, value.as_bytes()));
    preset.filter(|(name, _)| {
        // A cap may be written and mean none: what was read of it counts.
        let given = match *name {
            "max_tokens" | "max_completion_tokens" => target.max_tokens.or(ask.max_tokens).is_some(),
            name => ask.value(name).is_some(),
        };
        !given && preset_member(name).is_none_or(|extra| target.says(extra))
    })
}

/// A preset's member as one that may be left out.
fn preset_member(name: &str) -> Option<Extra> {
    EXTRAS.iter().find(|(_, words)| words.first() == Some(&name)).map(|(extra, _)| *extra)
}

/// A figure of sampling as a provider of the messages dialect takes it, which answers with 400 beyond: its temperature
/// ends at 1 and not at 2, and where there is no `top_k` it is left out and not -1.
pub(crate) fn sampling<'a>(name: &str, value: &'a [u8]) -> Option<&'a [u8]> {
    let number = scan::decimal(value);
    match name {
        "temperature" if number.is_some_and(|number| number > 1.0) => Some(b"1"),
        "top_k" if number.is_some_and(|number| number < 0.0) => None,
        _ => Some(value),
    }
}

/// Length of the longest end of `text` that is a proper beginning of `stop`.
fn open_end(text: &str, stop: &str) -> usize {
    let beginnings = stop.char_indices().map(|(at, _)| at).filter(|at| *at > 0 && *at <= text.len()).rev();
    beginnings
        .into_iter()
        .find(|at| stop.get(..*at).is_some_and(|beginning| text.ends_with(beginning)))
        .unwrap_or_default()
}

fn text(choice: u32, text: &str) -> Event {
    Event::Text { choice, text: Text::new(text), logprobs: None }
}
