//! Splitting of text by a tokenizer's pattern.
//!
//! Guarantees: the pieces are those of the pattern, in order and without gaps. Patterns of the usual form
//! (`…|\s+(?!\S)|\s+`) run on a linear-time automaton, all others on a backtracking engine with a step limit; beyond
//! the limit, the rest of the text is one piece.

use crate::budget::CountHalt;
use fancy_regex::Regex as Backtracking;
use regex_automata::meta::Regex as Automaton;
use regex_automata::{Anchored, Input};

/// End of nearly every published pattern: the last character of a run of white space belongs to the following word.
const TRAILING: &str = r"|\s+(?!\S)|\s+";

/// Compiled pattern. The default matches nothing: the entire text is one piece.
#[derive(Clone, Default)]
pub(crate) struct SplitPattern(PatternEngine);

#[derive(Clone, Default)]
enum PatternEngine {
    /// No pattern: nothing matches, so the entire text is one piece.
    #[default]
    None,
    /// Automaton with two patterns, for an expression that ends in [`TRAILING`]: all alternatives before it, and
    /// `\s+`.
    Words(Automaton),
    /// Pattern without look-around.
    Plain(Automaton),
    /// Any other regular expression, which runs on a backtracking engine.
    Other(Box<Backtracking>),
}

impl SplitPattern {
    /// Compiles a regular expression, or returns the reason why it is invalid.
    pub(crate) fn new(pattern: &str) -> Result<Self, String> {
        if let Some(head) = pattern.strip_suffix(TRAILING)
            && let Ok(automaton) = Automaton::new_many(&[head, r"\s+"])
        {
            return Ok(Self(PatternEngine::Words(automaton)));
        }
        if let Ok(automaton) = Automaton::new(pattern) {
            return Ok(Self(PatternEngine::Plain(automaton)));
        }
        match Backtracking::new(pattern) {
            Ok(regex) => Ok(Self(PatternEngine::Other(Box::new(regex)))),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Creates a regular expression that matches exactly the given text.
    pub(crate) fn from_literal(text: &str) -> Result<Self, String> {
        let escaped = fancy_regex::escape(text);
        Automaton::new(&escaped)
            .map(|automaton| Self(PatternEngine::Plain(automaton)))
            .map_err(|error| error.to_string())
    }

    /// Calls `each` with every piece in order; the flag is true if the pattern matched it.
    pub(crate) fn for_each_piece<'t>(
        &self,
        text: &'t str,
        mut each: impl FnMut(&'t str, bool) -> Result<(), CountHalt>,
    ) -> Result<(), CountHalt> {
        let mut done = 0;
        let mut found = |from: usize, to: usize| {
            if from > done {
                each(text.get(done..from).unwrap_or_default(), false)?;
            }
            if to > from {
                each(text.get(from..to).unwrap_or_default(), true)?;
            }
            done = to.max(done);
            Ok(())
        };
        match &self.0 {
            PatternEngine::None => {}
            PatternEngine::Words(automaton) => words(automaton, text, &mut found)?,
            PatternEngine::Plain(automaton) => {
                for hit in automaton.find_iter(text) {
                    found(hit.start(), hit.end())?;
                }
            }
            PatternEngine::Other(regex) => {
                for hit in regex.find_iter(text) {
                    let Ok(hit) = hit else { break };
                    found(hit.start(), hit.end())?;
                }
            }
        }
        if done < text.len() { each(text.get(done..).unwrap_or_default(), false) } else { Ok(()) }
    }
}

fn words(
    automaton: &Automaton,
    text: &str,
    found: &mut impl FnMut(usize, usize) -> Result<(), CountHalt>,
) -> Result<(), CountHalt> {
    let mut at = 0;
    while at < text.len() {
        let here = Input::new(text).range(at..).anchored(Anchored::Yes);
        let hit = automaton.find(here).or_else(|| automaton.find(Input::new(text).range(at..)));
        let Some(hit) = hit.filter(|hit| !hit.is_empty()) else { return Ok(()) };
        let mut end = hit.end();
        // If a run has at least two white-space characters, its last one belongs to the following word.
        if hit.pattern().as_usize() == 1 && end < text.len() {
            let last = text.get(hit.start()..end).and_then(|space| space.chars().next_back());
            let shorter = end - last.map_or(0, char::len_utf8);
            if shorter > hit.start() {
                end = shorter;
            }
        }
        found(hit.start(), end)?;
        at = end;
    }
    Ok(())
}
