//! Size of a prompt: number of simulated tokens, number of cached tokens, and a hash that determines the answer.

use super::text::fold_hash;
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::HashSet;

/// Number of tokens that count for the markers of a message.
const MARKER_TOKENS: u64 = 4;
/// Number of bytes that count as one simulated token.
const TOKEN: u64 = 4;
/// Number of tokens that count for an image, an audio clip or a file.
const MEDIUM: u64 = 256;
/// Block size of the prefix cache in tokens, as in vLLM.
const BLOCK: u64 = 16;
/// Maximum number of stored prefixes.
const REMEMBERED: usize = 1 << 16;

/// Token counts and hash of a prompt.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PromptSize {
    /// Total number of tokens.
    pub tokens: u64,
    /// Number of tokens of the prompt that are found in the prefix cache.
    pub cached: u64,
    /// Hash of the messages and tools.
    pub hash: u64,
}

/// Returns the number of tokens of a text: a quarter of its bytes, rounded up.
pub(super) fn token_count(text: &str) -> u64 {
    (text.len() as u64).div_ceil(TOKEN)
}

/// Prefix cache: the prefixes of earlier requests.
#[derive(Debug, Default)]
pub(super) struct PrefixCache {
    known: Mutex<HashSet<u64>>,
}

impl PrefixCache {
    /// Counts and hashes tools and messages, in this order; looks up their prefixes in the cache and stores them.
    pub(super) fn measure(&self, tools: &[Value], turns: &[&Value]) -> PromptSize {
        let mut prompt = PromptSize::default();
        let mut known = self.known.lock();
        if known.len() > REMEMBERED {
            known.clear();
        }
        for tool in tools {
            add(tool, &mut prompt);
        }
        let mut warm = true;
        for turn in turns {
            prompt.tokens += MARKER_TOKENS;
            add(turn, &mut prompt);
            warm = !known.insert(prompt.hash) && warm;
            if warm {
                prompt.cached = prompt.tokens;
            }
        }
        // As in vLLM, the last token of a prompt never counts as cached.
        prompt.cached = prompt.cached.min(prompt.tokens.saturating_sub(1)) / BLOCK * BLOCK;
        prompt
    }
}

/// Adds one value: only its strings count as tokens, but its structure affects the hash too.
fn add(value: &Value, prompt: &mut PromptSize) {
    match value {
        Value::Null => {}
        Value::Bool(_) | Value::Number(_) => {
            prompt.hash = fold_hash(prompt.hash, value.to_string().as_bytes())
        }
        Value::String(text) => {
            prompt.hash = fold_hash(prompt.hash, text.as_bytes());
            prompt.tokens += if text.starts_with("data:") { MEDIUM } else { token_count(text) };
        }
        Value::Array(all) => all.iter().for_each(|one| add(one, prompt)),
        Value::Object(all) => {
            for (name, one) in all {
                prompt.hash = fold_hash(prompt.hash, name.as_bytes());
                match (name.as_str(), one) {
                    // Types, roles and ids belong to the markers of the message, so they do not count as tokens. A
                    // string `data` is base64; it counts as a medium, whatever its length.
                    ("type" | "role" | "id" | "data", Value::String(text)) => {
                        prompt.hash = fold_hash(prompt.hash, text.as_bytes());
                        prompt.tokens += if name == "data" { MEDIUM } else { 0 };
                    }
                    // The arguments of a call (`input`) count as their JSON text, as in the chat dialect, which sends
                    // them as text.
                    ("input", Value::Object(_)) => add(&Value::String(one.to_string()), prompt),
                    _ => add(one, prompt),
                }
            }
        }
    }
}
