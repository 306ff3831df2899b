//! Conversion of this dialect's token usage to the gateway's.

use crate::scan;
use penstock_contract::{Stated, Usage};

/// Token counts so far; a later number replaces an earlier one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Count {
    input: Option<u64>,
    created: u64,
    read: u64,
    output: Option<u64>,
    thinking: u64,
}

impl Count {
    /// Merges a usage object; absent and null members and those that are no integers are ignored.
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

    /// Merges the usage of a stream's first event. Its output counts the tokens so far and is a placeholder, and so is
    /// an input of 0: without other numbers the gateway counts the answer itself.
    pub(super) fn open(&mut self, usage: &[u8]) {
        self.add(usage);
        (self.output, self.thinking) = (None, 0);
        if self.created.saturating_add(self.read) == 0 {
            self.input = self.input.filter(|input| *input > 0);
        }
    }

    /// Returns the usage, whose input includes the cached tokens, both those read and those written. Returns `None` if
    /// neither input nor output was reported.
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
