//! Minimum and maximum sizes, and pairs of keys that contradict each other.

use super::super::raw::{ByteSize, ConfigFile, NonZeroDuration};
use super::super::units::{format_duration, format_size};
use super::SettingsResolver;
use super::key_path::KeyPath;
use penstock_batch::jsonl::MAX_LINE_LIMIT_BYTES;

impl SettingsResolver<'_> {
    /// Checks that sizes and durations are not below their minimum or above their maximum.
    pub fn check_value_ranges(&mut self, raw: &ConfigFile, top: &KeyPath<'_>) {
        let (limits, spot) = (&raw.limits, top.child("limits"));
        self.check_minimum(limits.head, 1 << 10, &spot.child("head"));
        self.check_minimum(limits.target, 64, &spot.child("target"));
        self.check_minimum(limits.json_body, 512, &spot.child("json_body"));
        self.check_minimum(limits.response_buffer, 1 << 10, &spot.child("response_buffer"));
        let breaker = &raw.routing.breaker;
        let spot = top.child("routing").child("breaker");
        self.check_not_above(breaker.rest, ("rest_max", breaker.rest_max), "rest", &spot);
        let batches = &raw.batches;
        let line = top.child("batches").child("line");
        self.check_minimum(batches.line, 1 << 10, &line);
        self.check_maximum(batches.line, MAX_LINE_LIMIT_BYTES as u64, &line);
        self.check_not_above(
            batches.retry_first,
            ("retry_most", batches.retry_most),
            "retry_first",
            &top.child("batches"),
        );
    }

    /// Checks that a size limit is at least `least`: a lower limit would refuse every request or every answer.
    fn check_minimum(&mut self, size: ByteSize, least: u64, spot: &KeyPath<'_>) {
        if size.0 < least {
            let least = format_size(least);
            self.report_mistake(
                spot,
                format!("It must be at least {least}."),
                format!("Write \"{least}\" or more."),
            );
        }
    }

    /// Checks that a size limit is at most `max`: a batch line longer than `max` cannot be read.
    fn check_maximum(&mut self, size: ByteSize, max: u64, spot: &KeyPath<'_>) {
        if size.0 > max {
            let max = format_size(max);
            self.report_mistake(
                spot,
                format!("It must be at most {max}."),
                format!("Write \"{max}\" or less."),
            );
        }
    }

    /// Checks that the initial value of a growing duration does not exceed its maximum.
    fn check_not_above(
        &mut self,
        first: NonZeroDuration,
        (most_key, most): (&str, NonZeroDuration),
        key: &str,
        spot: &KeyPath<'_>,
    ) {
        if first.0 > most.0 {
            let why = format!("It is longer than `{most_key}`, {}.", format_duration(most.0));
            self.report_mistake(&spot.child(key), why, format!("Shorten it, or lengthen `{most_key}`."));
        }
    }
}
