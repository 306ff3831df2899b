//! Usage as this dialect counts it, turned into the house's way.

use crate::scan;
use penstock_contract::{Stated, Usage};

/// What was said so far; a later number replaces an earlier one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Count {
    input: Option<u64>,
    created: u64,
    read: u64,
    output: Option<u64>,
    thinking: u64,
}

impl Count {
    /// Reads a usage object; what is absent, null or no whole number changes nothing.
    pub(super) fn add(&mut self, usage: &[u8]) {
        for (key, value) in scan::members(usage) {
            let said = || scan::number(value).filter(|said| *said <= Usage::MOST);
            match &*key {
                "input_tokens" => self.input = said().or(self.input),
                "cache_creation_input_tokens" => self.created = said().unwrap_or(self.created),
                "cache_read_input_tokens" => self.read = said().unwrap_or(self.read),
                "output_tokens" => self.output = said().or(self.output),
                "output_tokens_details" => {
                    let thinking = scan::member(value, "thinking_tokens").and_then(scan::number);
                    self.thinking = thinking.unwrap_or(self.thinking);
                }
                _ => {}
            }
        }
    }

    /// Reads the usage of a stream's first event. Its output is what was generated till then, a placeholder, and so is
    /// an input of nothing: an answer that states no other is the gateway's to count.
    pub(super) fn open(&mut self, usage: &[u8]) {
        self.add(usage);
        (self.output, self.thinking) = (None, 0);
        if self.created.saturating_add(self.read) == 0 {
            self.input = self.input.filter(|input| *input > 0);
        }
    }

    /// Input with cached tokens in it: what was read from the cache and what was
    /// written to it. `None` where no number of either half was said.
    pub(super) fn stated(&self) -> Option<Stated> {
        let cached = self.created.saturating_add(self.read);
        let stated = Stated {
            input: self.input.map(|input| input.saturating_add(cached)),
            cached: self.read,
            output: self.output,
            reasoning: self.thinking,
        };
        stated.some()
    }
}
