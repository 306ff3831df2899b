//! Response constraints that providers do not always respect, enforced on events: the number of choices, log
//! probabilities only if requested, one tool call at a time, a unique id for each call, stop sequences beyond the
//! provider's limit, and consistent finish reasons.

use crate::decode::chat::made_up;
use crate::event::{Event, Text};
use crate::scan;
use penstock_contract::{Abilities, Ask, Dialect, EXTRAS, Extra, Finish, Target};

/// Filter that enforces the constraints of a request on the events of one provider.
#[derive(Clone, Debug)]
pub struct Shape {
    parallel_tools: bool,
    logprobs: bool,
    /// Stop sequences of the request.
    stop: Vec<String>,
    /// Number of stop sequences sent to the provider; the gateway enforces the rest.
    given: usize,
    /// Seed of generated ids.
    seed: String,
    choices: Vec<Choice>,
}

#[derive(Clone, Debug, Default)]
struct Choice {
    tools: Ids,
    end: End,
    /// Text that may be the start of a stop sequence.
    kept: String,
}

/// State of a choice with respect to its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum End {
    /// Choice without a finish reason.
    #[default]
    Open,
    /// Choice with this finish reason from the provider; more content may follow.
    Said(Finish),
    /// Choice that ended at a stop sequence enforced here: the rest is dropped.
    Cut,
}

/// Ids of the tool calls of a choice.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ids(Vec<Text>);

impl Shape {
    /// Creates the constraints of a request for this target.
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

    /// Resets the state for the events of another provider.
    pub fn restart(&mut self, target: &Target<'_>) {
        self.given = given(&self.stop, target).len();
        target.id.clone_into(&mut self.seed);
        self.choices.fill(Choice::default());
    }

    /// Returns the number of choices.
    #[must_use]
    pub fn candidates(&self) -> usize {
        self.choices.len()
    }

    /// Returns true if the answer contains log probabilities.
    #[must_use]
    pub const fn gives_logprobs(&self) -> bool {
        self.logprobs
    }

    /// Applies the constraints to one event and appends the result: unchanged, changed, split, delayed or dropped.
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
                    // The finish reason preceded this call and did not take it into account.
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

    /// Appends the pending text up to the first stop sequence, or up to a partial match of one.
    fn cut(&mut self, number: u32, out: &mut Vec<Event>) {
        let enforced = self.stop.get(self.given..).unwrap_or_default();
        let Some(choice) = self.choices.get_mut(number as usize) else { return };
        // The earliest match counts; of two at the same position, the first in the list.
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
                // No further output can reach the client.
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
    /// Returns the id of the next call, or a generated one if another call has the same id: a result could not refer to
    /// one of them.
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

/// Returns the stop sequences for the provider; the gateway enforces the others.
pub(crate) fn given<'a>(stop: &'a [String], target: &Target<'_>) -> &'a [String] {
    let taken = if target.says(Extra::Stop) { usize::MAX } else { 0 };
    let most = target.abilities.max_stop.unwrap_or(stop.len()).min(taken);
    stop.get(..most.min(stop.len())).unwrap_or_default()
}

/// Returns true if the answer must contain log probabilities. A logit bias requires similar offers but does not count.
pub(crate) fn wants_logprobs(ask: &Ask) -> bool {
    ask.dialect == Dialect::Chat && ask.value("logprobs") == Some(b"true")
}

/// Returns true if a sampling parameter may be sent: any if the catalogue has no list for the model, otherwise those
/// on the list, since APIs of reasoning models answer 400 to others.
pub(crate) fn takes(abilities: &Abilities, name: &str) -> bool {
    abilities.parameters.is_empty() || abilities.accepts(name)
}

/// Returns the name of the output token limit for a chat provider: the newer name if the catalogue lists only that one,
/// and the other name if the provider rejected the first.
pub(crate) fn cap(target: &Target<'_>) -> &'static str {
    let newer = target.abilities.accepts("max_completion_tokens") && !target.abilities.accepts("max_tokens");
    if newer == target.says(Extra::CapName) { "max_completion_tokens" } else { "max_tokens" }
}

/// Returns the preset members to send, without those that the client sets or the provider rejected.
pub(crate) fn preset<'t>(ask: &'t Ask, target: &'t Target<'_>) -> impl Iterator<Item = (&'t str, &'t [u8])> {
    let preset = target.preset.iter().map(|(name, value)| (&**name, value.as_bytes()));
    preset.filter(|(name, _)| {
        // The limit of a request may mean no limit: its parsed value counts.
        let given = match *name {
            "max_tokens" | "max_completion_tokens" => target.max_tokens.or(ask.max_tokens).is_some(),
            name => ask.value(name).is_some(),
        };
        !given && preset_member(name).is_none_or(|extra| target.says(extra))
    })
}

/// Returns the optional member that a preset member belongs to.
fn preset_member(name: &str) -> Option<Extra> {
    EXTRAS.iter().find(|(_, words)| words.first() == Some(&name)).map(|(extra, _)| *extra)
}

/// Adjusts a sampling parameter for a messages provider, which answers 400 for values out of range: its temperature is
/// at most 1 instead of 2, and a `top_k` of -1 is omitted.
pub(crate) fn sampling<'a>(name: &str, value: &'a [u8]) -> Option<&'a [u8]> {
    let number = scan::decimal(value);
    match name {
        "temperature" if number.is_some_and(|number| number > 1.0) => Some(b"1"),
        "top_k" if number.is_some_and(|number| number < 0.0) => None,
        _ => Some(value),
    }
}

/// Returns the length of the longest suffix of `text` that is a proper prefix of `stop`.
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
