//! Minimum and maximum sizes, and pairs of keys that contradict each other.

use super::super::raw::{Raw, Size, Span};
use super::super::units::{write_duration, write_size};
use super::Proof;
use super::key_path::Spot;
use penstock_batch::jsonl::HIGHEST_LINE;

impl Proof<'_> {
    pub fn bounds(&mut self, raw: &Raw, top: &Spot<'_>) {
        let (limits, spot) = (&raw.limits, top.key("limits"));
        self.least(limits.head, 1 << 10, &spot.key("head"));
        self.least(limits.target, 64, &spot.key("target"));
        self.least(limits.json_body, 512, &spot.key("json_body"));
        self.least(limits.response_buffer, 1 << 10, &spot.key("response_buffer"));
        let breaker = &raw.routing.breaker;
        let spot = top.key("routing").key("breaker");
        self.order(breaker.rest, ("rest_max", breaker.rest_max), "rest", &spot);
        let batches = &raw.batches;
        let line = top.key("batches").key("line");
        self.least(batches.line, 1 << 10, &line);
        self.most(batches.line, HIGHEST_LINE as u64, &line);
        self.order(
            batches.retry_first,
            ("retry_most", batches.retry_most),
            "retry_first",
            &top.key("batches"),
        );
    }

    /// Checks a lower limit, below which every request or every answer would be refused.
    fn least(&mut self, size: Size, least: u64, spot: &Spot<'_>) {
        if size.0 < least {
            let least = write_size(least);
            self.wrong(spot, format!("It must be at least {least}."), format!("Write \"{least}\" or more."));
        }
    }

    /// Checks an upper limit, above which a line is not read.
    fn most(&mut self, size: Size, most: u64, spot: &Spot<'_>) {
        if size.0 > most {
            let most = write_size(most);
            self.wrong(spot, format!("It must be at most {most}."), format!("Write \"{most}\" or less."));
        }
    }

    /// Checks that the initial value of a growing duration does not exceed its maximum.
    fn order(&mut self, first: Span, (most_key, most): (&str, Span), key: &str, spot: &Spot<'_>) {
        if first.0 > most.0 {
            let why = format!("It is longer than `{most_key}`, {}.", write_duration(most.0));
            self.wrong(&spot.key(key), why, format!("Shorten it, or lengthen `{most_key}`."));
        }
    }
}
