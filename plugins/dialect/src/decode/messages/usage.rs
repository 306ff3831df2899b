//! Usage as this dialect counts it, turned into the house's way.

use crate::scan;
use penstock_contract::{Usage, UsageSource};

/// What was said so far; a later number replaces an earlier one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Count {
    input: u64,
    created: u64,
    read: u64,
    output: u64,
    thinking: u64,
}

impl Count {
    /// Reads a usage object; absent and null members change nothing.
    pub(super) fn add(&mut self, usage: &[u8]) {
        for (key, value) in scan::members(usage) {
            let place = match &*key {
                "input_tokens" => &mut self.input,
                "cache_creation_input_tokens" => &mut self.created,
                "cache_read_input_tokens" => &mut self.read,
                "output_tokens" => &mut self.output,
                "output_tokens_details" => {
                    let thinking = scan::member(value, "thinking_tokens").and_then(scan::number);
                    self.thinking = thinking.unwrap_or(self.thinking);
                    continue;
                }
                _ => continue,
            };
            *place = scan::number(value).filter(|said| *said <= Usage::MOST).unwrap_or(*place);
        }
    }

    /// Input with cached tokens in it: what was read from the cache and what was written to it.
    pub(super) fn usage(&self) -> Usage {
        Usage {
            input: self.input.saturating_add(self.created).saturating_add(self.read),
            cached: self.read,
            output: self.output,
            reasoning: self.thinking.min(self.output),
            source: UsageSource::Provider,
        }
    }
}
