//! Simulated answers as lists of tokens. They depend only on the provider's name, its seed and the request.

use super::parsed_request::{AnswerFormat, ParsedRequest};
use super::schema;
use super::text::{self, SeededRng, fold_hash, split_chunks, split_words};
use super::tools::{self, ToolInvocation};
use serde_json::json;

/// Number of tokens of an answer without a limit: `LEAST` plus a pseudo-random number less than `SPREAD`.
const LEAST: usize = 24;
const SPREAD: u64 = 72;
/// Number of reasoning tokens.
const THOUGHT: usize = 16;
/// Maximum number of tokens of one answer.
const MOST: usize = 1 << 18;

/// Finish reason of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SimulatedFinish {
    /// End of the text.
    Stop,
    /// Stop string that occurred.
    Sequence(String),
    /// Limit on the length.
    Length,
    /// Tool calls.
    Calls,
}

/// Tokens of one answer.
#[derive(Clone, Debug)]
pub(super) struct SimulatedAnswer {
    /// Reasoning tokens.
    pub reasoning: Vec<String>,
    /// Text tokens.
    pub text: Vec<String>,
    /// Tool calls.
    pub calls: Vec<ToolInvocation>,
    /// Finish reason.
    pub finish: SimulatedFinish,
}

impl SimulatedAnswer {
    /// Returns the total number of tokens.
    pub(super) fn token_count(&self) -> u64 {
        let arguments: usize = self.calls.iter().map(|call| call.arguments.len()).sum();
        (self.reasoning.len() + self.text.len() + arguments) as u64
    }
}

/// Returns the `n` answers to a request.
pub(super) fn answers(ask: &ParsedRequest, name: &str, seed: u64) -> Vec<SimulatedAnswer> {
    let base = fold_hash(fold_hash(ask.prompt.hash, &seed.to_le_bytes()), &ask.seed.to_le_bytes());
    (0..ask.n as u64).map(|index| answer(ask, name, SeededRng::new(base.wrapping_add(index)))).collect()
}

fn answer(ask: &ParsedRequest, name: &str, mut draw: SeededRng) -> SimulatedAnswer {
    let most = ask.max_tokens.unwrap_or(MOST).min(MOST);
    let wanted = LEAST + usize::try_from(draw.next_below(SPREAD)).unwrap_or(0);
    let mut made = SimulatedAnswer {
        reasoning: Vec::new(),
        text: Vec::new(),
        calls: Vec::new(),
        finish: SimulatedFinish::Stop,
    };
    if ask.reasoning {
        made.reasoning = text::reasoning(&mut draw, THOUGHT);
    }
    made.calls = tools::tool_calls(&ask.tools, &ask.choice, ask.parallel, &ask.asked, &mut draw);
    if made.calls.is_empty() {
        let wanted = if ask.ignore_eos { most } else { wanted.max(ask.min_tokens) };
        made.text = answer_text(ask, name, &mut draw, wanted);
        if let Some(stop) = cut_at_stop(&mut made.text, &ask.stops) {
            made.finish = SimulatedFinish::Sequence(stop);
        }
    } else {
        made.finish = SimulatedFinish::Calls;
    }
    truncate(&mut made, most);
    made
}

fn answer_text(ask: &ParsedRequest, name: &str, draw: &mut SeededRng, wanted: usize) -> Vec<String> {
    match &ask.form {
        AnswerFormat::Text => {
            let begun = ask.prefill.as_deref().unwrap_or_default();
            let before = split_words(begun).len();
            let whole =
                text::answer(name, draw, wanted.saturating_add(if ask.ignore_eos { before } else { 0 }));
            if begun.is_empty() { whole } else { continuation(&whole, begun, before, name) }
        }
        AnswerFormat::Object => split_chunks(&json!({ "simulated": true, "from": name }).to_string()),
        AnswerFormat::Exact(text) => split_words(text),
        AnswerFormat::Schema(schema) => split_chunks(&schema::example(schema).to_string()),
    }
}

/// Returns the continuation of an answer whose beginning the request contains. If this provider wrote the beginning, it
/// is the exact rest of the answer; otherwise it is the answer without its first `before` words. If nothing is left, it
/// is a sentence that says so.
fn continuation(whole: &[String], begun: &str, before: usize, name: &str) -> Vec<String> {
    let text = whole.concat();
    let rest = match text.strip_prefix(begun) {
        Some(rest) => split_words(rest),
        None => whole.iter().skip(before).cloned().collect(),
    };
    if rest.is_empty() { split_words(&format!(" (The simulation by {name} ends here.)")) } else { rest }
}

/// Cuts the text before the first stop string that occurs in it; returns that stop string.
fn cut_at_stop(text: &mut Vec<String>, stops: &[String]) -> Option<String> {
    let whole = text.concat();
    let found =
        stops.iter().filter(|stop| !stop.is_empty()).filter_map(|stop| Some((whole.find(stop)?, stop)));
    let (at, stop) = found.min_by_key(|(at, _)| *at)?;
    *text = split_words(whole.get(..at).unwrap_or_default());
    Some(stop.clone())
}

/// Truncates an answer to `most` tokens: reasoning, text and calls, in this order.
fn truncate(answer: &mut SimulatedAnswer, most: usize) {
    if answer.token_count() <= most as u64 {
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
    answer.finish = SimulatedFinish::Length;
}
