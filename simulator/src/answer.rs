//! What is said to a request: simulated tokens, a pure function of the provider's
//! name, the seeds and the prompt.

use super::ask::{Ask, Form};
use super::schema;
use super::text::{self, Draw, crumbs, fold, words};
use super::tools::{self, Invocation};
use serde_json::json;

/// Tokens of an answer that is not bounded: at least this many, and up to [`SPREAD`] more.
const LEAST: usize = 24;
const SPREAD: u64 = 72;
/// Tokens of reasoning.
const THOUGHT: usize = 16;
/// Most tokens that are ever made for one answer.
const MOST: usize = 1 << 18;

/// Why an answer ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Finish {
    /// It had nothing more to say.
    Stop,
    /// This stop string came up.
    Sequence(String),
    /// The bound of its length.
    Length,
    /// It calls tools.
    Calls,
}

/// One answer in tokens.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    /// Reasoning.
    pub reasoning: Vec<String>,
    /// Text.
    pub text: Vec<String>,
    /// Calls of tools.
    pub calls: Vec<Invocation>,
    /// Why it ended.
    pub finish: Finish,
}

impl Answer {
    /// Tokens of it all.
    pub(super) fn tokens(&self) -> u64 {
        let arguments: usize = self.calls.iter().map(|call| call.arguments.len()).sum();
        (self.reasoning.len() + self.text.len() + arguments) as u64
    }
}

/// All answers to a request.
pub(super) fn answers(ask: &Ask, name: &str, seed: u64) -> Vec<Answer> {
    let base = fold(fold(ask.prompt.hash, &seed.to_le_bytes()), &ask.seed.to_le_bytes());
    (0..ask.n as u64).map(|index| answer(ask, name, Draw::new(base.wrapping_add(index)))).collect()
}

fn answer(ask: &Ask, name: &str, mut draw: Draw) -> Answer {
    let most = ask.most.unwrap_or(MOST).min(MOST);
    let wanted = LEAST + usize::try_from(draw.below(SPREAD)).unwrap_or(0);
    let mut made =
        Answer { reasoning: Vec::new(), text: Vec::new(), calls: Vec::new(), finish: Finish::Stop };
    if ask.reasons {
        made.reasoning = text::reasoning(&mut draw, THOUGHT);
    }
    made.calls = tools::calls(&ask.tools, &ask.choice, ask.parallel, &ask.asked, &mut draw);
    if made.calls.is_empty() {
        let wanted = if ask.endless { most } else { wanted.max(ask.least) };
        made.text = written(ask, name, &mut draw, wanted);
        if let Some(stop) = cut_at_stop(&mut made.text, &ask.stops) {
            made.finish = Finish::Sequence(stop);
        }
    } else {
        made.finish = Finish::Calls;
    }
    shorten(&mut made, most);
    made
}

fn written(ask: &Ask, name: &str, draw: &mut Draw, wanted: usize) -> Vec<String> {
    match &ask.form {
        Form::Text => {
            let begun = ask.begun.as_deref().unwrap_or_default();
            let before = words(begun).len();
            let whole = text::answer(name, draw, wanted.saturating_add(if ask.endless { before } else { 0 }));
            if begun.is_empty() { whole } else { continued(&whole, begun, before, name) }
        }
        Form::Object => crumbs(&json!({ "simulated": true, "from": name }).to_string()),
        Form::Schema(schema) => crumbs(&schema::example(schema).to_string()),
    }
}

/// The rest of an answer that was begun: word for word if it is this provider's own, else as many words
/// fewer as it has already.
fn continued(whole: &[String], begun: &str, before: usize, name: &str) -> Vec<String> {
    let text = whole.concat();
    let rest = match text.strip_prefix(begun) {
        Some(rest) => words(rest),
        None => whole.iter().skip(before).cloned().collect(),
    };
    if rest.is_empty() { words(&format!(" (The simulation by {name} ends here.)")) } else { rest }
}

/// Cuts the text before the first stop string; tells which one it was.
fn cut_at_stop(text: &mut Vec<String>, stops: &[String]) -> Option<String> {
    let whole = text.concat();
    let found =
        stops.iter().filter(|stop| !stop.is_empty()).filter_map(|stop| Some((whole.find(stop)?, stop)));
    let (at, stop) = found.min_by_key(|(at, _)| *at)?;
    *text = words(whole.get(..at).unwrap_or_default());
    Some(stop.clone())
}

/// Bounds an answer to so many tokens, in the order they are said.
fn shorten(answer: &mut Answer, most: usize) {
    if answer.tokens() <= most as u64 {
        return;
    }
    let mut left = most;
    let mut keep = |tokens: &mut Vec<String>| {
        tokens.truncate(left);
        left -= tokens.len();
    };
    keep(&mut answer.reasoning);
    keep(&mut answer.text);
    answer.calls.iter_mut().for_each(|call| keep(&mut call.arguments));
    answer.calls.retain(|call| !call.arguments.is_empty());
    answer.finish = Finish::Length;
}
