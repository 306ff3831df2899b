//! What a prompt weighs: simulated tokens, a hash that decides the answer, and the
//! part of it that was asked before.

use super::text::fold;
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::HashSet;

/// Tokens of a turn's own markers.
const TURN: u64 = 4;
/// Bytes of a simulated token.
const TOKEN: u64 = 4;
/// Tokens of a picture, a sound or a file.
const MEDIUM: u64 = 256;
/// Prefixes are cached in blocks of so many tokens, as vLLM does.
const BLOCK: u64 = 16;
/// Remembered prefixes.
const REMEMBERED: usize = 1 << 16;

/// A weighed prompt.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Prompt {
    /// Tokens of it all.
    pub tokens: u64,
    /// Tokens of it that were asked before.
    pub cached: u64,
    /// The same for the same turns and tools.
    pub hash: u64,
}

/// Tokens of a text: a quarter of its bytes, rounded up.
pub(super) fn tokens(text: &str) -> u64 {
    (text.len() as u64).div_ceil(TOKEN)
}

/// Prefixes that were asked before.
#[derive(Debug, Default)]
pub(super) struct Memory {
    known: Mutex<HashSet<u64>>,
}

impl Memory {
    /// Weighs tools and turns, in this order, and remembers them.
    pub(super) fn weigh(&self, tools: &[Value], turns: &[&Value]) -> Prompt {
        let mut prompt = Prompt::default();
        let mut known = self.known.lock();
        if known.len() > REMEMBERED {
            known.clear();
        }
        for tool in tools {
            add(tool, &mut prompt);
        }
        let mut warm = true;
        for turn in turns {
            prompt.tokens += TURN;
            add(turn, &mut prompt);
            warm = !known.insert(prompt.hash) && warm;
            if warm {
                prompt.cached = prompt.tokens;
            }
        }
        // The last token is always computed.
        prompt.cached = prompt.cached.min(prompt.tokens.saturating_sub(1)) / BLOCK * BLOCK;
        prompt
    }
}

/// Adds one value: its strings count, its shape decides the hash only.
fn add(value: &Value, prompt: &mut Prompt) {
    match value {
        Value::Null => {}
        Value::Bool(_) | Value::Number(_) => prompt.hash = fold(prompt.hash, value.to_string().as_bytes()),
        Value::String(text) => {
            prompt.hash = fold(prompt.hash, text.as_bytes());
            prompt.tokens += if text.starts_with("data:") { MEDIUM } else { tokens(text) };
        }
        Value::Array(all) => all.iter().for_each(|one| add(one, prompt)),
        Value::Object(all) => {
            for (name, one) in all {
                prompt.hash = fold(prompt.hash, name.as_bytes());
                match (name.as_str(), one) {
                    // Names of kinds and of roles belong to the turn's markers; the rest is base64.
                    ("type" | "role" | "id" | "data", Value::String(text)) => {
                        prompt.hash = fold(prompt.hash, text.as_bytes());
                        prompt.tokens += if name == "data" { MEDIUM } else { 0 };
                    }
                    // The arguments of a call, which the other dialect writes as a text.
                    ("input", Value::Object(_)) => add(&Value::String(one.to_string()), prompt),
                    _ => add(one, prompt),
                }
            }
        }
    }
}
