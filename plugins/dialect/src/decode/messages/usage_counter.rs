//! Conversion of the token usage of the messages dialect to that of the gateway.

use crate::json_cursor;
use penstock_core::ReportedUsage;
use penstock_http_wire::usage;

/// Token counts so far; a later number replaces an earlier one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct UsageCounter {
    input: Option<u64>,
    cache_creation: u64,
    cache_read: u64,
    output: Option<u64>,
    thinking: u64,
}

impl UsageCounter {
    /// Merges a usage object; absent and null members are ignored.
    pub(super) fn merge(&mut self, object: &[u8]) {
        for (key, value) in json_cursor::members(object) {
            let count = || usage::parse_token_count(value);
            match &*key {
                "input_tokens" => self.input = count().or(self.input),
                "cache_creation_input_tokens" => self.cache_creation = count().unwrap_or(self.cache_creation),
                "cache_read_input_tokens" => self.cache_read = count().unwrap_or(self.cache_read),
                "output_tokens" => self.output = count().or(self.output),
                "output_tokens_details" => {
                    let thinking = json_cursor::member_value(value, "thinking_tokens")
                        .and_then(json_cursor::parse_integer);
                    self.thinking = thinking.unwrap_or(self.thinking);
                }
                _ => {}
            }
        }
    }

    /// Merges the usage of the `message_start` event. Its output tokens are only a placeholder and are ignored. An
    /// input of 0 without cached tokens is ignored too. If no later event has these counts, the gateway estimates
    /// them.
    pub(super) fn merge_start(&mut self, usage: &[u8]) {
        self.merge(usage);
        (self.output, self.thinking) = (None, 0);
        if self.cache_creation.saturating_add(self.cache_read) == 0 {
            self.input = self.input.filter(|input| *input > 0);
        }
    }

    /// Returns the usage, whose input includes the cached tokens, both those read and those written. Returns `None` if
    /// neither input nor output was reported.
    pub(super) fn reported_usage(&self) -> Option<ReportedUsage> {
        let cached = self.cache_creation.saturating_add(self.cache_read);
        let stated = ReportedUsage {
            input: self.input.map(|input| input.saturating_add(cached)),
            cached: self.cache_read,
            output: self.output,
            reasoning: self.thinking,
        };
        stated.non_empty()
    }
}
